/* SPDX-License-Identifier: Apache-2.0 */
/* A client of kv-server: everything it does with a value is done under the key's lock. get, set and add are one round trip each;
 * move is a transaction over two keys that reads, computes here, and writes. */
#include "kv.h"

#include <stdbool.h>
#include <stdlib.h>

static uint64_t wait_ns = UINT64_C(10000000000);

/* 0, or what to exit with. */
static int complain(const char *what, int rc)
{
    fprintf(stderr, "kv-client: %s: %s (%s)\n", what, pawl_strerror(rc), pawl_explain());
    if (rc == -PAWL_EUNKNOWN || rc == -PAWL_ELOST)
        fprintf(stderr, "kv-client: it may have been done or not: look with 'get'\n");
    return rc == -PAWL_EUNKNOWN || rc == -PAWL_ELOST ? 75 : 69;
}

struct order {
    char bytes[PAWL_CALL_MAX], reply[PAWL_CALL_MAX];
    pawl_call call;
};

static int make(struct order *o, enum kv_op op, const char *key, const char *value)
{
    size_t key_len = strlen(key), len = strlen(value);
    if (!key_len || key_len > KV_KEY_MAX || len > KV_VALUE_MAX) {
        fprintf(stderr, "kv-client: keys have 1 to %d bytes, values at most %d\n", KV_KEY_MAX, KV_VALUE_MAX);
        return 2;
    }
    o->bytes[0] = (char)op;
    o->bytes[1] = (char)key_len;
    memcpy(o->bytes + 2, key, key_len);
    memcpy(o->bytes + 2 + key_len, value, len);
    o->call = (pawl_call){.bytes = o->bytes, .len = 2 + key_len + len, .reply = o->reply, .room = sizeof o->reply};
    return 0;
}

static int print(const struct order *o, const char *key)
{
    switch (o->call.replied ? o->reply[0] : KV_BAD) {
    case KV_OK:
        printf("%.*s\n", (int)(o->call.replied - 1), o->reply + 1);
        return 0;
    case KV_NONE:
        fprintf(stderr, "kv-client: nothing is at '%s'\n", key);
        return 1;
    case KV_FULL:
        fprintf(stderr, "kv-client: the server is full\n");
        return 69;
    default:
        fprintf(stderr, "kv-client: not a number at '%s'\n", key);
        return 1;
    }
}

/* Lock, do it, unlock: one round trip if the lock is free. */
static int one(pawl *p, enum kv_op op, const char *key, const char *value)
{
    struct order o;
    int status = make(&o, op, key, value);
    if (status)
        return status;
    int rc = pawl_lock_call(p, pawl_name(key), op == KV_GET ? PAWL_SHARED : PAWL_EXCLUSIVE, pawl_in(wait_ns), &o.call, NULL);
    return rc ? complain(key, rc) : print(&o, key);
}

static long long number_of(const struct order *o)
{
    char text[32] = {0};
    if (o->call.replied > 1 && o->call.replied <= sizeof text)
        memcpy(text, o->reply + 1, o->call.replied - 1);
    return strtoll(text, NULL, 10);
}

/* Takes so much from one and adds it to another, if there is as much. Both are locked with the request that reads them, always in
 * the same order, and written under the locks. A client that dies between the two leaves one written: a database has a log for
 * that. */
static int move(pawl *p, const char *from, const char *to, const char *amount)
{
    const char *keys[2] = {strcmp(from, to) < 0 ? from : to, strcmp(from, to) < 0 ? to : from};
    long long left[2], n = strtoll(amount, NULL, 10);
    pawl_grant grants[2];
    struct order o;
    int rc = 0, status = 0, held = 0;
    if (!strcmp(from, to))
        return 0;
    for (; held < 2 && !rc && !status; held += !rc && !status) {
        status = make(&o, KV_GET, keys[held], "");
        rc = status ? 0 : -PAWL_EUNKNOWN; /* to look again does no harm */
        for (int tries = 0; !status && rc == -PAWL_EUNKNOWN && tries < 3; tries++)
            rc = pawl_lock_call(p, pawl_name(keys[held]), PAWL_EXCLUSIVE, pawl_in(wait_ns), &o.call, &grants[held]);
        if (!rc && !status)
            left[held] = number_of(&o);
    }
    if (!rc && !status) {
        int source = keys[0] == from ? 0 : 1;
        if (left[source] < n) {
            fprintf(stderr, "kv-client: there is only %lld at '%s'\n", left[source], from);
            status = 1;
        }
        for (int i = 0; i < 2 && !rc && !status; i++) {
            char text[32];
            snprintf(text, sizeof text, "%lld", left[i] + (i == source ? -n : n));
            status = make(&o, KV_SET, keys[i], text);
            if (!status)
                rc = pawl_hold_call(p, &grants[i], UINT64_MAX, &o.call);
        }
    }
    while (held-- > 0)
        pawl_unlock(p, &grants[held]);
    return rc ? complain("move", rc) : status;
}

static const char usage[] =
    "Usage: kv-client WHERE get KEY | set KEY VALUE | add KEY NUMBER | move FROM TO NUMBER\n"
    "Asks the kv-servers of the rack at WHERE (pawl://ADDRESS:PORT/SPACE), under the key's lock; prints the value\n"
    "that is there then. Waits for a lock for 10 seconds at most.\n"
    "Exit status: 0 done, 1 there is no such value, 2 wrong usage, 69 not done, 75 outcome unknown.\n";

int main(int argc, char **argv)
{
    pawl *p;
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return 0;
    }
    const char *what = argc > 2 ? argv[2] : "";
    bool get = !strcmp(what, "get") && argc == 4, set = !strcmp(what, "set") && argc == 5;
    bool add = !strcmp(what, "add") && argc == 5, moves = !strcmp(what, "move") && argc == 6;
    if (!get && !set && !add && !moves) {
        fputs(usage, stderr);
        return 2;
    }
    int rc = pawl_open(argv[1], NULL, &p);
    if (rc)
        return complain(argv[1], rc);
    int status = get   ? one(p, KV_GET, argv[3], "")
                 : set ? one(p, KV_SET, argv[3], argv[4])
                 : add ? one(p, KV_ADD, argv[3], argv[4])
                       : move(p, argv[3], argv[4], argv[5]);
    pawl_close(p);
    return status;
}
