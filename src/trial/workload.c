#include "trial/workload.h"

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
