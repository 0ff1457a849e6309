/* SPDX-License-Identifier: Apache-2.0 */
/* pawl_serve: a lock server with data of somebody else's, in that one's process. */
#include "client/net_where.h"
#include "lib/explain.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>

#define JOIN_NS (30 * NS_PER_S) /* as long as 'pawl serve --join' */

static int explain_join(int rc, const char *where, const char *at)
{
    switch (rc) {
    case -ETIMEDOUT:
        return explain(rc, "%s: nobody answers; 'pawl serve' does", where);
    case -EADDRINUSE:
    case -EADDRNOTAVAIL:
        return explain(rc, "cannot listen at %s", at);
    case -ENOSPC:
        return explain(rc, "%s has all the lock servers it wants: see pawl serve --servers and --own", where);
    default:
        return explain(rc, "%s: cannot be a lock server there: %s", where, pawl_strerror(rc));
    }
}

int pawl_serve(const char *where, const char *at, pawl_apply apply, void *ctx, void (*ready)(void *ctx), const volatile int *stop)
{
    static const char scheme[] = "pawl://";
    struct net_where w;
    struct station s;
    struct station_params p = {.stop = stop, .deadline = world_now(&world_real) + JOIN_NS};
    static_assert(_Generic((sig_atomic_t)0, int : 1, default : 0), "what a handler of signals sets");
    if (strncmp(where, scheme, sizeof scheme - 1) || net_addr_parse(at, &p.at))
        return explain(-EINVAL, "'%s' is not pawl://ADDRESS:PORT/SPACE, or '%s' not ADDRESS:PORT", where, at);
    int rc = net_where_parse(where + sizeof scheme - 1, &w);
    if (rc)
        return rc;
    p.coordinator = w.coordinator;
    p.space = w.space;
    rc = station_open(&s, &p);
    if (rc)
        return explain_join(rc, where, at);
    if (!s.design->server_apply) {
        station_close(&s);
        return explain(-PAWL_ENOTSUP, "the design '%s' of %s has no data beside its locks", s.welcome.design, where);
    }
    s.design->server_apply(s.memory, apply, ctx);
    if (ready)
        ready(ctx);
    station_run(&s);
    station_close(&s);
    return 0;
}
