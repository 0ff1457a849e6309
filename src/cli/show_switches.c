/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of a rack, as its coordinator knows them. */
#include "cli/show.h"
#include "client/net.h"
#include "client/net_where.h"
#include "cluster/join.h"
#include "world/world.h"

#include <inttypes.h>
#include <string.h>

#define ASK_NS (3 * NS_PER_S) /* for which the coordinator is asked */

static int ask(const struct net_where *w, struct coord_ruled *out)
{
    struct coord_list coordinators = w->coordinators;
    struct coord_packet q;
    struct net_addr self = w->self;
    coord_make(&q, COORD_RULES, w->space, NULL, world_random(&world_real) | 1);
    int rc = net_addr_known(self) ? 0 : udp_source_for(coordinators.at[0], &self);
    return rc ? rc
              : ask_leader(&coordinators, 0, self, &q, sizeof q, COORD_RULED, world_now(&world_real) + ASK_NS, out, sizeof *out);
}

static void print_switch(struct json *j, const struct coord_ruled *r, unsigned i)
{
    char at[NET_ADDR_TEXT];
    net_addr_print(r->rack[i].at, at);
    if (!j) {
        printf("switch %u  at %-21s  life %" PRIu32, i + 1, at, r->rack[i].life);
        if (r->rack[i].heard)
            printf(", heard %" PRIu32 ".%" PRIu32 " s ago\n", r->rack[i].silent_ms / 1000, r->rack[i].silent_ms / 100 % 10);
        else
            printf(", not heard since the coordinator started\n");
        return;
    }
    json_object(j, NULL);
    json_u64(j, "switch", i + 1);
    json_string(j, "at", at);
    json_u64(j, "life", r->rack[i].life);
    json_bool(j, "heard", r->rack[i].heard);
    json_decimal(j, "silent_seconds", r->rack[i].silent_ms, 3);
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
    if (ask(&w, &r))
        return cli_say("show", EXIT_UNAVAILABLE, "no coordinator of a space '%s' answers", w.space);
    if (json) {
        json_open(&j, stdout);
        json_array(&j, "switches");
    }
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(r.rack[i].at)) {
            print_switch(json ? &j : NULL, &r, i);
            count++;
        }
    if (json) {
        json_end(&j);
        return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
    }
    return count ? 0 : cli_say("show", EXIT_NO, "the space '%s' has no switch", w.space);
}
