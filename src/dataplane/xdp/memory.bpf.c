/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A memory node in the kernel: BATCH and WAIT are executed where the frame arrives, and no process is woken. CONNECT, FENCE and
 * LEAVE are passed to the process that shares the maps.
 *
 * BPF has no 128-bit atomics. A latch stands in for them: every verb that changes a word holds the latch of the word's pair, so a
 * 128-bit verb and whatever else changes one of the two words take turns. READs take no latch: each aligned 8 bytes are of one
 * moment, and no more is promised. The program cannot be interrupted for good while it holds a latch: the verifier bounds what it
 * does.
 *
 * settings: `space`; `locks` are the bytes of memory, `options` the number of clients. `live.life` is the life of the memory. */
#include "dataplane/xdp/frame.bpf.h"

#define VERBS_FRAME struct xdp_md
#define VERBS_LOOP(most, step, run) bpf_loop(most, step, run, 0)
#include "dataplane/verbs.h"

#define PAGE_WORDS 512u
#define LATCHES 1024u

struct page {
    uint64_t word[PAGE_WORDS];
};

/* The memory. Mapped by the process, which formats it. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct page);
} words SEC(".maps");

/* Lives and reply caches. The process gives numbers and fences. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct verbs_client);
} clients SEC(".maps");

/* With whose key a client has connected: the process writes it. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct plane_owner);
} owners SEC(".maps");

/* In a map of their own: one that has a spin lock cannot be mapped. */
struct latch {
    struct bpf_spin_lock lock;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, LATCHES);
    __type(key, uint32_t);
    __type(value, struct latch);
} pairs SEC(".maps");

/* ---- what the executor asks for ---- */

VERBS_INLINE void *verbs_place(const struct verbs_run *r, uint32_t at, uint32_t bytes)
{
    if (at > VERBS_PACKET_MAX)
        return NULL;
    uint8_t *p = (uint8_t *)(long)r->frame->data + FRAME_HEADS + at;
    return (void *)(p + bytes) > (void *)(long)r->frame->data_end ? NULL : p;
}

VERBS_INLINE uint64_t *verbs_word(struct verbs_memory *m, uint64_t offset)
{
    uint32_t number = (uint32_t)(offset / sizeof(struct page));
    struct page *page = bpf_map_lookup_elem(&words, &number);
    return page ? &page->word[offset / 8 % PAGE_WORDS] : NULL;
}

VERBS_INLINE struct latch *latch_of(uint64_t offset)
{
    uint32_t which = (uint32_t)(offset / 16 % LATCHES);
    return bpf_map_lookup_elem(&pairs, &which);
}

VERBS_INLINE void verbs_store(struct verbs_memory *m, uint64_t offset, uint64_t value, const uint64_t *upper)
{
    uint32_t number = (uint32_t)(offset / sizeof(struct page));
    struct page *page = bpf_map_lookup_elem(&words, &number);
    struct latch *latch = latch_of(offset);
    uint64_t second = upper ? *upper : 0; /* the packet is not touched under the latch */
    if (!page || !latch)
        return;
    bpf_spin_lock(&latch->lock);
    *(volatile uint64_t *)&page->word[offset / 8 % PAGE_WORDS] = value;
    if (upper)
        *(volatile uint64_t *)&page->word[offset / 8 % PAGE_WORDS | 1] = second;
    bpf_spin_unlock(&latch->lock);
}

/* By an exchange, which is one. */
VERBS_INLINE void verbs_fence(void)
{
    uint64_t word = 0;
    __sync_lock_test_and_set(&word, 1);
}

VERBS_INLINE bool copy_words(const struct verbs_run *r, uint32_t at, uint32_t count, uint64_t in[8])
{
    const uint64_t *from = verbs_place(r, at, 8 * count);
    for (uint32_t i = 0; from && i < count; i++)
        in[i] = from[i];
    return from;
}

/* The operands are copied first: nothing of the packet is touched under the latch. Each number of words is a case of its own, so
 * that the packet's bounds are compared once. */
VERBS_INLINE bool operands_of(const struct verbs_run *r, uint32_t at, uint32_t count, uint64_t in[8])
{
    switch (count) {
    case 1:
        return copy_words(r, at, 1, in);
    case 2:
        return copy_words(r, at, 2, in);
    case 4:
        return copy_words(r, at, 4, in);
    default:
        return copy_words(r, at, 8, in);
    }
}

