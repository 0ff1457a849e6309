/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FissLock's decider in the kernel: the stages of dataplane/fission.h (Fig. 12) on a copy of the lock's word, committed by
 * compare-and-swap. Packets of one lock may come on several CPUs at once. designs/fisslock/decider.c is the same in user space. */
#define FRAME_READS_MANY
#include "dataplane/fission.h"
#include "dataplane/xdp/cost.bpf.h"
#include "dataplane/xdp/many.bpf.h"
#include "dataplane/xdp/twin.bpf.h"

/* A lock: its word, and beside it the token. The token is stored after the word and may lag behind it; fission_token_at() brings it
 * up to date, if it was read *before* the word. The age is looked at only if keys have names: *after* the word, so that a word that
 * a packet changes was not of a later generation than the age that the packet saw. Limit: 24 bytes of kernel memory each. */
struct lock {
    uint64_t word;
    uint64_t token;
    struct fission_age age;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, uint32_t);
    __type(value, struct lock);
} locks SEC(".maps");

#define POLICY (&(const struct fission_policy){.options = settings.options})

/* Every other CPU with packets for the same lock can change the word in between. After so many failures the packet is dropped, and
 * its sender retransmits. */
#define COMMIT_TRIES 8

/* By the kernel's ticks, which cost one load; a clock would cost a fifth of the whole decision. Ticks stand still while the machine
 * sleeps: then leases last longer at the switch, which is safe. */
INLINE int lives(const struct plane_host *h)
{
    if (!settings.lease_ticks)
        return 1;
    return h && h->heard && bpf_jiffies64() - h->heard <= settings.lease_ticks;
}

INLINE struct plane_host *member(uint16_t machine)
{
    uint32_t key = machine;
    return bpf_map_lookup_elem(&hosts, &key);
}

/* Not static, and not inlined: the verifier looks at it once, and not after each path through the stages. */
int is_lost(uint32_t machine);
__attribute__((noinline)) int is_lost(uint32_t machine)
{
    return !lives(member((uint16_t)machine));
}

/* The agent was lost with its host: the client's host has it from now on (spill_take_over() in user space). If another packet
 * changes the word in between, the next packet tries again. A function of its own, since it is rare. */
static __attribute__((noinline)) int take_over(struct lock *lock, uint64_t word, uint16_t machine, uint16_t port)
{
    struct fission_packet take = {.head = {.type = FISSION_TAKE}, .client = {machine, port}, .term = fission_word_term(word)};
    struct fission_meta m;
    if (!lock)
        return 0;
    uint64_t token = *(volatile uint64_t *)&lock->token, next = word;
    fission_decide(&take, POLICY, &next, &token, &m);
    if (__sync_val_compare_and_swap(&lock->word, word, next) != word)
        return 0;
    *(volatile uint64_t *)&lock->token = token;
    return 1;
}

/* Whether the heartbeat has room for the table: a switch makes no packet longer. */
INLINE int asks_for_rules(const struct frame *f, const struct fission_packet *p)
{
    return p->count == RULES_ENTRIES && (void *)((uint64_t *)(p + 1) + RACK_SHARDS / 8) <= f->end;
}

/* The table goes with every answer to a LEASE, so that a host hears of another life and of its table at once. */
INLINE void tell_rules(struct fission_packet *p)
{
    const volatile struct plane_rules *rules = &live.rules[live.rules_at & 1];
    uint64_t *owner = (void *)(p + 1);
    p->stamp = rules->version;
    for (uint32_t i = 0; i < RACK_SHARDS / 8; i++)
        owner[i] = rules->owner[i];
}

/* Whether the heartbeat is of the host's latest life, and later than those before it: fisslock/decider.c, lease(). */
INLINE int is_news(struct plane_host *h, const struct fission_packet *p)
{
    uint32_t life = (uint32_t)p->head.nonce;
    if (life < h->said_life || (life == h->said_life && p->token && p->token <= h->said_ns))
        return 0;
    h->said_life = life;
    h->said_ns = p->token;
    return 1;
}

