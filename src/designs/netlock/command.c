/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of an operator to a running switch: show its counters, change its policies (4.4). A wrong command is refused with a
 * reason, and changes nothing. */
#include "designs/netlock/allocate.h"
#include "designs/netlock/switch.h"

#include <errno.h>

static uint32_t fullest_pipe(const struct plane *plane)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < max_u64(plane->config.pipes, 1); i++)
        most = (uint32_t)max_u64(most, plane_pipe_used(plane, i));
    return most;
}

static void fill_quota(const struct plane *plane, uint32_t first, struct netlock_status *out)
{
    for (uint32_t t = first; t < plane->config.tenants && !out->quota_rate; t++) {
        struct netlock_quota q = plane_quota_of(plane, (uint16_t)t);
        if (!q.rate)
            continue;
        out->quota_rate = ((uint64_t)q.rate * NS_PER_S + (UINT64_C(1) << 30) - 1) >> 30;
        out->quota_tenant = t;
        out->quota_burst = q.burst;
    }
}

static void fill_status(struct nl_switch *w, const struct netlock_command *c, uint64_t now, struct netlock_status *out)
{
    const struct plane *plane = switch_plane(w);
    uint64_t window = (uint64_t)((u128)c->rate * NETLOCK_MEASURE_NS / NS_PER_S);
    *out = (struct netlock_status){
        .term = w->term,
        .active = switch_is_active(w, now),
        .slots = plane->config.slots,
        .locks = plane->used,
        .pipes = (uint32_t)max_u64(plane->config.pipes, 1),
        .pipe_used = fullest_pipe(plane),
        .random = w->policy.alloc_random,
        .priorities = w->policy.levels,
        .granted = w->counts.switch_grants,
        .passed_on = w->counts.passed_on,
        .overflowed = w->counts.overflowed,
        .moved_in = w->counts.moved_in,
        .moved_out = w->counts.moved_out,
        .over_quota = w->counts.refused_quota,
        .expired = w->counts.expired,
        .bad = w->drops.bad,
        .in_p99_ns = switch_stop_percentile(w->stops[SWITCH_STOP_IN], 99),
        .in_alone_p99_ns = switch_stop_percentile(w->stops[SWITCH_STOP_IN_ALONE], 99),
        .out_p99_ns = switch_stop_percentile(w->stops[SWITCH_STOP_OUT], 99),
        .servers_needed = window ? netlock_servers_needed(switch_plan(w), w->planned, window) : 0,
    };
    fill_quota(plane, c->tenant, out);
}

/* Locks whose queues do not match the new number move out, and move in again when they are requested. */
int netlock_set_priorities(void *state, uint64_t levels)
{
    struct nl_switch *w = state;
    if (w->policy.chain)
        return -EOPNOTSUPP;
    if (levels > NETLOCK_PRIORITIES)
        return -EINVAL;
    __atomic_store_n(&w->policy.levels, (uint32_t)levels, __ATOMIC_RELEASE); /* the program in the kernel reads it, too */
    w->remake = true;
    return 0;
}

void netlock_set_random(void *state, bool on)
{
    struct nl_switch *w = state;
    w->policy.alloc_random = on;
}

static int obey(struct nl_switch *w, const struct netlock_command *c)
{
    switch (c->kind) {
    case NETLOCK_COMMAND_STATUS:
        return 0;
    case NETLOCK_COMMAND_QUOTA:
        return c->tenant > UINT16_MAX ? -EINVAL : netlock_set_quota(w, (uint16_t)c->tenant, c->rate, c->burst);
    case NETLOCK_COMMAND_RANDOM:
        if (c->rate > 1)
            return -EINVAL;
        netlock_set_random(w, c->rate);
        return 0;
    case NETLOCK_COMMAND_PRIORITIES:
        return netlock_set_priorities(w, c->rate);
    default:
        return -EINVAL;
    }
}

void switch_on_command(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct netlock_command *c = (const struct netlock_command *)(const void *)(p + 1);
    if (p->head.type != NETLOCK_COMMAND || len != NETLOCK_COMMAND_BYTES) {
        w->drops.bad++;
        return;
    }
    struct netlock_packet *a = outbox_add(out, NETLOCK_COMMAND_BYTES);
    if (!a)
        return; /* it asks again */
    int rc = switch_is_active(w, now) ? obey(w, c) : -EAGAIN;
    netlock_head(a, w->config.space, NETLOCK_COMMANDED, w->term, switch_place(w), p->head.from);
    a->head.nonce = p->head.nonce;
    a->stamp = (uint64_t)-rc;
    struct netlock_status status;
    fill_status(w, c, now, &status);
    memcpy(a + 1, &status, sizeof status);
}
