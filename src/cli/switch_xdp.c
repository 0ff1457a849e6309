/* The control process of a switch in the kernel: loads it, attaches it, finds out where the rack's machines are, and takes it down.
 */
#include "cli/switch.h"
#include "dataplane/xdp/loader.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MACHINES_MAX 4096 /* of one rack; an order of magnitude more than ports */
#define LOOK_MS 100       /* between looks for machines that are not known yet */
#define LOOK_AGAIN_MS 5000
#define DISCARD_PORT 9
#define LIFE_MAX 0xffff /* of a token's 64 bits 16 are left for it */

struct machine {
    struct in_addr address;
    uint32_t ifindex;
    uint16_t mac[3];
    bool known;
};

static struct machine machines[MACHINES_MAX + 1];
static unsigned machine_count;

static const struct {
    const char *design, *program;
} programs[] = {{"fisslock", "fission"}, {"srvlock", "relay"}, {"parlock", "relay"}};

/* ---- what was asked for ---- */

/* Calls fn for each of a list with commas. */
static int each_item(const char *list, int (*fn)(char *item, void *ctx), void *ctx)
{
    char *copy = strdup(list), *rest = copy;
    int rc = copy ? 0 : -ENOMEM;
    for (char *item; !rc && (item = strsep(&rest, ","));)
        rc = fn(item, ctx);
    free(copy);
    return rc;
}

static int add_machine(char *item, void *ctx)
{
    char *device = strchr(item, '@');
    if (device)
        *device++ = 0;
    struct machine m = {.ifindex = if_nametoindex(device ? device : (const char *)ctx)};
    if (!inet_aton(item, &m.address) || !m.ifindex || machine_count == MACHINES_MAX)
        return cli_say("switch", EXIT_USAGE, "'%s%s%s' is no address of a machine", item, device ? "@" : "", device ? device : "");
    machines[++machine_count] = m;
    return 0;
}

/* ---- where machines are ---- */

/* Whatever it is, a packet makes the kernel ask for the Ethernet address. */
static void nudge(int socket_fd, const struct machine *m)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(DISCARD_PORT), .sin_addr = m->address};
    (void)!sendto(socket_fd, "", 1, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static bool read_mac(const char *text, uint16_t out[3])
{
    unsigned b[6];
    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) != 6)
        return false;
    for (unsigned i = 0; i < 3; i++)
        out[i] = htons((uint16_t)(b[2 * i] << 8 | b[2 * i + 1]));
    return out[0] || out[1] || out[2];
}

/* From the kernel's table of neighbours. How many are still unknown. */
static unsigned look_for_machines(struct plane *p, uint16_t port)
{
    char line[256], address[64], mac[32];
    unsigned unknown = 0;
    FILE *f = fopen("/proc/net/arp", "re");
    while (f && fgets(line, sizeof line, f)) {
        struct in_addr a;
        uint16_t found[3];
        if (sscanf(line, "%63s %*s %*s %31s", address, mac) != 2 || !inet_aton(address, &a) || !read_mac(mac, found))
            continue;
        for (unsigned i = 1; i <= machine_count; i++) {
            struct machine *m = &machines[i];
            if (m->address.s_addr != a.s_addr || (m->known && !memcmp(m->mac, found, sizeof found)))
                continue;
            struct plane_host h = {.pool_port = port, .ip = a.s_addr, .ifindex = m->ifindex};
            memcpy(h.mac, found, sizeof found);
            memcpy(m->mac, found, sizeof found);
            m->known = !plane_set_host(p, (uint16_t)i, &h);
            printf("machine %u: %s is at %s\n", i, address, mac);
            fflush(stdout);
        }
    }
    if (f)
        fclose(f);
    for (unsigned i = 1; i <= machine_count; i++)
        unknown += !machines[i].known;
    return unknown;
}

/* ---- up, until told to end ---- */

static int add_port(char *item, void *ctx)
{
    return plane_port(ctx, item) ? cli_say("switch", EXIT_UNAVAILABLE, "%s", plane_explain()) : 0;
}

static int attach_one(char *item, void *ctx)
{
    struct {
        struct plane *p;
        enum plane_mode want;
    } *c = ctx;
    enum plane_mode got;
    int rc = plane_attach(c->p, item, c->want, &got);
    if (rc)
        return cli_say("switch", EXIT_UNAVAILABLE, "%s", plane_explain());
    printf("%s: attached in %s mode\n", item, plane_mode_name(got));
    return 0;
}

static int attach_all(struct plane *p, const struct switch_options *o)
{
    struct {
        struct plane *p;
        enum plane_mode want;
    } ctx = {.p = p};
    if (o->mode)
        ctx.want = !strcmp(o->mode, "native") ? PLANE_NATIVE : PLANE_GENERIC;
    char out[2 * IFNAMSIZ];
    snprintf(out, sizeof out, "%s", o->loop ? o->loop : o->devices);
    char *in = strchr(out, ',');
    if (in)
        *in++ = 0;
    int rc = o->loop || !in ? plane_double_by(p, out, o->loop ? in : NULL, ctx.want) : 0;
    if (rc)
        return cli_say("switch", EXIT_UNAVAILABLE, "%s", plane_explain());
    if (!o->loop && in)
        fprintf(stderr, "pawl switch: without --loop, shared grants that need a copy for the agent are lost\n");
    rc = each_item(o->devices, add_port, p);
    return rc ? rc : each_item(o->devices, attach_one, &ctx);
}

