/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a verb: arrived, in effect, completed. Three events each, four if it is torn or has a window. */
#include "fabric/lower.h"
#include "fabric/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define TEAR_ONE_IN 8   /* of those that can be torn: often enough to be met, rare enough not to be the rule */
#define LINGER_ONE_IN 3 /* likewise of those that others may pass */

/* ---- verbs ---- */

struct sim_verb *sim_verb_new(struct sim_ep *ep, struct sim_node *node, const struct fab_op *op)
{
    struct sim_fabric *fabric = ep->fabric;
    if (unlikely(!fabric->free_verbs)) {
        struct verb_chunk *chunk = sim_alloc(sizeof *chunk);
        if (!chunk)
            abort(); /* the simulation cannot go on */
        chunk->next = fabric->chunks;
        fabric->chunks = chunk;
        for (unsigned i = VERBS_PER_CHUNK; i-- > 0;) {
            chunk->verbs[i].next_free = fabric->free_verbs;
            fabric->free_verbs = &chunk->verbs[i];
        }
    }
    struct sim_verb *verb = fabric->free_verbs;
    fabric->free_verbs = verb->next_free;
    verb->ep = ep;
    verb->node = node;
    verb->op = *op;
    verb->result = NULL;
    verb->request = ep->request;
    verb->birth = ep->conns[node->host->id].birth;
    verb->last = verb->posted = verb->second_half = false;
    verb->torn = 0;
    verb->window_ns = 0;
    if (op->verb == FAB_WRITE) { /* the caller may be gone when it takes effect */
        verb->data = op->len <= VERB_DATA_MAX ? verb->inline_data : sim_alloc(op->len);
        if (!verb->data)
            abort();
        memcpy(verb->data, op->buf, op->len);
    }
    ep->in_flight++;
    return verb;
}

static void verb_done(struct sim_verb *verb)
{
    struct sim_ep *ep = verb->ep;
    if (verb->data && verb->data != verb->inline_data)
        sim_give_back(verb->data);
    verb->data = NULL;
    verb->next_free = ep->fabric->free_verbs;
    ep->fabric->free_verbs = verb;
    ep->in_flight--;
    if (unlikely(ep->resetting) && !ep->in_flight)
        sim_ticket_wake_at(ep->ticket, ep->fabric->sim->now_ns);
    if (unlikely(ep->freed))
        sim_ep_release(ep);
}

/* Verbs of one connection keep their order. */
static inline const void *verb_lane(const struct sim_verb *verb)
{
    return &verb->ep->conns[verb->node->host->id];
}

/* Does the caller still wait for what this verb finds? */
static inline bool verb_reports(const struct sim_verb *verb)
{
    return verb->result && verb->request == verb->ep->request && sim_ep_alive(verb->ep);
}

/* ---- polls, with a chooser ---- */

#define LOOKS_SAME 2 /* so many looks that found nothing new are a poll, and the next one comes after a while */

static void note_look(const struct sim_verb *verb, uint64_t value)
{
    struct sim_looks *l = &verb->ep->looks;
    l->found = mix64(l->found ^ mix64(verb->op.addr) ^ value);
}

static void note_look_bytes(const struct sim_verb *verb, const char *bytes, size_t count)
{
    uint64_t word;
    for (size_t i = 0; i + sizeof word <= count; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        note_look(verb, word);
    }
}

/* The request is complete: whether it was a poll that found nothing new. */
static bool only_looked(struct sim_ep *ep)
{
    struct sim_looks *l = &ep->looks;
    l->same = !l->changed && l->found == l->before ? l->same + 1 : 0;
    l->before = l->found;
    l->found = 0;
    l->changed = false;
    return l->same >= LOOKS_SAME;
}

/* ---- completion ---- */

