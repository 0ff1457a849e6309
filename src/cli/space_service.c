/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/space_service.h"
#include "cli/common.h"
#include "client/net_where.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ANSWER_NS (30 * NS_PER_S) /* a service may wait for leases before it has made a space */
#define LIST_NS (3 * NS_PER_S)
#define PAGES_MAX 64u
#define ANEW_MAX 8u /* other operators may be quicker */

struct service {
    const struct args *usage;
    struct coord_list at;
    struct seal_ring ring;
    struct net_addr self;
    char text[COORD_LIST_TEXT];
};

/* ---- places ---- */

/* pawl://ADDRESS:PORT[/SPACE]; the space's name goes into the question. */
static int parse(const char *place, struct service *s, struct spaces_ask *ask)
{
    char whole[PLACE_LEN];
    const char *rest = place + strlen("pawl://");
    size_t bare = strcspn(rest, "/");
    bool named = rest[bare] && rest[bare + 1];
    struct net_where w;
    snprintf(whole, sizeof whole, "%.*s/%s", (int)bare, rest, named ? rest + bare + 1 : "any");
    if (net_where_parse(whole, &w))
        return args_complain(s->usage, "%s", explained());
    if (!named && ask->verb != SPACES_LIST)
        return args_complain(s->usage, "%s does not name a space: pawl://ADDRESS:PORT/SPACE", place);
    s->at = w.coordinators;
    s->ring = w.ring;
    coord_make(&ask->packet, COORD_SPACE, named ? w.space : "", NULL, world_random(&world_real) | 1);
    coord_list_print(&s->at, s->text);
    s->self = w.self;
    int rc = net_addr_known(w.self) ? 0 : udp_source_for(s->at.at[0], &s->self);
    return rc ? cli_say("space", EXIT_UNAVAILABLE, "no route to %s: %s", s->text, strerror(-rc)) : 0;
}

/* ---- answers ---- */

static void json_entry(struct json *j, const char *name, const struct service *s, const struct spaces_entry *e)
{
    char place[PLACE_LEN], at[NET_ADDR_TEXT], id[40], first[NET_ADDR_TEXT];
    net_addr_print(coord_list_at(&s->at), first);
    snprintf(place, sizeof place, "pawl://%s/%.*s", first, COORD_NAME_LEN, e->name);
    snprintf(id, sizeof id, "%016" PRIx64 "%016" PRIx64, e->identity.id[0], e->identity.id[1]);
    net_addr_print(e->granter, at);
    json_object(j, name);
    json_string(j, "space", place);
    json_string(j, "design", e->design);
    json_string(j, "keys", cli_keys_name((enum pawl_keys)e->keys));
    json_u64(j, "capacity", e->locks);
    json_u64(j, "keys_used", e->keys_used);
    json_u64(j, "hosts", e->hosts);
    json_u64(j, "hosts_max", e->hosts_max);
    json_u64(j, "sessions", e->sessions);
    json_u64(j, "holds", e->holds);
    json_u64(j, "servers", e->servers);
    json_u64(j, "lease_ns", e->lease_ns);
    json_u64(j, "membership_lease_ns", e->member_ns);
    json_string(j, "id", id);
    json_u64(j, "version", e->identity.version);
    json_string(j, "granter", net_addr_known(e->granter) ? at : NULL);
    json_u64(j, "own_granters", e->own);
    json_bool(j, "leads", e->leads);
    json_end(j);
}

static void print_entry(const struct spaces_entry *e)
{
    char at[NET_ADDR_TEXT] = "none";
    if (net_addr_known(e->granter))
        net_addr_print(e->granter, at);
    printf("%-16s %-7s %10" PRIu64 " %10" PRIu64 " %4" PRIu32 "/%-5" PRIu32 " %-21s %.*s%s\n", e->design,
           cli_keys_name((enum pawl_keys)e->keys), e->locks, e->keys_used, e->hosts, e->hosts_max, at, COORD_NAME_LEN, e->name,
           e->leads ? "" : " (stands by)");
}

/* Strings from the network end somewhere. */
static void tame(struct spaces_answer *a)
{
    a->text[sizeof a->text - 1] = 0;
    a->count = (uint32_t)min_u64(a->count, SPACES_ENTRIES);
    for (unsigned i = 0; i < a->count; i++) {
        struct spaces_entry *e = &a->entry[i];
        e->name[sizeof e->name - 1] = e->design[sizeof e->design - 1] = 0;
        if (e->keys != PAWL_KEYS_NAMED && e->keys != PAWL_KEYS_SPARSE)
            e->keys = PAWL_KEYS_DENSE;
    }
}