static void serve(struct plane *p, const struct switch_options *o, int signals)
{
    int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct pollfd wait = {.fd = signals, .events = POLLIN};
    unsigned unknown = machine_count;
    do {
        for (unsigned i = 1; i <= machine_count && unknown; i++)
            if (!machines[i].known)
                nudge(socket_fd, &machines[i]);
        unknown = look_for_machines(p, htons((uint16_t)o->port));
    } while (poll(&wait, 1, unknown ? LOOK_MS : LOOK_AGAIN_MS) <= 0);
    close(socket_fd);
}

static const char *program_of(const char *design)
{
    for (size_t i = 0; i < countof(programs); i++)
        if (!strcmp(programs[i].design, design))
            return programs[i].program;
    return NULL;
}

/* Says what it takes before it is taken. */
static int check_memory(const char *program, uint64_t locks)
{
    struct sysinfo s;
    uint64_t need = plane_lock_bytes(program, locks);
    uint64_t left = sysinfo(&s) ? UINT64_MAX : ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    printf("%" PRIu64 " locks take %" PRIu64 " MiB of kernel memory, of which %" PRIu64 " MiB are free\n", locks, need >> 20,
           left >> 20);
    fflush(stdout);
    return need > left ? cli_say("switch", EXIT_UNAVAILABLE, "that is more than there is: fewer --locks") : 0;
}

static int open_plane(const struct switch_options *o, const char *program, struct plane **out)
{
    struct plane_counters c;
    struct plane_live before = {0};
    struct plane_options po = {
        .program = program,
        .settings = {.port = htons((uint16_t)o->port),
                     .machines = (uint16_t)machine_count,
                     .space = (uint32_t)o->space,
                     .locks = o->locks},
        .pins = o->pins,
        .fresh = o->fresh,
        .locks_max = (uint32_t)o->locks,
    };
    bool had = o->pins && !plane_peek(o->pins, &before, &c);
    int rc = plane_open(&po, out);
    if (rc)
        return cli_say("switch", rc == -EEXIST ? EXIT_NO : EXIT_UNAVAILABLE, "%s%s", plane_explain(),
                       rc == -EEXIST ? "; --fresh begins anew" : "");
    volatile struct plane_live *live = plane_live(*out);
    if (!plane_found(*out))
        live->life = (uint32_t)(o->life ? o->life : had ? before.life + 1 : 1);
    printf("%s, life %" PRIu32 "; the verifier went through %" PRIu32 " instructions\n",
           plane_found(*out) ? "goes on with the locks as they were" : "all locks are free", live->life, plane_verified(*out));
    return 0;
}

static void print_end(const struct plane *p)
{
    struct plane_counters c;
    if (!plane_count(p, &c))
        printf("ended: %" PRIu64 " answered, %" PRIu64 " sent on, %" PRIu64 " doubled, %" PRIu64 " absorbed, %" PRIu64
               " dropped, %" PRIu64 " passed\n",
               c.verdict[PLANE_ANSWERED], c.verdict[PLANE_SENT], c.verdict[PLANE_DOUBLED], c.verdict[PLANE_ABSORBED],
               c.verdict[PLANE_DROPPED], c.verdict[PLANE_PASSED]);
}

int switch_xdp(const struct switch_options *o)
{
    struct plane *p;
    sigset_t set;
    const char *program = program_of(o->design);
    if (!program)
        return cli_say("switch", EXIT_USAGE, "no program for the kernel decides for '%s'", o->design);
    if (o->life > LIFE_MAX)
        return cli_say("switch", EXIT_USAGE, "a life has at most 16 bits");
    if (o->mode && strcmp(o->mode, "native") != 0 && strcmp(o->mode, "generic") != 0)
        return cli_say("switch", EXIT_USAGE, "the mode is native or generic, not '%s'", o->mode);
    char first[IFNAMSIZ] = "";
    snprintf(first, sizeof first, "%.*s", (int)strcspn(o->devices, ","), o->devices);
    int status = o->machines ? each_item(o->machines, add_machine, first) : 0;
    if (!status)
        status = check_memory(program, o->locks);
    if (status)
        return status;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    status = signals < 0 ? cli_say("switch", EXIT_UNAVAILABLE, "%s", strerror(errno)) : open_plane(o, program, &p);
    if (status)
        return status;
    status = attach_all(p, o);
    if (!status) {
        puts("ready");
        fflush(stdout);
        serve(p, o, signals);
        print_end(p);
    }
    plane_close(p, o->remove || !o->pins ? PLANE_REMOVE : PLANE_DETACH);
    close(signals);
    return status;
}
