/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch in the kernel: the operations of dataplane/netlock.h on registers in one map's memory, addressed directly. A
 * pass of a packet runs under the latch of its lock, and resubmission is a bounded loop; between two passes other packets may pass,
 * as in the hardware. Rare packets (hosts that come and go, moving locks, servers' messages other than pushes) go to the control
 * process, which has the same code in user space and reaches the registers by orders. */
#define FRAME_READS_MANY
#define inline inline __attribute__((always_inline)) /* nothing may be called under a latch */
#include "dataplane/netlock_packets.h"
#undef inline
#include "dataplane/xdp/fan.bpf.h"
#include "dataplane/xdp/many.bpf.h"

const volatile struct netlock_memory at SEC(".rodata.netlock");

/* The block of dataplane/netlock_memory.h: one entry, as long as the loader makes it; the control process maps it, too. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(key_size, 4);
    __uint(value_size, 8);
} memory SEC(".maps");

/* One latch for each lock that can be in the switch. A map with a latch cannot be mapped into a process, so it is a map of its own.
 * */
struct latch {
    struct bpf_spin_lock lock;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct latch);
} latches SEC(".maps");

/* Index -> number of those locks that are in the switch. Limit: as many. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, uint64_t);
    __type(value, uint32_t);
} here SEC(".maps");

/* ---- memory ---- */

INLINE uint8_t *base(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&memory, &zero);
}

/* A cell of so many bytes at that offset; null: it lies beyond the end, as with an index that was not checked. */
INLINE void *cell(uint8_t *b, uint64_t start, uint64_t index, uint32_t size)
{
    uint64_t where = start + index * size;
    asm volatile("" : "+r"(where)); /* what is checked is what is used */
    return where > at.bytes - NETLOCK_CELL_MAX ? 0 : b + where;
}

INLINE uint64_t read_register(void *ctx, enum netlock_array array, uint32_t index)
{
    void *r = cell(ctx, at.arrays_at[array], index, netlock_is_wide(array) ? 8 : 4);
    return !r ? 0 : netlock_is_wide(array) ? *(uint64_t *)r : *(uint32_t *)r;
}

INLINE void write_register(void *ctx, enum netlock_array array, uint32_t index, uint64_t value)
{
    void *r = cell(ctx, at.arrays_at[array], index, netlock_is_wide(array) ? 8 : 4);
    if (r && netlock_is_wide(array))
        *(uint64_t *)r = value;
    else if (r)
        *(uint32_t *)r = (uint32_t)value;
}

INLINE uint32_t of_memory(uint8_t *b, uint64_t where)
{
    uint32_t *p = cell(b, where, 0, 4);
    return p ? *(volatile uint32_t *)p : 0;
}

/* The policy may change between two reads: the priority in any packet is valid nevertheless. */
INLINE bool is_ranked(uint8_t *b)
{
    return of_memory(b, at.levels_at) != 0;
}

/* ---- passes ---- */

enum { PASS_BUSY, PASS_RAN, PASS_CLOSED };

/* One pass, if the lock is open as `index`. The first pass of a packet marks it as active. Only one packet of a request passes at a
 * time, whatever its lock, because a request's registers do not belong to a lock. */
__attribute__((noinline)) int one_pass(struct netlock_pass *pass, uint32_t lock, uint64_t index, uint32_t first)
{
    uint8_t *b = base();
    struct latch *latch = bpf_map_lookup_elem(&latches, &lock);
    if (!pass || !b || !latch)
        return PASS_CLOSED;
    uint32_t request = netlock_request_cell(pass->machine, pass->nonce, at.stride, at.requests);
    uint32_t tenant = pass->tenant < at.tenants ? pass->tenant : 0;
    const struct netlock_registers r = {b, read_register, write_register, lock, request, tenant};
    uint32_t *claim = cell(b, at.claims_at, request, 4);
    uint64_t *open = cell(b, at.open_at, lock, 8);
    uint32_t *active = cell(b, at.active_at, lock, 4);
    struct netlock_quota *quota = cell(b, at.quota_at, tenant, sizeof *quota);
    if (!claim || !open || !active || !quota)
        return PASS_CLOSED;
    pass->rate = quota->rate;
    pass->burst = quota->burst;
    int result = PASS_CLOSED;
    bpf_spin_lock(&latch->lock);
    if ((first ? *open : *open & ~NETLOCK_CLOSING) == index + 1) {
        result = PASS_BUSY;
        if (__sync_val_compare_and_swap(claim, 0, 1) == 0) {
            if (first)
                __sync_fetch_and_add(active, 1);
            netlock_run(pass, &r);
            *(volatile uint32_t *)claim = 0;
            result = PASS_RAN;
        }
    }
    bpf_spin_unlock(&latch->lock);
    return result;
}

