/* SPDX-License-Identifier: Apache-2.0 */
/* The control process of a switch in the kernel: joins the rack, loads the program of its design, attaches it, and takes it down.
 * The program learns by itself where the rack's machines are. */
#include "cli/switch.h"
#include "cli/switch_care.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#define JOIN_NS (30 * NS_PER_S)

static_assert((int)PLANE_HERE == (int)COORD_HERE, "the kernel's side knows it by number");

static const struct {
    const char *design, *program;
} programs[] = {{"fisslock", "fission"}, {"fisslock-stay", "fission"}, {"fisslock-racks", "fission"}, {"netlock", "netlock"}};

static const char *program_of(const char *design)
{
    for (size_t i = 0; i < countof(programs); i++)
        if (!strcmp(programs[i].design, design))
            return programs[i].program;
    return NULL;
}

static int say(int status)
{
    return cli_say("switch", status, "%s", explained());
}

/* ---- attaching ---- */

struct attaching {
    struct plane *plane;
    enum plane_mode want;
};

static int add_port(const char *device, struct attaching *a)
{
    return plane_port(a->plane, device) ? say(EXIT_UNAVAILABLE) : 0;
}

static int attach_one(const char *device, struct attaching *a)
{
    enum plane_mode got;
    if (plane_attach(a->plane, device, a->want, &got))
        return say(EXIT_UNAVAILABLE);
    printf("%s: attached in %s mode\n", device, plane_mode_name(got));
    return 0;
}

/* For each of a list with commas, until one returns nonzero. */
static int each_device(const char *list, int (*fn)(const char *device, struct attaching *a), struct attaching *a)
{
    char *copy = strdup(list), *rest = copy;
    int status = copy ? 0 : cli_say("switch", EXIT_UNAVAILABLE, "out of memory");
    for (char *item; !status && (item = strsep(&rest, ","));)
        status = fn(item, a);
    free(copy);
    return status;
}

int switch_attach_all(struct plane *p, const struct switch_options *o)
{
    struct attaching a = {.plane = p};
    char out[2 * IFNAMSIZ];
    if (o->mode)
        a.want = !strcmp(o->mode, "native") ? PLANE_NATIVE : PLANE_GENERIC;
    snprintf(out, sizeof out, "%s", o->loop ? o->loop : o->devices);
    char *in = strchr(out, ',');
    if (in)
        *in++ = 0;
    if (!o->loop && in)
        return cli_say("switch", EXIT_USAGE, "a switch with several ports needs --loop: packets that are doubled come back by it");
    if (o->loop && !in)
        return cli_say("switch", EXIT_USAGE, "--loop has two ends, with a comma between them");
    if (plane_double_by(p, out, in, a.want))
        return say(EXIT_UNAVAILABLE);
    int status = each_device(o->devices, add_port, &a);
    return status ? status : each_device(o->devices, attach_one, &a);
}

/* ---- loading ---- */

/* Says what it takes before it is taken. */
int switch_check_memory(const char *what, uint64_t need)
{
    struct sysinfo s;
    uint64_t left = sysinfo(&s) ? UINT64_MAX : ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    printf("%s take %" PRIu64 " MiB of kernel memory, of which %" PRIu64 " MiB are free\n", what, need >> 20, left >> 20);
    fflush(stdout);
    return need > left ? cli_say("switch", EXIT_UNAVAILABLE, "that is more than there is") : 0;
}

static int check_locks(const char *program, uint64_t locks)
{
    char what[48];
    snprintf(what, sizeof what, "%" PRIu64 " locks", locks);
    if (locks > UINT32_MAX)
        return cli_say("switch", EXIT_UNAVAILABLE, "a map of the kernel has fewer than 2^32 locks");
    return switch_check_memory(what, plane_lock_bytes(program, locks));
}

int switch_open_plane(const struct switch_options *o, const struct coord_welcome *w, const char *program, bool fresh,
                      const struct netlock_memory *memory, struct plane **out)
{
    const struct rack_config *c = &w->config;
    uint32_t highest = c->machines;
    uint16_t rack = c->racks ? w->packet.head.to.port : 0;
    for (unsigned i = 0; i < c->servers; i++)
        highest = c->server[i] > highest ? c->server[i] : highest;
    const struct plane_options po = {
        .program = program,
        .settings = {.port = htons(o->at.port),
                     .machines = c->machines,
                     .space = c->racks ? rack_space_id(c, rack) : c->space,
                     .locks = c->locks,
                     .options = (uint32_t)c->options,
                     .lease_ns = c->lease_ns,
                     .racks = c->racks,
                     .rack = rack,
                     .ip = c->racks ? o->at.ip : 0},
        .pins = o->pins,
        .fresh = fresh,
        .life = w->packet.head.generation,
        .epoch = c->lease_ns ? w->packet.head.generation : 0, /* as decider.c has it */
        .closed = !o->fresh,                                  /* until whatever was granted before has run out */
        .locks_max = memory ? 0 : (uint32_t)c->locks,
        .hosts_max = highest,
        .netlock = memory,
    };
    int rc = plane_open(&po, out);
    if (rc)
        return cli_say("switch", EXIT_UNAVAILABLE, "%s%s", explained(), rc == -EEXIST ? "; --fresh begins anew" : "");
    const volatile struct plane_live *live = plane_live(*out);
    printf("%s, life %" PRIu32 "; the verifier went through %" PRIu32 " instructions\n",
           plane_found(*out) ? "goes on with the locks as they were" : "all locks are free", live->life, plane_verified(*out));
    return 0;
}