/* A host's heartbeat, and its acknowledgement. */
INLINE int hear(struct frame *f, struct fission_packet *p, struct plane_counters *c)
{
    struct plane_host *h = member(p->head.from.machine);
    if (!h)
        return drop(c, PLANE_UNKNOWN);
    if (h->given_life && h->given_life != (uint32_t)p->head.nonce)
        return drop(c, PLANE_FORGED);
    if (p->flags & FISSION_DONE) { /* the host leaves; a packet of its former life does not count */
        if (h->life == (uint32_t)p->head.nonce)
            h->heard = 0;
        c->verdict[PLANE_ABSORBED]++;
        return XDP_DROP;
    }
    uint32_t closed = live.closed;
    if (closed == PLANE_QUIET)
        return drop(c, PLANE_CLOSED);
    if (settings.racks && !asks_for_rules(f, p))
        return drop(c, PLANE_TYPE);
    if (!is_news(h, p))
        return drop(c, PLANE_OUTDATED);
    h->heard = bpf_jiffies64();             /* begins near 2^32 */
    p->head.epoch = live.epoch;             /* the host learns whether the switch lost its state, */
    p->flags = closed ? FISSION_CLOSED : 0; /* and whether it can report its holds */
    if (closed && h->apart)
        p->flags |= FISSION_DENIED;
    if (settings.racks)
        tell_rules(p);
    p->head.to = p->head.from;
    p->head.from.machine = MACHINE_SWITCH;
    return frame_answer(f, c);
}

/* ---- generations ---- */

enum age_found { AGE_SAME, AGE_OUTDATED, AGE_CHANGING };

INLINE struct fission_age age_of(const struct lock *lock)
{
    uint64_t age = *(const volatile uint64_t *)&lock->age;
    return (struct fission_age){.generation = (uint32_t)age, .base = (uint32_t)(age >> 32)};
}

INLINE int change_age(struct lock *lock, struct fission_age from, struct fission_age to)
{
    uint64_t old = from.generation | (uint64_t)from.base << 32, new = to.generation | (uint64_t)to.base << 32;
    return __sync_val_compare_and_swap((uint64_t *)&lock->age, old, new) == old;
}

/* A later generation begins: spill_is_of_lock() in user space. Three steps, since no exchange covers the age and the word. While
 * the age is busy no further packet reaches the stages. A packet that has seen the age before either changes the word before the
 * second step, which then finds the changed word; or after it, and fails, since the word is another one: it looks at the age again.
 */
static __attribute__((noinline)) int begin_generation(struct lock *lock, uint32_t generation)
{
    if (!lock)
        return AGE_CHANGING;
    struct fission_age was = age_of(lock), busy = {.generation = was.generation, .base = FISSION_AGE_BUSY};
    if (was.base == FISSION_AGE_BUSY || was.generation >= generation || !change_age(lock, was, busy))
        return AGE_CHANGING;
    for (int i = 0; i < COMMIT_TRIES && (!i || !settings.simple); i++) {
        uint64_t token = *(volatile uint64_t *)&lock->token;
        uint64_t word = *(volatile uint64_t *)&lock->word, next = fission_word_anew(word);
        if (__sync_val_compare_and_swap(&lock->word, word, next) != word)
            continue;
        token = fission_token_at(token, fission_word_term(next));
        *(volatile uint64_t *)&lock->token = token;
        struct fission_age age = {.generation = generation, .base = fission_base_of(was, generation, token)};
        change_age(lock, busy, age);
        return AGE_SAME;
    }
    change_age(lock, busy, was);
    return AGE_CHANGING;
}

/* Whether a packet of this generation reaches the stages. */
INLINE int enter_generation(struct lock *lock, uint32_t generation)
{
    struct fission_age age = age_of(lock);
    if (age.base == FISSION_AGE_BUSY)
        return AGE_CHANGING;
    if (age.generation == generation)
        return AGE_SAME;
    return generation < age.generation ? AGE_OUTDATED : begin_generation(lock, generation);
}

/* Whether all that the packet causes goes back to its sender, or it causes no packet. */
INLINE int stays_here(const struct fission_packet *p, uint32_t dest)
{
    int is_client = p->client.machine == p->head.from.machine && p->client.port == p->head.from.port;
    return dest == FISSION_DROP || dest == FISSION_BACK || (dest == FISSION_TO_CLIENT && is_client);
}

enum { COMMIT_FAILED, COMMIT_DONE, COMMIT_NOT_HERE };

/* All stages, until no other packet came in between. COMMIT_FAILED: one always did, or another generation has begun. `is_part`:
 * COMMIT_NOT_HERE, and nothing has changed, if a packet would leave for others than the sender. */
