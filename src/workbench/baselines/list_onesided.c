/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in a list, by one-sided verbs: the list-based lock of Kogan et al. (EuroSys'20) with its atomic instructions replaced by
 * those of the NIC, "LLD" in Citron's comparison. The list has a node for every range that is held, in the order of the ranges. A
 * client walks from the head, with a round trip for every node, to the place between the last node that ends before its range and
 * the first that begins behind it. It inserts its own node there by compare-and-swap. If a node overlaps the range, the client
 * waits until the owner has marked that node as released. A client that passes a marked node unlinks it.
 *
 * Why this is correct: ranges in the list never overlap. A node is inserted only between two neighbours that its owner has read,
 * neither of which overlaps it. One compare-and-swap on the link of the first makes sure that they are still neighbours. Nodes are
 * reused, so a link names the next node and that node's use, and carries the use of the node that it is in: neither a link nor a
 * range is taken for that of another use. Before a node is reused, its owner makes sure that it is out of the list.
 *
 * Exclusive only, as in the paper. No tokens, no recovery. */
#include "workbench/baselines/baselines.h"

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

/* A place in the list: the link that was followed, and the node behind it. */
struct place {
    fab_addr link_at;
    uint64_t link;
    struct ref next; /* number 0: the end of the list */
    struct list_node node;
};

/* Reads link, range, and link again: if both links have the same use, they and the range belong together. 1: read; 0: the node has
 * another use by now. */
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

/* Walks from the head to the first node that ends behind `unit`, and unlinks marked nodes. 1: found; 0: begin again. */
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
                return rc; /* another client was faster, or the link is in a node that was marked: from the beginning */
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

/* Prepares the node for another use. First makes sure that it is out of the list of its last use, which may be another lock's. The
 * link stays marked until the node is inserted, and by then the range is written. *use is that of the node from now on. */
static int prepare(const struct seat *seat, const struct hold *h, uint64_t *use)
{
    fab_addr addr = node_addr(seat, number_of(seat, h));
    struct list_node n;
    struct place p;
    int rc = read_surely(seat, addr, &n, sizeof n);
    if (!rc && n.end) /* a walk past the node unlinks it */
        rc = walk_surely(seat, n.index, n.start, &p);
    if (rc)
        return rc;
    *use = (use_of(n.link) + 1) & FIELD_MAX(USE_BITS);
    const struct list_node fresh = {
        .link = MARK | link_make(*use, (struct ref){0}), .start = h->start, .end = h->end, .index = h->index};
    rc = write_surely(seat, addr, &fresh.link, sizeof fresh.link);
    return rc ? rc : write_surely(seat, addr + offsetof(struct list_node, start), &fresh.start, sizeof fresh - sizeof fresh.link);
}

/* After a connection broke: is the node in the list? 1 or 0. */
static int is_in(const struct seat *seat, const struct hold *h, struct ref me)
{
    struct place p;
    int rc = walk_surely(seat, h->index, h->start, &p);
    return rc ? rc : p.next.number == me.number && p.next.use == me.use;
}

/* 1: inserted. */
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

/* Marks the node; a client that passes unlinks it. Other clients change the link when they insert nodes behind this one. */
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
    .holds = hold_is_held,
    .peek = list_peek,
};
