/* SPDX-License-Identifier: Apache-2.0 */
/* Values beside locks. They are not in the sessions' tables of operations: programs that do not use values do not contain this. */
#include "client/grant.h"
#include "client/memory.h"
#include "client/net.h"
#include "client/nodes.h"
#include "client/segment.h"
#include "designs/core/value.h"
#include "lib/explain.h"

#include <errno.h>
#include <string.h>

/* ---- on memory ---- */

/* A value is set under `setting`: those of one hold have the same token, by which sets are told apart. */
static int take_memory(const struct memory_session *m, const struct hold *h)
{
    if (!m->space.values)
        return explain(-PAWL_ENOTSUP, "values beside locks need a fabric with atomics of 128 bits, which this one lacks");
    if (!m->segment || h->index >= m->space.lock_count)
        return 0; /* the locker refuses a wrong index */
    return segment_take(m->segment, m->space.values + h->index * sizeof(struct value_cell), sizeof(struct value_cell));
}

static int memory_set(struct pawl *p, const pawl_grant *g, const void *bytes, uint32_t len)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    int rc = take_memory(m, &h);
    if (rc)
        return rc;
    pthread_mutex_lock(&p->setting);
    rc = locker_set_value(&m->locker, &h, bytes, len);
    pthread_mutex_unlock(&p->setting);
    return memory_failed(m, rc, pawl_id(0));
}

static int memory_get(struct pawl *p, const pawl_grant *g, void *bytes, uint32_t *len)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    int rc = take_memory(m, &h);
    return rc ? rc : memory_failed(m, locker_get_value(&m->locker, &h, bytes, len), pawl_id(0));
}

/* ---- of any session ---- */

/* The session that has the grant: of a space on several memory nodes, that at the grant's node. */
static int session_of(struct pawl *p, const pawl_grant *g, struct pawl **at)
{
    explain_nothing();
    if (!handle_is_ours(p))
        return handle_forked();
    if (!(p->design->features & DESIGN_VALUES))
        return explain(-PAWL_ENOTSUP, "the design '%s' has no values beside its locks", p->design->name);
    *at = p;
    return memory_of(p) || net_of(p) ? 0 : nodes_of_grant(nodes_of(p), g, at);
}

static int told(struct pawl *p, const struct pawl *at, int rc)
{
    return p == at ? rc : nodes_told(nodes_of(p), rc);
}

int pawl_set_value(pawl *p, const pawl_grant *grant, const void *bytes, size_t len)
{
    struct pawl *at = NULL;
    int rc = session_of(p, grant, &at);
    if (rc)
        return rc;
    assert(at);
    if (len > PAWL_VALUE_MAX)
        return explain(-EMSGSIZE, "a value has at most %d bytes, not %zu", PAWL_VALUE_MAX, len);
    if (grant->mode != PAWL_EXCLUSIVE)
        return explain(-EINVAL, "a value is set under an exclusive hold, and this one is shared");
    return told(p, at, (net_of(at) ? net_set_value : memory_set)(at, grant, len ? bytes : "", (uint32_t)len));
}

int pawl_get_value(pawl *p, const pawl_grant *grant, void *bytes, size_t *len)
{
    uint8_t value[PAWL_VALUE_MAX];
    uint32_t found = 0;
    struct pawl *at = NULL;
    int rc = session_of(p, grant, &at);
    if (rc)
        return rc;
    assert(at);
    rc = told(p, at, (net_of(at) ? net_get_value : memory_get)(at, grant, value, &found));
    if (rc)
        return rc;
    if (found > *len)
        return explain(-EMSGSIZE, "the value has %u bytes, and there is room for %zu", found, *len);
    memcpy(bytes, value, found);
    *len = found;
    return 0;
}