/* 0; the exit status after a complaint; or SPACE_ON_NODE, if there is a memory node. */
static int exchange_with(struct service *s, const struct spaces_ask *ask, struct spaces_answer *a)
{
    uint64_t patience = ask->verb == SPACES_LIST ? LIST_NS : ANSWER_NS;
    struct spaces_ask q = *ask;
    int rc = 0;
    for (unsigned i = 0; i < ANEW_MAX; i++) {
        if (q.verb != SPACES_LIST)
            seal_prove(&s->ring, &q, sizeof q, &q.packet.term);
        rc = ask_leader(&s->at, 0, s->self, &q.packet, sizeof q, COORD_SPACES, world_now(&world_real) + patience, a, sizeof *a);
        if (rc || a->packet.code != COORD_ANEW)
            break;
        q.packet.stamp = a->packet.stamp;
    }
    if (rc == -EPROTOTYPE)
        return SPACE_ON_NODE;
    if (rc == -ENOENT) /* which a memory node says, too */
        return cli_say("space", EXIT_NO, "there is no space '%s' at %s", ask->packet.space, s->text);
    if (rc == -ETIMEDOUT && ask->verb != SPACES_LIST)
        return cli_say(
            "space", EXIT_UNAVAILABLE,
            "no answer from %s: if a service is there, it may have done what was asked ('pawl space list pawl://%s' says)", s->text,
            s->text);
    int shut = cli_shut("space", rc, s->text);
    if (shut)
        return shut;
    if (rc)
        return cli_say("space", EXIT_UNAVAILABLE, "no service answers at %s (start one with 'pawl serve')", s->text);
    tame(a);
    if (!a->packet.code)
        return 0;
    int status = a->packet.code == -EEXIST || a->packet.code == -ENOENT || a->packet.code == -EBUSY ? EXIT_NO
                 : a->packet.code == -EINVAL                                                        ? EXIT_USAGE
                                                                                                    : EXIT_UNAVAILABLE;
    return cli_say("space", status, "%s: %s", s->text, a->text);
}

static int list_all(struct service *s, struct spaces_ask *ask, bool json)
{
    struct spaces_answer a;
    struct json j;
    bool begun = false, any = false;
    for (unsigned page = 0; page < PAGES_MAX; page++) {
        int status = exchange_with(s, ask, &a);
        if (status)
            return status;
        if (!begun && json) {
            json_init(&j, stdout);
            json_array(&j, NULL);
        } else if (!begun) {
            printf("%-16s %-7s %10s %10s %10s %-21s %s\n", "DESIGN", "KEYS", "CAPACITY", "USED", "HOSTS", "GRANTER", "SPACE");
        }
        begun = true;
        for (unsigned i = 0; i < a.count; i++) {
            any = true;
            if (json)
                json_entry(&j, NULL, s, &a.entry[i]);
            else
                print_entry(&a.entry[i]);
        }
        if (!a.packet.head.index)
            break;
        ask->packet.head.index = a.packet.head.index;
        ask->packet.head.nonce = world_random(&world_real) | 1;
    }
    int status = json && json_finish(&j) ? EXIT_UNAVAILABLE : 0;
    if (!any && *ask->packet.space)
        return cli_say("space", EXIT_NO, "there is no space '%s' at %s", ask->packet.space, s->text);
    return status;
}

static void describe(const char *place, const struct service *s, const struct spaces_entry *e)
{
    char at[NET_ADDR_TEXT];
    net_addr_print(e->granter, at);
    printf("space      %s\n", place);
    printf("service    %s%s\n", s->text, e->leads ? "" : ", stands by");
    printf("id         %016" PRIx64 "%016" PRIx64 ", version %" PRIu32 "\n", e->identity.id[0], e->identity.id[1],
           e->identity.version);
    printf("design     %s\n", e->design);
    printf("keys       %s, room for %" PRIu64 " locks", cli_keys_name((enum pawl_keys)e->keys), e->locks);
    if (e->keys == PAWL_KEYS_DENSE)
        putchar('\n');
    else
        printf(", %" PRIu64 " keys have one\n", e->keys_used);
    printf("hosts      %" PRIu32 " of %" PRIu32 ", with %" PRIu32 " sessions of %" PRIu32 " holds each\n", e->hosts, e->hosts_max,
           e->sessions, e->holds);
    printf("granter    %s%s\n", net_addr_known(e->granter) ? at : "none", e->own ? ", in the service's process" : "");
    printf("leases     %.3f s for locks, %.3f s for membership\n", (double)e->lease_ns / NS_PER_S, (double)e->member_ns / NS_PER_S);
}

int space_show(const struct args *usage, const char *place, struct spaces_ask *ask, bool json)
{
    struct service s = {.usage = usage};
    struct spaces_answer a;
    int status = parse(place, &s, ask);
    if (status)
        return status;
    status = exchange_with(&s, ask, &a);
    if (status)
        return status;
    if (!a.count)
        return cli_say("space", EXIT_NO, "there is no space '%s' at %s", ask->packet.space, s.text);
    if (!json) {
        describe(place, &s, &a.entry[0]);
        return 0;
    }
    struct json j;
    json_init(&j, stdout);
    json_entry(&j, NULL, &s, &a.entry[0]);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

int space_service(const struct args *usage, const char *place, struct spaces_ask *ask, bool json)
{
    struct service s = {.usage = usage};
    struct spaces_answer a;
    struct json j;
    int status = parse(place, &s, ask);
    bool lists = ask->verb == SPACES_LIST;
    if (!status)
        status = lists ? list_all(&s, ask, json) : exchange_with(&s, ask, &a);
    if (status == SPACE_ON_NODE)
        return cli_say("space", EXIT_UNAVAILABLE, "there is a memory node at %s, which has the one space that it was started with",
                       s.text);
    if (status || lists || !json)
        return status;
    json_init(&j, stdout);
    if (a.count) {
        json_entry(&j, NULL, &s, &a.entry[0]);
    } else {
        json_object(&j, NULL);
        json_string(&j, "space", place);
        json_bool(&j, "dropped", true);
        json_end(&j);
    }
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}
