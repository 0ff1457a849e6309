/* SPDX-License-Identifier: Apache-2.0 */
/* The switch: Algorithm 1. Requests for locks that are here go through the stages, others to their server. */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/deadlock.h"

#include <errno.h>

#define CONTROL_SHARE 8u /* the control plane looks at everything eight times in a lease */

static struct plane_config plane_config_of(const struct rack_config *c)
{
    const struct netlock_policy policy = netlock_policy(c->options);
    return (struct plane_config){.slots = policy.slots,
                                 .locks = (uint32_t)min_u64(c->locks, policy.slots),
                                 .requests = (c->machines + 1u) * rack_requests(c),
                                 .stride = rack_requests(c),
                                 .tenants = SWITCH_TENANTS,
                                 .pipes = policy.pipes,
                                 .homes = c->servers};
}

static uint64_t lay_out(struct nl_switch *w, const struct rack_config *c)
{
    const struct plane_config p = plane_config_of(c);
    uint64_t at = round_up(sizeof *w, CACHE_LINE);
    w->machines_at = at;
    at += round_up((c->machines + UINT64_C(1)) * sizeof(struct netlock_machine), CACHE_LINE);
    w->control_at = at;
    at += round_up(p.locks * sizeof(struct control), CACHE_LINE);
    w->demands_at = at;
    w->reports_max = (uint32_t)min_u64(c->locks, SWITCH_REPORTED_MAX);
    at += round_up((uint64_t)(p.locks + 2 * w->reports_max) * sizeof(struct demand), CACHE_LINE);
    w->plane_at = at;
    w->generations_at = round_up(at + plane_bytes(&p), CACHE_LINE);
    return w->generations_at + round_up(c->locks * sizeof(uint32_t), CACHE_LINE) + NETLOCK_CELL_MAX;
}

uint64_t netlock_switch_bytes(const struct rack_config *c)
{
    struct nl_switch scratch;
    return lay_out(&scratch, c);
}

void netlock_switch_describe(const struct rack_config *c, struct netlock_memory *m)
{
    struct nl_switch scratch;
    const struct plane_config p = plane_config_of(c);
    memset(m, 0, sizeof *m);
    lay_out(&scratch, c);
    plane_describe(&p, scratch.plane_at, m);
    m->generations_at = scratch.generations_at;
    m->bytes = netlock_switch_bytes(c);
    m->machines_at = scratch.machines_at;
    m->servers_at = offsetof(struct nl_switch, servers);
    m->owner_at = offsetof(struct nl_switch, owner);
    m->until_at = offsetof(struct nl_switch, until_ns);
    m->term_at = offsetof(struct nl_switch, term);
    m->version_at = offsetof(struct nl_switch, version);
    m->levels_at = offsetof(struct nl_switch, policy.levels);
    m->lease_ns = c->lease_ns;
    m->servers = c->servers;
    static_assert(NETLOCK_SERVERS_MAX == RACK_SERVERS_MAX, "all of them");
    memcpy(m->server, c->server, sizeof m->server);
}

bool netlock_switch_is(const void *state, const struct rack_config *c)
{
    const struct nl_switch *w = state;
    const struct rack_config *o = &w->config;
    /* These options may change while the switch runs. */
    const uint64_t any = NETLOCK_ALLOC_RANDOM | NETLOCK_PRIORITY | (uint64_t)NETLOCK_LEVELS_MASK << NETLOCK_LEVELS_SHIFT;
    return w->version && o->space == c->space && o->machines == c->machines && o->sessions == c->sessions &&
           o->requests == c->requests && o->servers == c->servers && !memcmp(o->server, c->server, sizeof o->server) &&
           o->locks == c->locks && o->lease_ns == c->lease_ns && (o->options | any) == (c->options | any);
}

void netlock_switch_in_kernel(void *state, const struct plane_kernel *kernel)
{
    plane_in_kernel(switch_plane(state), kernel);
}

