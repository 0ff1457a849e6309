/* SPDX-License-Identifier: Apache-2.0 */
/* pawl show: one lock, the space, or a switch. */
#include "cli/show.h"
#include "cli/commands.h"
#include "cli/switch.h"
#include "client/net.h"
#include "client/rack_look.h"
#include "cluster/nodes.h"

#include <errno.h>
#include <inttypes.h>

static struct {
    const char *space, *pins;
    bool json, pins_seen;
} opts = {.pins = "/sys/fs/bpf/pawl"};

static const struct arg table[] = {
    CLI_SPACE_OPTION(&opts.space),
    {"pin", 0, ARG_STRING, "DIR", "switch: the folder of 'pawl switch --pin'; default /sys/fs/bpf/pawl", &opts.pins,
     &opts.pins_seen},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl show",
    .usage = "[NAME] [--space URI] [--json]\n"
             "       pawl show switch [--pin DIR | --space URI] [--json]",
    .about =
        "Shows a lock with the sessions that hold it and wait for it; without NAME the space and all its sessions. 'switch' is\n"
        "the switch in this machine's kernel, whether its process runs or not: how many packets it answered, dropped and passed,\n"
        "why, and how many of each type. With --space it is all switches of that rack: where they are, their lives, and when the\n"
        "coordinator heard of them last, and with netlock the quotas of tenants. To show a lock of that name, say '-- switch'.",
    .after = "A session is live, or expired (its lease ran out), dead (its process ended) or broken (by 'pawl break'):\n"
             "the next client that asks gets the locks of such a session. A lock that was never taken is free.\n\n"
             "Exit status: 0 shown, 1 no such space or switch, 2 wrong usage, 69 the space cannot be used.",
    .words_max = 1,
    ARGS_TABLE(table),
};

static int print_claim(void *ctx, const struct inspect_claim *claim)
{
    bool *any = ctx;
    if (!*any) {
        printf("\n%-6s ", "");
        print_session_header();
        *any = true;
    }
    printf("%-6s ", claim->holds ? "holds" : "waits");
    print_session(&claim->session);
    if (claim->end)
        printf("%-6s %8s  bytes %" PRIu64 ":%" PRIu64 "%s%s\n", "", "", claim->start, claim->end, claim->holds ? ", " : "",
               claim->holds ? cli_mode_name(claim->mode) : "");
    return 0;
}

static int json_claim(void *ctx, const struct inspect_claim *claim)
{
    struct json *j = ctx;
    json_object(j, NULL);
    json_string(j, "claim", claim->holds ? "holds" : "waits");
    json_string(j, "mode", claim->holds ? cli_mode_name(claim->mode) : NULL);
    if (claim->end) {
        json_u64(j, "start", claim->start);
        json_u64(j, "end", claim->end);
    }
    cli_json_session(j, &claim->session);
    json_end(j);
    return 0;
}

static int count_claim(void *ctx, const struct inspect_claim *claim)
{
    uint32_t *counts = ctx;
    counts[claim->holds ? 0 : 1] += claim->session.health == SESSION_LIVE;
    return 0;
}

/* The lock that is shown, of a segment or of a rack; without an index it was never taken. */
struct shown {
    const struct locker *l;
    const struct rack_look *rack;
    const uint64_t *index;
    struct lock_view view;
};

static int each_claim(const struct shown *s, inspect_claim_fn fn, void *ctx)
{
    if (!s->index)
        return 0;
    return s->rack ? rack_look_claims(s->rack, *s->index, fn, ctx) : inspect_claims(s->l, *s->index, fn, ctx);
}

static int print_lock(const struct shown *s, pawl_key key)
{
    uint32_t counts[2] = {0};
    bool any = false;
    const struct lock_view *v = &s->view;
    int rc = each_claim(s, count_claim, counts);
    if (rc)
        return rc;
    printf("lock       ");
    cli_put_key(stdout, key);
    printf("\nmode       %s\ntoken      %" PRIu64 "\nholders    %" PRIu32 "\nwaiters    %" PRIu32 "\n", cli_mode_name(v->mode),
           v->token, counts[0], counts[1]);
    return each_claim(s, print_claim, &any);
}

static int json_lock(const struct shown *s, const char *place, pawl_key key)
{
    struct json j;
    json_open(&j, stdout);
    json_string(&j, "space", place);
    cli_json_key(&j, "name", key);
    json_string(&j, "mode", cli_mode_name(s->view.mode));
    cli_json_token(&j, true, s->view.token);
    json_array(&j, "sessions");
    int rc = each_claim(s, json_claim, &j);
    json_end(&j);
    int lost = json_finish(&j);
    return rc ? rc : lost;
}

static int show_lock(const struct observer *o, const char *place, const char *name)
{
    const struct locker *l = &o->locker;
    struct cell at;
    pawl_key key;
    int rc = cli_find("show", o, name, &key, &at);
    if (rc > 0)
        return rc;
    struct shown s = {.l = l, .index = rc == -ENOENT ? NULL : &at.index};
    rc = s.index ? o->space.design->peek(&l->seat, at.index, &s.view) : 0;
    if (!rc)
        rc = opts.json ? json_lock(&s, place, key) : print_lock(&s, key);
    return rc ? cli_fail("show", rc) : 0;
}

