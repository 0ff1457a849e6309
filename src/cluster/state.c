/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/state.h"

#include <errno.h>
#include <string.h>

/* ---- reading ---- */

static int take_config(struct rack_state *s, const struct store_record *r)
{
    struct state_config c;
    if (r->len != sizeof c)
        return -EINVAL;
    memcpy(&c, r->data, sizeof c);
    bool first = !s->config.config.locks;
    if (!c.config.locks || c.config.servers > RACK_SERVERS_MAX || c.config.racks > RACKS_MAX || c.design[sizeof c.design - 1] ||
        (!first && (c.config.locks < s->config.config.locks || c.config.keys != s->config.config.keys)))
        return -EINVAL; /* names have their indexes by them */
    s->config = c;
    if (first && state_has_names(&c.config))
        directory_init(&s->directory, (enum pawl_keys)c.config.keys, c.config.locks);
    else if (state_has_names(&c.config) && c.config.locks > s->directory.locks && directory_grow(&s->directory, c.config.locks))
        return -EINVAL;
    if (first)
        rules_init(&s->rules, c.config.racks);
    return 0;
}

static int take_name(struct rack_state *s, const struct store_record *r)
{
    struct state_key k;
    if (!s->directory.locks || r->len < sizeof k)
        return -EINVAL;
    memcpy(&k, r->data, sizeof k);
    if (r->type == STATE_GONE)
        return r->len == sizeof k ? directory_gone(&s->directory, k.index, k.generation) : -EINVAL;
    return directory_put(&s->directory, k.index, k.generation, (const char *)r->data + sizeof k, (uint32_t)(r->len - sizeof k));
}

uint16_t state_name(const struct directory *d, uint64_t cell, bool gone, uint8_t out[STATE_KEY_MAX])
{
    const struct state_key k = {.index = directory_index(d, cell), .generation = d->key[cell].generation};
    memcpy(out, &k, sizeof k);
    if (gone)
        return sizeof k;
    memcpy(out + sizeof k, directory_bytes(d, cell), d->key[cell].len);
    return (uint16_t)(sizeof k + d->key[cell].len);
}

static int take_value(struct rack_state *s, const struct store_record *r)
{
    struct state_value k;
    if (r->len < sizeof k || r->len > STATE_VALUE_MAX)
        return -EINVAL;
    memcpy(&k, r->data, sizeof k);
    struct value v = {
        .index = k.index, .token = k.token, .step = k.step, .generation = k.generation, .len = (uint8_t)(r->len - sizeof k)};
    if (k.index >= s->config.config.locks)
        return -EINVAL;
    memcpy(v.bytes, (const char *)r->data + sizeof k, v.len);
    return values_put(&s->values, &v);
}

uint16_t state_value(const struct value *v, uint8_t out[STATE_VALUE_MAX])
{
    const struct state_value k = {.index = v->index, .token = v->token, .step = v->step, .generation = v->generation};
    memcpy(out, &k, sizeof k);
    memcpy(out + sizeof k, v->bytes, v->len);
    return (uint16_t)(sizeof k + v->len);
}

static int take_rules(struct rack_state *s, const struct store_record *r)
{
    struct rules rules;
    unsigned racks = s->config.config.racks ? s->config.config.racks : 1;
    if (r->len != sizeof rules)
        return -EINVAL;
    memcpy(&rules, r->data, sizeof rules);
    if (!rack_rules_fine(&rules.now, racks) || !rack_rules_fine(&rules.before, racks) || rules.now.version < s->rules.now.version)
        return -EINVAL;
    s->rules = rules;
    return 0;
}

static int take_station(struct rack_state *s, const struct store_record *r)
{
    struct state_station t;
    if (r->len != sizeof t)
        return -EINVAL;
    memcpy(&t, r->data, sizeof t);
    if (t.place >= (t.serves ? RACK_SERVERS_MAX : RACKS_MAX))
        return -EINVAL;
    *(t.serves ? &s->server[t.place] : &s->switch_[t.place]) = t;
    return 0;
}

static int take_host(struct rack_state *s, const struct store_record *r)
{
    struct state_host h;
    if (r->len != sizeof h)
        return -EINVAL;
    memcpy(&h, r->data, sizeof h);
    if (!h.number || h.number > STATE_HOSTS_MAX)
        return -EINVAL;
    s->host[h.number] = h.life;
    return 0;
}