/* `netchain`: every word is in the switch, for good. Grants of a former life must have ended. */
static void install_all(struct nl_switch *w, uint64_t now)
{
    struct plane *plane = switch_plane(w);
    w->open_ns = w->clean ? now : now + lease_over(&w->config);
    for (uint32_t i = 0; i < plane->config.locks; i++) {
        const struct plane_region r = {.left = i, .size = 1};
        uint32_t lock;
        if (plane_install(plane, i, &r, &lock))
            return;
        plane_set(plane, NETLOCK_TOKEN, lock, (uint64_t)w->term << NETLOCK_TOKEN_BITS);
        switch_control(w, lock)->state = CONTROL_LIVE;
        plane_reopen(plane, lock);
    }
}

ONCE void netlock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct nl_switch *w = state; /* zeroed */
    w->config = *config;
    w->policy = netlock_policy(config->options);
    w->life = life;
    w->beat_ns = now;
    w->version = 1;
    const struct plane_config p = plane_config_of(config);
    lay_out(w, config);
    plane_init(switch_plane(w), &p);
}

void netlock_switch_number(void *state, uint16_t number)
{
    ((struct nl_switch *)state)->number = number;
}

/* Nothing of a former term is left. While a program in the kernel has the memory, too, no packet passes meanwhile. */
static void wipe(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    bool in_kernel = plane->in_kernel;
    const struct rack_config config = w->config;
    struct netlock_quota quotas[SWITCH_TENANTS];
    for (uint16_t i = 0; i < SWITCH_TENANTS; i++)
        quotas[i] = plane_quota_of(plane, i); /* policies outlast a term */
    __atomic_store_n(&w->until_ns, 0, __ATOMIC_SEQ_CST);
    plane_grace(plane);
    for (uint32_t lock = 0; in_kernel && lock < plane->config.locks; lock++)
        if (switch_control(w, lock)->state != CONTROL_NONE)
            plane_remove(plane, lock);
    memset(w, 0, w->generations_at);
    lay_out(w, &config);
    const struct plane_config p = plane_config_of(&config);
    plane_init(switch_plane(w), &p);
    for (uint16_t i = 0; i < SWITCH_TENANTS; i++)
        plane_quota(switch_plane(w), i, &quotas[i]);
    switch_plane(w)->in_kernel = in_kernel;
}

ONCE void switch_begin(struct nl_switch *w, uint32_t term, bool clean, uint64_t now)
{
    const struct nl_switch old = *w;
    assert(term > old.term); /* I2 */
    if (old.term)
        wipe(w);
    w->config = old.config;
    w->drops = old.drops;
    w->counts = old.counts;
    memcpy(w->stops, old.stops, sizeof w->stops);
    w->number = old.number;
    w->policy = old.policy;
    w->twin = old.twin;
    w->life = old.life;
    w->leased_ns = old.leased_ns;
    w->stamp = old.stamp;
    w->beat_ns = old.beat_ns;
    w->term = term;
    w->clean = clean;
    w->version = 1;
    w->control_ns = now;
    w->allocate_ns = now + NETLOCK_MEASURE_NS + w->policy.profile_ns;
    w->churn_ns = now + w->config.retry_ns;
    w->dice = term * UINT64_C(0x9e3779b97f4a7c15) + (w->config.options & ~(uint64_t)NETLOCK_FEW);
    switch_plane(w)->mistakes = (uint16_t)(MISTAKES(w->config.mistakes) & NETLOCK_MISTAKE_PLANE);
    if (w->policy.chain)
        install_all(w, now);
}

/* ---- what leaves ---- */

struct netlock_packet *switch_to_server(struct nl_switch *w, uint64_t index, enum netlock_type type, struct outbox *out)
{
    if (!switch_owner(w, index))
        return NULL;
    struct netlock_packet *p = netlock_packet_new(out, &w->config, type, w->term, switch_place(w), switch_server_place(w, index));
    if (p) {
        p->head.index = index;
        p->life = w->term;
    }
    return p;
}

static struct netlock_packet *add_packet(void *out)
{
    return outbox_add(out, sizeof(struct netlock_packet));
}

static struct netlock_sender sender_of(const struct nl_switch *w, uint64_t index, struct outbox *out)
{
    return (struct netlock_sender){
        .add = add_packet, .ctx = out, .index = index, .space = w->config.space, .term = w->term, .self = switch_place(w)};
}

