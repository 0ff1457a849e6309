/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/workload.h"

pawl_key workload_key(const struct workload *w, uint64_t lock, char text[WORKLOAD_NAME_LEN])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    static const char prefix[] = "lock-";
    if (!w->names)
        return pawl_id(lock);
    memcpy(text, prefix, sizeof prefix - 1);
    for (unsigned i = sizeof prefix - 1; i < WORKLOAD_NAME_LEN; i++, lock >>= 5)
        text[i] = digits[lock & 31];
    return pawl_bytes(text, WORKLOAD_NAME_LEN);
}

unsigned validator_enter(struct validator *v, enum pawl_mode mode, uint64_t token, struct validation *out)
{
    uint64_t turns = __atomic_load_n(&v->turns, __ATOMIC_ACQUIRE);
    unsigned wrong = turns % 2;                                                      /* a writer is inside */
    wrong += token && token <= __atomic_load_n(&v->token, __ATOMIC_ACQUIRE) ? 1 : 0; /* an exclusive grant after it came before */
    if (mode == PAWL_EXCLUSIVE) {
        __atomic_store_n(&v->turns, ++turns, __ATOMIC_RELEASE);
        __atomic_store_n(&v->token, token, __ATOMIC_RELEASE);
    }
    *out = (struct validation){.at = v, .turns = turns, .mode = mode};
    return wrong;
}

unsigned validator_leave(const struct validation *v)
{
    unsigned wrong = __atomic_load_n(&v->at->turns, __ATOMIC_ACQUIRE) != v->turns;
    if (v->mode == PAWL_EXCLUSIVE)
        __atomic_store_n(&v->at->turns, v->turns + 1, __ATOMIC_RELEASE);
    return wrong;
}

/* ---- ranges ---- */

/* A copy of a slot as it was at one moment; false: it was empty, or it changed meanwhile, so that the range was not held all the
 * time.
 */
static bool read_slot(const struct range_slot *s, struct range_slot *out)
{
    uint64_t turns = __atomic_load_n(&s->turns, __ATOMIC_ACQUIRE);
    if (!(turns % 2))
        return false;
    out->lock = __atomic_load_n(&s->lock, __ATOMIC_ACQUIRE);
    out->mode = __atomic_load_n(&s->mode, __ATOMIC_ACQUIRE);
    out->start = __atomic_load_n(&s->start, __ATOMIC_ACQUIRE);
    out->end = __atomic_load_n(&s->end, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&s->turns, __ATOMIC_ACQUIRE) == turns;
}

unsigned range_enter(struct range_slot *slots, unsigned count, unsigned me, const struct workload_op *op)
{
    struct range_slot *mine = &slots[me], other;
    unsigned wrong = 0;
    __atomic_store_n(&mine->lock, op->lock, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->mode, op->mode, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->start, op->start, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->end, op->end, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->turns, mine->turns + 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < count; i++)
        if (i != me && read_slot(&slots[i], &other) && other.lock == op->lock && other.start < op->end && op->start < other.end)
            wrong += op->mode == PAWL_EXCLUSIVE || other.mode == PAWL_EXCLUSIVE;
    return wrong;
}

void range_leave(struct range_slot *slots, unsigned me)
{
    __atomic_store_n(&slots[me].turns, slots[me].turns + 1, __ATOMIC_RELEASE);
}
