/* SPDX-License-Identifier: Apache-2.0 */
/* pawl break: an operator's last resort against a live holder that does not release. */
#include "cli/break.h"
#include "cli/commands.h"
#include "cli/show.h"
#include "cluster/session.h"

#include <errno.h>
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
    ARGS_TABLE(table),
};

struct breaking {
    const struct observer *o;
    uint64_t index; /* the lock */
    struct inspect_session *victims;
    uint32_t count;
    struct json j;
};

static int add_victim(void *ctx, const struct inspect_claim *claim)
{
    struct breaking *b = ctx;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->victims[i].slot == claim->session.slot)
            return 0; /* it has the lock more than once: as a reader it may */
    if (claim->holds && b->count < b->o->space.slot_count)
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

static int announce(const struct breaking *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        char command[COMMAND_LEN], name[SESSION_NAME_LEN];
        struct losses l = {.except = b->index};
        cli_command_of(&b->victims[i], command);
        cli_session_name(&b->victims[i], name);
        fprintf(stderr, "session of %s: ", name);
        cli_put_text(stderr, command, strlen(command));
        fputc('\n', stderr);
        int rc = inspect_locks_of(&b->o->locker, b->victims[i].slot, print_loss, &l);
        if (rc)
            return rc;
        if (l.count)
            fputc('\n', stderr);
    }
    return 0;
}

bool break_agreed(uint64_t count)
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

/* 0: broken; -ENOENT: it ended by itself meanwhile. */
static int break_session(const struct observer *o, struct inspect_session *victim)
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

static int break_all(struct breaking *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct losses l = {.except = b->index, .j = &b->j};
        char name[SESSION_NAME_LEN];
        cli_session_name(&b->victims[i], name);
        if (opts.json) {
            json_object(&b->j, NULL);
            cli_json_session(&b->j, &b->victims[i]);
            json_array(&b->j, "also_loses");
            inspect_locks_of(&b->o->locker, b->victims[i].slot, json_loss, &l);
            json_end(&b->j);
        }
        int rc = break_session(b->o, &b->victims[i]);
        if (opts.json) {
            json_bool(&b->j, "broken", !rc);
            json_end(&b->j);
        } else if (rc == -ENOENT) {
            printf("%s had let go by itself\n", name);
        } else if (!rc) {
            printf("%s lost its session\n", name);
        }
        if (rc && rc != -ENOENT)
            return rc;
    }
    return 0;
}

static int break_with_json(struct breaking *b, const char *place, pawl_key key)
{
    json_open(&b->j, stdout);
    json_string(&b->j, "space", place);
    cli_json_key(&b->j, "name", key);
    json_array(&b->j, "sessions");
    int rc = break_all(b);
    json_end(&b->j);
    int lost = json_finish(&b->j);
    return rc ? rc : lost;
}

static int break_lock(struct breaking *b, const char *place, const char *name)
{
    pawl_key key;
    struct cell at = {0};
    int rc = cli_find("break", b->o, name, &key, &at);
    if (rc > 0)
        return rc;
    b->index = at.index;
    if (!rc)
        rc = inspect_claims(&b->o->locker, at.index, add_victim, b);
    if (rc && rc != -ENOENT)
        return cli_fail("break", rc);
    if (!b->count)
        return cli_say("break", EXIT_NO, "no session holds '%s'", name);
    if (!b->o->space.design->recover)
        return cli_say("break", EXIT_UNAVAILABLE, "the design '%s' cannot take a lock from a session; end process %u",
                       b->o->space.design->name, b->victims[0].pid);
    if (!opts.yes && !isatty(STDIN_FILENO))
        return cli_say("break", EXIT_USAGE, "there is no terminal for the question; use --yes to break '%s'", name);
    if (!opts.json || !opts.yes)
        rc = announce(b);
    if (!rc && !opts.yes && !break_agreed(b->count))
        return EXIT_NO;
    if (!rc)
        rc = opts.json ? break_with_json(b, place, key) : break_all(b);
    return rc ? cli_fail("break", rc) : 0;
}

int cmd_break(int argc, char **argv)
{
    struct args_rest rest;
    struct observer o;
    struct breaking b = {.o = &o};
    char place[PLACE_LEN];
    int status = args_parse(&usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (rest.count != 1)
        return args_complain(&usage, "needs the name of one lock");
    status = cli_place("break", opts.space, place);
    bool rack = false;
    if (!status)
        status = cli_is_rack("break", place, &rack);
    if (!status && rack)
        return break_on_rack(place, rest.words[0], opts.yes, opts.json);
    if (!status)
        status = open_to_show("break", place, &o);
    if (status)
        return status;
    b.victims = calloc(o.space.slot_count, sizeof *b.victims);
    status = b.victims ? break_lock(&b, place, rest.words[0]) : cli_fail("break", -ENOMEM);
    free(b.victims);
    observer_close(&o);
    return status;
}
