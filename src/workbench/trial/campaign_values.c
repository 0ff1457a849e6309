/* SPDX-License-Identifier: Apache-2.0 */
/* Campaign 3: values beside locks (I26). A holder finds the value that was set last, as a whole: not one before a set that returned
 * 0, nor before one that another holder has seen. */
#include "workbench/trial/campaign_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SETS_MAX 3   /* under one hold, */
#define SETS_MANY 60 /* or so many, one after the other, so that a fault strikes in the middle of one */

static bool is_before(struct campaign_value a, struct campaign_value b)
{
    return a.token != b.token ? a.token < b.token : a.number < b.number;
}

static void raise(struct campaign_value *to, struct campaign_value v)
{
    if (is_before(*to, v))
        *to = v;
}

/* The bytes of a value: its number, and what follows from that. */
static void fill(uint64_t number, uint8_t bytes[PAWL_VALUE_MAX])
{
    for (unsigned i = 0; i < PAWL_VALUE_MAX / 8; i++) {
        uint64_t word = i ? mix64(number + i) : number;
        memcpy(bytes + 8 * i, &word, 8);
    }
}

static bool is_crowded(const struct campaign *c)
{
    return c->design->packet ? c->rack.params.capacity < c->locks : c->cluster.params.capacity < c->locks;
}

/* Values in memory are forgotten with a node's life, whose tokens are below all of the next one, and with their locks. */
static bool may_be_forgotten(const struct campaign *c, struct campaign_value least, const struct hold *h)
{
    return !c->design->packet && (least.token >> 32 < h->token >> 32 || campaign_forgot(&c->cluster));
}

static int lost_or(struct actor *a, int rc)
{
    return rc == -PAWL_ELOST || rc == -FAB_EFENCED || !a->ops->valid(a) ? -PAWL_ELOST : rc;
}

/* ---- setting ---- */

static int set(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    struct campaign_values *v = &c->values;
    uint8_t bytes[PAWL_VALUE_MAX];
    uint32_t len = rng_chance(&c->random, 1, is_crowded(c) ? 2 : 8) ? 0 : 8 + (uint32_t)rng_below(&c->random, PAWL_VALUE_MAX - 7);
    if (v->count + 1 >= CAMPAIGN_VALUES_MAX)
        return 0;
    const struct campaign_value value = {.token = h->token, .number = ++v->count};
    v->set[value.number] = (struct campaign_value_set){.token = h->token, .lock = (uint32_t)lock, .len = len};
    if (!len)
        raise(&v->removed[lock], value);
    fill(value.number, bytes);
    sim_note(c->sim, "SETS value", a->process->host->id, lock, value.number);
    int rc = a->ops->set_value(a, h, bytes, len);
    if (rc)
        return lost_or(a, rc);
    sim_note(c->sim, "  is set", a->process->host->id, lock, value.number);
    c->done.values_set++;
    raise(&v->least[lock], value);
    return 0;
}

/* ---- reading ---- */

static void violated(struct actor *a, uint64_t lock, const char *what, uint64_t number, struct campaign_value least)
{
    oracle_violation(&campaign_of(a)->oracle,
                     "I26: client %u finds %s %" PRIu64 " beside lock %" PRIu64 ", after value %" PRIu64 " of token %" PRIu64,
                     campaign_who(a), what, number, lock, least.number, least.token);
}

static void check(struct actor *a, uint64_t lock, const struct hold *h, const uint8_t *bytes, uint32_t len,
                  struct campaign_value least)
{
    struct campaign_values *v = &campaign_of(a)->values;
    uint8_t whole[PAWL_VALUE_MAX];
    uint64_t number = 0;
    memcpy(&number, bytes, sizeof number);
    fill(number, whole);
    const struct campaign_value_set *s = number && number <= v->count ? &v->set[number] : NULL;
    if (!s || s->len != len || memcmp(bytes, whole, len) != 0) {
        violated(a, lock, "a mixture of value", number, least);
        return;
    }
    const struct campaign_value found = {.token = s->token, .number = number};
    if (s->lock != lock)
        violated(a, lock, "another lock's value", number, least);
    else if (s->token > h->token)
        violated(a, lock, "a later holder's value", number, least);
    else if (is_before(found, least))
        violated(a, lock, "the outdated value", number, least);
    raise(&v->least[lock], found);
}

static int get(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    struct campaign_values *v = &c->values;
    uint8_t bytes[PAWL_VALUE_MAX] = {0};
    uint32_t len = 0;
    const struct campaign_value least = v->least[lock];
    int rc = a->ops->get_value(a, h, bytes, &len);
    if (rc && rc != -PAWL_ENOVALUE)
        return lost_or(a, rc);
    if (!a->ops->valid(a))
        return -PAWL_ELOST;
    c->done.values_seen += !rc;
    if (!rc)
        check(a, lock, h, bytes, len, least);
    else if (may_be_forgotten(c, least, h))
        v->least[lock] = (struct campaign_value){0};
    else if (is_before(v->removed[lock], least))
        violated(a, lock, "no value but", 0, least);
    return 0;
}

int campaign_value(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    if (!(c->design->features & DESIGN_VALUES) || !a->ops->set_value)
        return 0;
    int rc = rng_chance(&c->random, 1, 2) ? get(a, lock, h) : 0;
    uint64_t sets =
        h->mode != PAWL_EXCLUSIVE ? 0 : rng_below(&c->random, 1 + (rng_chance(&c->random, 1, 4) ? SETS_MANY : SETS_MAX));
    for (uint64_t i = 0; i < sets && !rc; i++)
        rc = set(a, lock, h);
    if (!rc && rng_chance(&c->random, 1, 4))
        rc = get(a, lock, h);
    return rc == -PAWL_ELOST ? rc : 0;
}
