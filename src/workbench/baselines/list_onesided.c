/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in a list, by one-sided verbs: the list-based lock of Kogan et al. (EuroSys'20) with its atomic instructions replaced by
 * those of the NIC, "LLD" in Citron's comparison. Who holds stands in a list in the order of the ranges. Who comes walks from the
 * head, a round trip for every node, to the place between the last that ends before it and the first that begins behind it, and
 * puts itself there by compare-and-swap; if somebody is in the way it waits until that one has marked its node as left. Whoever
 * passes a marked node takes it out.
 *
 * What makes that right: ranges in the list never overlap, and a node gets in only between two neighbours that it has seen, both
 * without overlap; one compare-and-swap on the first one's link makes sure that they are neighbours still. Nodes are used again, so
 * a link names the node and its use, and carries the use of the node that it is in: neither a link nor a range is taken for that of
 * another use. A node is used again only when it is out of the list, of which its owner makes sure first.
 *
 * Exclusive only, as the paper's. No tokens, no recovery. */
#include "workbench/baselines/baselines.h"

#include <errno.h>

struct list_node {
    uint64_t link;
    uint64_t start, end; /* end 0: never used */
    uint64_t index;      /* of the lock in whose list it is or was */
};

/* ---- links: mark 1, use of the node that it is in 19, use of the next 19, number of the next 25 (0: the end) ---- */

#define MARK (UINT64_C(1) << 63)
#define USE_BITS 19
#define USE_SHIFT 44
#define NEXT_USE_SHIFT 25
#define NEXT_BITS 25
#define WATCH (MARK | FIELD_MASK(USE_SHIFT, USE_BITS)) /* in one half, as waiting needs it */

struct ref {
    uint64_t number, use;
};

static uint64_t use_of(uint64_t link)
{
    return field_get(link, USE_SHIFT, USE_BITS);
}
static struct ref next_of(uint64_t link)
{
    return (struct ref){.number = field_get(link, 0, NEXT_BITS), .use = field_get(link, NEXT_USE_SHIFT, USE_BITS)};
}
static uint64_t link_make(uint64_t use, struct ref next)
{
    return use << USE_SHIFT | next.use << NEXT_USE_SHIFT | next.number;
}

static fab_addr node_addr(const struct seat *seat, uint64_t number)
{
    return seat->space->descs + (number - 1) * sizeof(struct list_node);
}
static uint64_t number_of(const struct seat *seat, const struct hold *h)
{
    return (uint64_t)seat->me->slot * seat->space->record_count + h->record + 1;
}

/* ---- walking ---- */

/* Where one stands: the link that was followed, and the node behind it. */
struct place {
    fab_addr link_at;
    uint64_t link;
    struct ref next; /* number 0: the end of the list */
    struct list_node node;
};

/* Link, range and link again: the same use twice means that they belong together. 1: read; 0: it has another use by now. */
static int read_node(const struct seat *seat, struct ref ref, struct list_node *out)
{
    uint64_t again = 0;
    fab_addr addr = node_addr(seat, ref.number);
    struct list_node n;
    struct fab_op ops[] = {
        {.verb = FAB_READ, .len = sizeof n, .addr = addr, .buf = &n},
        {.verb = FAB_READ, .len = sizeof again, .addr = addr, .buf = &again},
    };
    int rc = fab_batch(seat->ep, ops, countof(ops));
    if (rc)
        return rc;
    *out = n;
    out->link = again;
    return use_of(n.link) == ref.use && use_of(again) == ref.use;
}

/* From the head to the first node that ends behind `unit`, taking out those that are marked. 1: there; 0: begin again. */
static int walk(const struct seat *seat, uint64_t index, uint64_t unit, struct place *p)
{
    p->link_at = space_lock_addr(seat->space, index);
    p->node = (struct list_node){0};
    int rc = fab_read64(seat->ep, p->link_at, &p->link);
    while (!rc) {
        p->next = next_of(p->link);
        if (!p->next.number)
            return 1;
        rc = read_node(seat, p->next, &p->node);
        if (rc <= 0)
            return rc;
        if (p->node.link & MARK) {
            uint64_t old, past = link_make(use_of(p->link), next_of(p->node.link));
            rc = fab_cas64(seat->ep, p->link_at, p->link, past, &old);
            if (rc || old != p->link)
                return rc; /* somebody was faster, or the link is in a node that has left: from the beginning */
            p->link = past;
            continue;
        }
        if (p->node.end > unit)
            return 1;
        p->link_at = node_addr(seat, p->next.number);
        p->link = p->node.link;
        rc = 0;
    }
    return rc;
}

static int walk_surely(const struct seat *seat, uint64_t index, uint64_t unit, struct place *p)
{
    for (;;) {
        int rc = walk(seat, index, unit, p);
        if (rc > 0)
            return 0;
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* ---- the own node ---- */

static int write_surely(const struct seat *seat, fab_addr addr, const void *from, uint16_t len)
{
    for (;;) {
        int rc = fab_write(seat->ep, addr, from, len);
        if (!rc || (rc = seat_retry(seat, rc)))
            return rc;
    }
}

static int read_surely(const struct seat *seat, fab_addr addr, void *to, uint16_t len)
{
    for (;;) {
        int rc = fab_read(seat->ep, addr, to, len);
        if (!rc || (rc = seat_retry(seat, rc)))
            return rc;
    }
}

/* For another use: out of the list with the last one, which may have been in another lock's; the link says marked until there is a
 * next one, and by then the range is written. *use is that of the node from now on. */
static int prepare(const struct seat *seat, const struct hold *h, uint64_t *use)
{
    fab_addr addr = node_addr(seat, number_of(seat, h));
    struct list_node n;
    struct place p;
    int rc = read_surely(seat, addr, &n, sizeof n);
    if (!rc && n.end) /* whoever gets past it has taken it out */
        rc = walk_surely(seat, n.index, n.start, &p);
    if (rc)
        return rc;
    *use = (use_of(n.link) + 1) & FIELD_MAX(USE_BITS);
    const struct list_node fresh = {
        .link = MARK | link_make(*use, (struct ref){0}), .start = h->start, .end = h->end, .index = h->index};
    rc = write_surely(seat, addr, &fresh.link, sizeof fresh.link);
    return rc ? rc : write_surely(seat, addr + offsetof(struct list_node, start), &fresh.start, sizeof fresh - sizeof fresh.link);
}

/* After a break: are we in the list? 1 or 0. */
static int is_in(const struct seat *seat, const struct hold *h, struct ref me)
{
    struct place p;
    int rc = walk_surely(seat, h->index, h->start, &p);
    return rc ? rc : p.next.number == me.number && p.next.use == me.use;
}

/* 1: in. */
static int put_in(const struct seat *seat, const struct hold *h, const struct place *p, struct ref me)
{
    uint64_t old, mine = link_make(me.use, p->next), to = link_make(use_of(p->link), me);
    int rc = write_surely(seat, node_addr(seat, me.number), &mine, sizeof mine);
    if (rc)
        return rc;
    rc = fab_cas64(seat->ep, p->link_at, p->link, to, &old);
    if (rc == -FAB_EUNKNOWN)
        return seat_retry(seat, rc) ? -PAWL_ELOST : is_in(seat, h, me);
    return rc ? rc : old == p->link;
}

/* ---- the table of functions ---- */

static int list_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    struct ref me = {.number = number_of(seat, h)};
    struct place p;
    h->token = 0;
    hold_note_range(seat, h);
    int rc = prepare(seat, h, &me.use);
    if (!rc)
        rc = hold_publish(seat, h, RECORD_WAIT);
    while (!rc) {
        rc = walk_surely(seat, h->index, h->start, &p);
        if (rc)
            return rc;
        if (!p.next.number || p.node.start >= h->end) {
            rc = put_in(seat, h, &p, me);
            if (rc > 0)
                return hold_publish(seat, h, RECORD_HELD_X);
            rc = rc ? seat_retry(seat, rc) : 0;
            continue;
        }
        if (deadline == DEADLINE_TRY)
            return -PAWL_EHELD;
        rc = fab_wait(seat->ep, node_addr(seat, p.next.number), WATCH, p.node.link & WATCH, deadline);
        if (rc)
            rc = seat_retry(seat, rc);
    }
    return rc;
}

/* Marks the node; whoever passes takes it out. Others change the link when they come in behind us. */
static int list_release(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = node_addr(seat, number_of(seat, h));
    uint64_t link, old;
    int rc = hold_change(seat, h, RECORD_HELD_X, RECORD_WAIT);
    if (rc)
        return rc;
    rc = read_surely(seat, addr, &link, sizeof link);
    while (!rc && !(link & MARK)) {
        rc = fab_cas64(seat->ep, addr, link, link | MARK, &old);
        if (!rc && old == link)
            break;
        rc = rc ? seat_retry(seat, rc) : 0;
        if (!rc)
            rc = read_surely(seat, addr, &link, sizeof link);
    }
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static bool list_holds(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, RECORD_HELD_X);
}

static int list_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct place p;
    int rc = walk_surely(seat, index, 0, &p);
    if (!rc)
        *out = (struct lock_view){.mode = p.next.number ? PAWL_EXCLUSIVE : 0, .owner = LOCK_OWNER_UNKNOWN};
    return rc;
}

const struct design design_list_onesided = {
    .name = "list-onesided",
    .summary = "ranges in a list, by one-sided verbs: a round trip per node",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_TIMEOUT | DESIGN_RANGES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = BASELINE_TOLERATES,
    .lock_size = 16,
    .desc_size = sizeof(struct list_node),
    .acquire = list_acquire,
    .release = list_release,
    .holds = list_holds,
    .peek = list_peek,
};