uint64_t sim_send_again_ns(struct sim *sim, uint32_t from, uint32_t to, uint64_t at_ns)
{
    if (from == to)
        return at_ns;
    uint64_t blocked_ns = sim_path_blocked_until(sim, from, to);
    uint64_t retries = model_get(sim->model, MODEL_retries);
    for (uint64_t sent = 0; sent <= retries; sent++) {
        if (blocked_ns <= at_ns && !sim_fault_draw(sim, FAULT_LOSS))
            return at_ns;
        at_ns += model_get(sim->model, MODEL_retransmit_ns);
    }
    return UINT64_MAX;
}

uint64_t sim_give_up_ns(const struct sim *sim)
{
    return sim->now_ns + model_get(sim->model, MODEL_retransmit_ns) * (model_get(sim->model, MODEL_retries) + 1);
}

/* The request is done with its last verb and all before it, which may take effect later if order is not promised. */
static void request_step(struct sim_ep *ep, bool last, uint64_t at_ns)
{
    ep->request_left--;
    if (last) {
        ep->request_answered = true;
        ep->request_answer_ns = at_ns;
    }
    if (!ep->request_answered || (ep->request_left && !sim_fabric_ordered(ep->fabric)))
        return;
    const struct sim *sim = ep->fabric->sim;
    uint64_t done_ns = max_u64(ep->request_answer_ns, sim->now_ns);
    ep->request_done = true;
    if (unlikely(sim->config.chooser) && only_looked(ep))
        sim_ticket_poll_at(ep->ticket, done_ns + model_get(sim->model, MODEL_poll_ns));
    else
        sim_ticket_wake_at(ep->ticket, done_ns);
}

static void verb_complete(struct sim_verb *verb, int error, uint64_t at_ns)
{
    struct sim_ep *ep = verb->ep;
    if (verb->posted) {
        if (error && sim_ep_alive(ep))
            ep->post_error = error;
    } else if (verb_reports(verb)) {
        if (error && !ep->request_error)
            ep->request_error = error;
        request_step(ep, verb->last, at_ns);
    }
    verb_done(verb);
}

/* The answer travels back; it may be lost, and then the outcome is unknown. */
static void verb_answer(struct sim_verb *verb, int error)
{
    struct sim_ep *ep = verb->ep;
    struct sim *sim = ep->fabric->sim;
    if (!verb->last) {
        verb_complete(verb, error, 0);
        return;
    }
    uint64_t sent_ns = sim_send_again_ns(sim, verb->node->host->id, ep->host->id, sim->now_ns);
    if (sent_ns == UINT64_MAX)
        verb_complete(verb, -FAB_EUNKNOWN, sim_give_up_ns(sim));
    else
        verb_complete(verb, error, sent_ns + sim_way_ns(ep, verb->node));
}

/* ---- effect ---- */

static void verb_copy(struct sim_verb *verb, uint16_t from, uint16_t to)
{
    char *memory = sim_node_ptr(verb->node, verb->op.addr, verb->op.len);
    if (unlikely(verb->ep->fabric->sim->config.chooser)) {
        verb->ep->looks.changed |= verb->op.verb == FAB_WRITE && memcmp(memory + from, verb->data + from, (size_t)(to - from)) != 0;
        note_look_bytes(verb, memory + from, (size_t)(to - from));
    }
    if (verb->op.verb == FAB_WRITE) {
        verb->node->mixed = true;
        memcpy(memory + from, verb->data + from, (size_t)(to - from));
        if (unlikely(verb->ep->fabric->sim->config.trace))
            sim_note_print(verb->ep->fabric->sim, "  leaves", verb->node->host->id, *(uint64_t *)(memory + from), to - from);
        sim_node_changed(verb->node, FAB_OFFSET(verb->op.addr) + from, (uint64_t)(to - from));
    } else if (verb_reports(verb)) {
        memcpy((char *)verb->result->buf + from, memory + from, (size_t)(to - from));
    }
}

static u128 word_load(const struct sim_verb *verb)
{
    const uint64_t *word = sim_node_ptr(verb->node, verb->op.addr, verb->op.width);
    return verb->op.width == 16 ? (u128)word[1] << 64 | word[0] : word[0];
}

