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
        (!first && (c.config.locks != s->config.config.locks || c.config.keys != s->config.config.keys)))
        return -EINVAL; /* names have their indexes by them */
    s->config = c;
    if (first && state_has_names(&c.config))
        directory_init(&s->directory, (enum pawl_keys)c.config.keys, c.config.locks);
    if (first)
        rules_init(&s->rules, c.config.racks);
    return 0;
}

static int take_name(struct rack_state *s, const struct store_record *r)
{
    uint64_t index, before = s->directory.count;
    if (!s->directory.locks)
        return -EINVAL;
    int rc = directory_add(&s->directory, r->data, r->len, &index);
    if (rc)
        return rc == -ENOMEM ? rc : -EINVAL;
    s->names_written = s->directory.count;
    return s->directory.count == before + 1 ? 0 : -EINVAL;
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
        return take_name(s, r);
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

int state_each(void *state, store_take take, void *to)
{
    const struct rack_state *s = state;
    int rc = hand(take, to, STATE_CONFIG, &s->config, sizeof s->config);
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
    for (uint64_t i = 0; i < s->names_written && !rc; i++)
        rc = hand(take, to, STATE_NAME, s->directory.bytes + s->directory.key[i].at, (uint16_t)s->directory.key[i].len);
    return rc;
}

void state_free(struct rack_state *s)
{
    directory_free(&s->directory);
    memset(&s->directory, 0, sizeof s->directory);
}