/* ---- what leaves ---- */

INLINE struct netlock_packet *add_packet(void *work)
{
    struct fan_work *w = work;
    uint32_t i = w->outs;
    if (i >= FAN_MAX)
        return 0;
    struct netlock_packet *p = &w->out[i];
    w->outs = i + 1;
    __builtin_memset(p, 0, sizeof *p);
    return p;
}

INLINE struct place this_switch(void)
{
    return (struct place){MACHINE_SWITCH, PORT_POOL};
}

/* The number of the server that has a lock, + 1; 0: none. */
INLINE uint64_t owner_of(uint8_t *b, uint64_t index)
{
    const uint16_t *owner = cell(b, at.owner_at, at.servers ? (uint32_t)(index % at.servers) : 0, 2);
    return owner ? *(const volatile uint16_t *)owner : 0;
}

INLINE struct place server_of(uint8_t *b, uint64_t index)
{
    uint64_t number = owner_of(b, index) - 1;
    asm volatile("" : "+r"(number));
    return (struct place){number < NETLOCK_SERVERS_MAX ? at.server[number] : 0, PORT_SERVER};
}

INLINE uint32_t generation_of(uint8_t *b, uint64_t index)
{
    const uint32_t *generation = cell(b, at.generations_at, index, 4);
    return generation ? *(const volatile uint32_t *)generation : 0;
}

INLINE void emit(struct fan_work *w, uint8_t *b)
{
    struct netlock_sender s = {.add = add_packet,
                               .ctx = w,
                               .index = w->index,
                               .space = settings.space,
                               .term = of_memory(b, at.term_at),
                               .self = this_switch()};
    if (w->pass.out & NETLOCK_OUT_TO_SERVER) {
        const struct netlock_machine *m = cell(b, at.machines_at, w->pass.machine, sizeof *m);
        const uint32_t *notify = cell(b, at.notify_at, w->lock, 4);
        s.server = server_of(b, w->index);
        s.generation = generation_of(b, w->index);
        s.host_life = m ? m->life : 0;
        s.notifies = notify && *notify;
    }
    netlock_emit(&w->pass, &s);
}

/* ---- all passes of a packet ---- */

enum { WORK_UNFINISHED, WORK_DONE, WORK_CLOSED };
#define OUTS_OF_A_PASS 4u

struct turn {
    struct fan_work *work;
    uint8_t *base;
};

static long step(uint32_t i, struct turn *t)
{
    struct fan_work *w = t->work;
    if (w->outs > FAN_MAX - OUTS_OF_A_PASS || w->passes == FAN_PASSES)
        return 1;
    int result = one_pass(&w->pass, w->lock, w->index, !w->passes);
    if (result == PASS_BUSY)
        return 0;
    if (result != PASS_RAN) {
        w->ended = WORK_CLOSED;
        return 1;
    }
    w->passes++;
    emit(w, t->base);
    if (w->pass.next == NETLOCK_OP_NONE) {
        w->ended = WORK_DONE;
        return 1;
    }
    netlock_resubmit(&w->pass);
    return 0;
}

