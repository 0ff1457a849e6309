/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch with its registers in the kernel: a stand-in for the program there passes packets while the control process
 * looks at a lock, is busy, or does not answer. Then what the control process does to locks and memory that it has for itself. */
#include "tests/unit/netlock_order_kit.h"

/* The slot of a queue that has a request of the third host: the lock's queue, or that of a priority. */
static struct {
    uint32_t slot, ticket;
    bool wanted, found; /* wanted: of a priority's queue */
} third_slot;

static void find_third(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx, uint64_t now,
                       struct outbox *out)
{
    (void)lock, (void)ctx, (void)now, (void)out;
    if (waiting != third_slot.wanted || plane_get(switch_plane(w), NETLOCK_PLACE, slot) >> 16 != 3)
        return;
    third_slot.slot = slot;
    third_slot.ticket = ticket;
    third_slot.found = true;
}

static void find_slot(struct bench *b, bool waiting)
{
    third_slot.wanted = waiting;
    third_slot.found = false;
    switch_each_slot(b->sw, 0, find_third, NULL, b->now, &b->out);
    CHECK(third_slot.found);
}

/* The slot is another request's by then. */
static void take_place(struct bench *b)
{
    struct plane *p = switch_plane(b->sw);
    plane_set(p, NETLOCK_PLACE, third_slot.slot, plane_get(p, NETLOCK_PLACE, third_slot.slot) + (UINT64_C(1) << 16));
}

static void take_nonce(struct bench *b)
{
    struct plane *p = switch_plane(b->sw);
    plane_set(p, NETLOCK_NONCE, third_slot.slot, plane_get(p, NETLOCK_NONCE, third_slot.slot) + 1);
}

/* The hold has ended by then; its slot has left the queue. */
static void end_hold(struct bench *b)
{
    struct plane *p = switch_plane(b->sw);
    plane_set(p, NETLOCK_FLAGS, third_slot.slot, plane_get(p, NETLOCK_FLAGS, third_slot.slot) | NETLOCK_ENDED);
}

static void leave_queue(struct bench *b)
{
    struct plane *p = switch_plane(b->sw);
    uint64_t ends = plane_get(p, NETLOCK_ENDS, 0), next = netlock_after(third_slot.ticket, plane_region(p, 0).size);
    plane_set(p, NETLOCK_ENDS, 0, (ends & ~((uint64_t)NETLOCK_TICKET << 32)) | next << 32);
}

static void granted_later(struct bench *b)
{
    plane_set(switch_plane(b->sw), NETLOCK_SINCE, third_slot.slot, plane_now(b->now) + 1);
}

/* The third host has the lock, and a request in the queue of a priority. */
static struct bench *set_up_third(void)
{
    const unsigned third = 2 * REQUESTS;
    struct bench *b = set_up_low(1, 2);
    attach_kernel(b, switch_plane(b->sw));
    for (unsigned i = third; i < third + 2; i++) {
        ask_for(b, i, 0);
        send(b);
        settle(b, FLIGHT);
    }
    CHECK(b->request[third].state == HELD && b->request[third + 1].state == SEEN);
    return b;
}

/* A packet passes in the kernel between the control process's look at a slot and its order to close the lock. The slot is another's
 * then, and stays; a hold that has ended is not said to be granted once more. */
static void test_passes_meanwhile(void)
{
    static const struct {
        void (*pass)(struct bench *b);
        bool waiting; /* the third host's lease ends, and its waiter is to leave; else the switch repeats its grant */
        unsigned grants;
    } cases[] = {{take_place, true, 0}, {take_nonce, true, 0},   {NULL, false, 1},
                 {end_hold, false, 0},  {leave_queue, false, 0}, {granted_later, false, 0}};
    for (unsigned i = 0; i < countof(cases); i++) {
        struct bench *b = set_up_third();
        struct nl_switch *w = b->sw;
        unsigned grants = 0;
        find_slot(b, cases[i].waiting);
        kernel.before_close = cases[i].pass;
        if (cases[i].waiting) {
            lose_host(b, 3);
            CHECK(!(plane_get(switch_plane(w), NETLOCK_FLAGS, third_slot.slot) & NETLOCK_ENDED));
        } else {
            for (unsigned m = 1; m <= HOSTS; m++)
                switch_machine(w, (uint16_t)m)->until_ns = UINT64_MAX;
            w->until_ns = w->leased_ns = UINT64_MAX;
            b->now = w->control_ns + b->config.lease_ns;
            netlock_switch_tick(w, b->now, &b->out);
            for (unsigned n = 0; n < b->out.packets; n++)
                grants += ((const struct packet_head *)outbox_packet(&b->out, n))->type == NETLOCK_GRANT;
            CHECK_EQ(grants, cases[i].grants);
        }
        CHECK(!kernel.before_close && kernel.orders[NETLOCK_ORDER_CLOSE]);
        tear_down(b);
    }
}

