/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/switch.h"
#include "dataplane/xdp/loader.h"
#include "dataplane/xdp/names.h"

#include <errno.h>
#include <inttypes.h>

static void print_counters(const struct plane_counters *c)
{
    for (unsigned i = 0; i < PLANE_VERDICTS; i++)
        printf("%-12s %20" PRIu64 "\n", plane_verdict_name(i), c->verdict[i]);
    for (unsigned i = 0; i < PLANE_REASONS; i++)
        if (c->reason[i])
            printf("  %-18s %12" PRIu64 "\n", plane_reason_name(i), c->reason[i]);
    for (unsigned f = 0; f < PLANE_FAMILIES; f++)
        for (unsigned t = 0; t < PLANE_TYPES; t++)
            if (c->type[f][t])
                printf("  %-12s type %2u %10" PRIu64 "\n", plane_family_name(f), t, c->type[f][t]);
}

static void json_counters(struct json *j, const struct plane_counters *c)
{
    json_object(j, "verdicts");
    for (unsigned i = 0; i < PLANE_VERDICTS; i++)
        json_u64(j, plane_verdict_name(i), c->verdict[i]);
    json_end(j);
    json_object(j, "reasons");
    for (unsigned i = 0; i < PLANE_REASONS; i++)
        json_u64(j, plane_reason_name(i), c->reason[i]);
    json_end(j);
    json_array(j, "types");
    for (unsigned f = 0; f < PLANE_FAMILIES; f++)
        for (unsigned t = 0; t < PLANE_TYPES; t++)
            if (c->type[f][t]) {
                json_object(j, NULL);
                json_string(j, "family", plane_family_name(f));
                json_u64(j, "type", t);
                json_u64(j, "packets", c->type[f][t]);
                json_end(j);
            }
    json_end(j);
}

int switch_show(const char *pins, bool json)
{
    struct plane_live live;
    struct plane_counters c;
    struct json j;
    int rc = plane_peek(pins, &live, &c);
    if (rc == -ENOENT)
        return cli_say("show", EXIT_NO, "no switch is pinned at %s; --pin names another folder", pins);
    if (rc)
        return cli_say("show", EXIT_UNAVAILABLE, "%s", explained());
    if (!json) {
        printf("space %" PRIu32 ", %" PRIu64 " locks, life %" PRIu32 "%s\n", live.settings.space, live.settings.locks, live.life,
               live.closed ? ", closed" : "");
        print_counters(&c);
        return 0;
    }
    json_open(&j, stdout);
    json_u64(&j, "space", live.settings.space);
    json_u64(&j, "locks", live.settings.locks);
    json_u64(&j, "life", live.life);
    json_bool(&j, "closed", live.closed);
    json_counters(&j, &c);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}