/* 0: it did not get a pass, and its sender tries again. */
INLINE int run_passes(struct fan_work *w, uint8_t *b)
{
    struct turn t = {.work = w, .base = b};
    w->passes = 0;
    w->ended = WORK_UNFINISHED;
    bpf_loop(FAN_TRIES, step, &t, 0);
    if (!w->passes)
        return 0;
    uint32_t *active = cell(b, at.active_at, w->lock, 4);
    uint64_t *unfinished = cell(b, at.unfinished_at, 0, 8);
    if (active)
        __sync_fetch_and_sub(active, 1);
    if (w->ended == WORK_UNFINISHED && unfinished)
        __sync_fetch_and_add(unfinished, 1);
    return 1;
}

INLINE int run(struct xdp_md *ctx, struct frame *f, struct fan_work *w, uint8_t *b, struct plane_counters *c)
{
    return run_passes(w, b) ? fan_send(ctx, f, w, c) : drop(c, PLANE_CONTENDED);
}

INLINE int frame_reply(struct frame *f, struct netlock_packet *p, struct plane_counters *c, uint8_t type, uint32_t life)
{
    netlock_turn_round(p, (enum netlock_type)type, life, this_switch());
    return frame_answer(f, c);
}

INLINE void begin_passes(struct fan_work *w, uint32_t lock, uint64_t index, uint64_t now)
{
    w->lock = lock;
    w->index = index;
    __builtin_memset(&w->pass, 0, sizeof w->pass);
    w->pass.now = (uint32_t)(now >> 10);
}

INLINE struct fan_work *begin_work(uint32_t lock, uint64_t index, uint64_t now)
{
    struct fan_work *w = fan_begin();
    if (w)
        begin_passes(w, lock, index, now);
    return w;
}

/* ---- packets of hosts ---- */

/* Not in the switch: the server's. */
INLINE int pass_on(struct xdp_md *ctx, struct frame *f, struct netlock_packet *p, uint8_t *b, uint32_t version,
                   struct plane_counters *c)
{
    struct netlock_quota *quota = cell(b, at.quota_at, p->tenant < at.tenants ? p->tenant : 0, sizeof *quota);
    if (p->head.type == NETLOCK_ACQUIRE && (!quota || quota->rate))
        return pass(c, PLANE_CONTROL); /* the quota counts for locks on servers, too */
    struct place server = server_of(b, p->head.index);
    if (!server.machine)
        return drop(c, PLANE_UNKNOWN); /* no server has the lock just now */
    netlock_forward(p, server, is_ranked(b), of_memory(b, at.term_at), version);
    return fan_one(ctx, f, c);
}

INLINE int on_lease(struct frame *f, struct netlock_packet *p, struct netlock_machine *m, uint64_t until, uint64_t now,
                    uint32_t life, struct plane_counters *c)
{
    if (p->stamp && p->stamp <= *(volatile uint64_t *)&m->said_ns)
        return drop(c, PLANE_OUTDATED); /* lease_is_news() in user space */
    if (!m->clean && p->life == life)
        return pass(c, PLANE_CONTROL); /* it has heard of this life of ours */
    /* The control process may be about to end it. */
    if (__sync_val_compare_and_swap(&m->until_ns, until, now + at.lease_ns) != until)
        return drop(c, PLANE_CONTENDED);
    *(volatile uint64_t *)&m->said_ns = p->stamp;
    return frame_reply(f, p, c, NETLOCK_LEASED, life);
}

INLINE int on_request(struct xdp_md *ctx, struct frame *f, struct netlock_packet *p, uint8_t *b, uint64_t now,
                      struct plane_counters *c)
{
    uint32_t version =
        of_memory(b, at.version_at); /* read before the lookup: a packet with a newer version has seen a newer table */
    uint64_t index = p->head.index;
    uint32_t *lock = bpf_map_lookup_elem(&here, &index);
    if (!lock) {
        if (p->head.type != NETLOCK_RELEASE)
            return pass_on(ctx, f, p, b, version, c);
        /* Its queue had drained before it went: this one has ended. */
        struct netlock_packet gone = {.head = p->head};
        gone.head.generation = 0;
        fan_put(f, &gone);
        return frame_reply(f, p, c, NETLOCK_RELEASED, of_memory(b, at.term_at));
    }
    struct fan_work *w = begin_work(*lock, index, now);
    if (!w)
        return XDP_ABORTED;
    netlock_pass_of_request(&w->pass, p, is_ranked(b));
    return run(ctx, f, w, b, c);
}