static int join_rack(const struct switch_options *o, struct udp *udp, struct coord_welcome *w, struct join_params *j)
{
    uint64_t stamp;
    int rc = udp_open(udp, o->at);
    if (rc)
        return cli_say("switch", EXIT_UNAVAILABLE, "cannot listen: %s", strerror(-rc));
    *j = (struct join_params){.coordinator = o->coordinator,
                              .role = COORD_SWITCH,
                              .space = o->space,
                              .at = udp->at,
                              .rack = o->rack,
                              .nonce = world_random(&world_real) | 1,
                              .deadline = world_now(&world_real) + JOIN_NS};
    rc = join(udp, j, w, &stamp);
    if (rc)
        udp_close(udp);
    return !rc ? 0
               : cli_say("switch", EXIT_UNAVAILABLE, "the coordinator %s",
                         rc == -ETIMEDOUT ? "does not answer"
                         : rc == -EBUSY   ? "has another switch, of which it has heard less than a lease ago"
                         : rc == -EINVAL  ? "has fewer racks in that space"
                         : rc == -EAGAIN  ? "cannot have a switch yet: lock servers are missing, or a lease has to pass"
                                          : "has no such space, or no use for a switch");
}

void switch_print_end(const struct plane *p)
{
    struct plane_counters c;
    if (!plane_count(p, &c))
        printf("ended: %" PRIu64 " answered, %" PRIu64 " sent on, %" PRIu64 " doubled, %" PRIu64 " absorbed, %" PRIu64
               " dropped, %" PRIu64 " passed\n",
               c.verdict[PLANE_ANSWERED], c.verdict[PLANE_SENT], c.verdict[PLANE_DOUBLED], c.verdict[PLANE_ABSORBED],
               c.verdict[PLANE_DROPPED], c.verdict[PLANE_PASSED]);
}

/* State that was lost is told anew by the hosts; until then nothing is decided. The program is attached when it has everything that
 * it tells them. */
static int serve(struct plane *p, const struct switch_options *o, struct udp *udp, const struct coord_welcome *w,
                 const struct join_params *j)
{
    struct care *c = calloc(1, sizeof *c);
    if (!c)
        return cli_say("switch", EXIT_UNAVAILABLE, "out of memory");
    int rc = care_begin(c, p, udp, w, j);
    int status =
        rc ? cli_say("switch", EXIT_UNAVAILABLE, "cannot look after the program: %s", strerror(-rc)) : switch_attach_all(p, o);
    if (status) {
        free(c);
        return status;
    }
    if (plane_live(p)->closed)
        printf("closed until hosts have told what they hold, or their leases are over\n");
    printf("switch of space '%s' is ready\n", o->space);
    fflush(stdout);
    while (!*o->stop)
        if (care_round(c)) {
            printf("open; %" PRIu64 " locks are held from before\n", c->rebuild.held);
            fflush(stdout);
        }
    free(c);
    return 0;
}

static int run(const struct switch_options *o, struct udp *udp, const struct coord_welcome *w, const struct join_params *j)
{
    struct plane *p = NULL;
    const char *program = program_of(w->design);
    if (!program)
        return cli_say("switch", EXIT_UNAVAILABLE, "no program for the kernel decides for the design '%s'; --soft may", w->design);
    int status = check_locks(program, w->config.locks);
    if (!status)
        status = switch_open_plane(o, w, program, o->fresh, NULL, &p);
    if (status)
        return status;
    status = serve(p, o, udp, w, j);
    if (!status)
        switch_print_end(p);
    plane_close(p, o->remove || !o->pins ? PLANE_REMOVE : PLANE_DETACH);
    return status;
}

int switch_xdp(const struct switch_options *o)
{
    struct coord_welcome w = {0};
    struct udp udp = {.fd = -1};
    struct join_params j;
    if (plane_missing())
        return cli_say("switch", EXIT_UNAVAILABLE, "%s", plane_missing());
    if (o->mode && strcmp(o->mode, "native") != 0 && strcmp(o->mode, "generic") != 0)
        return cli_say("switch", EXIT_USAGE, "the mode is native or generic, not '%s'", o->mode);
    int status = join_rack(o, &udp, &w, &j);
    if (status)
        return status;
    if (o->design && strcmp(o->design, w.design) != 0)
        status = cli_say("switch", EXIT_UNAVAILABLE, "the space '%s' has the design '%s', not '%s'", o->space, w.design, o->design);
    else if (o->locks && o->locks != w.config.locks)
        status = cli_say("switch", EXIT_UNAVAILABLE, "the space '%s' has %" PRIu64 " locks, not %" PRIu64, o->space, w.config.locks,
                         o->locks);
    else if (w.config.racks && !program_of(w.design))
        status = cli_say("switch", EXIT_UNAVAILABLE,
                         "locks that the design '%s' divides among switches are decided in software: --soft", w.design);
    else if (o->rack && !w.config.racks)
        status = cli_say("switch", EXIT_UNAVAILABLE, "--rack: the space '%s' has one", o->space);
    else
        status = (o->alloc || o->levels_seen) && strcmp(w.design, CLI_ALLOC_DESIGN)
                     ? cli_say("switch", EXIT_UNAVAILABLE, CLI_ALLOC_OTHER, w.design)
                 : !strcmp(w.design, "netlock") ? switch_netlock(o, &udp, &w, &j)
                                                : run(o, &udp, &w, &j);
    udp_close(&udp);
    return status;
}