VERBS_INLINE void verbs_atomic(const struct verbs_run *r, const struct verbs_op *op, uint32_t at)
{
    uint64_t in[8] = {0}, old[2] = {0, 0}, next[2];
    uint8_t verb = op->verb;
    bool wide = op->width == 16;
    uint64_t offset = op->offset;
    uint32_t pair_page = (uint32_t)(offset / sizeof(struct page));
    struct page *page = bpf_map_lookup_elem(&words, &pair_page);
    struct latch *latch = latch_of(offset);
    if (!page || !latch || !operands_of(r, at, op->room / 8u, in))
        return;
    uint64_t *word = &page->word[offset / 8 % PAGE_WORDS], *pair = &page->word[offset / 8 % PAGE_WORDS & ~1ul];
    bpf_spin_lock(&latch->lock);
    if (wide) {
        old[0] = *(volatile uint64_t *)&pair[0];
        old[1] = *(volatile uint64_t *)&pair[1];
        verbs_next128(verb, in, old, next);
        *(volatile uint64_t *)&pair[0] = next[0];
        *(volatile uint64_t *)&pair[1] = next[1];
    } else {
        old[0] = *(volatile uint64_t *)word;
        *(volatile uint64_t *)word = verbs_next64(verb, in, old[0]);
    }
    bpf_spin_unlock(&latch->lock);
    uint64_t *low = verbs_place(r, at, 8), *high = verbs_place(r, at + 8, 8);
    if (low)
        *low = old[0];
    if (high && wide)
        *high = old[1];
}

/* ---- packets ---- */

VERBS_INLINE int answer(struct frame *f, struct plane_counters *c, struct verbs_head *h, enum verbs_status status)
{
    h->type |= VERBS_ANSWER;
    h->status = (uint8_t)status;
    if (status != VERBS_OK)
        c->reason[status == VERBS_BAD ? PLANE_TYPE : PLANE_REFUSED]++;
    return frame_answer(f, c);
}

enum outcome { OUTCOME_OK, OUTCOME_FENCED, OUTCOME_DROP, OUTCOME_BAD };

/* While the client is marked as busy. */
static __attribute__((noinline)) int execute(struct xdp_md *ctx, uint32_t number, uint64_t sequence)
{
    struct verbs_client *c = bpf_map_lookup_elem(&clients, &number);
    struct verbs_head *h = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS);
    if (!c || (void *)(h + 1) > (void *)(long)ctx->data_end)
        return OUTCOME_DROP;
    if (h->life != c->life)
        return OUTCOME_FENCED;
    enum verbs_verdict verdict = verbs_admit(c, sequence, 0);
    if (verdict == VERBS_REFUSE || verdict == VERBS_DROP)
        return verdict == VERBS_REFUSE ? OUTCOME_FENCED : OUTCOME_DROP;
    struct verbs_kept *kept = &c->kept[sequence % VERBS_WINDOW];
    struct verbs_run r = {.frame = ctx, .kept = kept, .bytes = settings.locks};
    verbs_begin(&r, h);
    if (r.bad)
        return OUTCOME_BAD;
    r.repeat = verdict == VERBS_REPEAT;
    VERBS_LOOP(VERBS_COUNT_MAX, verbs_check_step, &r);
    if (!verbs_check_end(&r))
        return OUTCOME_BAD;
    VERBS_LOOP(VERBS_COUNT_MAX, verbs_execute_step, &r);
    if (!r.repeat) {
        kept->sequence = sequence;
        kept->words = r.words;
        c->last = sequence;
    }
    return OUTCOME_OK;
}

/* One packet of a client at a time: another that comes meanwhile is dropped and comes again. */
VERBS_INLINE int on_batch(struct xdp_md *ctx, struct frame *f, struct plane_counters *count, struct verbs_head *h,
                          struct verbs_client *c)
{
    if (__sync_val_compare_and_swap(&c->busy, 0, 1)) {
        return drop(count, PLANE_CONTENDED);
    }
    int outcome = execute(ctx, h->client, h->sequence);
    __sync_lock_test_and_set(&c->busy, 0);
    if (outcome == OUTCOME_DROP)
        return drop(count, PLANE_OUTDATED);
    return answer(f, count, h, outcome == OUTCOME_OK ? VERBS_OK : outcome == OUTCOME_BAD ? VERBS_BAD : VERBS_FENCED);
}