/* A host's lease was renewed in the kernel meanwhile: it stays. */
static void test_renewed_meanwhile(void)
{
    struct bench *b = set_up_third();
    struct netlock_machine *m = switch_machine(b->sw, 3);
    CHECK(!switch_bar(b->sw, m, m->until_ns - 1) && m->live);
    CHECK(switch_bar(b->sw, m, m->until_ns) && !m->live);
    tear_down(b);
}

/* The program is busy for ever, carries nothing out, or has gone: a pass counts as lost, and a lock that cannot be closed is not
 * changed. */
static void test_no_answer(void)
{
    struct bench *b = set_up_third();
    struct plane *p = switch_plane(b->sw);
    for (unsigned way = 0; way < 3; way++) {
        struct netlock_pass pass = {.op = NETLOCK_OP_PULL, .out = NETLOCK_OUT_GRANT, .next = NETLOCK_OP_PULL};
        kernel.stuck = way == 0;
        kernel.deaf = way == 1;
        kernel.gone = way == 2;
        plane_pass(p, 0, &pass);
        CHECK(!pass.out && pass.next == NETLOCK_OP_NONE);
        plane_shut(p, 0);
        kernel.stuck = kernel.deaf = kernel.gone = false;
    }
    uint64_t ends = plane_get(p, NETLOCK_ENDS, 0), writers = plane_get(p, NETLOCK_EXCL, 0);
    plane_set(p, NETLOCK_ENDS, 0, 0);        /* empty */
    CHECK_EQ(plane_resize(p, 0, 3), -EBUSY); /* a request waits in the queue of a priority */
    plane_set(p, NETLOCK_WAITING, 0, 0);
    kernel.deaf = true;
    CHECK_EQ(plane_resize(p, 0, 3), -EBUSY);
    kernel.deaf = false;
    CHECK_EQ(plane_resize(p, 0, 3), 0);
    CHECK(ends && writers && plane_region(p, 0).size == 3);
    tear_down(b);
}

/* A new term of the switch: the program does not find its former locks any more, and policies stay. */
static void test_new_term(void)
{
    struct bench *b = set_up_third();
    struct nl_switch *w = b->sw;
    CHECK_EQ(netlock_set_quota(w, 2, 1000, 10), 0);
    switch_begin(w, w->term + 1, true, b->now);
    CHECK(kernel.orders[NETLOCK_ORDER_REMOVE] == 1 && switch_plane(w)->in_kernel && !switch_plane(w)->used);
    CHECK(plane_quota_of(switch_plane(w), 2).burst);
    CHECK_EQ(netlock_set_quota(w, 2, UINT32_MAX, UINT32_MAX), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, SWITCH_TENANTS, 1, 1), -EINVAL);
    tear_down(b);
}

/* A lock that drains does not leave while a request waits in the queue of a priority. */
static void test_drains(void)
{
    struct bench *b = set_up_third();
    struct nl_switch *w = b->sw;
    struct plane *p = switch_plane(w);
    uint64_t ends = plane_get(p, NETLOCK_ENDS, 0);
    CHECK_EQ(switch_move_out(w, 0, b->now, &b->out), 0);
    plane_set(p, NETLOCK_ENDS, 0, 0); /* the hold has ended, and its release is between two passes */
    switch_give(w, 0, b->now, &b->out);
    CHECK_EQ(switch_control(w, 0)->state, CONTROL_DRAINING);
    plane_set(p, NETLOCK_WAITING, 0, 0);
    switch_give(w, 0, b->now, &b->out);
    CHECK(ends && switch_control(w, 0)->state == CONTROL_GIVING);
    tear_down(b);
}