/* The node of the lock; any that answers says which it is. */
static int show_lock_of_nodes(const char *place, unsigned nodes, const char *name)
{
    struct observer o;
    pawl_key key;
    int rc = -ETIMEDOUT;
    for (unsigned i = 0; i < nodes && rc == -ETIMEDOUT; i++)
        rc = observer_open_node(place, i, &o);
    if (rc)
        return cli_fail("show", rc);
    int status = cli_key("show", o.header.keys, name, &key);
    unsigned node = status ? o.node : nodes_of_key(nodes, o.header.keys, key);
    if (node != o.node) {
        observer_close(&o);
        rc = observer_open_node(place, node, &o);
        if (rc)
            return cli_fail("show", rc);
    }
    if (!status)
        status = show_lock(&o, place, name);
    observer_close(&o);
    return status;
}

/* ---- racks ---- */

static int show_rack_lock(const struct rack_look *rack, const char *place, const char *name)
{
    struct inspect_lock lock;
    uint64_t index;
    pawl_key key;
    int status = cli_key("show", rack_look_keys(rack), name, &key);
    if (status)
        return status;
    int rc = rack_look_find(rack, key, &index);
    if (rc && rc != -ENOENT)
        return cli_fail("show", rc);
    struct shown s = {.rack = rack, .index = rc ? NULL : &index};
    if (s.index) {
        rack_look_lock(rack, index, &lock);
        s.view = lock.view;
    }
    rc = opts.json ? json_lock(&s, place, key) : print_lock(&s, key);
    return rc ? cli_fail("show", rc) : 0;
}

static void print_hosts(const struct rack_look *rack)
{
    for (unsigned i = 0; i < rack->hosts; i++) {
        const struct coord_host *h = &rack->list[i].host;
        char at[NET_ADDR_TEXT];
        net_addr_print(h->at, at);
        printf("%shost %4" PRIu32 "  at %-21s  life %" PRIu32 "%s\n", i ? "" : "\n", h->machine, at, h->life,
               rack->list[i].silent ? ", does not answer" : "");
    }
}

static int show_rack(const struct rack_look *rack, const char *place)
{
    const struct coord_hosts *a = &rack->about;
    struct json j;
    if (!opts.json) {
        printf("space      %s\ndesign     %s\nkeys       %s, room for %" PRIu64 " locks\n", place, a->design,
               cli_keys_name(rack_look_keys(rack)), a->locks);
        printf("hosts      %u, each with up to %" PRIu32 " sessions of %" PRIu32 " holds\n", rack->hosts, a->sessions, a->requests);
        print_hosts(rack);
        return 0;
    }
    json_open(&j, stdout);
    json_string(&j, "space", place);
    json_string(&j, "design", a->design);
    json_string(&j, "keys", cli_keys_name(rack_look_keys(rack)));
    json_u64(&j, "capacity", a->locks);
    json_u64(&j, "sessions_max", a->sessions);
    json_u64(&j, "holds_max", a->requests);
    json_u64(&j, "hosts", rack->hosts);
    json_array(&j, "host_list");
    for (unsigned i = 0; i < rack->hosts; i++) {
        const struct coord_host *h = &rack->list[i].host;
        char at[NET_ADDR_TEXT];
        net_addr_print(h->at, at);
        json_object(&j, NULL);
        json_u64(&j, "host", h->machine);
        json_string(&j, "at", at);
        json_u64(&j, "life", h->life);
        json_bool(&j, "silent", rack->list[i].silent);
        json_end(&j);
    }
    json_end(&j);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

static int look_at_rack(const char *place, const char *name)
{
    struct rack_look rack;
    int rc = rack_look_open(place + strlen(NET_SCHEME), &rack);
    if (rc)
        return cli_fail("show", rc);
    int status = name ? show_rack_lock(&rack, place, name) : show_rack(&rack, place);
    if (rack.silent)
        cli_say("show", 0, "%u of %u hosts did not answer; what they hold is missing", rack.silent, rack.hosts);
    rack_look_close(&rack);
    return status;
}

static int run_show(struct args_rest *rest)
{
    struct observer o;
    char place[PLACE_LEN];
    if (rest->split && !strcmp(rest->words[0], "switch") && !opts.space)
        return cli_flush(switch_show(opts.pins, opts.json));
    if (rest->split && !strcmp(rest->words[0], "switch"))
        return opts.pins_seen ? args_complain(&usage, "--pin names a switch of this machine, and --space those of a rack: not both")
                              : cli_flush(show_switches(opts.space, opts.json));
    if (opts.pins_seen)
        return args_complain(&usage, "--pin is for 'pawl show switch'");
    int status = cli_place("show", opts.space, place);
    bool rack = false;
    if (!status)
        status = cli_is_rack("show", place, &rack);
    if (!status && rack)
        return look_at_rack(place, rest->count ? rest->words[0] : NULL);
    if (!status && !rest->count)
        return show_space("show", place, opts.json);
    unsigned nodes = 1;
    int rc = status ? 0 : observer_nodes(place, &nodes);
    if (rc)
        return cli_fail("show", rc);
    if (nodes > 1)
        return show_lock_of_nodes(place, nodes, rest->words[0]);
    if (!status)
        status = open_to_show("show", place, &o);
    if (status)
        return status;
    status = show_lock(&o, place, rest->words[0]);
    observer_close(&o);
    return status;
}

const struct command cmd_show = {&usage, run_show};