/* Answered at once: clients poll. */
VERBS_INLINE int on_wait(struct xdp_md *ctx, struct frame *f, struct plane_counters *count, struct verbs_head *h)
{
    uint32_t conds = h->count;
    if (!conds || conds > VERBS_CONDS_MAX || h->len != offsetof(struct verbs_wait, cond) + conds * sizeof(struct verbs_cond))
        return answer(f, count, h, VERBS_BAD);
    struct verbs_cond *first = (void *)((uint8_t *)h + offsetof(struct verbs_wait, cond)), *cond = first;
    for (uint32_t i = 0; i < VERBS_CONDS_MAX && i < conds; i++, cond++) {
        if ((void *)(cond + 1) > f->end)
            return drop(count, PLANE_SHORT);
        if (cond->offset % 8 || cond->offset > settings.locks - 8)
            return answer(f, count, h, VERBS_BAD);
    }
    cond = first;
    for (uint32_t i = 0; i < VERBS_CONDS_MAX && i < conds; i++, cond++) {
        if ((void *)(cond + 1) > f->end)
            return drop(count, PLANE_SHORT);
        uint64_t *word = verbs_word(NULL, cond->offset);
        cond->value = word ? *(volatile uint64_t *)word : 0;
    }
    return answer(f, count, h, VERBS_OK);
}

/* Heads of Ethernet, IPv4 and UDP that are sound, and whole. Else the verdict. */
_Static_assert(sizeof(struct verbs_head) >= sizeof(struct packet_head), "a frame that has room for one has room for the other");

/* Echoes go back, as by every program of a switch; the rest is the process's. */
VERBS_INLINE int other(struct xdp_md *ctx, struct plane_counters *c, struct frame *f)
{
    uint32_t udp_len = bpf_ntohs(f->udp->len), len = udp_len - (uint32_t)sizeof(struct udphdr);
    if (settings.keyed && f->head->family == PACKET_ECHO) {
        if (udp_len < sizeof(struct udphdr) + sizeof *f->head || len > PACKET_MAX || (uint8_t *)f->head + len > (uint8_t *)f->end)
            return pass(c, PLANE_OTHER);
        int verdict = seal_enter(ctx, len);
        if (verdict != FRAME_OURS)
            return verdict == XDP_PASS ? XDP_PASS : XDP_DROP;
    }
    int echo = packet_readable(f->head) && f->head->family == PACKET_ECHO && f->head->type == ECHO_ASK;
    return seal_end(ctx, echo ? frame_echo(f, c) : pass(c, PLANE_OTHER));
}

/* Whether the datagram is tagged with the key of its client. One of another life than the client's is the process's to judge: only
 * that can make the key of any file. Else the verdict. */
VERBS_INLINE int check_owner(struct xdp_md *ctx, struct plane_counters *c, const struct verbs_head *h, struct plane_owner *o,
                             uint32_t len)
{
    uint64_t number, tag;
    if (!o || !seal_word(ctx, len, &number) || !seal_word(ctx, len + 8, &tag))
        return drop(c, PLANE_UNTAGGED);
    if (o->life != h->life)
        return pass(c, PLANE_CONTROL);
    if (number != o->number || !tag || seal_hash(ctx, SEAL_TRAILED, len, o->key[0], o->key[1]) != tag)
        return drop(c, PLANE_UNTAGGED);
    return FRAME_OURS;
}

