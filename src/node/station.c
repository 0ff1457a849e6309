#include "cluster/host.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define LOOK_NS (100 * NS_PER_MS)        /* how often whether to stop */
#define MEET_NS (5 * NS_PER_MS)          /* between two questions who else is there */
#define BEAT_NS (100 * NS_PER_MS)        /* between two signs of life to the coordinator, who may have started anew */
#define OUTBOX_FULL (OUTBOX_PACKETS / 2) /* packets that wait at most while others are still looked at */

/* ---- set-up ---- */

static void *zeroed(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int station_open(struct station *s, const struct station_params *p)
{
    uint64_t stamp;
    memset(s, 0, sizeof *s);
    s->is_switch = p->is_switch;
    s->spin_ns = p->spin_ns;
    s->stop = p->stop;
    int rc = udp_open(&s->udp, p->at);
    if (rc)
        return rc;
    s->join = (struct join_params){.coordinator = p->coordinator,
                                   .role = p->is_switch ? COORD_SWITCH : COORD_SERVER,
                                   .space = p->space,
                                   .at = p->known_as.ip ? p->known_as : s->udp.at,
                                   .nonce = world_random(&world_real) | 1,
                                   .deadline = p->deadline};
    rc = join(&s->udp, &s->join, &s->welcome, &stamp);
    const struct design *d = rc ? NULL : design_find(s->welcome.design);
    s->design = d ? d->packet : NULL;
    const struct rack_config *c = &s->welcome.config;
    if (!rc && (!s->design || (p->is_switch ? !s->design->switch_packet : !s->design->server_packet)))
        rc = -PAWL_ENOTSUP;
    if (!rc && p->is_switch && p->switch_locks && p->switch_locks < c->locks) {
        s->welcome.config.switch_locks = p->switch_locks;
        rc = !s->design->spills ? -PAWL_ENOTSUP : !c->servers ? -PAWL_ELIMIT : 0;
    }
    if (!rc) {
        s->memory_bytes = p->is_switch ? s->design->switch_bytes(c) : s->design->server_bytes(c);
        s->memory = zeroed(s->memory_bytes);
        s->peers = calloc(1, sizeof *s->peers);
        rc = s->memory && s->peers ? 0 : -ENOMEM;
    }
    if (rc) {
        station_close(s);
        return rc;
    }
    uint32_t life = s->welcome.packet.head.generation;
    if (p->is_switch) {
        s->design->switch_init(s->memory, c, life, host_now());
        if (s->design->switch_number)
            s->design->switch_number(s->memory, s->welcome.packet.head.to.port);
        if (s->design->switch_expect && s->welcome.live_known)
            s->design->switch_expect(s->memory, s->welcome.live, COORD_LIVE_WORDS);
    }
    if (!p->is_switch)
        s->design->server_init(s->memory, c, s->welcome.packet.head.to.machine, life, p->fresh, host_now());
    return 0;
}

void station_close(struct station *s)
{
    udp_close(&s->udp);
    if (s->memory)
        munmap(s->memory, s->memory_bytes);
    free(s->peers);
}

/* ---- packets ---- */

/* Where servers and switch speak to each other, all must be there before the first packet: those that came later are in the next
 * answer to the same JOIN. Hosts are let in only afterwards. */
void station_meet(struct station *s)
{
    bool complete = !s->design->switch_packet || !s->welcome.config.servers;
    while (!complete && !*s->stop) {
        uint64_t stamp;
        complete = s->welcome.switch_at.ip != 0;
        for (unsigned i = 0; i < s->welcome.config.servers; i++)
            complete = complete && s->welcome.servers[i].ip;
        if (complete)
            break;
        nanosleep(&(struct timespec){.tv_nsec = MEET_NS}, NULL);
        s->join.deadline = world_now(&world_real) + LOOK_NS;
        join(&s->udp, &s->join, &s->welcome, &stamp);
    }
}

static bool address_of(const struct station *s, struct place to, struct net_addr *out)
{
    const struct rack_config *c = &s->welcome.config;
    bool by_switch = !s->is_switch && s->design->spills && s->welcome.switch_at.ip; /* which knows where the lock is */
    if (to.machine == MACHINE_SWITCH || by_switch) {
        *out = to.machine == MACHINE_SWITCH && to.port == 1 ? s->welcome.backup_at : s->welcome.switch_at;
        return out->ip != 0;
    }
    if (to.machine == MACHINE_STEWARD) {
        *out = s->join.coordinator;
        return true;
    }
    for (unsigned i = 0; i < c->servers; i++)
        if (c->server[i] == to.machine && to.port == PORT_SERVER) {
            *out = s->welcome.servers[i];
            return true;
        }
    if (peers_find(s->peers, to, out) || (s->kernel.find && s->kernel.find(s->kernel.ctx, to, out)))
        return true;
    *out = s->welcome.switch_at; /* a server's answer to a host that has not spoken to it */
    return !s->is_switch && out->ip;
}

static void changing(const struct station *s, bool begins)
{
    if (s->kernel.changing)
        s->kernel.changing(s->kernel.ctx, begins);
}

static void flush(struct station *s, struct outbox *o)
{
    struct udp_out out[OUTBOX_PACKETS];
    unsigned n = 0;
    for (unsigned i = 0; i < o->packets; i++) {
        const struct packet_head *h = outbox_packet(o, i);
        out[n] = (struct udp_out){.len = o->packet[i].len, .data = h};
        if (address_of(s, h->to, &out[n].to))
            n++;
        else
            s->counts.lost++;
    }
    udp_send(&s->udp, out, n);
    s->counts.answers += n;
    outbox_clear(o);
}

/* A sign of life; from a switch, what it found when it last looked for a machine. */
static void beat(struct station *s, uint64_t machine, uint64_t found)
{
    struct coord_packet p;
    coord_make(&p, COORD_BEAT, s->welcome.packet.space, s->join.nonce);
    p.head.from = s->welcome.packet.head.to;
    p.head.epoch = s->welcome.packet.head.generation;
    p.head.index = machine;
    p.head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    p.role = s->join.role;
    p.at = s->join.at;
    p.code = coord_config_sum(&s->welcome.config);
    const struct udp_out out = {.to = s->join.coordinator, .len = sizeof p, .data = &p};
    udp_send(&s->udp, &out, 1);
}

static void on_coordinator(struct station *s, const void *data, uint32_t len)
{
    const struct coord_packet *p = coord_check(data, len, s->welcome.config.space);
    if (p && p->head.type == COORD_BEATEN && p->head.nonce == s->join.nonce && p->head.index <= s->welcome.config.machines)
        s->look_for = (uint16_t)p->head.index;
    if (p && p->head.type == COORD_BEATEN && p->head.nonce == s->join.nonce && p->at.ip)
        s->welcome.backup_at = p->at; /* it may have joined later than all others */
}

/* For the machine that the coordinator asked about, if it did. */
static void look(struct station *s, struct outbox *out)
{
    if (!s->look_for || !s->is_switch || !s->design->switch_scan)
        return;
    uint64_t found = s->design->switch_scan(s->memory, s->look_for, host_now(), out);
    if (found == UINT64_MAX)
        return;
    beat(s, s->look_for, found);
    s->look_for = 0;
}

/* Whether it comes from a switch or another server: then it is a host's that was sent on. */
static bool is_station(const struct station *s, struct net_addr from)
{
    if (net_addr_is(from, s->welcome.switch_at) || net_addr_is(from, s->welcome.backup_at))
        return true;
    for (unsigned i = 0; i < s->welcome.config.servers; i++)
        if (net_addr_is(from, s->welcome.servers[i]))
            return true;
    return false;
}

static void one_packet(struct station *s, const void *data, uint32_t len, struct net_addr from, struct outbox *out)
{
    const struct packet_head *h = data;
    s->counts.packets++;
    if (len < sizeof *h || len > PACKET_MAX || h->version != PACKET_VERSION)
        return;
    if (h->space != s->welcome.config.space)
        return;
    bool known = h->from.machine && (h->from.machine <= s->welcome.config.machines || h->from.machine == MACHINE_OPERATOR);
    if (known && !(s->design->relayed && s->design->relayed(data, len)))
        peers_learn(s->peers, h->from, h->epoch, from, !is_station(s, from));
    if (h->family == PACKET_COORDINATOR)
        on_coordinator(s, data, len);
    if (h->family != s->design->family)
        return; /* HERE */
    if (s->is_switch)
        s->design->switch_packet(s->memory, data, len, host_now(), out);
    else
        s->design->server_packet(s->memory, data, len, host_now(), out);
}

/* For measuring: back as it is, unless its type is 0. */
static bool is_echo(struct station *s, const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    if (len < sizeof *h || len > PACKET_MAX || h->version != PACKET_VERSION || h->family != PACKET_ECHO)
        return false;
    s->counts.echoes++;
    return h->type != 0;
}

static uint64_t tick(struct station *s, struct outbox *out)
{
    uint64_t (*fn)(void *, uint64_t, struct outbox *) = s->is_switch ? s->design->switch_tick : s->design->server_tick;
    uint64_t now = host_now(), next = fn ? fn(s->memory, now, out) : UINT64_MAX;
    look(s, out);
    flush(s, out);
    if (now >= s->beat_ns) {
        s->beat_ns = now + BEAT_NS;
        beat(s, 0, 0);
    }
    return min_u64(next > now ? next - now : 0, min_u64(LOOK_NS, s->welcome.config.retry_ns * 4));
}

void station_run(struct station *s)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    struct outbox *out = calloc(1, sizeof *out);
    struct udp_out echo[UDP_BATCH];
    uint64_t next = 0;
    station_meet(s);
    while (batch && out && !*s->stop) {
        uint64_t now = world_now(&world_real);
        if (now >= next) {
            changing(s, true);
            next = now + max_u64(tick(s, out), NS_PER_MS / 4);
            changing(s, false);
        }
        unsigned n = udp_wait(&s->udp, batch, s->spin_ns, next);
        unsigned echoes = 0;
        changing(s, true);
        for (unsigned i = 0; i < n; i++) {
            if (is_echo(s, batch->packet[i].data, batch->packet[i].len)) {
                echo[echoes++] =
                    (struct udp_out){.to = batch->packet[i].from, .len = batch->packet[i].len, .data = batch->packet[i].data};
                continue;
            }
            one_packet(s, batch->packet[i].data, batch->packet[i].len, batch->packet[i].from, out);
            if (out->packets > OUTBOX_FULL || out->used > OUTBOX_BYTES / 2)
                flush(s, out);
        }
        changing(s, false);
        if (out->packets)
            flush(s, out);
        if (echoes)
            udp_send(&s->udp, echo, echoes);
    }
    free(batch);
    free(out);
}