static void word_store(struct sim_verb *verb, u128 value)
{
    uint64_t *word = sim_node_ptr(verb->node, verb->op.addr, verb->op.width);
    word[0] = (uint64_t)value;
    if (verb->op.width == 16)
        word[1] = (uint64_t)(value >> 64);
    sim_node_changed(verb->node, FAB_OFFSET(verb->op.addr), verb->op.width);
}

static void close_window(struct sim_verb **at)
{
    struct sim_verb *verb = *at;
    word_store(verb, verb->next);
    *at = verb->next_free;
}

/* Atomics of one address never come between the halves of each other: a NIC serves them one after the other. Times see to that;
 * where a chooser takes their place, the write of the earlier one comes before the read of the later one. Its own write comes if
 * no other atomic has brought it. */
static void close_windows(const struct sim_verb *verb)
{
    for (struct sim_verb **at = &verb->node->windows; *at;)
        if (*at == verb || (!verb->second_half && (*at)->op.addr / 16 == verb->op.addr / 16))
            close_window(at);
        else
            at = &(*at)->next_free;
}

/* The verb is refused before its write: the write does not come. */
static void drop_window(const struct sim_verb *verb)
{
    for (struct sim_verb **at = &verb->node->windows; *at; at = &(*at)->next_free)
        if (*at == verb) {
            *at = verb->next_free;
            return;
        }
}

static void open_window(struct sim_verb *verb)
{
    verb->next_free = verb->node->windows;
    verb->node->windows = verb;
}

/* True if there is a second half to come, after the window. */
static bool verb_atomic(struct sim_verb *verb)
{
    bool chosen = verb->ep->fabric->sim->config.chooser;
    if (unlikely(chosen))
        close_windows(verb);
    u128 old = word_load(verb);
    if (unlikely(chosen))
        note_look(verb, (uint64_t)old ^ mix64((uint64_t)(old >> 64)));
    verb->next = fab_verb_result(&verb->op, old);
    if (verb->op.width == 8)
        verb->next = (uint64_t)verb->next;
    if (verb_reports(verb))
        verb->result->old = old;
    if (unlikely(verb->ep->fabric->sim->config.trace)) /* printed and not hashed: the effect itself is */
        sim_note_print(verb->ep->fabric->sim, "  found, leaves", verb->node->host->id, (uint64_t)old, (uint64_t)verb->next);
    if (verb->next == old)
        return false;
    verb->ep->looks.changed |= chosen;
    if (verb->window_ns) {
        if (unlikely(chosen))
            open_window(verb);
        return true;
    }
    word_store(verb, verb->next);
    return false;
}

/* Conditions of the verb's effect, checked at the moment it takes place. */
static int verb_admit(const struct sim_verb *verb)
{
    const struct sim_host *host = verb->node->host;
    if (!host->up)
        return -FAB_EUNKNOWN;
    return host->births != verb->birth || sim_node_fences(verb->node, verb->ep) ? -FAB_EFENCED : 0;
}

static void verb_effect(void *arg, uint64_t tag)
{
    (void)tag;
    static const char *const names[FAB_VERBS] = {"read", "write", "cas", "faa", "swap"};
    struct sim_verb *verb = arg;
    struct sim *sim = verb->ep->fabric->sim;
    int error = verb_admit(verb);
    sim_note(sim, error ? "refused" : names[verb->op.verb], verb->node->host->id, verb->op.addr, verb->ep->fab.id);
    if (unlikely(error)) {
        drop_window(verb);
        if (error == -FAB_EUNKNOWN)
            verb_complete(verb, error, sim_give_up_ns(sim));
        else
            verb_answer(verb, error);
        return;
    }
    if (verb->op.verb > FAB_WRITE) {
        if (verb->second_half) {
            if (unlikely(sim->config.chooser))
                close_windows(verb);
            else
                word_store(verb, verb->next);
        } else if (verb_atomic(verb)) {
            verb->second_half = true;
            sim_at_lane_front(sim, sim->now_ns + verb->window_ns, verb_lane(verb), verb_effect, verb, 0);
            return;
        }
    } else if (verb->torn) {
        bool lower = verb->second_half == verb->upper_first;
        verb_copy(verb, lower ? 0 : verb->torn, lower ? verb->torn : verb->op.len);
        if (!verb->second_half) {
            verb->second_half = true;
            sim_at_lane_front(sim, sim->now_ns + model_get(sim->model, MODEL_tear_ns), verb_lane(verb), verb_effect, verb, 0);
            return;
        }
    } else {
        verb_copy(verb, 0, verb->op.len);
    }
    verb_answer(verb, 0);
}