VERBS_INLINE int parse(struct xdp_md *ctx, struct plane_counters *c, struct frame *f, const uint32_t trail)
{
    f->end = (void *)(long)ctx->data_end;
    f->eth = (void *)(long)ctx->data;
    f->ip = (void *)(f->eth + 1);
    f->udp = (void *)(f->ip + 1);
    f->head = (void *)(f->udp + 1);
    struct verbs_head *h = (void *)f->head;
    if ((void *)(h + 1) > f->end || f->eth->protocol != bpf_htons(ETH_P_IP) || f->ip->protocol != IPPROTO_UDP ||
        f->ip->frag_off & bpf_htons(0x3fff) || f->ip->version != 4 || f->ip->ihl != 5 || f->udp->dest != settings.port)
        return pass(c, PLANE_OTHER);
    if (h->magic != VERBS_MAGIC)
        return other(ctx, c, f);
    uint32_t ip_len = bpf_ntohs(f->ip->tot_len), udp_len = bpf_ntohs(f->udp->len);
    f->len = udp_len - (uint32_t)sizeof(struct udphdr);
    if (udp_len < sizeof(struct udphdr) + sizeof *h + trail || f->len > VERBS_PACKET_MAX + trail ||
        ip_len < sizeof(struct iphdr) + udp_len || (uint8_t *)h + f->len > (uint8_t *)f->end || h->len + trail != f->len ||
        h->type & VERBS_ANSWER || h->status)
        return drop(c, PLANE_SHORT);
    return sum_ip(f->ip) != 0xffff || !udp_sound(ctx, f) ? drop(c, PLANE_CHECKSUM) : FRAME_OURS;
}

/* BATCH and WAIT of a client, once it is known whose they are. */
VERBS_INLINE int serve(struct xdp_md *ctx, struct frame *f, struct plane_counters *count, struct verbs_head *h)
{
    uint32_t number = h->client;
    struct verbs_client *c = bpf_map_lookup_elem(&clients, &number);
    if (h->node_life != live.life)
        return answer(f, count, h, VERBS_FENCED);
    if (!c || h->life > c->life)
        return drop(count, PLANE_UNKNOWN);
    if (h->life != c->life || h->life <= c->fenced)
        return answer(f, count, h, VERBS_FENCED);
    if (h->tag != c->tag)
        return drop(count, PLANE_EPOCH);
    c->heard_ns = bpf_ktime_get_coarse_ns(); /* of the last tick: it is compared with leases */
    return h->type == VERBS_WAIT ? on_wait(ctx, f, count, h) : on_batch(ctx, f, count, h, c);
}

/* The answer is as long as the question, and has its trail. */
VERBS_INLINE int tag_answer(struct xdp_md *ctx, const struct plane_owner *o, uint32_t len)
{
    uint64_t at = len + 8, hash = seal_hash(ctx, SEAL_TRAILED, len, o->key[0], o->key[1]);
    asm volatile("" : "+r"(at));
    if (at > VERBS_PACKET_MAX + 8)
        return XDP_ABORTED;
    uint64_t *tag = (void *)((uint8_t *)(long)ctx->data + FRAME_HEADS + at);
    if ((void *)(tag + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    *tag = hash;
    return XDP_TX;
}

/* `tagged`: with a trail, which is checked. */
VERBS_INLINE int handle(struct xdp_md *ctx, const int tagged)
{
    struct plane_counters *count = count_here();
    struct frame f = {0};
    int verdict = count ? parse(ctx, count, &f, tagged ? sizeof(struct plane_trail) : 0) : XDP_ABORTED;
    if (verdict != FRAME_OURS)
        return verdict;
    struct verbs_head *h = (void *)f.head;
    if (h->type != VERBS_BATCH && h->type != VERBS_WAIT)
        return pass(count, PLANE_CONTROL);
    if (h->version != VERBS_VERSION || h->features & ~VERBS_FEATURES || h->space != settings.space)
        return drop(count, PLANE_ALIEN);
    if (!tagged)
        return serve(ctx, &f, count, h);
    uint32_t number = h->client, len = h->len;
    struct plane_owner *o = bpf_map_lookup_elem(&owners, &number);
    verdict = check_owner(ctx, count, h, o, len);
    if (verdict != FRAME_OURS || !o)
        return verdict == XDP_PASS ? XDP_PASS : XDP_DROP;
    verdict = serve(ctx, &f, count, h);
    return verdict == XDP_TX ? tag_answer(ctx, o, len) : verdict;
}

SEC("xdp.frags") int plane(struct xdp_md *ctx)
{
    seal_begin();
    return settings.keyed ? handle(ctx, 1) : handle(ctx, 0);
}

/* For the process, which has checked the tag, and the owner. */
SEC("xdp.frags") int inside(struct xdp_md *ctx)
{
    return handle(ctx, 0);
}

char licence[] SEC("license") = "GPL";