INLINE int on_host(struct xdp_md *ctx, struct frame *f, struct netlock_packet *p, uint8_t *b, struct plane_counters *c)
{
    struct netlock_machine *m = cell(b, at.machines_at, p->head.from.machine, sizeof *m);
    uint8_t type = p->head.type;
    int rare = type == NETLOCK_CONVERT || type == NETLOCK_STAY || type == NETLOCK_PROBE;
    if (type < NETLOCK_ACQUIRE || (type > NETLOCK_LEASE && !rare))
        return drop(c, PLANE_TYPE);
    if ((type != NETLOCK_LEASE && !netlock_sound_nonce(p, at.stride)) || (type == NETLOCK_ACQUIRE && !netlock_sound_mode(p)))
        return drop(c, PLANE_TYPE);
    if (!m)
        return drop(c, PLANE_UNKNOWN);
    if (!is_from(p->head.from.machine, f->ip->saddr))
        return drop(c, PLANE_FORGED);
    if (p->head.epoch < m->life)
        return drop(c, PLANE_EPOCH);
    uint64_t until = *(volatile uint64_t *)&m->until_ns, now = bpf_ktime_get_boot_ns();
    count_type(c, f->head);
    /* The host is new, is back, or its lease has ended: its former holds and waits must be ended first. */
    if (p->head.epoch > m->life || !m->live || now >= until || rare)
        return pass(c, PLANE_CONTROL);
    if (type == NETLOCK_LEASE)
        return on_lease(f, p, m, until, now, of_memory(b, at.term_at), c);
    if (type == NETLOCK_ACQUIRE &&
        ((is_ranked(b) && p->priority >= NETLOCK_PRIORITIES) || p->tenant >= at.tenants || p->flags & NETLOCK_PAYLOAD))
        return pass(c, PLANE_CONTROL);
    if (type == NETLOCK_ACQUIRE && p->head.generation != generation_of(b, p->head.index))
        return pass(c, PLANE_CONTROL); /* the next generation begins, or the request is of a former one */
    return on_request(ctx, f, p, b, now, c);
}

/* ---- packets of servers ---- */

INLINE void learn_server(struct xdp_md *ctx, struct frame *f, uint32_t machine)
{
    struct plane_host *h = bpf_map_lookup_elem(&hosts, &machine);
    if (!h || h->life > f->head->epoch)
        return;
    for (int i = 0; i < 3; i++)
        h->mac[i] = f->eth->source[i];
    h->life = f->head->epoch;
    h->ifindex = ctx->ingress_ifindex;
    h->pool_port = f->udp->source;
    host_is_at(h, f->ip->saddr);
}

/* PUSH and LAST are for the stages; all other packets of servers are for the control process. */
INLINE int on_server(struct xdp_md *ctx, struct frame *f, struct netlock_packet *p, uint8_t *b, struct plane_counters *c)
{
    uint64_t index = p->head.index;
    uint32_t owner = (uint32_t)owner_of(b, index) - 1;
    uint8_t type = p->head.type;
    if (type < NETLOCK_PUSH || type >= NETLOCK_TYPES)
        return drop(c, PLANE_TYPE);
    learn_server(ctx, f, p->head.from.machine);
    count_type(c, f->head);
    struct netlock_lent *lent = cell(b, at.servers_at, owner < NETLOCK_SERVERS_MAX ? owner : 0, sizeof *lent);
    uint32_t *lock = bpf_map_lookup_elem(&here, &index);
    if ((type != NETLOCK_PUSH && type != NETLOCK_LAST) || !lent || !lock || p->life != of_memory(b, at.term_at) ||
        p->head.epoch != lent->life || server_of(b, index).machine != p->head.from.machine)
        return pass(c, PLANE_CONTROL);
    uint32_t *notify = cell(b, at.notify_at, *lock, 4);
    if (!notify || !*notify)
        return pass(c, PLANE_CONTROL); /* it moves: the process says so */
    if (type == NETLOCK_PUSH && !netlock_sound_push(p, settings.machines, at.stride, at.tenants))
        return drop(c, PLANE_TYPE);
    struct fan_work *w = begin_work(*lock, index, bpf_ktime_get_boot_ns());
    if (!w)
        return XDP_ABORTED;
    const struct netlock_machine *m = cell(b, at.machines_at, p->client.machine, sizeof *m);
    netlock_pass_of_push(&w->pass, p, type == NETLOCK_PUSH && m ? m->life : 0, is_ranked(b));
    return run(ctx, f, w, b, c);
}

