/* SPDX-License-Identifier: Apache-2.0 */
/* pawl break: an operator's last resort against a live holder that does not release. */
#include "cli/commands.h"
#include "cli/show.h"
#include "client/net.h"
#include "client/rack_look.h"
#include "cluster/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BREAK_TRIES_MAX 100 /* of losing the race against a renewal, which comes a few times a second */

static struct {
    const char *space;
    bool yes, json;
} opts;

static const struct arg table[] = {
    CLI_SPACE_OPTION(&opts.space),
    {"yes", 'y', ARG_FLAG, NULL, "do not ask", &opts.yes, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl break",
    .usage = "NAME [--yes] [--space URI] [--json]",
    .about = "Declares the sessions that hold a lock lost, so that the next in line gets it. They lose all their locks, not only\n"
             "this one; the locks are listed first. A dead holder need not be broken: the next client that asks gets its locks.",
    .after = "The holder itself runs on until it checks: 'pawl lock' ends its command and exits with status 75, a program\n"
             "sees -PAWL_ELOST. Only a resource that checks the fencing token is safe from its writes until then.\n\n"
             "Exit status: 0 broken, 1 no session holds it or you declined, 2 wrong usage (or no terminal, without --yes),\n"
             "69 the space cannot be used.",
    .words_max = 1,
    ARGS_TABLE(table),
};

/* The lock is in a segment or on a rack. */
struct breaking {
    const struct observer *o;
    const struct rack_look *rack;
    uint64_t index; /* the lock */
    struct inspect_session *victims;
    uint64_t count, room;
    struct json j;
};

static int find_lock(struct breaking *b, const char *name, pawl_key *key)
{
    if (b->o) {
        struct cell at = {0};
        int rc = cli_find("break", b->o, name, key, &at);
        b->index = at.index;
        return rc;
    }
    int status = cli_key("break", rack_look_keys(b->rack), name, key);
    if (status)
        return status;
    int rc = rack_look_find(b->rack, *key, &b->index);
    return rc && rc != -ENOENT ? cli_fail("break", rc) : rc;
}

static int add_victim(void *ctx, const struct inspect_claim *claim)
{
    struct breaking *b = ctx;
    for (uint64_t i = 0; i < b->count; i++)
        if (b->victims[i].slot == claim->session.slot && b->victims[i].machine == claim->session.machine)
            return 0; /* it has the lock more than once: as a reader it may */
    if (claim->holds && b->count < b->room)
        b->victims[b->count++] = claim->session;
    return 0;
}

/* ---- what it will cost ---- */

struct losses {
    uint64_t except;
    uint32_t count;
    struct json *j;
};

static int print_loss(void *ctx, const struct inspect_lock *lock)
{
    struct losses *l = ctx;
    if (lock->index == l->except || !lock->holders)
        return 0;
    fputs(l->count++ ? ", " : "         also loses: ", stderr);
    cli_put_key(stderr, lock->key);
    return 0;
}

static int json_loss(void *ctx, const struct inspect_lock *lock)
{
    struct losses *l = ctx;
    if (lock->index != l->except && lock->holders)
        cli_json_key(l->j, NULL, lock->key);
    return 0;
}

static bool is_of(const struct rack_claim *c, const struct inspect_session *s)
{
    return c->machine == s->machine && c->claim.session == s->slot;
}

/* Other locks of a rack that the session holds: they are counted, not listed. */
static uint64_t others_on_rack(const struct breaking *b, const struct inspect_session *s)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < b->rack->count; i++) {
        const struct rack_claim *c = &b->rack->claims[i];
        count += is_of(c, s) && c->claim.holds && c->claim.index != b->index;
    }
    return count;
}

static void put_process(FILE *out, const struct inspect_session *s)
{
    char name[SESSION_NAME_LEN];
    cli_session_name(s, name);
    fputs(name, out);
    if (s->machine)
        fprintf(out, " of host %" PRIu32 " at %s", s->machine, s->host);
}

static int announce(const struct breaking *b)
{
    for (uint64_t i = 0; i < b->count; i++) {
        const struct inspect_session *s = &b->victims[i];
        char command[COMMAND_LEN];
        struct losses l = {.except = b->index};
        cli_command_of(s, command);
        fputs("session of ", stderr);
        put_process(stderr, s);
        fputs(": ", stderr);
        cli_put_text(stderr, command, strlen(command));
        fputc('\n', stderr);
        int rc = b->o ? inspect_locks_of(&b->o->locker, s->slot, print_loss, &l) : 0;
        if (rc)
            return rc;
        if (l.count)
            fputc('\n', stderr);
        uint64_t others = b->rack ? others_on_rack(b, s) : 0;
        if (others)
            fprintf(stderr, "         also loses %" PRIu64 " other lock%s\n", others, others == 1 ? "" : "s");
    }
    return 0;
}