INLINE __attribute__((flatten)) int commit(struct lock *lock, uint32_t generation, const struct fission_packet *p,
                                           struct fission_meta *m, uint32_t *dest, const int is_part)
{
    for (int i = 0; i < COMMIT_TRIES && (!i || !settings.simple); i++) {
        uint64_t token = *(volatile uint64_t *)&lock->token, known = token;
        uint64_t word = *(volatile uint64_t *)&lock->word, next = word;
        struct fission_age age = {0};
        if (settings.names) {
            age = age_of(lock);
            if (age.generation != generation || age.base == FISSION_AGE_BUSY)
                return COMMIT_FAILED;
        }
        *dest = fission_decide(p, POLICY, &next, &token, m);
        if (is_part && !stays_here(p, *dest))
            return COMMIT_NOT_HERE;
        if (next == word || __sync_val_compare_and_swap(&lock->word, word, next) == word) {
            if (token != known)
                *(volatile uint64_t *)&lock->token = token;
            m->token += fission_base(age, live.life);
            return COMMIT_DONE;
        }
    }
    return COMMIT_FAILED;
}

INLINE int send_both(struct frame *f, struct fission_packet *p, struct fission_meta *m, struct plane_counters *c)
{
    struct twin_note *n = twin_begin(f);
    if (!n)
        return XDP_ABORTED;
    struct fission_packet *grant = (void *)n->first;
    __builtin_memcpy(grant, p, sizeof *grant);
    fission_rewrite(grant, POLICY, m, FISSION_TO_CLIENT);
    fission_rewrite(p, POLICY, m, FISSION_TO_AGENT);
    n->to[0] = p->client;
    n->to[1] = p->head.to;
    return twin_send(c);
}

/* Decides the packet and sends it on. The stages see `seen`, which is the packet, or the fields of it that they need. */
INLINE __attribute__((flatten)) int settle(struct xdp_md *ctx, struct frame *f, struct lock *lock,
                                           const struct fission_packet *seen, struct plane_counters *c)
{
    struct fission_packet *p = (void *)f->head;
    struct fission_meta m;
    uint32_t dest;
    if (commit(lock, p->head.generation, seen, &m, &dest, 0) != COMMIT_DONE)
        return drop(c, PLANE_CONTENDED);
    if (dest == FISSION_DROP) {
        c->verdict[PLANE_ABSORBED]++;
        return XDP_DROP;
    }
    if (p->head.type != seen->head.type || p->flags != seen->flags)
        __builtin_unreachable(); /* the compiler does not know that the lock lies outside the packet */
    if (dest == (FISSION_TO_CLIENT | FISSION_TO_AGENT))
        return send_both(f, p, &m, c);
    struct place from = p->head.from;
    if (dest == FISSION_TO_NEXT && fission_has_agent(p))
        dest = fission_destination_unless_lost(p, dest, is_lost(p->head.to.machine));
    fission_rewrite(p, POLICY, &m, dest);
    int to_sender = p->head.to.machine == from.machine && p->head.to.port == from.port;
    return to_sender ? frame_answer(f, c) : frame_send(ctx, f, c);
}

/* A report of holds, from before the switch lost its state: for the control process. */
INLINE int pass_report(const struct fission_packet *p, struct plane_counters *c)
{
    struct plane_host *h = member(p->head.from.machine);
    if (live.closed != PLANE_REBUILDING || !h)
        return drop(c, PLANE_REFUSED);
    h->asked = 1;
    return pass(c, PLANE_CONTROL);
}

/* Whether a CENSUS is for a machine that holds nothing: it never asked, or its lease is over. */
INLINE int is_absent(const struct fission_packet *p)
{
    struct plane_host *h = member(p->head.to.machine);
    return !h || !h->asked || !lives(h);
}

/* Whether the client's host has a lease: nothing is granted to a host without one (I1). */
INLINE int admits(const struct fission_packet *p, uint8_t type)
{
    struct plane_host *h = member(p->client.machine);
    if (h && type == FISSION_ACQUIRE && !h->asked)
        h->asked = 1;
    return h && lives(h);
}

INLINE int agent_is_lost(uint64_t word)
{
    return (word & FISSION_WORD_HELD) && !lives(member(fission_word_machine(word)));
}

INLINE void take_over_if_lost(struct lock *lock, const struct fission_packet *p)
{
    uint64_t word = *(volatile uint64_t *)&lock->word;
    if (agent_is_lost(word))
        take_over(lock, word, p->client.machine, p->client.port);
}

/* Whether the packet is well-formed and of this space; else why not. */
INLINE int verify(const struct fission_packet *p, uint32_t len, enum plane_reason *why)
{
    struct fission_rules rules = {.space = settings.space,
                                  .life = live.epoch,
                                  .machines = settings.machines,
                                  .names = settings.names,
                                  .locks = settings.locks};
    enum fission_fault fault = fission_verify(p, len, &rules);
    *why = fault == FISSION_STALE        ? PLANE_EPOCH
           : fault == FISSION_ALIEN      ? PLANE_ALIEN
           : fault == FISSION_UNREADABLE ? PLANE_VERSION
                                         : PLANE_TYPE;
    return fault == FISSION_FINE;
}

