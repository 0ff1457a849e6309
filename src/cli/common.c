/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common.h"
#include "cli/commands.h"
#include "client/far.h"
#include "client/net.h"
#include "client/segment.h"
#include "cluster/coordinator.h"
#include "cluster/nodes.h"
#include "fabric/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *cli_key_file;

int command_run(const struct command *c, int argc, char **argv)
{
    struct args_rest rest;
    int status = args_parse(c->usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (cli_key_file && setenv("PAWL_KEY", cli_key_file, 1))
        return cli_say("key", EXIT_UNAVAILABLE, "out of memory");
    return c->run(&rest);
}

/* ---- complaints ---- */

int cli_fail(const char *command, int rc)
{
    const char *more = pawl_explain();
    fprintf(stderr, "pawl %s: %s\n", command, *more ? more : pawl_strerror(rc));
    switch (rc) {
    case -EINVAL:
    case -ENAMETOOLONG:
    case -ERANGE:
        return EXIT_USAGE;
    case -PAWL_ELOST:
        return EXIT_LOST;
    default:
        return EXIT_UNAVAILABLE;
    }
}

int cli_say(const char *command, int status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "pawl %s: ", command);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return status;
}

int cli_shut(const char *command, int rc, const char *address)
{
    switch (rc) {
    case COORD_NO_KEY:
        return cli_say(command, EXIT_UNAVAILABLE, "%s: the rack has no key, and this program has one (--key, PAWL_KEY)", address);
    case COORD_WRONG_KEY:
        return cli_say(command, EXIT_UNAVAILABLE, "%s: the rack takes packets with its key only (--key FILE, PAWL_KEY)", address);
    case COORD_ADMIN_ONLY:
        return cli_say(command, EXIT_NO,
                       "%s: the rack takes commands with its admin key only, which the key file has not (--key FILE, PAWL_KEY)",
                       address);
    case -EACCES:
        return cli_say(command, EXIT_NO, "%s: commands need the cluster's key, and the key file has a host's", address);
    default:
        return 0;
    }
}

int cli_flush(int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    fprintf(stderr, "pawl: cannot write the output: %s\n", strerror(errno));
    return status ? status : EXIT_UNAVAILABLE;
}

/* ---- signals ---- */

volatile sig_atomic_t cli_signal;

static void on_signal(int signal)
{
    cli_signal = signal;
}

void cli_catch(int signal, int flags)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

/* ---- places ---- */

int cli_place(const char *command, const char *given, char out[PLACE_LEN])
{
    if (!given)
        given = getenv("PAWL_SPACE");
    if (!given || !*given)
        given = "local:";
    int len = snprintf(out, PLACE_LEN, "%s%s", strchr(given, ':') ? "" : "local:", given);
    if (len >= PLACE_LEN)
        return cli_say(command, EXIT_USAGE, "the place '%.40s...' is longer than a path can be", given);
    return 0;
}

#define OTHERS_READ (S_IRGRP | S_IROTH) /* --permissions that admit more than the owner */

void cli_place_users(const char *place, char out[USERS_LEN])
{
    const struct passwd *user = getpwuid(geteuid());
    char name[33]; /* as long as Debian allows user names to be */
    char path[PLACE_LEN];
    struct stat st;
    if (user)
        snprintf(name, sizeof name, "%s", user->pw_name);
    else
        snprintf(name, sizeof name, "%u", (unsigned)geteuid());
    if (!strncmp(place, "system:", strlen("system:")))
        snprintf(out, USERS_LEN, "is shared by all users of this machine");
    else if (!strncmp(place, "local:/", strlen("local:/")))
        snprintf(out, USERS_LEN, "is shared by the users that the permissions of the file admit");
    else if (!strncmp(place, "local:", strlen("local:")) && !segment_place(place, path, sizeof path) && !stat(path, &st) &&
             st.st_mode & OTHERS_READ)
        snprintf(out, USERS_LEN, "is of user %s; other users open it as local:%.150s", name, path);
    else if (!strncmp(place, "local:", strlen("local:")))
        snprintf(out, USERS_LEN, "is of user %s alone; system:%.64s is shared by all users of this machine", name,
                 place + strlen("local:"));
    else
        snprintf(out, USERS_LEN, "is shared by all clients of the rack");
}

int cli_wire(const char *command, const char *wire, char place[PLACE_LEN])
{
    if (!wire)
        return 0;
    if (strcmp(wire, "udp") != 0 && strcmp(wire, "afxdp") != 0)
        return cli_say(command, EXIT_USAGE, "--wire is udp or afxdp, not '%s'", wire);
    if (strncmp(place, NET_SCHEME, strlen(NET_SCHEME)) != 0)
        return cli_say(command, EXIT_USAGE, "--wire is for racks, and %s is not one", place);
    if (strstr(place, "?wire=") || strstr(place, "&wire="))
        return cli_say(command, EXIT_USAGE, "%s names a wire already: no --wire", place);
    size_t len = strlen(place);
    if ((size_t)snprintf(place + len, PLACE_LEN - len, "%cwire=%s", strchr(place, '?') ? '&' : '?', wire) >= PLACE_LEN - len)
        return cli_say(command, EXIT_USAGE, "the place is longer than a path can be");
    return 0;
}

/* ---- keys ---- */

int cli_key(const char *command, enum pawl_keys keys, const char *text, pawl_key *out)
{
    if (keys == PAWL_KEYS_NAMED) {
        *out = pawl_name(text);
        return 0;
    }
    char *end;
    errno = 0;
    uint64_t id = strtoull(text, &end, 0);
    if (errno || *end || text[0] < '0' || text[0] > '9')
        return cli_say(command, EXIT_USAGE, "the locks of this space have numbers, and '%s' is not one", text);
    *out = pawl_id(id);
    return 0;
}

