/* SPDX-License-Identifier: Apache-2.0 */
/* A key-value store whose keys are guarded by pawl's locks: a lock server of a rack of design netlock that keeps data, too. A
 * client's operation on a key's value comes with its request for the key's lock, in one round trip. See README.md. */
#include "kv.h"

#include <signal.h>
#include <stdlib.h>

#define CELLS 65536u /* keys; a power of two */

struct cell {
    uint8_t key_len;
    uint16_t value_len;
    char key[KV_KEY_MAX], value[KV_VALUE_MAX];
};

struct store {
    struct cell *cells;
    unsigned used;
    unsigned long long done;
};

static volatile int stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* Where the key is, or would be; null: there is no room for it. */
static struct cell *find(struct store *s, const char *key, size_t len)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)key[i]) * 16777619u;
    for (uint32_t i = hash % CELLS, n = 0; n < CELLS; n++, i = (i + 1) % CELLS) {
        struct cell *c = &s->cells[i];
        if (!c->key_len || (c->key_len == len && !memcmp(c->key, key, len)))
            return c;
    }
    return NULL;
}

static enum kv_status put(struct store *s, struct cell *c, const char *key, size_t key_len, const char *value, size_t len)
{
    if (!c)
        return KV_FULL;
    s->used += !c->key_len;
    c->key_len = (uint8_t)key_len;
    memcpy(c->key, key, key_len);
    c->value_len = (uint16_t)len;
    memcpy(c->value, value, len);
    return KV_OK;
}

static enum kv_status add(struct store *s, struct cell *c, const char *key, size_t key_len, const char *value, size_t len)
{
    char text[32] = {0}, old[32] = {0}, *end;
    if (!len || len >= sizeof text || (c && c->value_len >= sizeof old))
        return KV_BAD;
    memcpy(text, value, len);
    if (c && c->key_len)
        memcpy(old, c->value, c->value_len);
    long long more = strtoll(text, &end, 10);
    if (*end)
        return KV_BAD;
    long long was = strtoll(old, &end, 10);
    if (*end)
        return KV_BAD;
    int n = snprintf(text, sizeof text, "%lld", (long long)((unsigned long long)was + (unsigned long long)more));
    return put(s, c, key, key_len, text, (size_t)n);
}

/* Called once for everything that a client wants done, while that client holds the lock. */
static size_t apply(void *ctx, const pawl_work *work, void *reply, size_t room)
{
    struct store *s = ctx;
    const char *bytes = work->bytes;
    char *out = reply;
    enum kv_status status = KV_BAD;
    struct cell *c = NULL;
    s->done++;
    if (work->len >= 2 && (uint8_t)bytes[1] && (uint8_t)bytes[1] <= KV_KEY_MAX && (uint32_t)(uint8_t)bytes[1] + 2 <= work->len) {
        size_t key_len = (uint8_t)bytes[1], len = work->len - 2 - key_len;
        const char *key = bytes + 2, *value = key + key_len;
        c = find(s, key, key_len);
        if (bytes[0] == KV_GET)
            status = c && c->key_len ? KV_OK : KV_NONE;
        else if (work->mode != PAWL_EXCLUSIVE || len > KV_VALUE_MAX)
            status = KV_BAD; /* a shared hold allows no writes */
        else if (bytes[0] == KV_SET)
            status = put(s, c, key, key_len, value, len);
        else if (bytes[0] == KV_ADD)
            status = add(s, c, key, key_len, value, len);
    }
    out[0] = (char)status;
    if (status != KV_OK || room < 1u + c->value_len)
        return 1;
    memcpy(out + 1, c->value, c->value_len);
    return 1 + c->value_len;
}

static void ready(void *ctx)
{
    (void)ctx;
    printf("serving\n");
    fflush(stdout);
}

static const char usage[] =
    "Usage: kv-server WHERE [ADDRESS:PORT]\n"
    "Joins the rack at WHERE (pawl://ADDRESS:PORT/SPACE, design netlock) as a lock server that keeps values, in memory, and "
    "serves\n"
    "until SIGINT or SIGTERM. Listens at ADDRESS:PORT, default 127.0.0.1:0. Prints 'serving' when it has joined.\n"
    "Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not join.\n";

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = on_signal};
    struct store s = {0};
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 2 || argc > 3) {
        fputs(usage, stderr);
        return 2;
    }
    s.cells = calloc(CELLS, sizeof *s.cells);
    if (!s.cells)
        return 69;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    int rc = pawl_serve(argv[1], argc > 2 ? argv[2] : "127.0.0.1:0", apply, &s, ready, &stop);
    if (rc)
        fprintf(stderr, "kv-server: %s (%s)\n", pawl_explain(), pawl_strerror(rc));
    else
        printf("%llu orders done, %u keys\n", s.done, s.used);
    free(s.cells);
    return rc ? 69 : 0;
}