/* The packet is of an earlier generation of its index. An agent that wants to end its tenure hears that it is over:
 * spill_say_over() in user space. */
INLINE int refuse_outdated(struct frame *f, struct fission_packet *p, struct plane_counters *c)
{
    if (!fission_has_agent(p))
        return drop(c, PLANE_OUTDATED);
    fission_rewrite(p, POLICY, &(struct fission_meta){0}, FISSION_BACK);
    return frame_answer(f, c);
}

/* Which packets reach the stages: dispatch() of decider.c. `plain`: an ACQUIRE without flags, the most frequent packet, for which a
 * client waits. The compiler then knows type and flags, and makes a path through this and the stages with half the comparisons. */
INLINE __attribute__((flatten)) int decide(struct xdp_md *ctx, struct frame *f, struct plane_counters *c, const int plain)
{
    struct fission_packet *p = (void *)f->head;
    enum plane_reason why;
    if (!verify(p, f->len, &why))
        return drop(c, why);
    count_type(c, f->head);
    uint8_t type = plain ? FISSION_ACQUIRE : p->head.type;
    int is_call = type == FISSION_ACQUIRE || type == FISSION_RELEASE;
    if (type == FISSION_LEASE)
        return hear(f, p, c);
    if (type == FISSION_REPORT)
        return pass_report(p, c);
    if (live.closed)
        return drop(c, PLANE_CLOSED);
    if (settings.racks && type == FISSION_ACQUIRE && !(live.shards >> shard_of(p->head.index) & 1))
        return drop(c, PLANE_FOREIGN);
    if (type == FISSION_CENSUS && is_absent(p)) {
        fission_answer_for_absent(p);
        return frame_answer(f, c);
    }
    if (!plain && fission_asks_request(p) && !lives(member(p->head.to.machine))) {
        fission_release_for_lost(p);
        return frame_answer(f, c);
    }
    if (is_call && !admits(p, type))
        return drop(c, PLANE_REFUSED);
    if (!plain && !fission_concerns_lock(p))
        return frame_send(ctx, f, c);
    uint32_t index = (uint32_t)p->head.index; /* below 2^32: a map has no more entries */
    struct lock *lock = bpf_map_lookup_elem(&locks, &index);
    if (!lock)
        return drop(c, PLANE_INDEX);
    if (settings.names) {
        int age = enter_generation(lock, p->head.generation);
        if (age == AGE_CHANGING)
            return drop(c, PLANE_CONTENDED);
        if (age == AGE_OUTDATED)
            return plain ? drop(c, PLANE_OUTDATED) : refuse_outdated(f, p, c);
    }
    if (is_call && settings.lease_ticks)
        take_over_if_lost(lock, p);
    if (plain)
        return settle(ctx, f, lock, &(struct fission_packet){.head.type = FISSION_ACQUIRE, .client = p->client, .mode = p->mode},
                      c);
    return settle(ctx, f, lock, p, c);
}

/* ---- several packets in one datagram ---- */

/* The packets of acquisitions and releases; for others only the single packet has code. */
INLINE int part_is_known(const struct fission_packet *p, uint32_t len)
{
    uint8_t type = p->head.type;
    return len == sizeof *p && (type == FISSION_ACQUIRE || type == FISSION_RELEASE || type == FISSION_FREE);
}

/* As decide(): the same checks in the same order, for packets that concern the lock. */
INLINE int admit_part(const struct fission_packet *p, uint32_t len, struct plane_counters *c, uint8_t type)
{
    enum plane_reason why;
    if (!verify(p, len, &why))
        return refuse_part(c, why);
    count_type(c, &p->head);
    if (live.closed)
        return refuse_part(c, PLANE_CLOSED);
    if (settings.racks && type == FISSION_ACQUIRE && !(live.shards >> shard_of(p->head.index) & 1))
        return refuse_part(c, PLANE_FOREIGN);
    if ((type == FISSION_ACQUIRE || type == FISSION_RELEASE) && !admits(p, type))
        return refuse_part(c, PLANE_REFUSED);
    return MANY_ANSWERED;
}