/* ---- several packets in one datagram ---- */

/* Whether the part is a host's ACQUIRE or RELEASE; for others only the single packet has code. */
INLINE int part_is_known(const struct netlock_packet *p, uint32_t len)
{
    int type = p->head.type == NETLOCK_ACQUIRE || p->head.type == NETLOCK_RELEASE;
    return type && len == sizeof *p && p->head.to.machine == MACHINE_SWITCH && p->head.from.machine <= settings.machines;
}

/* As netlock() and on_host() have it, for these two: the same checks in the same order. Packets for the control process go singly.
 */
INLINE int admit_part(const struct netlock_packet *p, uint8_t *b, uint64_t now, struct plane_counters *c)
{
    const uint64_t *active = cell(b, at.until_at, 0, 8);
    struct netlock_machine *m = cell(b, at.machines_at, p->head.from.machine, sizeof *m);
    int acquires = p->head.type == NETLOCK_ACQUIRE;
    if (p->head.space != settings.space || p->head.from.machine == MACHINE_NONE || p->head.index >= PACKET_LOCKS_MAX)
        return refuse_part(c, PLANE_ALIEN);
    if (!active || now >= *(const volatile uint64_t *)active)
        return MANY_SINGLY;
    if (!netlock_sound_nonce(p, at.stride) || (acquires && !netlock_sound_mode(p)))
        return refuse_part(c, PLANE_TYPE);
    if (!m)
        return refuse_part(c, PLANE_UNKNOWN);
    if (p->head.epoch < m->life)
        return refuse_part(c, PLANE_EPOCH);
    if (p->head.epoch > m->life || !m->live || now >= *(volatile uint64_t *)&m->until_ns)
        return MANY_SINGLY;
    if (acquires && ((is_ranked(b) && p->priority >= NETLOCK_PRIORITIES) || p->tenant >= at.tenants || p->flags & NETLOCK_PAYLOAD ||
                     p->head.generation != generation_of(b, p->head.index)))
        return MANY_SINGLY;
    return MANY_ANSWERED;
}

/* Whether the request will be answered, and no other client: a look without the latch. While no writer is in the queue no request
 * waits in it. If another packet comes in between, there may be more packets than that, and they leave by the control process. */
INLINE int is_quiet(const struct netlock_packet *p, uint8_t *b, uint32_t lock)
{
    uint64_t ends = read_register(b, NETLOCK_ENDS, lock), bounds = read_register(b, NETLOCK_BOUNDS, lock);
    uint32_t head = (uint32_t)(ends >> 32) & NETLOCK_TICKET, tail = (uint32_t)ends & NETLOCK_TICKET;
    uint64_t writers = read_register(b, NETLOCK_EXCL, lock);
    if (ends & NETLOCK_OVER || netlock_waiting_here(bounds, read_register(b, NETLOCK_WAITING, lock)))
        return 0;
    if (p->head.type == NETLOCK_RELEASE)
        return !writers || netlock_between(head, tail, (uint32_t)(bounds >> 16) & 0xffffu) == 1;
    return head == tail || (!netlock_full(head, tail) && (p->flags & NETLOCK_TRY || (!writers && p->mode == NETLOCK_SHARED)));
}

/* The answer to the sender takes the part's place, the others are for the control process to send. */
struct part_sorting {
    const struct fan_work *work;
    struct place sender;
    uint32_t answer; /* which, + 1; 0: none */
};