static bool agreed(uint64_t count)
{
    char answer[16];
    fprintf(stderr, "Break %s? [y/N] ", count == 1 ? "this session" : "these sessions");
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* ---- doing it ---- */

static int same_session(void *ctx, const struct inspect_session *s)
{
    const struct inspect_session *victim = ctx;
    return s->slot == victim->slot && s->epoch == victim->epoch && s->health != SESSION_BROKEN;
}

static int break_in_segment(const struct observer *o, struct inspect_session *victim)
{
    int rc = -EAGAIN;
    for (int i = 0; i < BREAK_TRIES_MAX && rc == -EAGAIN; i++) {
        rc = inspect_sessions(&o->locker, same_session, victim);
        if (rc <= 0)
            return rc ? rc : -ENOENT;
        rc = session_break(&o->locker.seat, victim->slot, victim->epoch);
    }
    return rc;
}

/* The session's host is told that the session is lost. */
static int break_on_rack(const struct rack_look *l, const struct inspect_session *victim)
{
    uint64_t i = 0;
    while (!is_of(&l->claims[i], victim)) /* one of them made it a victim */
        i++;
    return rack_look_break(l, &l->claims[i]);
}

/* 0: broken; -ENOENT: it ended by itself meanwhile. */
static int break_session(struct breaking *b, struct inspect_session *s)
{
    struct losses l = {.except = b->index, .j = &b->j};
    if (opts.json) {
        json_object(&b->j, NULL);
        if (b->o) {
            cli_json_session(&b->j, s);
            json_array(&b->j, "also_loses");
            inspect_locks_of(&b->o->locker, s->slot, json_loss, &l);
            json_end(&b->j);
        } else {
            json_u64(&b->j, "host", s->machine);
            json_u64(&b->j, "pid", s->pid);
            json_u64(&b->j, "also_loses", others_on_rack(b, s));
        }
    }
    int rc = b->o ? break_in_segment(b->o, s) : break_on_rack(b->rack, s);
    if (opts.json) {
        json_bool(&b->j, "broken", !rc);
        json_end(&b->j);
    } else if (!rc || rc == -ENOENT) {
        put_process(stdout, s);
        puts(rc ? " had let go by itself" : " lost its session");
    }
    return rc;
}

static int break_all(struct breaking *b, const char *place, pawl_key key)
{
    int worst = 0;
    if (opts.json) {
        json_open(&b->j, stdout);
        json_string(&b->j, "space", place);
        cli_json_key(&b->j, "name", key);
        json_array(&b->j, "sessions");
    }
    for (uint64_t i = 0; i < b->count; i++) {
        int rc = break_session(b, &b->victims[i]);
        worst = rc && rc != -ENOENT ? rc : worst;
    }
    if (opts.json) {
        json_end(&b->j);
        int lost = json_finish(&b->j);
        worst = worst ? worst : lost;
    }
    return worst;
}

static int break_lock(struct breaking *b, const char *place, const char *name)
{
    pawl_key key;
    int rc = find_lock(b, name, &key);
    if (rc > 0)
        return rc;
    if (!rc)
        rc = b->o ? inspect_claims(&b->o->locker, b->index, add_victim, b) : rack_look_claims(b->rack, b->index, add_victim, b);
    if (rc && rc != -ENOENT)
        return cli_fail("break", rc);
    if (!b->count && b->rack && b->rack->silent)
        return cli_say("break", EXIT_UNAVAILABLE, "%u of %u hosts do not answer; no session of the others holds '%s'",
                       b->rack->silent, b->rack->hosts, name);
    if (!b->count)
        return cli_say("break", EXIT_NO, "no session holds '%s'", name);
    if (b->o && !b->o->space.design->recover)
        return cli_say("break", EXIT_UNAVAILABLE, "the design '%s' cannot take a lock from a session; end process %u",
                       b->o->space.design->name, b->victims[0].pid);
    if (!opts.yes && !isatty(STDIN_FILENO))
        return cli_say("break", EXIT_USAGE, "there is no terminal for the question; use --yes to break '%s'", name);
    rc = opts.json && opts.yes ? 0 : announce(b);
    if (!rc && !opts.yes && !agreed(b->count))
        return EXIT_NO;
    if (!rc)
        rc = break_all(b, place, key);
    return rc ? cli_fail("break", rc) : 0;
}

static int break_victims(struct breaking *b, const char *place, const char *name)
{
    b->victims = calloc(b->room, sizeof *b->victims);
    int status = b->victims ? break_lock(b, place, name) : cli_fail("break", -ENOMEM);
    free(b->victims);
    return status;
}

static int run_break(struct args_rest *rest)
{
    struct observer o;
    struct rack_look rack;
    char place[PLACE_LEN];
    if (!rest->count)
        return args_complain(&usage, "needs the name of one lock");
    int status = cli_place("break", opts.space, place);
    bool on_rack = false;
    if (!status)
        status = cli_is_rack("break", place, &on_rack);
    if (!status && on_rack) {
        int rc = rack_look_open(place + strlen(NET_SCHEME), &rack);
        if (rc)
            return cli_fail("break", rc);
        status = break_victims(&(struct breaking){.rack = &rack, .room = rack.count + 1}, place, rest->words[0]);
        rack_look_close(&rack);
        return status;
    }
    if (!status)
        status = open_to_show("break", place, &o);
    if (status)
        return status;
    status = break_victims(&(struct breaking){.o = &o, .room = o.space.slot_count}, place, rest->words[0]);
    observer_close(&o);
    return status;
}

const struct command cmd_break = {&usage, run_break};
