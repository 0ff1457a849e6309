/* SPDX-License-Identifier: Apache-2.0 */
#include "node/gate.h"
#include "dataplane/xdp/gate.h"

#include <string.h>

/* Life 0: there is no host, so no packet is its own. */
static void tell(void *gate, const struct roster *r)
{
    volatile struct plane_seal *seals = gate_seals(gate);
    for (uint32_t m = 1; m <= r->machines; m++)
        for (unsigned i = 0; i < SEAL_KEYS && r->host[m].life; i++) {
            seals[m].key[i][0] = r->host[m].key[i].k[0];
            seals[m].key[i][1] = r->host[m].key[i].k[1];
        }
}

static int put_before(const struct roster *r, int fd, void **out)
{
    struct gate_settings settings = {.machines = r->machines};
    struct gate_filter *g;
    assert(r->ring && !r->ring->number);
    for (unsigned i = 0; i < r->ring->count; i++)
        memcpy(settings.key[i], r->ring->key[i].k, sizeof settings.key[i]);
    int rc = gate_open(&settings, &g);
    if (rc)
        return rc;
    for (unsigned i = 0; i < r->ring->count; i++) {
        struct seal_key own = seal_member_key(&r->ring->key[i], 0);
        gate_seals(g)->key[i][0] = own.k[0];
        gate_seals(g)->key[i][1] = own.k[1];
    }
    tell(g, r);
    rc = gate_attach(g, fd);
    if (rc) {
        gate_close(g);
        return explain(rc, "the kernel refuses to put the filter before the socket: %s", strerror(-rc));
    }
    *out = g;
    return 0;
}

static uint64_t refused(const void *gate)
{
    return gate_refused(gate);
}

static void take_away(void *gate, int fd)
{
    gate_detach(gate, fd);
    gate_close(gate);
}

const struct station_gate gate_in_kernel = {.put_before = put_before, .tell = tell, .refused = refused, .take_away = take_away};