/* The writers of a queue are counted anew after a packet that was left unfinished: a reader that upgrades counts as one. */
static void test_recount(void)
{
    struct bench *b = set_up_low(1, 2);
    struct nl_switch *w = b->sw;
    struct plane *p = switch_plane(w);
    for (unsigned i = 0; i < 2 * REQUESTS; i += REQUESTS) {
        ask_in_mode(b, i, PAWL_SHARED, 0);
        send(b);
        settle(b, FLIGHT);
    }
    CHECK_EQ(netlock_convert(b->host[1], 0, PAWL_EXCLUSIVE, b->now, &b->out), PACKET_WAIT);
    send(b);
    settle(b, FLIGHT);
    uint64_t writers = plane_get(p, NETLOCK_EXCL, 0);
    CHECK(writers & NETLOCK_UPGRADING);
    plane_set(p, NETLOCK_EXCL, 0, 0);
    p->counts.unfinished++;
    netlock_switch_tick(w, b->now, &b->out);
    CHECK_EQ(plane_get(p, NETLOCK_EXCL, 0), writers);
    release(b, 2);
    settle(b, FLIGHT);
    CHECK_EQ(requests_outcome(b->host[1], 0, &(struct packet_answer){0}), 0);
    tear_down(b);
}

/* Memory that another process left goes on only as the switch of the same rack. Options of the policy may differ. */
static void test_same_rack(void)
{
    struct bench *b = set_up(1, 0);
    struct nl_switch *w = b->sw;
    const struct rack_config c = w->config;
    struct rack_config other[9];
    for (unsigned i = 0; i < countof(other); i++)
        other[i] = c;
    other[0].space++;
    other[1].machines++;
    other[2].sessions++;
    other[3].requests++;
    other[4].servers++;
    other[5].server[0]++;
    other[6].locks++;
    other[7].lease_ns++;
    other[8].options ^= UINT64_C(1) << NETLOCK_SLOTS_SHIFT;
    for (unsigned i = 0; i < countof(other); i++)
        if (netlock_switch_is(w, &other[i]))
            CHECK_FAIL("the switch of rack %u goes on as that of another rack", i);
    other[0] = c;
    other[0].options ^= NETLOCK_ALLOC_RANDOM | NETLOCK_PRIORITY;
    CHECK(netlock_switch_is(w, &c) && netlock_switch_is(w, &other[0]));
    w->version = 0;
    CHECK(!netlock_switch_is(w, &c)); /* empty memory */
    tear_down(b);
}

static struct plane *plane_new(const struct plane_config *c)
{
    struct plane *p = calloc(1, plane_bytes(c));
    CHECK(p);
    plane_init(p, c);
    return p;
}

/* A lock whose queue cannot be closed is not moved to the left. */
static void test_slide_busy(void)
{
    const struct plane_config c = {.slots = 16, .locks = 4, .requests = 8, .stride = 4, .tenants = 1};
    struct plane *p = plane_new(&c);
    uint32_t first, second;
    CHECK_EQ(plane_install(p, 0, &(struct plane_region){.left = 0, .size = 4}, &first), 0);
    CHECK_EQ(plane_install(p, 1, &(struct plane_region){.left = 4, .size = 2}, &second), 0);
    plane_remove(p, first);
    attach_kernel(NULL, p);
    kernel.deaf = true;
    CHECK(!plane_slide(p, second));
    CHECK_EQ(plane_region(p, second).left, 4);
    kernel.deaf = false;
    CHECK(plane_slide(p, second));
    CHECK_EQ(plane_region(p, second).left, 0);
    detach_kernel();
    free(p);
}

/* A lock's slots lie in one pipe, that of its home. */
static void test_pipe_of_lock(void)
{
    struct plane_config c = {.slots = 16, .locks = 4, .requests = 8, .stride = 4, .tenants = 1, .pipes = 2, .homes = 2};
    struct plane *p = plane_new(&c);
    uint32_t lock;
    CHECK_EQ(plane_install(p, 1, &(struct plane_region){.left = 0, .size = 2}, &lock), -EINVAL);
    CHECK_EQ(plane_install(p, 0, &(struct plane_region){.left = 7, .size = 2}, &lock), -EINVAL);
    CHECK_EQ(plane_install(p, 1, &(struct plane_region){.left = 8, .size = 2}, &lock), 0);
    c.homes = 0; /* no homes: one pipe */
    CHECK_EQ(plane_pipe(&c, 1), 0);
    free(p);
}

int main(void)
{
    test_passes_meanwhile();
    test_renewed_meanwhile();
    test_no_answer();
    test_slide_busy();
    test_new_term();
    test_drains();
    test_recount();
    test_same_rack();
    test_pipe_of_lock();
    return 0;
}
