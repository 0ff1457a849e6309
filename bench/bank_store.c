/* SPDX-License-Identifier: Apache-2.0 */
/* Balances in Redis: "b:SLOT". The highest token that a slot has seen is in "f:TAG:SLOT", and "made" is the money that came from
 * outside, less what went there. A script writes all balances of a transaction at once, so a client that is killed leaves no half.
 */
#include "bench/bank.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL_BATCH 5000u
#define KEY_LEN 64
#define TOKEN_DIGITS "%020" PRIu64 /* compared as texts: a number of Lua has 53 bits */

/* KEYS: the balances, then their fences if there are any. ARGV: how many, the balances, the tokens, money made. */
#define WRITE_SCRIPT                                                                                                               \
    "local n = tonumber(ARGV[1]) "                                                                                                 \
    "for i = n + 1, #KEYS do "                                                                                                     \
    "  local seen = redis.call('GET', KEYS[i]) "                                                                                   \
    "  if seen and ARGV[1 + i] < seen then return 0 end "                                                                          \
    "end "                                                                                                                         \
    "for i = n + 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1 + i]) end "                                                         \
    "for i = 1, n do redis.call('SET', KEYS[i], ARGV[1 + i]) end "                                                                 \
    "if ARGV[#ARGV] ~= '0' then redis.call('INCRBY', 'made', ARGV[#ARGV]) end "                                                    \
    "return 1"
#define RELEASE_SCRIPT "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"
#define SHA_LEN 40

static char write_sha[SHA_LEN + 1], release_sha[SHA_LEN + 1];

/* The reply to a command, which is of that type. */
static redisReply *reply_of(redisContext *r, int type)
{
    redisReply *reply = NULL;
    if (redisGetReply(r, (void **)&reply) != REDIS_OK || !reply)
        kit_die("Redis: %s", r->errstr);
    if (reply->type != type)
        kit_die("Redis answers '%s' (type %d)", reply->str ? reply->str : "", reply->type);
    return reply;
}

static void load(redisContext *r, const char *script, char sha[SHA_LEN + 1])
{
    redisAppendCommand(r, "SCRIPT LOAD %s", script);
    redisReply *reply = reply_of(r, REDIS_REPLY_STRING);
    if (reply->len != SHA_LEN)
        kit_die("Redis answers '%s'", reply->str);
    memcpy(sha, reply->str, SHA_LEN + 1);
    freeReplyObject(reply);
}

redisContext *store_connect(const struct bank *b)
{
    redisContext *r = redisConnect("127.0.0.1", (int)b->port);
    if (!r || r->err)
        kit_die("no Redis at port %" PRIu64 ": %s", b->port, r ? r->errstr : "no memory");
    redisAppendCommand(r, "SELECT %u", (unsigned)b->db);
    freeReplyObject(reply_of(r, REDIS_REPLY_STATUS));
    load(r, WRITE_SCRIPT, write_sha);
    load(r, RELEASE_SCRIPT, release_sha);
    return r;
}

/* ---- all of it ---- */

/* Words of one command, with their text. */
struct words {
    unsigned count, room;
    char (*text)[KEY_LEN];
    const char **word;
};

static void words_open(struct words *w, unsigned room)
{
    *w = (struct words){.room = room, .text = malloc(room * sizeof *w->text), .word = malloc(room * sizeof *w->word)};
    if (!w->text || !w->word)
        kit_die("no memory");
    for (unsigned i = 0; i < room; i++)
        w->word[i] = w->text[i];
}

static void words_close(struct words *w)
{
    free(w->text);
    free(w->word);
}

__attribute__((format(printf, 2, 3))) static void add_word(struct words *w, const char *format, ...)
{
    va_list list;
    assert(w->count < w->room);
    va_start(list, format);
    vsnprintf(w->text[w->count++], KEY_LEN, format, list);
    va_end(list);
}

static redisReply *ask_words(redisContext *r, struct words *w, int type)
{
    redisAppendCommandArgv(r, (int)w->count, w->word, NULL);
    w->count = 0;
    return reply_of(r, type);
}

static void fill(redisContext *r, const char *name, uint64_t count, bool number)
{
    struct words w;
    words_open(&w, 2 * FILL_BATCH + 1);
    for (uint64_t i = 0; i < count;) {
        add_word(&w, "MSET");
        for (unsigned k = 0; k < FILL_BATCH && i < count; k++, i++) {
            add_word(&w, "%s:%" PRIu64, name, i);
            add_word(&w, "%" PRIu64, number ? i : BALANCE_FIRST);
        }
        freeReplyObject(ask_words(r, &w, REDIS_REPLY_STATUS));
    }
    words_close(&w);
}

void store_fill(const struct bank *b, redisContext *r)
{
    redisAppendCommand(r, "FLUSHDB");
    freeReplyObject(reply_of(r, REDIS_REPLY_STATUS));
    fill(r, "b", 2 * b->accounts, false); /* enough for both workloads */
    fill(r, "n", b->accounts, true);
    redisAppendCommand(r, "SET made 0");
    freeReplyObject(reply_of(r, REDIS_REPLY_STATUS));
}

