/* pawl show: one lock, or the space. */
#include "cli/show.h"
#include "cli/commands.h"

#include <errno.h>
#include <inttypes.h>

static struct {
    const char *space;
    bool json;
} opts;

static const struct arg table[] = {
    CLI_SPACE_OPTION(&opts.space),
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl show",
    .usage = "[NAME] [--space URI] [--json]",
    .about = "Shows a lock with the sessions that hold it and wait for it; without NAME the space and all its sessions.",
    .after = "A session is live, or expired (its lease ran out), dead (its process ended) or broken (by 'pawl break'):\n"
             "whoever asks next gets what such a session held. A lock that nobody ever took is free.\n\n"
             "Exit status: 0 shown, 1 no such space, 2 wrong usage, 69 the space cannot be used.",
    .table = table,
    .count = countof(table),
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
    if (claim->holds)
        json_string(j, "mode", cli_mode_name(claim->mode));
    else
        json_null(j, "mode");
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

static int print_lock(const struct locker *l, pawl_key key, const uint64_t *index, const struct lock_view *v)
{
    uint32_t counts[2] = {0};
    bool any = false;
    int rc = index ? inspect_claims(l, *index, count_claim, counts) : 0;
    if (rc)
        return rc;
    printf("lock       ");
    cli_put_key(stdout, key);
    printf("\nmode       %s\ntoken      %" PRIu64 "\nholders    %" PRIu32 "\nwaiters    %" PRIu32 "\n", cli_mode_name(v->mode),
           v->token, counts[0], counts[1]);
    return index ? inspect_claims(l, *index, print_claim, &any) : 0;
}

static int json_lock(const struct locker *l, const char *place, pawl_key key, const uint64_t *index, const struct lock_view *v)
{
    struct json j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_string(&j, "space", place);
    cli_json_key(&j, "name", key);
    json_string(&j, "mode", cli_mode_name(v->mode));
    json_u64(&j, "token", v->token);
    json_array(&j, "sessions");
    int rc = index ? inspect_claims(l, *index, json_claim, &j) : 0;
    json_end(&j);
    json_end(&j);
    int lost = json_finish(&j);
    return rc ? rc : lost;
}

static int show_lock(const struct observer *o, const char *place, const char *name)
{
    const struct locker *l = &o->locker;
    struct cell at;
    struct lock_view view = {0};
    pawl_key key;
    int rc = cli_find("show", o, name, &key, &at);
    if (rc > 0)
        return rc;
    const uint64_t *index = rc == -ENOENT ? NULL : &at.index;
    rc = index ? o->space.design->peek(&l->seat, at.index, &view) : 0;
    if (!rc)
        rc = opts.json ? json_lock(l, place, key, index, &view) : print_lock(l, key, index, &view);
    return rc ? cli_fail("show", rc) : 0;
}

int cmd_show(int argc, char **argv)
{
    struct args_rest rest;
    struct observer o;
    char place[PLACE_LEN];
    int status = args_parse(&usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (rest.count > 1)
        return args_complain(&usage, "'%s' is one word too many", rest.words[1]);
    status = cli_place("show", opts.space, place);
    if (!status)
        status = open_to_show("show", place, &o);
    if (status)
        return status;
    if (rest.count) {
        status = show_lock(&o, place, rest.words[0]);
    } else {
        int rc = show_space(&o, place, opts.json);
        status = rc ? cli_fail("show", rc) : 0;
    }
    observer_close(&o);
    return status;
}
