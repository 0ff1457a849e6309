/* SPDX-License-Identifier: Apache-2.0 */
/* pawl break on a rack: each holder's host is told that the session is lost. */
#include "cli/break.h"
#include "client/net.h"
#include "client/rack_look.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct victims {
    const struct rack_look *look;
    const struct rack_claim **claim; /* one of each session that holds the lock */
    uint64_t count;
};

static bool same_session(const struct rack_claim *a, const struct rack_claim *b)
{
    return a->machine == b->machine && a->claim.session == b->claim.session;
}

static void add_victim(struct victims *v, const struct rack_claim *c)
{
    for (uint64_t i = 0; i < v->count; i++)
        if (same_session(v->claim[i], c))
            return; /* it has the lock more than once: as a reader it may */
    v->claim[v->count++] = c;
}

/* Other locks that the session holds. */
static uint64_t also_loses(const struct rack_look *l, const struct rack_claim *c)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < l->count; i++)
        count += same_session(&l->claims[i], c) && l->claims[i].claim.holds && l->claims[i].claim.index != c->claim.index;
    return count;
}

static void announce(const struct victims *v)
{
    for (uint64_t i = 0; i < v->count; i++) {
        const struct rack_claim *c = v->claim[i];
        uint64_t others = also_loses(v->look, c);
        fprintf(stderr, "session of process %u of host %u: ", c->claim.pid, c->machine);
        cli_put_text(stderr, c->claim.label, strlen(c->claim.label));
        fputc('\n', stderr);
        if (others)
            fprintf(stderr, "         also loses %llu other lock%s\n", (unsigned long long)others, others == 1 ? "" : "s");
    }
}

static int break_all(const struct victims *v, const char *place, pawl_key key, bool json)
{
    struct json j;
    int worst = 0;
    if (json) {
        json_open(&j, stdout);
        json_string(&j, "space", place);
        cli_json_key(&j, "name", key);
        json_array(&j, "sessions");
    }
    for (uint64_t i = 0; i < v->count; i++) {
        const struct rack_claim *c = v->claim[i];
        int rc = rack_look_break(v->look, c);
        worst = rc && rc != -ENOENT ? rc : worst;
        if (json) {
            json_object(&j, NULL);
            json_u64(&j, "host", c->machine);
            json_u64(&j, "pid", c->claim.pid);
            json_u64(&j, "also_loses", also_loses(v->look, c));
            json_bool(&j, "broken", !rc);
            json_end(&j);
        } else if (rc == -ENOENT) {
            printf("process %u of host %u had let go by itself\n", c->claim.pid, c->machine);
        } else if (!rc) {
            printf("process %u of host %u lost its session\n", c->claim.pid, c->machine);
        }
    }
    if (json) {
        json_end(&j);
        int lost = json_finish(&j);
        worst = worst ? worst : lost;
    }
    return worst ? cli_fail("break", worst) : 0;
}

static int break_lock(struct victims *v, const char *place, const char *name, bool yes, bool json)
{
    const struct rack_look *l = v->look;
    pawl_key key;
    uint64_t index = 0;
    int status = cli_key("break", rack_look_keys(l), name, &key);
    if (status)
        return status;
    int rc = rack_look_find(l, key, &index);
    if (rc && rc != -ENOENT)
        return cli_fail("break", rc);
    for (uint64_t i = 0; !rc && i < l->count; i++)
        if (l->claims[i].claim.index == index && l->claims[i].claim.holds)
            add_victim(v, &l->claims[i]);
    if (!v->count && l->silent)
        return cli_say("break", EXIT_UNAVAILABLE, "%u of %u hosts do not answer; no session of the others holds '%s'", l->silent,
                       l->hosts, name);
    if (!v->count)
        return cli_say("break", EXIT_NO, "no session holds '%s'", name);
    if (!yes && !isatty(STDIN_FILENO))
        return cli_say("break", EXIT_USAGE, "there is no terminal for the question; use --yes to break '%s'", name);
    if (!json || !yes)
        announce(v);
    return yes || break_agreed(v->count) ? break_all(v, place, key, json) : EXIT_NO;
}

int break_on_rack(const char *place, const char *name, bool yes, bool json)
{
    struct rack_look look;
    struct victims v = {.look = &look};
    int rc = rack_look_open(place + strlen(NET_SCHEME), &look);
    if (rc)
        return cli_fail("break", rc);
    v.claim = calloc(look.count + 1, sizeof *v.claim);
    int status = v.claim ? break_lock(&v, place, name, yes, json) : cli_fail("break", -ENOMEM);
    free(v.claim);
    rack_look_close(&look);
    return status;
}