/* ---- arrival ---- */

/* When an access that the NIC has served gets its turn on its address. */
static uint64_t atomic_turn_ns(struct sim_node *node, fab_addr addr, uint64_t served_ns, uint64_t same_ns)
{
    if (unlikely(node->host->sim->config.chooser))
        return served_ns; /* whose turn it is the chooser says */
    if (unlikely(!node->atomic_free_ns)) {
        node->atomic_free_ns = sim_alloc(((size_t)1 << ATOMIC_BUCKET_BITS) * sizeof *node->atomic_free_ns);
        if (!node->atomic_free_ns)
            abort();
    }
    uint64_t *free_ns = &node->atomic_free_ns[mix64(addr) >> (64 - ATOMIC_BUCKET_BITS)];
    uint64_t turn_ns = max_u64(served_ns, *free_ns);
    *free_ns = turn_ns + same_ns;
    return turn_ns;
}

/* The same for a READ of a lock: it takes its turn on every word of it. Atomics have up to 16 bytes, aligned. */
static uint64_t read_turn_ns(struct sim_node *node, fab_addr addr, uint16_t len, uint64_t served_ns, uint64_t same_ns)
{
    const fab_addr from = addr & ~(fab_addr)15;
    uint64_t turn_ns = served_ns;
    for (fab_addr word = from; word < addr + len; word += 8)
        turn_ns = max_u64(turn_ns, atomic_turn_ns(node, word, served_ns, same_ns));
    return turn_ns;
}

/* ---- order ---- */

static enum sim_class class_of(const struct fab_op *op)
{
    return op->verb == FAB_READ ? SIM_READS : op->verb == FAB_WRITE ? SIM_WRITES : SIM_ATOMICS;
}

/* Whether a verb of class `after` may pass an earlier one of class `before` (fabric.h: order). */
static bool may_pass(const struct sim_fabric *fabric, enum sim_class before, enum sim_class after)
{
    const uint32_t kept = fabric->mistakes & SIM_FABRIC_UNORDERED ? 0 : fabric->caps;
    if (before == after || (before == SIM_WRITES && after == SIM_READS))
        return false;
    if (before == SIM_READS && after == SIM_WRITES)
        return !fab_has(kept, FAB_ORDER_WRITE_AFTER_READ);
    return !fab_has(kept, FAB_ORDER_MIXED);
}

/* The earliest that a verb may take effect: behind those that it must not pass. */
static uint64_t behind_ns(const struct sim_verb *verb, const struct sim_conn *conn)
{
    const struct sim_fabric *fabric = verb->ep->fabric;
    bool fence = verb->op.fence && !(fabric->mistakes & SIM_FABRIC_UNFENCED);
    uint64_t at_ns = 0;
    for (unsigned i = 0; i < SIM_CLASSES; i++)
        if (fence || !may_pass(fabric, (enum sim_class)i, class_of(&verb->op)))
            at_ns = max_u64(at_ns, conn->effect_ns[i]);
    return at_ns;
}

/* So that verbs which may be passed sometimes are. */
static uint64_t linger_ns(const struct sim_verb *verb)
{
    struct sim *sim = verb->ep->fabric->sim;
    bool passed = false;
    for (unsigned i = 0; i < SIM_CLASSES; i++)
        passed |= may_pass(verb->ep->fabric, class_of(&verb->op), (enum sim_class)i);
    if (!passed || rng_below(&sim->random, LINGER_ONE_IN))
        return 0;
    return rng_below(&sim->random, 2 * model_get(sim->model, MODEL_propagation_ns));
}

