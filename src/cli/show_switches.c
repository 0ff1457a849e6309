/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of a rack, as its coordinator knows them. */
#include "cli/policy.h"
#include "cli/show.h"
#include "client/net.h"
#include "client/net_where.h"
#include "cluster/join.h"
#include "world/world.h"

#include <inttypes.h>
#include <string.h>

#define ASK_NS (3 * NS_PER_S) /* for which the coordinator is asked */

/* `len`: of the answer. */
static int ask(const struct net_where *w, enum coord_type type, enum coord_type answer, void *out, uint32_t len)
{
    struct coord_list coordinators = w->coordinators;
    struct coord_packet q;
    struct net_addr self = w->self;
    coord_make(&q, type, w->space, NULL, world_random(&world_real) | 1);
    q.head.index = 1;
    int rc = net_addr_known(self) ? 0 : udp_source_for(coordinators.at[0], &self);
    return rc ? rc : ask_leader(&coordinators, 0, self, &q, sizeof q, answer, world_now(&world_real) + ASK_NS, out, len);
}

/* The design's switches have quotas of tenants. */
static bool has_quotas(const struct net_where *w)
{
    struct coord_hosts h;
    if (ask(w, COORD_WHO, COORD_HOSTS, &h, sizeof h))
        return false;
    h.design[sizeof h.design - 1] = 0;
    const struct design *d = design_find(h.design);
    return d && d->packet && d->packet->family == PACKET_NETLOCK && !w->ring.number;
}

static void print_switch(struct json *j, const struct coord_ruled *r, unsigned i, const struct net_where *w, bool quotas)
{
    char at[NET_ADDR_TEXT];
    struct policy_switch s = {.at = r->rack[i].at, .space = w->space, .rack = r->racks ? i + 1 : 0, .ring = w->ring};
    net_addr_print(r->rack[i].at, at);
    if (!j) {
        printf("switch %u  at %-21s  life %" PRIu32, i + 1, at, r->rack[i].life);
        if (r->rack[i].heard)
            printf(", heard %" PRIu32 ".%" PRIu32 " s ago\n", r->rack[i].silent_ms / 1000, r->rack[i].silent_ms / 100 % 10);
        else
            printf(", not heard since the coordinator started\n");
        if (quotas)
            policy_quotas(&s, NULL);
        return;
    }
    json_object(j, NULL);
    json_u64(j, "switch", i + 1);
    json_string(j, "at", at);
    json_u64(j, "life", r->rack[i].life);
    json_bool(j, "heard", r->rack[i].heard);
    json_decimal(j, "silent_seconds", r->rack[i].silent_ms, 3);
    if (quotas)
        policy_quotas(&s, j);
    json_end(j);
}

int show_switches(const char *space, bool json)
{
    char place[PLACE_LEN];
    struct net_where w = {0};
    struct coord_ruled r;
    struct json j;
    unsigned count = 0;
    int status = cli_place("show", space, place);
    if (status)
        return status;
    if (strncmp(place, NET_SCHEME, strlen(NET_SCHEME)) != 0)
        return cli_say("show", EXIT_USAGE, "only spaces pawl://ADDRESS:PORT/SPACE have switches, and %s is none", place);
    int rc = net_where_parse(place + strlen(NET_SCHEME), &w);
    if (rc)
        return cli_fail("show", rc);
    if (ask(&w, COORD_RULES, COORD_RULED, &r, sizeof r))
        return cli_say("show", EXIT_UNAVAILABLE, "no coordinator of a space '%s' answers", w.space);
    bool quotas = has_quotas(&w);
    if (json) {
        json_open(&j, stdout);
        json_array(&j, "switches");
    }
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(r.rack[i].at)) {
            print_switch(json ? &j : NULL, &r, i, &w, quotas);
            count++;
        }
    if (json) {
        json_end(&j);
        return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
    }
    return count ? 0 : cli_say("show", EXIT_NO, "the space '%s' has no switch", w.space);
}