int state_take(void *state, const struct store_record *r)
{
    struct rack_state *s = state;
    if (r->type != STATE_CONFIG && !s->config.config.locks)
        return -EINVAL; /* it comes first */
    switch ((enum state_record)r->type) {
    case STATE_CONFIG:
        return take_config(s, r);
    case STATE_LIVES:
        if (r->len != sizeof s->lives)
            return -EINVAL;
        memcpy(&s->lives, r->data, sizeof s->lives);
        return 0;
    case STATE_LEASE:
        if (r->len != sizeof s->lease_ns)
            return -EINVAL;
        memcpy(&s->lease_ns, r->data, sizeof s->lease_ns);
        return 0;
    case STATE_HOST:
        return take_host(s, r);
    case STATE_HOSTS:
        if (r->len != sizeof s->hosts)
            return -EINVAL;
        memcpy(&s->hosts, r->data, sizeof s->hosts);
        return 0;
    case STATE_NAME:
    case STATE_GONE:
        return take_name(s, r);
    case STATE_VALUE:
        return take_value(s, r);
    case STATE_RULES:
        return take_rules(s, r);
    case STATE_STATION:
        return take_station(s, r);
    }
    return -EINVAL;
}

/* ---- a snapshot ---- */

static int hand(store_take take, void *to, enum state_record type, const void *data, uint16_t len)
{
    const struct store_record r = {.type = (uint8_t)type, .len = len, .data = data};
    return take(to, &r);
}

/* A CONFIG of each size that the space has had. */
static int hand_config(const struct rack_state *s, store_take take, void *to)
{
    struct state_config c = s->config;
    int rc = 0;
    for (unsigned i = 1; i < s->directory.parts && !rc; i++) {
        c.config.locks = s->directory.part[i].first;
        rc = hand(take, to, STATE_CONFIG, &c, sizeof c);
    }
    return rc ? rc : hand(take, to, STATE_CONFIG, &s->config, sizeof s->config);
}

/* Keys that clients may have heard of, and that are not known as gone. */
static int hand_names(const struct directory *d, store_take take, void *to)
{
    uint8_t record[STATE_KEY_MAX];
    int rc = 0;
    for (uint64_t cell = 0; cell < d->count && !rc; cell++)
        if (d->key[cell].written && (d->key[cell].state == DIRECTORY_USED || d->key[cell].state == DIRECTORY_LEAVING))
            rc = hand(take, to, STATE_NAME, record, state_name(d, cell, false, record));
    return rc;
}

/* The values that were ever set, and whose lock is not another key's by now. */
static int hand_values(const struct rack_state *s, store_take take, void *to)
{
    const struct directory *d = &s->directory;
    uint8_t record[STATE_VALUE_MAX];
    int rc = 0;
    for (uint64_t i = 0; i < s->values.count && !rc; i++) {
        const struct value *v = &s->values.value[i];
        uint64_t cell = state_has_names(&s->config.config) ? directory_cell(d, v->index) : UINT64_MAX;
        if (v->token && !v->unwritten && (cell >= d->count || d->key[cell].generation == v->generation))
            rc = hand(take, to, STATE_VALUE, record, state_value(v, record));
    }
    return rc;
}

int state_each(void *state, store_take take, void *to)
{
    const struct rack_state *s = state;
    int rc = hand_config(s, take, to);
    if (!rc)
        rc = hand(take, to, STATE_LIVES, &s->lives, sizeof s->lives);
    if (!rc)
        rc = hand(take, to, STATE_LEASE, &s->lease_ns, sizeof s->lease_ns);
    if (!rc)
        rc = hand(take, to, STATE_HOSTS, &s->hosts, sizeof s->hosts);
    if (!rc && s->config.config.racks)
        rc = hand(take, to, STATE_RULES, &s->rules, sizeof s->rules);
    for (unsigned i = 0; i < RACK_SERVERS_MAX && !rc; i++)
        if (s->server[i].life)
            rc = hand(take, to, STATE_STATION, &s->server[i], sizeof s->server[i]);
    for (unsigned i = 0; i < RACKS_MAX && !rc; i++)
        if (s->switch_[i].life)
            rc = hand(take, to, STATE_STATION, &s->switch_[i], sizeof s->switch_[i]);
    for (unsigned i = 1; i <= STATE_HOSTS_MAX && !rc; i++) {
        const struct state_host h = {.life = s->host[i], .number = (uint16_t)i};
        if (h.life)
            rc = hand(take, to, STATE_HOST, &h, sizeof h);
    }
    if (!rc)
        rc = hand_names(&s->directory, take, to);
    return rc ? rc : hand_values(s, take, to);
}

void state_free(struct rack_state *s)
{
    directory_free(&s->directory);
    memset(&s->directory, 0, sizeof s->directory);
    values_free(&s->values);
}
