/* SPDX-License-Identifier: Apache-2.0 */
#include "node/kernel_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define GRACE_US 100000 /* where the kernel has no barrier: longer than a packet can take */

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

void kernel_grace(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
        usleep(GRACE_US);
}

/* ---- keys ---- */

static_assert(SEAL_KEYS == countof(((struct plane_seal *)0)->key) && sizeof(struct seal_key) == sizeof(uint64_t[2]),
              "the kernel's side has its own declaration");

/* While they change, packets of the host have a wrong tag, and are sent again. */
static void write_seal(volatile struct plane_seal *to, uint32_t life, const struct seal_key key[SEAL_KEYS])
{
    for (unsigned i = 0; i < SEAL_KEYS; i++)
        for (unsigned k = 0; k < countof(key->k); k++)
            to->key[i][k] = key[i].k[k];
    to->which = 0;
    to->life = life;
}

int kernel_map_seals(struct plane *plane, const volatile struct plane_host *hosts, const struct roster *r,
                     volatile struct plane_seal **out)
{
    struct seal_key key[SEAL_KEYS] = {{.k = {0}}};
    void *seals;
    uint64_t bytes;
    int rc = plane_map(plane, "seals", &seals, &bytes);
    if (rc)
        return rc;
    *out = seals;
    for (uint32_t m = 0; r->ring && m <= r->machines; m++) {
        uint32_t life = m ? hosts[m].given_life : 0;
        for (unsigned i = 0; i < r->ring->count; i++)
            key[i] = m ? seal_host_key(&r->ring->key[i], r->space, (uint16_t)m, life) : seal_member_key(&r->ring->key[i], 0);
        if (!m || life)
            write_seal(*out + m, life, key);
    }
    return 0;
}

/* The program sees with which key a host tags. */
static void tell_keys(volatile struct plane_seal *seal, struct roster_host *h)
{
    if (seal->life != h->life)
        write_seal(seal, h->life, h->key);
    h->which = seal->which & 1;
}

struct seal_key kernel_key(const volatile struct plane_seal *seals, const struct roster *r, uint16_t machine)
{
    struct seal_key key = {.k = {0}};
    if (!r->ring || !machine || machine > r->machines)
        return key;
    const volatile struct plane_seal *s = &seals[machine];
    for (unsigned k = 0; k < countof(key.k); k++)
        key.k[k] = s->key[s->which & 1][k];
    return key;
}

/* ---- addresses ---- */

void kernel_tell_hosts(volatile struct plane_host *hosts, volatile struct plane_seal *seals, struct roster *r)
{
    for (uint32_t m = 1; m <= r->machines; m++) {
        struct roster_host *h = &r->host[m];
        struct plane_host at = {0};
        if (h->life && r->ring)
            tell_keys(&seals[m], h);
        if (!h->life || !net_addr_known(h->at))
            continue;
        kernel_set_address(&at, m, h->at);
        bool same = hosts[m].given_life == h->life && hosts[m].given_ip == at.ip;
        for (unsigned i = 0; i < countof(at.ip6); i++) {
            same = same && hosts[m].given_ip6[i] == at.ip6[i];
            hosts[m].given_ip6[i] = at.ip6[i];
        }
        if (same)
            continue;
        hosts[m].given_ip = at.ip;
        hosts[m].given_life = h->life;
    }
}

void kernel_set_address(struct plane_host *h, uint32_t machine, struct net_addr at)
{
    h->pool_port = htons(at.port);
    h->ip = net_addr_is_v4(&at) ? net_addr_v4(&at) : SIX_HOST(machine);
    if (!net_addr_is_v4(&at))
        memcpy(h->ip6, at.ip, sizeof h->ip6);
}

struct net_addr kernel_address(const volatile struct plane_host *h, uint32_t machine, uint16_t port)
{
    struct net_addr at = {.port = port};
    if (h->ip != SIX_HOST(machine))
        return net_v4(h->ip, port);
    for (unsigned i = 0; i < countof(h->ip6); i++) {
        uint32_t word = h->ip6[i];
        memcpy(at.ip + i * sizeof word, &word, sizeof word);
    }
    return at;
}

/* ---- attaching ---- */

int kernel_attach_one(kernel_report report, struct plane *plane, const char *device, enum plane_mode mode)
{
    enum plane_mode got;
    const char *note = NULL;
    int rc = plane_attach(plane, device, mode, &got);
    if (!rc)
        rc = plane_self_test(plane, device, got, &note);
    if (!rc)
        report("%s: attached in %s mode", device, plane_mode_name(got));
    if (note)
        report("%s: %s", device, note);
    return rc;
}

/* All interfaces are known to the program before the first is attached. */
int kernel_attach(const struct kernel_params *p, struct plane *plane)
{
    int rc = plane_double_by(plane, p->loop_out ? p->loop_out : p->devices, p->loop_in, p->mode);
    for (int pass = 0; pass < 2 && !rc; pass++) {
        char *copy = strdup(p->devices), *rest = copy;
        rc = copy ? 0 : explain(-ENOMEM, "out of memory");
        for (char *device; !rc && (device = strsep(&rest, ","));)
            rc = pass ? kernel_attach_one(p->report, plane, device, p->mode) : plane_port(plane, device);
        free(copy);
    }
    if (!rc && p->ready)
        p->ready();
    return rc;
}

/* ---- loading ---- */

