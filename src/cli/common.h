/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by several subcommands: exit statuses, complaints, places, keys, and how things are printed. */
#ifndef PAWL_CLI_COMMON_H
#define PAWL_CLI_COMMON_H

#include "client/inspect.h"
#include "lib/args.h"
#include "lib/json.h"

#include <signal.h>
#include <stdio.h>

enum {
    EXIT_NO = 1,                     /* the answer is no: the lock was not to be had, there is no such space */
    EXIT_USAGE = 2,                  /* as args.h has it */
    EXIT_UNAVAILABLE = 69,           /* EX_UNAVAILABLE: the space cannot be used */
    EXIT_LOST = 75,                  /* EX_TEMPFAIL: the lock was lost while the command ran */
    EXIT_INTERRUPTED = 128 + SIGINT, /* as a shell has it */
};
static_assert((int)EXIT_USAGE == (int)ARGS_EXIT_USAGE, "one number for wrong usage");

/* Prints "pawl CMD: ..." and what a failed call of the library said about it; returns the exit status for that code. */
int cli_fail(const char *command, int rc);

/* The same with a sentence of the caller's; returns `status`. */
int cli_say(const char *command, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The refusal of a coordinator that is about a key: says so, and returns the exit status; 0: it is about something else. */
int cli_shut(const char *command, int rc, const char *address);

/* Output that was lost, to a full disk for example, is a failure whatever came before. */
int cli_flush(int status);

/* The latest signal that cli_catch was told of; 0: none came. */
extern volatile sig_atomic_t cli_signal;
void cli_catch(int signal, int flags); /* flags of sigaction() */

/* ---- places ---- */

#define PLACE_LEN 4200 /* a path and "local:" */

/* The row of the option --key: it takes the place of $PAWL_KEY, which the library reads. */
extern const char *cli_key_file;
#define CLI_KEY_OPTION                                                                                                             \
    {                                                                                                                              \
        "key", 0, ARG_STRING, "FILE", "key file of a rack whose packets are tagged; default $PAWL_KEY; see pawl key",              \
            &cli_key_file, NULL                                                                                                    \
    }

/* The row of the option --space, which every subcommand has, and where its value goes. */
#define CLI_SPACE_OPTION(to)                                                                                                       \
    {"space",                                                                                                                      \
     0,                                                                                                                            \
     ARG_STRING,                                                                                                                   \
     "URI",                                                                                                                        \
     "local:NAME, system:NAME, local:/PATH or pawl://ADDRESS:PORT/SPACE; default $PAWL_SPACE, else local:",                        \
     (to),                                                                                                                         \
     NULL},                                                                                                                        \
        CLI_KEY_OPTION
#define CLI_JSON_OPTION(to)                                                                                                        \
    {                                                                                                                              \
        "json", 0, ARG_FLAG, NULL, "print one JSON object", (to), NULL                                                             \
    }

/* Where `given` is: what --space said, or if that is null $PAWL_SPACE, or the default. "NAME" and "/PATH" without a scheme are
 * local. */
int cli_place(const char *command, const char *given, char out[PLACE_LEN]);

/* The users that share a place of this machine, as a part of a sentence: "is shared by all users of this machine". */
#define USERS_LEN 256
void cli_place_users(const char *place, char out[USERS_LEN]);

/* Whether that place is a rack: what is there says so. Other places are looked at by an observer. 0, or the exit status. */
int cli_is_rack(const char *command, const char *place, bool *rack);

/* "process 17", or "client 3" of a memory node. */
#define SESSION_NAME_LEN 24
void cli_session_name(const struct inspect_session *s, char out[SESSION_NAME_LEN]);

/* The row of the option --wire, of subcommands that lock. */
#define CLI_WIRE_OPTION(to)                                                                                                        \
    {                                                                                                                              \
        "wire", 0, ARG_STRING, "WIRE",                                                                                             \
            "wire to a rack: udp (the default), or afxdp, which bypasses the network stack where possible", (to), NULL             \
    }

/* Adds it to the place, which must be a rack; null: nothing is added. 0, or the exit status after a complaint. */
int cli_wire(const char *command, const char *wire, char place[PLACE_LEN]);

/* ---- keys ---- */

/* A name in a named space, a number elsewhere. 0, or the exit status after a complaint. */
int cli_key(const char *command, enum pawl_keys keys, const char *text, pawl_key *out);

/* The lock of that name: 0, -ENOENT if it was never taken (then `key` alone is set), or the exit status after a complaint. */
int cli_find(const char *command, const struct observer *o, const char *text, pawl_key *key, struct cell *out);

/* A key for people: unprintable bytes escaped, so that no name plays tricks with the terminal. */
void cli_put_key(FILE *out, pawl_key key);
void cli_json_key(struct json *j, const char *name, pawl_key key);

const char *cli_mode_name(enum pawl_mode mode); /* "free" for 0 */
const char *cli_keys_name(enum pawl_keys keys);
int cli_keys(const struct args *usage, const char *name, enum pawl_keys *out); /* of the option --keys: 0 or the exit status */

/* ---- sessions ---- */

/* The process's command line, or what the session calls itself if it cannot be read. */
#define COMMAND_LEN 256
void cli_command_of(const struct inspect_session *s, char out[COMMAND_LEN]);

/* How much of the lease is left, for people: "9.7 s", "for ever", "over". */
#define LEASE_TEXT_LEN 32
void cli_lease_left(const struct inspect_session *s, char out[LEASE_TEXT_LEN]);

void cli_json_session(struct json *j, const struct inspect_session *s); /* its members */

void cli_put_text(FILE *out, const char *text, size_t len); /* escaped like a key */

/* The first bytes of a text as a number (ARG_U64). -EINVAL, or -ERANGE beyond 64 bits. */
int cli_bytes(const char *text, size_t len, uint64_t *out);

/* "token", as a string: programs that read numbers of JSON as doubles round them above 2^53. Null unless it is known. */
void cli_json_token(struct json *j, bool known, uint64_t token);

#endif
