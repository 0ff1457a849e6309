/* SPDX-License-Identifier: Apache-2.0 */
#include "node/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *watch_refusal_name(enum watch_refusal r)
{
    static const char *const names[WATCH_REFUSALS] = {
        [WATCH_NOT_YET] = "not-yet", [WATCH_FULL] = "full",
        [WATCH_STALE] = "stale",     [WATCH_FOREIGN] = "foreign",
        [WATCH_TAKEN] = "taken",     [WATCH_UNKNOWN_SPACE] = "unknown-space",
        [WATCH_OTHER] = "other",     [WATCH_UNSUPPORTED] = "unsupported",
        [WATCH_ANEW] = "anew",
    };
    return names[r];
}

static const char *refusal_why(enum watch_refusal r)
{
    static const char *const sentences[WATCH_REFUSALS] = {
        [WATCH_FULL] = "all numbers or places of the space are taken",
        [WATCH_STALE] = "its life is over: its lease ended, or another member has its place",
        [WATCH_FOREIGN] = "it joined another space of this name, or a later configuration",
        [WATCH_UNKNOWN_SPACE] = "there is no space of that name",
        [WATCH_TAKEN] = "another switch has that place",
        [WATCH_UNSUPPORTED] = "its build or role does not fit the design of the space",
    };
    return sentences[r] ? sentences[r] : "it asked for something that the space does not have";
}

static enum watch_refusal refusal_of(int code)
{
    switch (code) {
    case -EAGAIN:
    case COORD_NOT_LEADER:
        return WATCH_NOT_YET;
    case COORD_ANEW:
        return WATCH_ANEW;
    case -ENOSPC:
        return WATCH_FULL;
    case -ESTALE:
        return WATCH_STALE;
    case COORD_FOREIGN:
        return WATCH_FOREIGN;
    case -ENOENT:
        return WATCH_UNKNOWN_SPACE;
    case -EBUSY:
        return WATCH_TAKEN;
    case -EPROTONOSUPPORT:
    case -EOPNOTSUPP:
        return WATCH_UNSUPPORTED;
    default:
        return WATCH_OTHER;
    }
}

void watch_answer(struct watch *w, const char *space, const void *answer, struct net_addr to, uint64_t now)
{
    const struct coord_packet *p = answer;
    uint64_t withheld;
    if (p->head.family != PACKET_COORDINATOR || p->head.type != COORD_REFUSED)
        return;
    enum watch_refusal r = refusal_of(p->code);
    w->counts.refused[r]++;
    if (r == WATCH_NOT_YET || r == WATCH_ANEW || !log_may(&w->limit[r], now, &withheld))
        return;
    char at[NET_ADDR_TEXT];
    net_addr_print(to, at);
    log_event(LOG_LEVEL_WARNING, "member refused", LOG_TEXT("space", space), LOG_TEXT("at", at),
              LOG_TEXT("reason", watch_refusal_name(r)), LOG_NUMBER("withheld", withheld), LOG_TEXT("why", refusal_why(r)));
}

/* ---- hosts ---- */

static void say_host(enum log_level level, const char *event, const struct coordinator *k, uint32_t number, uint32_t life,
                     struct net_addr where, const char *why)
{
    char at[NET_ADDR_TEXT] = "unknown";
    if (net_addr_known(where))
        net_addr_print(where, at);
    log_event(level, event, LOG_TEXT("space", k->space), LOG_NUMBER("host", number), LOG_NUMBER("life", life), LOG_TEXT("at", at),
              LOG_TEXT("why", why));
}

static void host_ended(struct watch *w, const struct coordinator *k, uint32_t number, uint64_t now)
{
    const struct watch_host *h = &w->hosts[number];
    bool lost = now >= h->until_ns;
    ++*(lost ? &w->counts.hosts_lost : &w->counts.hosts_left);
    say_host(lost ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, lost ? "host lost" : "host left", k, number, h->life, h->at,
             lost ? "no heartbeat for a membership lease" : "its last session has closed");
}

static void look_at_host(struct watch *w, const struct coordinator *k, uint32_t number, bool first, uint64_t now)
{
    const struct coord_member *m = &k->members[number];
    struct watch_host *h = &w->hosts[number];
    bool same = h->live && m->live && h->life == m->life;
    if (!first && h->live && !same)
        host_ended(w, k, number, now);
    if (!first && m->live && !same) {
        w->counts.hosts_joined++;
        say_host(LOG_LEVEL_INFO, "host joined", k, number, m->life, m->at, "it asked to join");
    }
    if (same && h->unheard && !m->unheard)
        say_host(LOG_LEVEL_INFO, "host recovered", k, number, m->life, m->at,
                 "it joined a former coordinator, and sends heartbeats");
    *h = (struct watch_host){.until_ns = m->until_ns, .life = m->life, .live = m->live, .unheard = m->unheard, .at = m->at};
}

/* ---- lock servers and switches ---- */

static void say_granter(enum log_level level, const char *role, const char *what, const struct coordinator *k, unsigned number,
                        const struct coord_station *s, const char *why)
{
    char event[64], at[NET_ADDR_TEXT];
    snprintf(event, sizeof event, "%s %s", role, what);
    net_addr_print(s->at, at);
    log_event(level, event, LOG_TEXT("space", k->space), LOG_NUMBER("number", number + 1), LOG_NUMBER("life", s->life),
              LOG_TEXT("at", at), LOG_TEXT("why", why));
}

