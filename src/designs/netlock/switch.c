/* SPDX-License-Identifier: Apache-2.0 */
/* The switch: Algorithm 1. Requests for locks that are here go through the stages, others to their server. */
#include "designs/netlock/deadlock.h"

#include <errno.h>

#define CONTROL_SHARE 8u /* the control plane looks at everything eight times in a lease */

static struct plane_config plane_config_of(const struct rack_config *c)
{
    uint32_t slots = netlock_slots(c->options);
    return (struct plane_config){.slots = slots,
                                 .locks = (uint32_t)min_u64(c->locks, slots),
                                 .requests = (c->machines + 1u) * rack_requests(c),
                                 .stride = rack_requests(c),
                                 .tenants = SWITCH_TENANTS,
                                 .pipes = c->options & NETLOCK_CHAIN ? 1 : netlock_pipes(c->options),
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
    return at + plane_bytes(&p);
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
    m->machines_at = scratch.machines_at;
    m->servers_at = offsetof(struct nl_switch, servers);
    m->owner_at = offsetof(struct nl_switch, owner);
    m->reign_at = offsetof(struct nl_switch, until_ns);
    m->life_at = offsetof(struct nl_switch, life);
    m->version_at = offsetof(struct nl_switch, version);
    m->levels_at = offsetof(struct nl_switch, levels);
    m->lease_ns = c->lease_ns;
    m->bust = (uint32_t)(MISTAKES(c->mistakes) & NETLOCK_BUST_PLANE);
    m->servers = c->servers;
    static_assert(NETLOCK_SERVERS_MAX == RACK_SERVERS_MAX, "all of them");
    memcpy(m->server, c->server, sizeof m->server);
}

bool netlock_switch_is(const void *state, const struct rack_config *c)
{
    const struct nl_switch *w = state;
    const struct rack_config *o = &w->config;
    /* Changes as it runs. */
    const uint64_t any = NETLOCK_ALLOC_RANDOM | NETLOCK_PRIORITY | (uint64_t)NETLOCK_LEVELS_MASK << NETLOCK_LEVELS_SHIFT;
    return w->version && o->space == c->space && o->machines == c->machines && o->sessions == c->sessions &&
           o->requests == c->requests && o->servers == c->servers && !memcmp(o->server, c->server, sizeof o->server) &&
           o->locks == c->locks && o->lease_ns == c->lease_ns && (o->options | any) == (c->options | any);
}

void netlock_switch_in_kernel(void *state, const struct plane_kernel *kernel)
{
    plane_in_kernel(switch_plane(state), kernel);
}

/* `netchain`: every word is here, for good. What a former life granted must have ended. */
static void install_all(struct nl_switch *w, uint64_t now)
{
    struct plane *plane = switch_plane(w);
    w->open_ns = w->clean ? now : now + netlock_lease_over(&w->config);
    for (uint32_t i = 0; i < plane->config.locks; i++) {
        const struct plane_region r = {.left = i, .size = 1};
        uint32_t lock;
        if (plane_install(plane, i, &r, &lock))
            return;
        plane_set(plane, NETLOCK_TOKEN, lock, (uint64_t)w->life << NETLOCK_TOKEN_BITS);
        switch_control(w, lock)->state = CONTROL_LIVE;
        plane_reopen(plane, lock);
    }
}

void netlock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct nl_switch *w = state; /* zeroed */
    w->config = *config;
    w->levels = netlock_levels(w->config.options);
    w->own_life = life;
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

/* Nothing of a former reign is left. While a program in the kernel has the memory, too, no packet passes meanwhile. */
static void wipe(struct nl_switch *w)
{
    struct plane *plane = switch_plane(w);
    bool in_kernel = plane->in_kernel;
    const struct rack_config config = w->config;
    struct plane_quota quotas[SWITCH_TENANTS];
    for (uint16_t i = 0; i < SWITCH_TENANTS; i++)
        quotas[i] = plane_quota_of(plane, i); /* policies outlast a reign */
    __atomic_store_n(&w->until_ns, 0, __ATOMIC_SEQ_CST);
    plane_grace(plane);
    for (uint32_t lock = 0; in_kernel && lock < plane->config.locks; lock++)
        if (switch_control(w, lock)->state != CONTROL_NONE)
            plane_remove(plane, lock);
    memset(w, 0, netlock_switch_bytes(&config));
    lay_out(w, &config);
    const struct plane_config p = plane_config_of(&config);
    plane_init(switch_plane(w), &p);
    for (uint16_t i = 0; i < SWITCH_TENANTS; i++)
        plane_quota(switch_plane(w), i, &quotas[i]);
    switch_plane(w)->in_kernel = in_kernel;
}

void switch_begin(struct nl_switch *w, uint32_t reign, bool clean, uint64_t now)
{
    const struct nl_switch old = *w;
    if (old.life)
        wipe(w);
    w->config = old.config;
    w->drops = old.drops;
    w->counts = old.counts;
    memcpy(w->stops, old.stops, sizeof w->stops);
    w->number = old.number;
    w->levels = old.levels;
    w->twin = old.twin;
    w->own_life = old.own_life;
    w->leased_ns = old.leased_ns;
    w->stamp = old.stamp;
    w->beat_ns = old.beat_ns;
    w->life = reign;
    w->clean = clean;
    w->version = 1;
    w->control_ns = now;
    w->allocate_ns = now + NETLOCK_MEASURE_NS;
    w->churn_ns = now + w->config.retry_ns;
    w->dice = reign * UINT64_C(0x9e3779b97f4a7c15) + (w->config.options & ~(uint64_t)NETLOCK_FEW);
    switch_plane(w)->bust = (uint16_t)(MISTAKES(w->config.mistakes) & NETLOCK_BUST_PLANE);
    switch_plane(w)->bust |= MISTAKE(w->config.mistakes, NETLOCK_BUST_UPGRADED) ? NETLOCK_BUST_UPGRADE : 0;
    switch_plane(w)->bust |= MISTAKE(w->config.mistakes, NETLOCK_BUST_CALLED) ? NETLOCK_BUST_LOW : 0;
    if (w->config.options & NETLOCK_CHAIN)
        install_all(w, now);
}

/* ---- what leaves ---- */

struct netlock_packet *switch_to_server(struct nl_switch *w, uint64_t index, enum netlock_type type, struct outbox *out)
{
    if (!switch_owner(w, index))
        return NULL;
    struct netlock_packet *p = netlock_packet_new(out, &w->config, type, w->life, switch_place(w), switch_server_place(w, index));
    if (p) {
        p->head.index = index;
        p->life = w->life;
    }
    return p;
}

static struct netlock_packet *to_client(struct nl_switch *w, uint64_t index, uint64_t nonce, struct place to,
                                        enum netlock_type type, struct outbox *out)
{
    struct netlock_packet *p = netlock_packet_new(out, &w->config, type, w->life, switch_place(w), to);
    if (p) {
        p->head.index = index;
        p->head.nonce = nonce;
    }
    return p;
}

static void emit_grant(struct nl_switch *w, uint64_t index, const struct netlock_pass *pass, struct outbox *out)
{
    struct netlock_packet *p = to_client(w, index, pass->out_nonce, pass->out_place, NETLOCK_GRANT, out);
    w->counts.switch_grants++;
    if (!p)
        return; /* as if it were lost: asked for again */
    p->mode = pass->out_mode;
    p->ticket = pass->out_ticket;
    p->token = pass->out_token;
}

static void emit_converted(struct nl_switch *w, uint64_t index, const struct netlock_pass *pass, struct outbox *out)
{
    struct netlock_packet *p = to_client(w, index, pass->out_nonce, pass->out_place, NETLOCK_CONVERTED, out);
    if (!p)
        return;
    p->mode = pass->out_mode;
    p->count = pass->step;
    p->token = pass->out_token;
}

static void emit_data(struct nl_switch *w, const struct netlock_pass *pass, const struct netlock_packet *p, uint32_t len,
                      struct outbox *out)
{
    struct netlock_packet *d = outbox_add(out, len);
    w->counts.switch_grants++;
    if (!d)
        return; /* as if it were lost: asked for again */
    netlock_to_data(d, p, len, switch_place(w), w->life);
    d->mode = pass->out_mode;
    d->ticket = pass->out_ticket;
    d->token = pass->out_token;
}

static void emit_refusal(struct nl_switch *w, uint64_t index, const struct netlock_pass *pass, struct outbox *out)
{
    struct netlock_packet *p = to_client(w, index, pass->nonce, (struct place){pass->machine, pass->port}, NETLOCK_REFUSED, out);
    bool quota = pass->out & NETLOCK_OUT_QUOTA;
    w->counts.refused_quota += quota;
    if (!p)
        return;
    p->code = quota                              ? NETLOCK_QUOTA
              : pass->out & NETLOCK_OUT_MOVING   ? NETLOCK_MOVING
              : pass->out & NETLOCK_OUT_DEADLOCK ? NETLOCK_DEADLOCK
                                                 : NETLOCK_HELD;
    p->count = pass->out & NETLOCK_OUT_DEADLOCK ? pass->step : 0;
    p->stamp = quota ? (uint64_t)pass->out_wait << 10 : 0;
}

/* To the server, with what it must know about where the lock is. */
static void emit_forward(struct nl_switch *w, uint64_t index, const struct netlock_pass *pass, struct outbox *out)
{
    enum netlock_type type = pass->op == NETLOCK_OP_CANCEL ? NETLOCK_CANCEL : NETLOCK_ACQUIRE;
    struct netlock_packet *p = switch_owner(w, index) ? outbox_add(out, sizeof *p) : NULL;
    w->counts.overflowed++;
    if (!p)
        return; /* as if it were lost */
    netlock_head(p, &w->config, type, switch_machine(w, pass->machine)->life, (struct place){pass->machine, pass->port},
                 switch_server_place(w, index));
    p->head.index = index;
    p->head.nonce = pass->nonce;
    p->mode = pass->mode;
    p->priority = pass->priority;
    p->tenant = pass->tenant;
    p->flags = (uint8_t)((pass->flags & NETLOCK_TRY) | NETLOCK_FORWARDED | NETLOCK_OVERFLOW | (pass->low ? NETLOCK_LOW : 0));
    p->ticket = pass->levels;
    p->life = w->life;
    p->round = pass->round;
    p->count = pass->count;
}

static void emit_pushes(struct nl_switch *w, uint64_t index, const struct netlock_pass *pass, struct outbox *out)
{
    enum netlock_type type = pass->out & NETLOCK_OUT_NOTIFY ? NETLOCK_NOTIFY : NETLOCK_PUSHED;
    struct netlock_packet *p = switch_to_server(w, index, type, out);
    if (!p)
        return;
    p->round = pass->round;
    p->pushed = pass->pushed;
    p->count = pass->count;
    p->room = pass->out_room;
    p->flags = pass->vacant ? NETLOCK_LOW : 0;
    p->ticket = pass->levels;
}

static void emit(struct nl_switch *w, uint32_t lock, const struct netlock_pass *pass, struct outbox *out)
{
    uint64_t index = plane_index(switch_plane(w), lock);
    struct place client = {pass->machine, pass->port};
    if (pass->out & NETLOCK_OUT_GRANT)
        emit_grant(w, index, pass, out);
    if (pass->out & NETLOCK_OUT_RELEASED)
        to_client(w, index, pass->nonce, client, NETLOCK_RELEASED, out);
    if (pass->out & NETLOCK_OUT_GONE)
        to_client(w, index, pass->nonce, client, NETLOCK_GONE, out);
    if (pass->out & (NETLOCK_OUT_HELD | NETLOCK_OUT_QUOTA | NETLOCK_OUT_MOVING | NETLOCK_OUT_DEADLOCK))
        emit_refusal(w, index, pass, out);
    if (pass->out & NETLOCK_OUT_CONVERTED)
        emit_converted(w, index, pass, out);
    if (pass->out & NETLOCK_OUT_FORWARD)
        emit_forward(w, index, pass, out);
    /* While it moves, nothing is to be pushed. */
    if (pass->out & NETLOCK_OUT_PUSHED || (pass->out & NETLOCK_OUT_NOTIFY && switch_control(w, lock)->state == CONTROL_LIVE))
        emit_pushes(w, index, pass, out);
}

/* `p`: the packet itself, if it has bytes for a data server. */
static void run(struct nl_switch *w, uint32_t lock, struct netlock_pass *pass, const struct netlock_packet *p, uint32_t len,
                uint64_t now, struct outbox *out)
{
    struct plane *plane = switch_plane(w);
    uint64_t passes = 0;
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
        switch_give(w, lock, now, out); /* if that was the last: nobody has to wait for a tick */
}

void switch_run(struct nl_switch *w, uint32_t lock, struct netlock_pass *pass, uint64_t now, struct outbox *out)
{
    run(w, lock, pass, NULL, 0, now, out);
}

/* ---- packets of hosts ---- */

/* As it is, to where it wants to go. */
static void pass_through(const void *data, uint32_t len, struct outbox *out)
{
    void *p = outbox_add(out, len);
    if (p)
        memcpy(p, data, len);
}

/* Bytes for a data server go along: most often that is the one which has the lock. */
static void pass_on(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, struct outbox *out)
{
    uint32_t all = p->flags & NETLOCK_PAYLOAD ? len : (uint32_t)sizeof *p;
    struct netlock_packet *f = switch_owner(w, p->head.index) ? outbox_add(out, all) : NULL;
    w->counts.passed_on++;
    if (!f)
        return;
    memcpy(f, p, all);
    f->head.to = switch_server_place(w, p->head.index);
    f->flags = (uint8_t)((p->flags & (NETLOCK_TRY | NETLOCK_PAYLOAD)) | NETLOCK_FORWARDED);
    f->priority = w->levels ? p->priority : 0;
    f->life = w->life;
    f->round = w->version;
}

/* The quota counts for locks on servers, too. */
static bool within_quota(struct nl_switch *w, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    uint32_t wait = plane_charge(switch_plane(w), p->tenant, p->head.from.machine, p->head.nonce, plane_now(now));
    if (!wait)
        return true;
    struct netlock_packet *a = to_client(w, p->head.index, p->head.nonce, p->head.from, NETLOCK_REFUSED, out);
    w->counts.refused_quota++;
    if (a) {
        a->code = NETLOCK_QUOTA;
        a->stamp = (uint64_t)wait << 10;
    }
    return false;
}

static void on_request(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    static const uint8_t ops[] = {[NETLOCK_ACQUIRE] = NETLOCK_OP_ACQUIRE,
                                  [NETLOCK_RELEASE] = NETLOCK_OP_RELEASE,
                                  [NETLOCK_CANCEL] = NETLOCK_OP_CANCEL,
                                  [NETLOCK_CONVERT] = NETLOCK_OP_CONVERT,
                                  [NETLOCK_STAY] = NETLOCK_OP_STAY};
    bool converts = p->head.type == NETLOCK_CONVERT || p->head.type == NETLOCK_STAY;
    uint32_t lock = plane_match(switch_plane(w), p->head.index);
    if (lock == PLANE_NO_LOCK) {
        if (p->head.type == NETLOCK_RELEASE) /* its queue had drained before it went: this one has ended */
            to_client(w, p->head.index, p->head.nonce, p->head.from, NETLOCK_RELEASED, out);
        else if (!converts && (p->head.type != NETLOCK_ACQUIRE || within_quota(w, p, now, out)))
            pass_on(w, p, len, out);
        return;
    }
    struct netlock_pass pass = {.op = ops[p->head.type],
                                .mode = p->mode,
                                .priority = w->levels ? p->priority : 0,
                                .flags = p->flags & (NETLOCK_TRY | NETLOCK_PAYLOAD),
                                .machine = p->head.from.machine,
                                .port = p->head.from.port,
                                .tenant = p->tenant,
                                .nonce = p->head.nonce,
                                .ticket = p->ticket,
                                .step = converts ? (uint16_t)(p->count % NETLOCK_STEPS) : 0};
    run(w, lock, &pass, p->flags & NETLOCK_PAYLOAD ? p : NULL, len, now, out);
}

/* When all hosts have dropped what a former life of the switch granted them, nobody needs to wait for the leases that it gave. */
static void look_whether_clean(struct nl_switch *w, struct netlock_machine *m, struct outbox *out)
{
    m->clean = true;
    for (uint16_t i = 1; i <= w->config.machines; i++)
        if (!switch_machine(w, i)->clean)
            return;
    w->clean = true;
    for (unsigned i = 0; i < w->config.servers; i++)
        if (w->servers[i].life)
            switch_say_synced(w, i, 0, out);
}

static void on_lease(struct nl_switch *w, struct netlock_machine *m, const struct netlock_packet *p, uint64_t now,
                     struct outbox *out)
{
    struct netlock_packet *a = outbox_add(out, sizeof *a);
    if (!a)
        return; /* no answer, no lease */
    __atomic_store_n(&m->until_ns, now + w->config.lease_ns, __ATOMIC_RELEASE);
    m->live = true;
    *a = *p;
    a->head.type = NETLOCK_LEASED;
    a->head.epoch = w->life;
    a->head.to = p->head.from;
    a->head.from = switch_place(w);
    if (p->life == w->life && !m->clean)
        look_whether_clean(w, m, out);
}

static bool sound(const struct nl_switch *w, const struct netlock_packet *p, uint32_t len)
{
    const struct packet_head *h = &p->head;
    if (h->type == NETLOCK_LEASE)
        return true;
    if (netlock_request_of(h->nonce) >= rack_requests(&w->config) || !(h->nonce >> NETLOCK_SLOT_BITS))
        return false;
    if (h->type == NETLOCK_ACQUIRE)
        return (p->mode == NETLOCK_SHARED || p->mode == NETLOCK_EXCLUSIVE) &&
               (!(p->flags & NETLOCK_PAYLOAD) || netlock_sound_payload(&w->config, p, len));
    if (h->type == NETLOCK_CONVERT || h->type == NETLOCK_STAY)
        return p->mode == NETLOCK_SHARED || p->mode == NETLOCK_EXCLUSIVE;
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
               ((w->levels && p->priority >= NETLOCK_PRIORITIES) || p->tenant >= SWITCH_TENANTS)) {
        struct netlock_packet *a = to_client(w, p->head.index, p->head.nonce, p->head.from, NETLOCK_REFUSED, out);
        if (a)
            a->code = NETLOCK_POLICY;
    } else {
        on_request(w, p, len, now, out);
    }
}

