/* SPDX-License-Identifier: Apache-2.0 */
/* A decider lost its state: this host, whose lease still runs, keeps its holds and reports them to the decider (5.3, S1). Each
 * packet reports a part of the requests; several are in flight, and each is retransmitted until it is acknowledged. The last packet
 * says that the report is complete. Until the decider opens nothing is granted, so the report stays true, but for holds that are
 * released; the decider hears of those as usual when it is open. */
#include "designs/fisslock/host.h"

/* The holds among one part's requests. */
static unsigned holds_in(struct fisslock_host *h, uint32_t from, uint32_t to, struct fission_entry *entries)
{
    unsigned count = 0;
    for (uint32_t i = from; i < to && count < FISSION_ENTRIES_MAX; i++) {
        const struct fiss_request *r = host_request(h, i);
        if (!request_is_held(r) || (MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_SILENT) && r->mode == FISSION_SHARED))
            continue;
        uint8_t mode = r->limit ? FISSION_PLACE : r->mode;
        entries[count++] = (struct fission_entry){r->index, fission_place_of_generation(r->generation), 0, mode, r->priority};
    }
    return count;
}

/* The end of a part that begins here: as many holds as a packet has room for. */
static uint32_t part_end(struct fisslock_host *h, uint32_t from)
{
    unsigned count = 0;
    uint32_t i = from;
    for (; i < h->request_count && count < FISSION_ENTRIES_MAX; i++)
        count += request_is_held(host_request(h, i));
    return i;
}

static bool send_part(struct event *e, uint32_t from, uint32_t to)
{
    struct fisslock_host *h = e->h;
    struct fission_entry entries[FISSION_ENTRIES_MAX];
    unsigned count = holds_in(h, from, to, entries);
    struct fission_packet *p = pool_packet(e, FISSION_REPORT, 0, 0, count);
    if (!p)
        return false;
    p->stamp = from;
    memcpy(pool_entries(p), entries, count * sizeof entries[0]);
    h->counts.reported += count;
    return true;
}

static void send_all(struct event *e)
{
    assert(!e->h->report.count && e->h->report.next == e->h->request_count); /* I1: every hold is reported */
    struct fission_packet *p = pool_packet(e, FISSION_REPORT, 0, 0, 0);
    if (!p)
        return;
    p->stamp = e->h->request_count;
    p->flags = FISSION_DONE;
}

/* Sends as many parts as there is room for. */
static void go_on(struct event *e)
{
    struct fisslock_host *h = e->h;
    struct report *r = &h->report;
    edit(e, r);
    while (r->count < REPORT_PARTS && r->next < h->request_count) {
        uint32_t to = part_end(h, r->next), at = (r->first + r->count) % REPORT_PARTS;
        if (!send_part(e, r->next, to))
            break; /* the rest at the next acknowledgement, or when the pause is over */
        r->part[at].from = r->next;
        r->part[at].to = to;
        r->part[at].heard = false;
        r->count++;
        r->next = to;
    }
    if (!r->count && r->next == h->request_count)
        send_all(e);
    timers_set(host_timers(h), timer_of_report(h), e->now + r->pause_ns, e->out);
}

void report_start(struct event *e)
{
    edit(e, &e->h->report);
    e->h->report = (struct report){.active = true, .pause_ns = pool_pause(e->h, 0)};
    go_on(e);
}

void report_stop(struct event *e)
{
    edit(e, &e->h->report);
    e->h->report.active = false;
    timers_stop(host_timers(e->h), timer_of_report(e->h), e->out);
}

void report_due(struct event *e)
{
    struct report *r = &e->h->report;
    if (!r->active)
        return;
    edit(e, r);
    r->pause_ns = pool_pause(e->h, r->pause_ns);
    for (uint32_t i = 0; i < r->count && lease_runs(e->h, e->now); i++) {
        uint32_t at = (r->first + i) % REPORT_PARTS;
        if (!r->part[at].heard && !send_part(e, r->part[at].from, r->part[at].to))
            break;
    }
    e->h->counts.retries += r->count;
    go_on(e);
}

void report_packet(struct event *e, const struct fission_packet *p)
{
    struct report *r = &e->h->report;
    if (p->head.from.machine != MACHINE_SWITCH || !r->active) {
        e->h->drops.stale++;
        return;
    }
    edit(e, r);
    if (p->flags & FISSION_DONE) {
        report_stop(e); /* acknowledgements of heartbeats say when the decider is open */
        return;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t at = (r->first + i) % REPORT_PARTS;
        r->part[at].heard |= r->part[at].from == p->stamp;
    }
    while (r->count && r->part[r->first].heard) {
        r->first = (r->first + 1) % REPORT_PARTS;
        r->count--;
    }
    r->pause_ns = pool_pause(e->h, 0);
    go_on(e);
}