static void look_at_granter(struct watch *w, struct watch_granter *g, const struct coord_station *s, const struct coordinator *k,
                            const char *role, unsigned number, bool first, uint64_t now)
{
    bool known = s->nonce && net_addr_known(s->at), joined = known && (!g->known || g->life != s->life);
    bool silent = known && !s->stopped && now - max_u64(s->heard_ns, k->start_ns) > lease_surely_over(k->config.lease_ns);
    if (joined && !first) {
        w->counts.granters_joined++;
        say_granter(LOG_LEVEL_INFO, role, "joined", k, number, s,
                    g->known ? "it started anew, or took another's place" : "it asked to join");
    }
    if (known && s->stopped && !(g->known && g->stopped)) {
        w->counts.granters_stopped++;
        say_granter(LOG_LEVEL_NOTICE, role, "stopped", k, number, s, "it said that it decides nothing any more");
    }
    if (silent && !g->silent) {
        w->counts.granters_lost++;
        say_granter(LOG_LEVEL_ERROR, role, "lost", k, number, s, "no heartbeat for a lock lease");
    }
    if (known && g->silent && !silent && !s->stopped && !joined) {
        w->counts.granters_back++;
        say_granter(LOG_LEVEL_NOTICE, role, "recovered", k, number, s, "it sends heartbeats again");
    }
    bool lives = known && !silent && !s->stopped;
    uint64_t lost_ns = lives ? 0 : g->lost_ns ? g->lost_ns : silent || (g->known && !known) ? max_u64(s->heard_ns, k->start_ns) : 0;
    if (lives && g->lost_ns) {
        w->counts.recoveries++;
        w->counts.recovery_ns += now - g->lost_ns;
    }
    *g = (struct watch_granter){
        .life = s->life, .known = known, .stopped = s->stopped, .silent = silent, .lost_ns = lost_ns, .at = s->at};
}

/* ---- packets and the log ---- */

static void look_at_drops(struct watch *w, const struct coordinator *k, uint64_t now)
{
    const struct packet_drops *d = &k->drops, *b = &w->drops;
    uint64_t withheld, all = d->bad + d->alien + d->stale + d->unreadable + d->forged + d->untagged + d->limited + d->not_admin,
                       before = b->bad + b->alien + b->stale + b->unreadable + b->forged + b->untagged + b->limited + b->not_admin;
    if (all == before || !log_may(&w->dropping, now, &withheld))
        return;
    log_event(LOG_LEVEL_WARNING, "packets dropped", LOG_TEXT("space", k->space), LOG_NUMBER("bad", d->bad - b->bad),
              LOG_NUMBER("alien", d->alien - b->alien), LOG_NUMBER("stale", d->stale - b->stale),
              LOG_NUMBER("unreadable", d->unreadable - b->unreadable), LOG_NUMBER("forged", d->forged - b->forged),
              LOG_NUMBER("untagged", d->untagged - b->untagged), LOG_NUMBER("limited", d->limited - b->limited),
              LOG_NUMBER("not_admin", d->not_admin - b->not_admin),
              LOG_TEXT("why",
                       "they are malformed, late, of another space or version, not from the member in whose name they are, or "
                       "too many"));
    w->drops = *d;
}

static void look_at_failures(struct watch *w, const struct service *s, uint64_t now)
{
    uint64_t withheld;
    if (s->failed == w->failed || !log_may(&w->failing, now, &withheld))
        return;
    log_event(LOG_LEVEL_ERROR, "state not written", LOG_TEXT("space", s->coordinator.space),
              LOG_NUMBER("times", s->failed - w->failed),
              LOG_TEXT("why", "the log cannot be written: members that ask for something new wait until it can"));
    w->failed = s->failed;
}

/* ---- a round ---- */

static bool begin(struct watch *w, const struct service *s)
{
    const struct coordinator *k = &s->coordinator;
    free(w->hosts);
    w->hosts = calloc(k->config.machines + 1u, sizeof *w->hosts);
    if (!w->hosts)
        return false;
    w->machines = k->config.machines;
    w->term = k->term;
    w->failed = s->failed;
    w->drops = k->drops;
    memset(w->server, 0, sizeof w->server);
    memset(w->switch_, 0, sizeof w->switch_);
    w->counts.led++;
    unsigned hosts = 0;
    for (uint32_t m = 1; m <= w->machines; m++)
        hosts += k->members[m].live;
    log_event(LOG_LEVEL_NOTICE, "coordinator leads", LOG_TEXT("space", k->space), LOG_NUMBER("term", k->term),
              LOG_NUMBER("hosts", hosts), LOG_TEXT("design", k->design->name),
              LOG_TEXT("why", k->fresh ? "the space is new" : "it goes on with the space's state"));
    return true;
}

void watch_service(struct watch *w, const struct service *s, uint64_t now)
{
    const struct coordinator *k = &s->coordinator;
    bool first = !w->hosts || w->term != k->term || w->machines != k->config.machines;
    if (first && !begin(w, s))
        return;
    for (uint32_t m = 1; m <= w->machines; m++)
        look_at_host(w, k, m, first && !k->fresh, now);
    for (unsigned i = 0; i < k->config.servers; i++)
        look_at_granter(w, &w->server[i], &k->server[i], k, "lock server", i, first && !k->fresh, now);
    for (unsigned i = 0; i < RACKS_MAX; i++)
        look_at_granter(w, &w->switch_[i], &k->switch_[i], k, "switch", i, first && !k->fresh, now);
    look_at_drops(w, k, now);
    look_at_failures(w, s, now);
}

unsigned watch_granters(const struct watch *w)
{
    unsigned count = 0;
    for (unsigned i = 0; i < RACK_SERVERS_MAX; i++)
        count += w->server[i].known && !w->server[i].silent && !w->server[i].stopped;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        count += w->switch_[i].known && !w->switch_[i].silent && !w->switch_[i].stopped;
    return count;
}

void watch_forget(struct watch *w)
{
    free(w->hosts);
    w->hosts = NULL;
}