int kernel_check_memory(kernel_report report, const char *what, uint64_t bytes)
{
    struct sysinfo s;
    uint64_t left = sysinfo(&s) ? UINT64_MAX : ((uint64_t)s.freeram + s.bufferram) * s.mem_unit;
    report("%s take %" PRIu64 " MiB of kernel memory, of which %" PRIu64 " MiB are free", what, bytes >> 20, left >> 20);
    return bytes > left ? explain(-ENOMEM, "%s take more kernel memory than is free", what) : 0;
}

int kernel_open_plane(const struct kernel_params *p, const struct member *m, const char *program, bool fresh,
                      const struct netlock_memory *memory, struct plane **out)
{
    const struct coord_welcome *w = &m->welcome.said;
    const struct rack_config *c = &w->config;
    const struct net_addr at = p->station.member.at;
    uint32_t highest = c->machines;
    uint16_t rack = c->racks ? w->packet.head.to.port : 0;
    for (unsigned i = 0; i < c->servers; i++)
        highest = c->server[i] > highest ? c->server[i] : highest;
    struct plane_options po = {
        .program = program,
        .settings = {.port = htons(at.port),
                     .machines = c->machines,
                     .space = c->racks ? rack_space_id(c, rack) : c->space,
                     .locks = c->locks,
                     .options = (uint32_t)c->options,
                     .lease_ns = c->lease_ns,
                     .racks = c->racks,
                     .rack = rack,
                     .ip = c->racks ? net_addr_v4(&at) : 0,
                     .keyed = m->roster->ring != NULL,
                     .names = c->keys == PAWL_KEYS_NAMED || c->keys == PAWL_KEYS_SPARSE},
        .pins = p->pins,
        .fresh = fresh,
        .life = w->packet.head.generation,
        .epoch = c->lease_ns ? w->packet.head.generation : 0, /* as decider.c has it */
        .closed = !p->station.fresh,                          /* until whatever was granted before has run out */
        .locks_max = memory ? 0 : (uint32_t)c->locks,
        .hosts_max = highest,
        .netlock = memory,
    };
    if (!net_addr_is_v4(&at)) {
        po.settings.six = 1;
        po.settings.ip = SIX_SWITCH;
        memcpy(po.settings.ip6, at.ip, sizeof po.settings.ip6);
    }
    int rc = plane_open(&po, out);
    if (rc == -EEXIST) {
        char why[256];
        snprintf(why, sizeof why, "%s", explained());
        explain(rc, "%s; --fresh begins anew", why);
    }
    if (rc)
        return rc;
    p->report("%s, life %" PRIu32 "; the verifier went through %" PRIu32 " instructions",
              plane_found(*out) ? "goes on with the locks as they were" : "all locks are free", plane_live(*out)->life,
              plane_verified(*out));
    if (plane_simple(*out))
        p->report("this kernel's verifier takes the program with one try of a decision only: where several processors decide "
                  "about one lock, more packets are dropped and retransmitted");
    return 0;
}

void kernel_close_plane(const struct kernel_params *p, struct plane *plane)
{
    plane_close(plane, p->remove || !p->pins ? PLANE_REMOVE : PLANE_DETACH);
}

void kernel_report_end(const struct kernel_params *p, const struct plane *plane)
{
    struct plane_counters c;
    if (!plane_count(plane, &c))
        p->report("ended: %" PRIu64 " answered, %" PRIu64 " sent on, %" PRIu64 " doubled, %" PRIu64 " absorbed, %" PRIu64
                  " dropped, %" PRIu64 " passed",
                  c.verdict[PLANE_ANSWERED], c.verdict[PLANE_SENT], c.verdict[PLANE_DOUBLED], c.verdict[PLANE_ABSORBED],
                  c.verdict[PLANE_DROPPED], c.verdict[PLANE_PASSED]);
}

/* ---- the run ---- */

/* Whether the space is what was asked for, and has a program for the kernel. */
static int check_space(const struct kernel_params *p, const struct coord_welcome *w)
{
    const char *space = p->station.member.space;
    if (p->design && strcmp(p->design, w->design) != 0)
        return explain(-EINVAL, "the space '%s' has the design '%s', not '%s'", space, w->design, p->design);
    if (p->locks && p->locks != w->config.locks)
        return explain(-EINVAL, "the space '%s' has %" PRIu64 " locks, not %" PRIu64, space, w->config.locks, p->locks);
    if (!program_of(w->design))
        return explain(-PAWL_ENOTSUP, "the design '%s' has no program for the kernel; use --soft", w->design);
    if (p->station.member.rack && !w->config.racks)
        return explain(-EINVAL, "--rack: the space '%s' has one rack", space);
    return 0;
}

/* Whether no program is left on the interfaces: neither of this start nor of an earlier process, whose locks it may still grant. */
static bool nothing_is_left(const char *devices)
{
    char *copy = strdup(devices), *rest = copy;
    bool bare = copy != NULL;
    for (char *device; bare && (device = strsep(&rest, ","));)
        bare = plane_is_bare(device);
    free(copy);
    return bare;
}

int kernel_switch_run(const struct kernel_params *p)
{
    struct member m;
    struct member_params mp = p->station.member;
    if (plane_missing())
        return explain(-ENOTSUP, "%s", plane_missing());
    mp.reads = PACKET_MANY;
    int rc = member_open(&m, &mp);
    if (rc)
        return rc;
    const char *program = program_of(m.welcome.said.design);
    rc = check_space(p, &m.welcome.said);
    if (!rc)
        rc = !strcmp(program, "netlock") ? kernel_netlock_run(p, &m) : kernel_fission_run(p, &m, program);
    if (rc && nothing_is_left(p->devices))
        member_leave(&m); /* it decided nothing: the next start need not wait for its lease */
    member_close(&m);
    return rc;
}
