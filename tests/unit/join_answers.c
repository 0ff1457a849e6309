/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a coordinator: answers to another question, of another space, cut short or of a coordinator that was deposed come
 * first. They change nothing. */
#include "cluster/join.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define TERM 7
#define PATIENCE_NS (60 * NS_PER_S) /* on a busy machine */

static struct udp coordinator;
static struct net_addr coordinator_at;
static int refusal;    /* of a JOIN, after the wrong answers */
static bool over;      /* the thread ends with the next question */
static unsigned asked; /* questions so far */

static void say(struct net_addr to, struct coord_packet a, uint32_t len)
{
    const struct udp_out out = {.to = to, .len = len, .data = &a};
    udp_send(&coordinator, &out, 1);
}

/* As if the answer were fine, but for one thing. */
static void say_wrong(struct net_addr to, const struct coord_packet *ask, struct coord_packet a)
{
    struct coord_packet wrong = a;
    wrong.head.nonce = ask->head.nonce + 1;
    say(to, wrong, sizeof wrong);
    wrong = a;
    wrong.space[0] ^= 1;
    say(to, wrong, sizeof wrong);
    say(to, a, sizeof a - 1);
    wrong = a;
    wrong.term = TERM - 1;
    if (ask->head.type != COORD_JOIN)
        say(to, wrong, sizeof wrong);
}

static void answer(struct net_addr from, const struct coord_packet *ask)
{
    struct coord_packet a;
    coord_make(&a, COORD_REFUSED, "test", NULL, ask->head.nonce);
    a.term = TERM;
    a.code = -ENOENT;
    a.stamp = 11;
    if (ask->head.type == COORD_JOIN) {
        say_wrong(from, ask, a);
        a.code = refusal;
    } else {
        struct coord_packet foreign = a;
        foreign.head.nonce++;
        say(from, foreign, sizeof foreign);
        a.head.type = COORD_THIS;
        say_wrong(from, ask, a);
        a.stamp = 12;
    }
    say(from, a, sizeof a);
}

static void *coordinate(void *unused)
{
    static struct udp_batch batch;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
        for (unsigned i = 0, n = udp_wait(&coordinator, &batch, 0, world_now(&world_real) + NS_PER_S / 10); i < n; i++) {
            asked++;
            answer(batch.packet[i].from, (const void *)batch.packet[i].data);
        }
    return unused;
}

int main(void)
{
    pthread_t thread;
    struct udp u;
    CHECK_EQ(udp_open(&coordinator, net_v4(0x0100007f, 0)), 0);
    coordinator_at = coordinator.at;
    CHECK_EQ(pthread_create(&thread, NULL, coordinate, NULL), 0);
    refusal = -EPERM;
    CHECK_EQ(udp_open(&u, net_v4(0x0100007f, 0)), 0);
    struct join_params p = {.coordinators = coord_list_one(coordinator_at),
                            .role = COORD_HOST,
                            .space = "test",
                            .deadline = world_now(&world_real) + PATIENCE_NS};
    struct rack_welcome welcome;
    uint64_t stamp;
    CHECK_EQ(join(&u, &p, &welcome, &stamp), -EPERM);
    udp_close(&u);

    struct coord_packet ask, got;
    struct coord_list list = coord_list_one(coordinator_at);
    coord_make(&ask, COORD_WHICH, "test", NULL, 99);
    CHECK_EQ(ask_leader(&list, TERM, net_v4(0x0100007f, 0), &ask, sizeof ask, COORD_THIS, world_now(&world_real) + PATIENCE_NS,
                        &got, sizeof got),
             0);
    CHECK(got.head.nonce == 99 && got.term == TERM && got.stamp == 12);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK(asked >= 2);
    udp_close(&coordinator);
    return 0;
}