static long sort_part(uint32_t i, struct part_sorting *s)
{
    const struct fan_work *w = s->work;
    if (i >= FAN_MAX || i >= w->outs)
        return 1;
    const struct netlock_packet *o = &w->out[i];
    if (!s->answer && o->head.to.machine == s->sender.machine && o->head.to.port == s->sender.port)
        s->answer = i + 1;
    else
        bpf_ringbuf_output(&mail, (void *)(uintptr_t)o, sizeof *o, 0);
    return 0;
}

INLINE int answer_part(struct xdp_md *ctx, uint32_t where, struct fan_work *w, struct place sender)
{
    struct part_sorting s = {.work = w, .sender = sender};
    bpf_loop(FAN_MAX, sort_part, &s, 0);
    uint64_t *to = many_bytes(ctx, where, sizeof w->out[0]);
    uint32_t i = s.answer - 1;
    if (!to || i >= FAN_MAX)
        return MANY_SETTLED;
    const uint64_t *from = (const void *)&w->out[i];
    for (uint32_t k = 0; k < sizeof w->out[0] / 8; k++)
        to[k] = from[k];
    return MANY_ANSWERED;
}

int decide_part(struct xdp_md *ctx, uint32_t where, uint32_t len)
{
    struct plane_counters *c = count_here();
    const struct netlock_packet *p = many_bytes(ctx, where, sizeof *p);
    uint8_t *b = base();
    uint64_t now = bpf_ktime_get_boot_ns();
    if (!c || !b)
        return MANY_SETTLED;
    if (!p || len < sizeof *p)
        return refuse_part(c, PLANE_SHORT);
    if (!part_is_known(p, len))
        return MANY_SINGLY;
    if (!part_is_senders(ctx, p->head.from.machine))
        return refuse_part(c, PLANE_UNTAGGED);
    if (!is_from(p->head.from.machine, frame_saddr(ctx)))
        return refuse_part(c, PLANE_FORGED);
    int admitted = admit_part(p, b, now, c);
    if (admitted != MANY_ANSWERED)
        return admitted;
    uint64_t index = p->head.index;
    uint32_t *lock = bpf_map_lookup_elem(&here, &index);
    struct fan_work *w = fan_scratch();
    if (!lock || !w || !is_quiet(p, b, *lock))
        return MANY_SINGLY;
    count_type(c, &p->head);
    begin_passes(w, *lock, index, now);
    netlock_pass_of_request(&w->pass, p, is_ranked(b));
    struct place sender = p->head.from;
    return run_passes(w, b) ? answer_part(ctx, where, w, sender) : refuse_part(c, PLANE_CONTENDED);
}

/* ---- frames ---- */

INLINE int is_server(uint16_t machine)
{
    for (uint32_t i = 0; i < NETLOCK_SERVERS_MAX; i++)
        if (i < at.servers && at.server[i] == machine)
            return 1;
    return 0;
}

INLINE int netlock(struct xdp_md *ctx, struct frame *f, struct plane_counters *c)
{
    struct netlock_packet *p = (void *)f->head;
    uint8_t *b = base();
    if (!b)
        return XDP_ABORTED;
    if (p->head.from.machine == MACHINE_NONE || p->head.index >= PACKET_LOCKS_MAX)
        return drop(c, PLANE_ALIEN);
    if (p->head.to.machine != MACHINE_SWITCH) {
        count_type(c, f->head);
        return fan_one(ctx, f, c);
    }
    if (f->len < sizeof *p || (void *)(p + 1) > f->end)
        return drop(c, PLANE_SHORT);
    /* Packets of the steward and of operators, and all packets while the switch is not active, are for the control process. */
    const uint64_t *until = cell(b, at.until_at, 0, 8);
    if (p->head.from.machine == MACHINE_STEWARD || p->head.from.machine == MACHINE_OPERATOR || !until ||
        bpf_ktime_get_boot_ns() >= *(const volatile uint64_t *)until) {
        count_type(c, f->head);
        return pass(c, PLANE_CONTROL);
    }
    int host = p->head.from.machine <= settings.machines;
    if (!host && !is_server(p->head.from.machine))
        return drop(c, PLANE_ALIEN);
    if (f->len > sizeof *p) { /* a report, or bytes for a data server */
        count_type(c, f->head);
        if (!host)
            learn_server(ctx, f, p->head.from.machine);
        return pass(c, PLANE_CONTROL);
    }
    return host ? on_host(ctx, f, p, b, c) : on_server(ctx, f, p, b, c);
}