/* Nothing to see of a window where only NICs write, and only by atomics: spares an event per atomic. */
static uint64_t atomic_window_ns(const struct sim_verb *verb, uint64_t same_ns)
{
    const struct sim_fabric *fabric = verb->ep->fabric;
    if (unlikely(fabric->mistakes & SIM_FABRIC_SPLIT) && verb->op.masked)
        return model_get(fabric->sim->model, MODEL_propagation_ns);
    if (fab_has(fabric->caps, verb->op.width == 16 ? FAB_CPU_ATOMIC128 : FAB_CPU_ATOMIC64) || !verb->node->mixed)
        return 0;
    return min_u64(model_get(fabric->sim->model, MODEL_rmw_window_ns), same_ns ? same_ns - 1 : 0);
}

static uint64_t service_ns(const struct model *model, const struct fab_op *op)
{
    if (op->verb == FAB_READ)
        return model_get(model, MODEL_inbound_read_ns);
    if (op->verb == FAB_WRITE)
        return model_get(model, MODEL_inbound_write_ns);
    return model_get(model, op->width == 16 ? MODEL_inbound_atomic16_ns : MODEL_inbound_atomic_ns);
}

void sim_verb_arrive(void *arg, uint64_t tag)
{
    (void)tag;
    struct sim_verb *verb = arg;
    struct sim *sim = verb->ep->fabric->sim;
    struct sim_host *host = verb->node->host;
    struct sim_conn *conn = &verb->ep->conns[host->id];
    if (unlikely(!host->up)) {
        verb_complete(verb, -FAB_EUNKNOWN, sim_give_up_ns(sim));
        return;
    }
    uint64_t at_ns = sim->now_ns, behind = behind_ns(verb, conn);
    if (host == verb->ep->host)
        at_ns = sim_nic_serve(&host->nic.loop_free_ns, at_ns, model_get(sim->model, MODEL_loopback_service_ns));
    at_ns = sim_nic_serve(&host->nic.in_free_ns, at_ns, service_ns(sim->model, &verb->op) + sim_nic_context_ns(host));
    if (unlikely(!sim_fabric_ordered(verb->ep->fabric)))
        at_ns += linger_ns(verb);
    uint64_t spread_ns = 0;
    if (verb->op.verb > FAB_WRITE) {
        uint64_t same_ns = model_get(sim->model, MODEL_atomic_same_ns);
        verb->window_ns = spread_ns = atomic_window_ns(verb, same_ns);
        at_ns = atomic_turn_ns(verb->node, verb->op.addr, max_u64(at_ns, behind), same_ns);
    } else if (verb->op.verb == FAB_READ && verb->op.len <= 16 && model_get(sim->model, MODEL_read_same_ns)) {
        at_ns = read_turn_ns(verb->node, verb->op.addr, verb->op.len, max_u64(at_ns, behind),
                             model_get(sim->model, MODEL_read_same_ns));
    }
    if (verb->op.verb <= FAB_WRITE && verb->op.len > 8 && !sim->config.chooser && rng_below(&sim->random, TEAR_ONE_IN) == 0) {
        verb->torn = (uint16_t)(8 * rng_between(&sim->random, 1, verb->op.len / 8 - 1));
        verb->upper_first = rng_next(&sim->random) & 1;
        spread_ns = model_get(sim->model, MODEL_tear_ns);
    }
    at_ns = max_u64(at_ns, behind);
    /* Behind all of it: of two events at one time the one that was thought of first comes first, and that could be the next verb's.
     */
    conn->effect_ns[class_of(&verb->op)] = at_ns + (spread_ns ? spread_ns + 1 : 0);
    __builtin_prefetch(host->memory + FAB_OFFSET(verb->op.addr));
    sim_at_lane(sim, at_ns, verb_lane(verb), verb_effect, verb, 0);
}