struct packet_figures netlock_switch_figures(const void *state)
{
    const struct switch_counts *c = &((const struct nl_switch *)state)->counts;
    return (struct packet_figures){.holds = PACKET_UNCOUNTED,
                                   .waiting = PACKET_UNCOUNTED,
                                   .waited = PACKET_UNCOUNTED,
                                   .gave_up = PACKET_UNCOUNTED,
                                   .repeated = PACKET_UNCOUNTED,
                                   .refused = c->refused_quota,
                                   .lapsed = c->expired,
                                   .passed_on = c->passed_on + c->overflowed};
}

static struct netlock_packet *answer(struct nl_switch *w, const struct packet_head *h, enum netlock_type type, struct outbox *out)
{
    const struct netlock_sender s = sender_of(w, h->index, out);
    return netlock_to_client(&s, type, h->nonce, h->from);
}

static void emit_data(struct nl_switch *w, const struct netlock_pass *pass, const struct netlock_packet *p, uint32_t len,
                      struct outbox *out)
{
    struct netlock_packet *d = outbox_add(out, len);
    w->counts.switch_grants++;
    if (!d)
        return; /* as if it were lost: asked for again */
    netlock_to_data(d, p, len, switch_place(w), w->term);
    d->mode = pass->out_mode;
    d->ticket = pass->out_ticket;
    d->token = pass->out_token;
}

/* Sends the packets of a pass. A packet that finds no room in the outbox counts as lost, and is requested again. */
static void emit(struct nl_switch *w, uint32_t lock, const struct netlock_pass *pass, struct outbox *out)
{
    struct netlock_sender s = sender_of(w, plane_index(switch_plane(w), lock), out);
    if (pass->out & NETLOCK_OUT_TO_SERVER) {
        s.server = switch_server_place(w, s.index);
        s.generation = *switch_generation(w, s.index);
        s.host_life = switch_machine(w, pass->machine)->life;
        s.notifies = switch_control(w, lock)->state == CONTROL_LIVE;
    }
    w->counts.switch_grants += (pass->out & NETLOCK_OUT_GRANT) != 0;
    w->counts.refused_quota += (pass->out & NETLOCK_OUT_QUOTA) != 0;
    w->counts.overflowed += (pass->out & NETLOCK_OUT_FORWARD) != 0;
    netlock_emit(pass, &s);
}

/* `p`: the packet itself, if it has bytes for a data server. */
static void run(struct nl_switch *w, uint32_t lock, struct netlock_pass *pass, const struct netlock_packet *p, uint32_t len,
                uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    uint64_t passes = 0;
    assert(lock < plane->config.locks && pass->op != NETLOCK_OP_NONE);
    pass->now = plane_now(now);
    plane->counts.packets++;
    for (;;) {
        plane_pass(plane, lock, pass);
        passes++;
        if (pass->over || pass->lows)
            switch_set_restless(w, lock, true);
        emit(w, lock, pass, out);
        if (p && pass->out & NETLOCK_OUT_DATA)
            emit_data(w, pass, p, len, out);
        if (pass->next == NETLOCK_OP_NONE)
            break;
        if (passes == PLANE_PASSES_MAX) {
            plane->counts.unfinished++; /* the control plane goes on with it */
            break;
        }
        netlock_resubmit(pass);
        plane->counts.resubmissions++;
    }
    plane->counts.passes_max = max_u64(plane->counts.passes_max, passes);
    if (!w->twin && !plane->in_kernel)
        switch_give(w, lock, now, out); /* if the queue is empty now: the lock need not wait for a tick */
}

void switch_run(struct nl_switch *w, uint32_t lock, struct netlock_pass *pass, uint64_t now, struct outbox *out)
{
    run(w, lock, pass, NULL, 0, now, out);
}

/* ---- generations ---- */

uint64_t switch_token(struct nl_switch *w, uint64_t index, uint64_t token)
{
    uint64_t floor = (uint64_t)*switch_generation(w, index) << NETLOCK_TOKEN_BITS;
    return MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_FLOOR) ? token : max_u64(token, floor);
}

/* The first request of a generation: tokens begin at it (I2). Requests of the former one that are still in the queue are granted,
 * and their hosts give them back. */
