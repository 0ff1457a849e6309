/* SPDX-License-Identifier: Apache-2.0 */
/* pawl_serve: a lock server in the process of the application whose data it keeps. */
#include "client/net_where.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>

#define JOIN_NS (30 * NS_PER_S) /* as long as 'pawl serve --join' */

ONCE int pawl_serve(const char *where, const char *at, pawl_apply apply, void *ctx, void (*ready)(void *ctx),
                    const volatile int *stop)
{
    static const char scheme[] = "pawl://";
    struct net_where w;
    struct station s;
    struct station_params p = {.member = {.stop = stop, .deadline = world_now(&world_real) + JOIN_NS}};
    static_assert(_Generic((sig_atomic_t)0, int : 1, default : 0), "what a handler of signals sets");
    if (strncmp(where, scheme, sizeof scheme - 1) || net_addr_resolve(at, &p.member.at))
        return explain(-EINVAL, "'%s' is not pawl://ADDRESS:PORT/SPACE, or '%s' not ADDRESS:PORT", where, at);
    int rc = net_where_parse(where + sizeof scheme - 1, &w);
    if (rc)
        return rc;
    if (w.ring.count && w.ring.number)
        return explain(-EACCES, "the key file has the key of host %u, and a lock server needs the cluster's", w.ring.number);
    p.member.coordinators = w.coordinators;
    p.member.ring = &w.ring;
    p.member.space = w.space;
    rc = station_open(&s, &p);
    if (rc)
        return rc == -EINTR ? 0 : rc;
    if (!s.member.design->server_apply) {
        rc = explain(-PAWL_ENOTSUP, "the design '%s' of %s has no data beside its locks", s.member.welcome.said.design, where);
        station_close(&s);
        return rc;
    }
    station_apply(&s, apply, ctx);
    if (ready)
        ready(ctx);
    station_run(&s);
    station_close(&s);
    return 0;
}