INLINE int take(struct xdp_md *ctx)
{
    struct plane_counters *c;
    struct frame f;
    int verdict = frame_begin(ctx, &c, &f);
    if (verdict == FRAME_MANY)
        return f.head->family == PACKET_NETLOCK ? many_decide(ctx, &f, c) : drop(c, PLANE_FAMILY);
    if (verdict != FRAME_OURS)
        return verdict;
    if (f.head->family == PACKET_NETLOCK && f.head->space == settings.space)
        return netlock(ctx, &f, c);
    count_type(c, f.head);
    return frame_relay(ctx, &f, c);
}

INLINE int handle(struct xdp_md *ctx)
{
    return seal_end(ctx, take(ctx));
}

SEC("xdp.frags") int plane(struct xdp_md *ctx)
{
    int verdict = six_begin(ctx);
    return verdict == FRAME_OURS ? six_end(ctx, handle(ctx)) : verdict;
}

/* ---- orders of the control process ---- */

INLINE int is_idle(uint8_t *b, uint32_t lock)
{
    return netlock_is_empty(read_register(b, NETLOCK_ENDS, lock)) &&
           !netlock_waiting_here(read_register(b, NETLOCK_BOUNDS, lock), read_register(b, NETLOCK_WAITING, lock));
}

INLINE int shut(uint8_t *b, uint32_t lock, int only_if_empty)
{
    struct latch *latch = bpf_map_lookup_elem(&latches, &lock);
    uint64_t *open = cell(b, at.open_at, lock, 8);
    uint32_t *active = cell(b, at.active_at, lock, 4);
    int done = 0;
    if (!latch || !open || !active)
        return 0;
    bpf_spin_lock(&latch->lock);
    done = !*(volatile uint32_t *)active;
    if (!only_if_empty || (done && is_idle(b, lock)))
        *open |= NETLOCK_CLOSING;
    else
        done = 0;
    bpf_spin_unlock(&latch->lock);
    return done;
}

/* By BPF_PROG_TEST_RUN: the frame is an order, and comes back with its result. */
SEC("xdp") int order(struct xdp_md *ctx)
{
    struct netlock_order *o = (void *)(long)ctx->data;
    uint8_t *b = base();
    if (!b || (void *)(o + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    uint64_t index = o->index, *open = cell(b, at.open_at, o->lock, 8);
    uint32_t lock = o->lock;
    if (!open || lock >= at.locks)
        return XDP_DROP;
    switch (o->kind) {
    case NETLOCK_ORDER_PASS: {
        struct netlock_pass pass;
        __builtin_memcpy(&pass, &o->pass, sizeof pass);
        int result = one_pass(&pass, lock, index, 0);
        o = (void *)(long)ctx->data;
        if ((void *)(o + 1) > (void *)(long)ctx->data_end)
            return XDP_DROP;
        __builtin_memcpy(&o->pass, &pass, sizeof pass);
        o->done = result == PASS_RAN;
        o->pad = result == PASS_BUSY;
        return XDP_PASS;
    }
    case NETLOCK_ORDER_CLOSE:
    case NETLOCK_ORDER_IF_EMPTY:
        o->done = (uint32_t)shut(b, lock, o->kind == NETLOCK_ORDER_IF_EMPTY);
        return XDP_PASS;
    case NETLOCK_ORDER_OPEN:
        *(volatile uint64_t *)open = index + 1;
        o->done = !bpf_map_update_elem(&here, &index, &lock, BPF_ANY);
        return XDP_PASS;
    case NETLOCK_ORDER_REMOVE: /* its queues are empty, and new requests go to the server */
        bpf_map_delete_elem(&here, &index);
        shut(b, lock, 0);
        *(volatile uint64_t *)open = 0;
        o->done = 1;
        return XDP_PASS;
    default:
        return XDP_DROP;
    }
}

char licence[] SEC("license") = "GPL";
