/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of transactions: text, one lock a line. Lines of one transaction follow each other. */
#include "workbench/bench/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_LEN 128
#define TRACE_LOCK_MAX (UINT64_C(1) << 40) /* as many as a space may have */

struct reader {
    const char *path;
    uint64_t line, number; /* of the present transaction */
    uint64_t room;
    struct txn_trace *out;
    char *why;
};

static int __attribute__((format(printf, 2, 3))) bad_line(const struct reader *r, const char *format, ...)
{
    char reason[TXN_WHY_LEN / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    snprintf(r->why, TXN_WHY_LEN, "%s, line %" PRIu64 ": %s", r->path, r->line, reason);
    return -EINVAL;
}

static int bad_file(const char *path, int error, char why[TXN_WHY_LEN])
{
    snprintf(why, TXN_WHY_LEN, "%s: %s", path, strerror(error));
    return -error;
}

/* A number up to a limit, and the comma behind it. */
static bool field(const char **at, uint64_t max, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    if (errno || *end != ',' || *out > max)
        return false;
    *at = end + 1;
    return true;
}

/* The transaction that the next line belongs to. */
static struct txn *txn_of(struct reader *r, uint64_t number, unsigned type)
{
    struct txn_trace *t = r->out;
    if (t->count && r->number == number)
        return &t->txns[t->count - 1];
    if (t->count == r->room) {
        uint64_t room = r->room ? 2 * r->room : 1024;
        struct txn *more = realloc(t->txns, room * sizeof *more);
        if (!more)
            return NULL;
        t->txns = more;
        r->room = room;
    }
    r->number = number;
    t->txns[t->count] = (struct txn){.type = type};
    return &t->txns[t->count++];
}

static int read_line(struct reader *r, const char *line)
{
    const char *at = line;
    uint64_t number, type, lock;
    if (!field(&at, UINT64_MAX, &number))
        return bad_line(r, "'%s' does not begin with the number of a transaction; lines are txn,type,lock,mode", line);
    if (!field(&at, TXN_TYPES_MAX - 1, &type))
        return bad_line(r, "the type in '%s' is not a number from 0 to %d", line, TXN_TYPES_MAX - 1);
    if (!field(&at, TRACE_LOCK_MAX - 1, &lock))
        return bad_line(r, "the lock in '%s' is not a number below %" PRIu64, line, TRACE_LOCK_MAX);
    if (strcmp(at, "S") != 0 && strcmp(at, "X") != 0)
        return bad_line(r, "the mode in '%s' is neither S nor X", line);
    struct txn *t = txn_of(r, number, (unsigned)type);
    if (!t)
        return bad_file(r->path, ENOMEM, r->why);
    if (t->type != type)
        return bad_line(r, "transaction %" PRIu64 " has the types %u and %" PRIu64, number, t->type, type);
    for (unsigned i = 0; i < t->count; i++)
        if (t->locks[i].lock == lock)
            return bad_line(r, "transaction %" PRIu64 " takes lock %" PRIu64 " twice", number, lock);
    if (t->count == TXN_LOCKS_MAX)
        return bad_line(r, "transaction %" PRIu64 " has more than %d locks", number, TXN_LOCKS_MAX);
    txn_add(t, lock, *at == 'S' ? PAWL_SHARED : PAWL_EXCLUSIVE);
    r->out->locks = max_u64(r->out->locks, lock + 1);
    return 0;
}

int txn_trace_read(const char *path, struct txn_trace *out, char why[TXN_WHY_LEN])
{
    struct reader r = {.path = path, .out = out, .why = why};
    char line[LINE_MAX_LEN];
    FILE *f = fopen(path, "re");
    *out = (struct txn_trace){0};
    if (!f)
        return bad_file(path, errno, why);
    int rc = 0;
    while (!rc && fgets(line, sizeof line, f)) {
        size_t len = strlen(line);
        r.line++;
        if (len == sizeof line - 1 && line[len - 1] != '\n') {
            rc = bad_line(&r, "longer than %d characters", LINE_MAX_LEN - 2);
            break;
        }
        while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            line[--len] = 0;
        if (len && line[0] != '#')
            rc = read_line(&r, line);
    }
    if (!rc && ferror(f))
        rc = bad_file(path, EIO, why);
    if (!rc && !out->count) {
        snprintf(why, TXN_WHY_LEN, "%s has no transactions: lines are txn,type,lock,mode", path);
        rc = -EINVAL;
    }
    fclose(f);
    if (rc)
        txn_trace_free(out);
    return rc;
}

void txn_trace_free(struct txn_trace *t)
{
    free(t->txns);
    *t = (struct txn_trace){0};
}

int txn_trace_write(const char *path, const struct txn_params *p, unsigned clients, uint64_t count, uint64_t seed,
                    char why[TXN_WHY_LEN])
{
    struct txn_stream *streams = calloc(clients, sizeof *streams);
    FILE *f = streams ? fopen(path, "we") : NULL;
    if (!f) {
        int error = streams ? errno : ENOMEM;
        free(streams);
        return bad_file(path, error, why);
    }
    for (unsigned i = 0; i < clients; i++)
        txn_start(&streams[i], p, i, clients, seed);
    fputs("# txn,type,lock,mode\n", f);
    for (uint64_t n = 0; n < count; n++) {
        struct txn t;
        txn_next(&streams[n % clients], &t);
        for (unsigned i = 0; i < t.count; i++)
            fprintf(f, "%" PRIu64 ",%u,%" PRIu64 ",%c\n", n, t.type, t.locks[i].lock, t.locks[i].mode == PAWL_SHARED ? 'S' : 'X');
    }
    bool failed = ferror(f);
    int error = errno;
    if (fclose(f) && !failed) {
        failed = true;
        error = errno;
    }
    free(streams);
    return failed ? bad_file(path, error, why) : 0;
}