static void begin_generation(struct nl_switch *w, uint64_t index, uint32_t generation)
{
    struct plane *plane = switch_plane(w);
    uint32_t lock = plane_match(plane, index), *now = switch_generation(w, index);
    assert(generation > *now);
    if (lock == PLANE_NO_LOCK) {
        __atomic_store_n(now, generation, __ATOMIC_RELEASE);
        return;
    }
    plane_shut(plane, lock);
    __atomic_store_n(now, generation, __ATOMIC_RELEASE); /* the kernel compares it, too */
    plane_set(plane, NETLOCK_TOKEN, lock, switch_token(w, index, plane_get(plane, NETLOCK_TOKEN, lock)));
    plane_reopen(plane, lock);
}

/* Whether a request is of the index's generation, or of the next. */
static bool is_of_lock(struct nl_switch *w, const struct packet_head *h)
{
    if (unlikely(h->index >= w->config.locks))
        return true; /* the space has grown: the lock server, which has the lock, compares */
    uint32_t generation = *switch_generation(w, h->index);
    if (likely(h->generation == generation))
        return true;
    if (h->generation > generation) {
        begin_generation(w, h->index, h->generation);
        return true;
    }
    w->drops.stale++; /* a late duplicate: no host uses the former one any more (cluster/coordinator_names.c) */
    return MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_GENERATION);
}

/* ---- packets of hosts ---- */

/* Bytes for a data server go along: most often that is the one which has the lock. */
static void pass_on(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, struct outbox *out)
{
    uint32_t all = p->flags & NETLOCK_PAYLOAD ? len : (uint32_t)sizeof *p;
    struct netlock_packet *f = switch_owner(w, p->head.index) ? outbox_add(out, all) : NULL;
    w->counts.passed_on++;
    if (!f)
        return;
    memcpy(f, p, all);
    netlock_forward(f, switch_server_place(w, p->head.index), w->policy.levels, w->term, w->version);
}

/* The quota counts for locks on servers, too. */
static bool within_quota(struct nl_switch *w, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    uint32_t wait = plane_charge(switch_plane(w), p->tenant, p->head.from.machine, p->head.nonce, plane_now(now));
    if (!wait)
        return true;
    const struct netlock_sender s = sender_of(w, p->head.index, out);
    struct netlock_pass refused = {.out = NETLOCK_OUT_QUOTA, .out_wait = wait};
    netlock_pass_of_request(&refused, p, false);
    netlock_emit_refusal(&refused, &s);
    w->counts.refused_quota++;
    return false;
}

static void on_request(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    bool converts = p->head.type == NETLOCK_CONVERT || p->head.type == NETLOCK_STAY;
    uint32_t lock = plane_match(switch_plane(w), p->head.index);
    if (lock == PLANE_NO_LOCK) {
        if (p->head.type == NETLOCK_RELEASE) /* its queue had drained before it went: this one has ended */
            answer(w, &p->head, NETLOCK_RELEASED, out);
        else if (!converts && (p->head.type != NETLOCK_ACQUIRE || within_quota(w, p, now, out)))
            pass_on(w, p, len, out);
        return;
    }
    struct netlock_pass pass = {0};
    netlock_pass_of_request(&pass, p, w->policy.levels);
    run(w, lock, &pass, p->flags & NETLOCK_PAYLOAD ? p : NULL, len, now, out);
}

static void on_lease(struct nl_switch *w, struct netlock_machine *m, const struct netlock_packet *p, uint64_t now,
                     struct outbox *out)
{
    bool news = lease_is_news(p->stamp, __atomic_load_n(&m->said_ns, __ATOMIC_RELAXED), w->config.mistakes);
    struct netlock_packet *a = news ? outbox_add(out, sizeof *a) : NULL;
    w->drops.stale += !news;
    if (!a)
        return; /* no answer, no lease */
    __atomic_store_n(&m->said_ns, p->stamp, __ATOMIC_RELAXED);
    __atomic_store_n(&m->until_ns, now + w->config.lease_ns, __ATOMIC_RELEASE);
    m->live = true;
    *a = *p;
    netlock_turn_round(a, NETLOCK_LEASED, w->term, switch_place(w));
    if (p->life != w->term || m->clean)
        return;
    m->clean = true;
    switch_look_whether_clean(w, out);
}