INLINE __attribute__((flatten)) int settle_part(struct lock *lock, struct fission_packet *p, const struct fission_packet *seen,
                                                struct plane_counters *c)
{
    struct fission_meta m;
    uint32_t dest;
    int done = commit(lock, p->head.generation, seen, &m, &dest, 1);
    if (done == COMMIT_NOT_HERE)
        return MANY_SINGLY;
    if (done != COMMIT_DONE)
        return refuse_part(c, PLANE_CONTENDED);
    if (dest == FISSION_DROP)
        return MANY_SETTLED;
    if (p->head.type != seen->head.type || p->flags != seen->flags)
        __builtin_unreachable(); /* as in settle() */
    fission_rewrite(p, POLICY, &m, dest);
    return MANY_ANSWERED;
}

/* `plain`: an ACQUIRE without flags, but for NOWAIT, as decide() has it. */
INLINE __attribute__((flatten)) int decide_known(struct fission_packet *p, uint32_t len, struct plane_counters *c, const int plain)
{
    uint8_t type = plain ? FISSION_ACQUIRE : p->head.type;
    if (admit_part(p, len, c, type) != MANY_ANSWERED)
        return MANY_SETTLED;
    uint32_t index = (uint32_t)p->head.index;
    struct lock *lock = bpf_map_lookup_elem(&locks, &index);
    if (!lock)
        return refuse_part(c, PLANE_INDEX);
    if (settings.names) {
        int age = enter_generation(lock, p->head.generation);
        if (age == AGE_CHANGING)
            return refuse_part(c, PLANE_CONTENDED);
        if (age == AGE_OUTDATED && !fission_has_agent(p))
            return refuse_part(c, PLANE_OUTDATED);
        if (age == AGE_OUTDATED) {
            fission_rewrite(p, POLICY, &(struct fission_meta){0}, FISSION_BACK);
            return MANY_ANSWERED;
        }
    }
    if (settings.lease_ticks && agent_is_lost(*(volatile uint64_t *)&lock->word))
        return MANY_SINGLY; /* the single packet takes it over */
    if (!plain)
        return settle_part(lock, p, p, c);
    const struct fission_packet seen = {.head = {.type = FISSION_ACQUIRE, .from = p->head.from},
                                        .client = p->client,
                                        .mode = p->mode,
                                        .flags = p->flags & FISSION_NOWAIT};
    return settle_part(lock, p, &seen, c);
}

int decide_part(struct xdp_md *ctx, uint32_t at, uint32_t len)
{
    struct plane_counters *c = count_here();
    struct fission_packet *p = many_bytes(ctx, at, sizeof *p);
    if (!c)
        return MANY_SETTLED;
    if (!p || len < sizeof *p)
        return refuse_part(c, PLANE_SHORT);
    if (!part_is_known(p, len))
        return MANY_SINGLY;
    if (!part_is_senders(ctx, p->head.from.machine))
        return refuse_part(c, PLANE_UNTAGGED);
    if (!is_from(p->head.from.machine, frame_saddr(ctx)))
        return refuse_part(c, PLANE_FORGED);
    return p->head.type == FISSION_ACQUIRE && !(p->flags & ~FISSION_NOWAIT) ? decide_known(p, len, c, 1)
                                                                            : decide_known(p, len, c, 0);
}

/* Not static, and not inlined: the verifier looks at what follows once, and not after each way through this. */
int take(struct xdp_md *ctx);
__attribute__((noinline)) int take(struct xdp_md *ctx)
{
    struct plane_counters *c;
    struct frame f;
    int verdict = frame_begin(ctx, &c, &f);
    if (verdict == FRAME_MANY)
        return f.head->family == PACKET_FISSION ? many_decide(ctx, &f, c) : drop(c, PLANE_FAMILY);
    if (verdict != FRAME_OURS)
        return verdict;
    if (f.head->family == PACKET_FISSION && f.head->space == settings.space) {
        const struct fission_packet *p = (void *)f.head;
        if ((void *)(p + 1) > f.end)
            return drop(c, PLANE_SHORT);
        if (!is_from(p->head.from.machine, f.ip->saddr))
            return drop(c, PLANE_FORGED);
        if (p->head.type == FISSION_ACQUIRE && !p->flags)
            return decide(ctx, &f, c, 1);
        return decide(ctx, &f, c, 0);
    }
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

SEC("?xdp.frags") int cost_run(struct xdp_md *ctx)
{
    int verdict = handle(ctx);
    cost_put_back(ctx, &locks);
    return verdict;
}

SEC("?xdp.frags") int cost_restore(struct xdp_md *ctx)
{
    cost_put_back(ctx, &locks);
    return XDP_TX;
}

char licence[] SEC("license") = "GPL";