int64_t store_missing(const struct bank *b, redisContext *r)
{
    struct words w;
    uint64_t slots = 2 * b->accounts;
    int64_t sum = 0;
    words_open(&w, FILL_BATCH + 1);
    for (uint64_t i = 0; i < slots;) {
        add_word(&w, "MGET");
        for (unsigned k = 0; k < FILL_BATCH && i < slots; k++, i++)
            add_word(&w, "b:%" PRIu64, i);
        redisReply *reply = ask_words(r, &w, REDIS_REPLY_ARRAY);
        for (size_t k = 0; k < reply->elements; k++) {
            if (reply->element[k]->type != REDIS_REPLY_STRING)
                kit_die("a balance is missing");
            sum += strtoll(reply->element[k]->str, NULL, 10);
        }
        freeReplyObject(reply);
    }
    words_close(&w);
    redisAppendCommand(r, "GET made");
    redisReply *made = reply_of(r, REDIS_REPLY_STRING);
    int64_t expected = (int64_t)(slots * BALANCE_FIRST) + strtoll(made->str, NULL, 10);
    freeReplyObject(made);
    return expected - sum;
}

/* ---- transactions ---- */

#define TXN_WORDS (6 + 4 * TXN_SLOTS)

/* Room for the words of a transaction, on the caller's stack. */
struct txn_words {
    struct words w;
    char text[TXN_WORDS][KEY_LEN];
    const char *word[TXN_WORDS];
};

static struct words *txn_words(struct txn_words *w)
{
    for (unsigned i = 0; i < TXN_WORDS; i++)
        w->word[i] = w->text[i];
    w->w = (struct words){.room = TXN_WORDS, .text = w->text, .word = w->word};
    return &w->w;
}

void store_ask_names(struct bank_client *c, const struct bank_txn *t)
{
    struct txn_words room;
    struct words *w = txn_words(&room);
    add_word(w, "MGET");
    for (unsigned i = 0; i < t->names; i++)
        add_word(w, "n:%" PRIu64, t->customer[i]);
    redisAppendCommandArgv(c->redis, (int)w->count, w->word, NULL);
}

void store_take_names(const struct bank_txn *t, const redisReply *reply)
{
    for (unsigned i = 0; i < t->names; i++)
        if (reply->type != REDIS_REPLY_ARRAY || reply->element[i]->type != REDIS_REPLY_STRING ||
            strtoull(reply->element[i]->str, NULL, 10) != t->customer[i])
            kit_die("a customer is missing");
}

void store_ask_balances(struct bank_client *c, const struct bank_txn *t)
{
    struct txn_words room;
    struct words *w = txn_words(&room);
    add_word(w, "MGET");
    for (unsigned i = 0; i < t->count; i++)
        add_word(w, "b:%" PRIu64, t->slot[i]);
    redisAppendCommandArgv(c->redis, (int)w->count, w->word, NULL);
}

void store_take_balances(const struct bank_txn *t, const redisReply *reply, int64_t balance[TXN_SLOTS])
{
    for (unsigned i = 0; i < t->count; i++) {
        if (reply->type != REDIS_REPLY_ARRAY || reply->element[i]->type != REDIS_REPLY_STRING)
            kit_die("a balance is missing");
        balance[i] = strtoll(reply->element[i]->str, NULL, 10);
    }
}

void store_ask_write(struct bank_client *c, const struct bank_txn *t, const pawl_grant *grants, const int64_t balance[TXN_SLOTS],
                     int64_t sum)
{
    struct txn_words room;
    struct words *w = txn_words(&room);
    unsigned n = 0;
    bool fenced = c->p && !c->bank->unfenced;
    for (unsigned i = 0; i < t->count; i++)
        n += t->writes[i];
    add_word(w, "EVALSHA");
    add_word(w, "%s", write_sha);
    add_word(w, "%u", fenced ? 2 * n : n);
    for (unsigned i = 0; i < t->count; i++)
        if (t->writes[i])
            add_word(w, "b:%" PRIu64, t->slot[i]);
    for (unsigned i = 0; i < t->count && fenced; i++)
        if (t->writes[i])
            add_word(w, "f:%s:%" PRIu64, c->bank->tag, t->slot[i]);
    add_word(w, "%u", n);
    for (unsigned i = 0; i < t->count; i++)
        if (t->writes[i])
            add_word(w, "%" PRId64, balance[i]);
    for (unsigned i = 0; i < t->count && fenced; i++)
        if (t->writes[i])
            add_word(w, TOKEN_DIGITS, grants[i].token);
    add_word(w, "%" PRId64, sum);
    redisAppendCommandArgv(c->redis, (int)w->count, w->word, NULL);
}

bool store_take_write(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER)
        kit_die("Redis answers '%s'", reply->str ? reply->str : "");
    return reply->integer == 1;
}

redisReply *store_reply(struct bank_client *c)
{
    redisReply *reply = NULL;
    if (redisGetReply(c->redis, (void **)&reply) != REDIS_OK || !reply)
        kit_die("Redis: %s", c->redis->errstr);
    return reply;
}

/* ---- RedLock ---- */

void redlock_ask(struct bank_client *c, uint64_t slot, char value[REDLOCK_VALUE])
{
    snprintf(value, REDLOCK_VALUE, "%016" PRIx64, rng_next(&c->rng));
    redisAppendCommand(c->redis, "SET l:%llu %s NX PX %llu", (unsigned long long)slot, value,
                       (unsigned long long)(c->bank->lifetime_ns / NS_PER_MS));
}

bool redlock_take(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL)
        kit_die("Redis answers '%s'", reply->str ? reply->str : "");
    return reply->type == REDIS_REPLY_STATUS;
}

uint64_t redlock_pause(struct bank_client *c)
{
    return rng_between(&c->rng, c->bank->delay_ns / 2, c->bank->delay_ns);
}

void redlock_give(struct bank_client *c, uint64_t slot, const char *value)
{
    redisAppendCommand(c->redis, "EVALSHA %s 1 l:%llu %s", release_sha, (unsigned long long)slot, value);
}