static bool sound(const struct nl_switch *w, const struct netlock_packet *p, uint32_t len)
{
    const struct packet_head *h = &p->head;
    if (h->type == NETLOCK_LEASE)
        return true;
    if (!netlock_sound_nonce(p, rack_requests(&w->config)))
        return false;
    if (h->type == NETLOCK_ACQUIRE)
        return netlock_sound_mode(p) && (!(p->flags & NETLOCK_PAYLOAD) || netlock_sound_payload(&w->config, p, len));
    if (h->type == NETLOCK_CONVERT || h->type == NETLOCK_STAY)
        return netlock_sound_mode(p);
    return (h->type == NETLOCK_RELEASE || h->type == NETLOCK_CANCEL || h->type == NETLOCK_PROBE) && !(p->flags & NETLOCK_PAYLOAD);
}

/* Of the host's latest life, and ACQUIRE only with a lease. */
static bool admit(struct nl_switch *w, struct netlock_machine *m, const struct packet_head *h, uint64_t now, struct outbox *out)
{
    uint16_t machine = h->from.machine;
    if (h->epoch < m->life) {
        w->drops.stale++;
        return false;
    }
    if (h->epoch > m->life) { /* started anew: nothing of its former life is left */
        while (!switch_bar(w, m, __atomic_load_n(&m->until_ns, __ATOMIC_ACQUIRE)))
            ;
        switch_end_machine(w, machine, now, out);
        m->life = h->epoch;
        m->said_ns = 0;
    }
    uint64_t until = __atomic_load_n(&m->until_ns, __ATOMIC_ACQUIRE);
    if (m->live && now >= until && switch_bar(w, m, until))
        switch_end_machine(w, machine, now, out);
    if (h->type == NETLOCK_ACQUIRE && (!m->live || now < w->open_ns)) {
        w->drops.stale++; /* it asks again */
        return false;
    }
    return true;
}

static void on_host(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct netlock_machine *m = switch_machine(w, p->head.from.machine);
    if (!sound(w, p, len)) {
        w->drops.bad++;
        return;
    }
    if (!admit(w, m, &p->head, now, out))
        return;
    if (p->head.type == NETLOCK_LEASE) {
        on_lease(w, m, p, now, out);
    } else if (p->head.type == NETLOCK_PROBE) {
        deadlock_at_switch(w, p, len, now, out);
    } else if (p->head.type == NETLOCK_ACQUIRE &&
               ((w->policy.levels && p->priority >= NETLOCK_PRIORITIES) || p->tenant >= SWITCH_TENANTS)) {
        struct netlock_packet *a = answer(w, &p->head, NETLOCK_REFUSED, out);
        if (a)
            a->code = NETLOCK_POLICY;
    } else if (p->head.type != NETLOCK_ACQUIRE || is_of_lock(w, &p->head)) {
        on_request(w, p, len, now, out);
    }
}

void netlock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct nl_switch *w = state;
    const struct packet_head *h = packet_check_locks(data, len, PACKET_NETLOCK, &w->config, PACKET_LOCKS_MAX, &w->drops);
    const struct netlock_packet *p = data;
    if (!h)
        return;
    if (h->to.machine != MACHINE_SWITCH || h->to.port != w->number) {
        void *through = outbox_add(out, len);
        if (through)
            memcpy(through, data, len);
        return;
    }
    if (len < sizeof *p) {
        w->drops.bad++;
        return;
    }
    if (h->from.machine == MACHINE_STEWARD) {
        switch_on_term(w, p, len, now, out);
        return;
    }
    if (h->from.machine == MACHINE_OPERATOR) {
        switch_on_command(w, p, len, now, out);
        return;
    }
    if (!switch_is_active(w, now)) {
        w->drops.stale++;
        if (h->from.machine <= w->config.machines)
            switch_say_elsewhere(w, h, out);
        return;
    }
    if (h->from.machine <= w->config.machines) /* also what a server sends back in the name of a host */
        on_host(w, p, len, now, out);
    else if (rack_server_on(&w->config, h->from.machine) < w->config.servers)
        switch_on_server(w, p, len, now, out);
    else
        w->drops.alien++;
}