static bool is_server(const struct nl_switch *w, uint16_t machine)
{
    for (unsigned i = 0; i < w->config.servers; i++)
        if (w->config.server[i] == machine)
            return true;
    return false;
}

void netlock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct nl_switch *w = state;
    const struct packet_head *h = packet_check(data, len, PACKET_NETLOCK, &w->config, &w->drops);
    const struct netlock_packet *p = data;
    if (!h)
        return;
    if (h->to.machine != MACHINE_SWITCH || h->to.port != w->number) {
        pass_through(data, len, out);
        return;
    }
    if (len < sizeof *p) {
        w->drops.bad++;
        return;
    }
    if (h->from.machine == MACHINE_STEWARD) {
        switch_on_reign(w, p, len, now);
        return;
    }
    if (h->from.machine == MACHINE_OPERATOR) {
        switch_on_command(w, p, len, now, out);
        return;
    }
    if (!switch_reigns(w, now)) {
        w->drops.stale++;
        if (h->from.machine <= w->config.machines)
            switch_say_elsewhere(w, h, out);
        return;
    }
    if (h->from.machine <= w->config.machines) /* also what a server sends back in the name of a host */
        on_host(w, p, len, now, out);
    else if (is_server(w, h->from.machine))
        switch_on_server(w, p, len, now, out);
    else
        w->drops.alien++;
}
