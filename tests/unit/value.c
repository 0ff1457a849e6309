/* SPDX-License-Identifier: Apache-2.0 */
/* Values beside locks in memory (I26), step by step: a holder is stopped before each verb of a set, and a later holder reads or
 * sets the value meanwhile; or the holder dies there. Two variants that are wrong on purpose show that the test can fail. */
#include "designs/core/value.h"
#include "designs/core/design.h"
#include "fabric/shm.h"
#include "tests/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OLD "the value from before, which has more than one word"
#define EARLY "that of the holder which is stopped, of a like length"
#define LATER "that of the later holder: it is another one, and long"
#define VERBS_MAX 64

static _Alignas(16) struct value_cell memory[2]; /* an address of 0 means that there are no values: the second one is used */
static struct fab_ep shm, stepping;
static struct fab_ops ops;
static struct space space;
static struct session session;
static struct seat seat = {.space = &space, .me = &session, .ep = &stepping, .world = &world_real};

static unsigned verb, stop_at; /* of the holder that is stopped; 0: it is not */
static void (*meanwhile)(void);
static char seen[PAWL_VALUE_MAX + 1]; /* by the later holder; empty: it did not look */

/* Each verb of a batch on its own: others may come in between. */
static int batch(struct fab_ep *ep, struct fab_op *op, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (++verb == stop_at) {
            stop_at = 0;
            if (!meanwhile)
                return -FAB_EFENCED; /* it dies */
            meanwhile();
        }
        int rc = shm.ops->batch(&shm, &op[i], 1);
        if (rc)
            return rc;
    }
    return 0;
}

static int set(uint64_t token, const char *text)
{
    const struct hold h = {.token = token, .mode = PAWL_EXCLUSIVE};
    return value_set(&seat, &h, 1, text, (uint32_t)strlen(text));
}

static int get(uint64_t token, uint64_t generation, char out[PAWL_VALUE_MAX + 1])
{
    const struct hold h = {.token = token, .mode = PAWL_SHARED};
    uint32_t len = 0;
    int rc = value_get(&seat, &h, generation, out, &len);
    out[rc ? 0 : len] = 0;
    return rc;
}

static void later_reads(void)
{
    CHECK_EQ(get(7, 1, seen), 0);
}

static void later_sets(void)
{
    CHECK_EQ(set(7, LATER), 0);
}

static void later_reads_and_sets(void)
{
    later_reads();
    later_sets();
    later_reads();
}

static void begin(uint64_t mistakes)
{
    static struct design design;
    design = *design_find("word");
    design.mistakes = mistakes;
    memset(memory, 0, sizeof memory);
    fab_shm_init(&shm, memory, sizeof memory);
    ops = *shm.ops;
    ops.batch = batch;
    stepping = shm;
    stepping.base = NULL; /* every verb goes by way of the table */
    stepping.ops = &ops;
    space = (struct space){.design = &design, .values = sizeof memory[0], .lock_count = 1};
    verb = stop_at = 0;
    seen[0] = 0;
    CHECK_EQ(set(2, "short"), 0);
    CHECK_EQ(set(3, OLD), 0);
}

/* Whether all is well after a set that was stopped before its verb `at`. *ends: it has fewer verbs. */
static bool one(uint64_t mistakes, void (*does)(void), unsigned at, bool *ends)
{
    char now[PAWL_VALUE_MAX + 1];
    begin(mistakes);
    meanwhile = does;
    verb = 0;
    stop_at = at;
    int rc = set(5, EARLY);
    *ends = stop_at != 0;
    stop_at = 0;
    CHECK_EQ(get(9, 1, now), 0);
    bool whole = !strcmp(now, OLD) || !strcmp(now, EARLY) || !strcmp(now, LATER);
    if (*ends || !does)
        return whole && (rc || !strcmp(now, EARLY));
    bool set_later = does != later_reads, acknowledged = !rc;
    bool lasts = set_later ? !strcmp(now, LATER) : !strcmp(now, seen);
    return whole && lasts && (!acknowledged || set_later || !strcmp(now, EARLY));
}

/* How many of all places to stop at go wrong. */
static unsigned wrong(uint64_t mistakes)
{
    static void (*const each[])(void) = {NULL, later_reads, later_sets, later_reads_and_sets};
    unsigned bad = 0;
    for (unsigned i = 0; i < countof(each); i++) {
        unsigned at = 1;
        for (bool ends = false; !ends; at++) {
            CHECK(at < VERBS_MAX);
            bad += !one(mistakes, each[i], at, &ends);
        }
        CHECK(at > 10); /* the head, seven words read and written, the head again */
    }
    return bad;
}

int main(void)
{
    char bytes[PAWL_VALUE_MAX + 1];
    CHECK_EQ(wrong(0), 0);
    begin(0);
    CHECK_EQ(get(6, 1, bytes), 0);
    CHECK_EQ(set(5, EARLY), -PAWL_ENOTOWNER); /* a holder of the past */
    CHECK_EQ(get(4, 1, bytes), 0);            /* a reader beside one with a higher token */
    CHECK(!strcmp(bytes, OLD));
    CHECK_EQ(get(6, 2, bytes), -PAWL_ENOVALUE); /* the cell is another key's */
    CHECK_EQ(set(8, ""), 0);
    CHECK_EQ(get(8, 1, bytes), -PAWL_ENOVALUE);
    memory[1].state = UINT64_C(127) << 1 | UINT64_C(1) << 24; /* by another user of a segment */
    seat.ep = &shm;
    CHECK_EQ(get(8, 1, bytes), -PAWL_ESEGMENT);
    seat.ep = &stepping;
    unsigned late = wrong(VALUE_MISTAKE_LATE), torn = wrong(VALUE_MISTAKE_TORN);
    printf("without tokens %u, in place %u go wrong\n", late, torn);
    CHECK(late && torn);
    return 0;
}