int cli_find(const char *command, const struct observer *o, const char *text, pawl_key *key, struct cell *out)
{
    const struct table *t = &o->locker.table;
    int status = cli_key(command, t->keys, text, key);
    if (status)
        return status;
    const pawl_key there = nodes_key_there(o->nodes, t->keys, *key);
    int rc = table_check_key(t, there);
    if (rc == -ENAMETOOLONG)
        return cli_say(command, EXIT_USAGE, "the name has %zu bytes; at most %d are possible", strlen(text), PAWL_NAME_MAX);
    if (rc == -ERANGE)
        return cli_say(command, EXIT_USAGE, "the locks of this space have numbers up to %" PRIu64, t->capacity * o->nodes - 1);
    if (rc)
        return cli_say(command, EXIT_USAGE, "a name must have 1 to %d bytes", PAWL_NAME_MAX);
    rc = table_find(&o->locker.seat, t, there, out);
    return rc && rc != -ENOENT ? cli_fail(command, rc) : rc;
}

void cli_put_text(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || c == '\\')
            fprintf(out, "\\x%02x", c);
        else
            putc(c, out);
    }
}

void cli_put_key(FILE *out, pawl_key key)
{
    if (key.name)
        cli_put_text(out, key.name, key.id);
    else
        fprintf(out, "%" PRIu64, key.id);
}

void cli_json_key(struct json *j, const char *name, pawl_key key)
{
    if (key.name)
        json_bytes(j, name, key.name, key.id);
    else
        json_u64(j, name, key.id);
}

const char *cli_mode_name(enum pawl_mode mode)
{
    return mode == PAWL_EXCLUSIVE ? "exclusive" : mode == PAWL_SHARED ? "shared" : "free";
}

const char *cli_keys_name(enum pawl_keys keys)
{
    static const char *const names[] = {"", "named", "sparse", "dense"};
    return keys < countof(names) ? names[keys] : "";
}

int cli_keys(const struct args *usage, const char *name, enum pawl_keys *out)
{
    for (*out = PAWL_KEYS_NAMED; *out <= PAWL_KEYS_DENSE; ++*out)
        if (!strcmp(name, cli_keys_name(*out)))
            return 0;
    return args_complain(usage, "--keys is named, sparse or dense, not '%s'", name);
}

/* ---- sessions ---- */

static size_t read_command_line(uint32_t pid, char out[COMMAND_LEN])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, out, COMMAND_LEN - 1);
    close(fd);
    while (len > 0 && !out[len - 1])
        len--;
    for (ssize_t i = 0; i < len; i++)
        if (!out[i])
            out[i] = ' ';
    return len > 0 ? (size_t)len : 0;
}

void cli_command_of(const struct inspect_session *s, char out[COMMAND_LEN])
{
    /* The process id may be another's by now, and its command line with it. */
    size_t len = s->pid && !s->machine && fab_shm_gone(s->proof, 0) ? read_command_line(s->pid, out) : 0;
    out[len] = 0;
    if (!len)
        snprintf(out, COMMAND_LEN, "%s", s->label);
}

int cli_is_rack(const char *command, const char *place, bool *rack)
{
    bool is_node = false;
    *rack = !strncmp(place, NET_SCHEME, strlen(NET_SCHEME));
    int rc = *rack ? far_is_node(place + strlen(NET_SCHEME), &is_node) : 0;
    *rack = *rack && !is_node;
    return rc ? cli_fail(command, rc) : 0;
}

void cli_session_name(const struct inspect_session *s, char out[SESSION_NAME_LEN])
{
    snprintf(out, SESSION_NAME_LEN, s->pid ? "process %" PRIu32 : "client %" PRIu32, s->pid ? s->pid : s->client);
}

void cli_lease_left(const struct inspect_session *s, char out[LEASE_TEXT_LEN])
{
    uint64_t now = world_now(&world_real);
    if (!s->expiry_ns)
        snprintf(out, LEASE_TEXT_LEN, "unknown");
    else if (s->expiry_ns == UINT64_MAX)
        snprintf(out, LEASE_TEXT_LEN, "for ever");
    else if (now >= s->expiry_ns)
        snprintf(out, LEASE_TEXT_LEN, "over");
    else
        snprintf(out, LEASE_TEXT_LEN, "%" PRIu64 ".%" PRIu64 " s", (s->expiry_ns - now) / NS_PER_S,
                 (s->expiry_ns - now) % NS_PER_S / (100 * NS_PER_MS));
}

void cli_json_session(struct json *j, const struct inspect_session *s)
{
    char command[COMMAND_LEN];
    uint64_t now = world_now(&world_real);
    cli_command_of(s, command);
    if (s->machine)
        json_u64(j, "machine", s->machine);
    if (*s->host)
        json_string(j, "address", s->host);
    json_u64(j, "session", s->slot);
    if (s->pid)
        json_u64(j, "pid", s->pid);
    else
        json_u64(j, "client", s->client);
    json_string(j, "state", session_health_name(s->health));
    json_string(j, "label", s->label);
    json_string(j, "command", command);
    json_u64(j, "opened", s->opened_s);
    if (s->expiry_ns == UINT64_MAX || !s->expiry_ns)
        json_null(j, "lease_left_ns");
    else
        json_u64(j, "lease_left_ns", s->expiry_ns > now ? s->expiry_ns - now : 0);
}

int cli_bytes(const char *text, size_t len, uint64_t *out)
{
    char number[32];
    if (!len || len >= sizeof number)
        return -EINVAL;
    memcpy(number, text, len);
    number[len] = 0;
    return args_u64(number, out);
}

void cli_json_token(struct json *j, bool known, uint64_t token)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, token);
    json_string(j, "token", known ? text : NULL);
}
