/* SPDX-License-Identifier: Apache-2.0 */
/* A process dies after exactly n instructions of a change of its host's memory, for every n, or every few: the next one that enters
 * finds the memory as it was before the change, or as it is after it, and nothing in between; and the mutex is usable. */
#include "cluster/host.h"
#include "tests/udp/step.h"

#define NOW UINT64_C(1000000000)
#define STRIDE 7

static struct host host;
static struct outbox out;
static char path[64];
static char *before, *after;
static uint64_t bytes;

/* ---- changes ---- */

static int acquire(uint32_t request, uint64_t index)
{
    const struct packet_ask ask = {.request = request, .port = 1000, .mode = PAWL_EXCLUSIVE, .index = index};
    return host.design->acquire(host.memory, &ask, NOW, &out);
}

static void change_acquire(void)
{
    acquire(2, 7);
}

static void change_give_up(void)
{
    host.design->give_up(host.memory, 0, -ETIMEDOUT, NOW, &out);
}

static void change_tick(void)
{
    host.design->tick(host.memory, NOW + NS_PER_S, &out);
}

static void change_session_dead(void)
{
    host.design->session_dead(host.memory, 0, NOW, &out);
}

static void (*const changes[])(void) = {change_acquire, change_give_up, change_tick, change_session_dead};

/* ---- the test ---- */

static void victim(void *change)
{
    CHECK_EQ(host_open(path, &host), 0);
    begin();
    host_enter(&host, &out);
    (*(void (**)(void))change)();
    host_leave(&host, &out);
    end();
}

static bool is(const char *state)
{
    return !memcmp(host.memory, state, bytes);
}

static void try_every_step(unsigned number)
{
    void (*change)(void) = changes[number];
    unsigned undone = 0, done = 0;
    outbox_clear(&out);
    memcpy(before, host.memory, bytes);
    host_enter(&host, &out);
    change();
    host_leave(&host, &out);
    outbox_clear(&out);
    memcpy(after, host.memory, bytes);
    CHECK(memcmp(before, after, bytes));
    uint64_t stride = number ? STRIDE : 1; /* all of the first one's */
    for (uint64_t death = number; death < STEPS_MAX; death += stride) {
        memcpy(host.memory, before, bytes);
        *steps = (struct steps){.death = death};
        pid_t pid = child_start(victim, &change);
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(steps->survived || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        host_enter(&host, &out);
        if (!is(before) && !is(after))
            CHECK_FAIL("change %u: after a death at step %" PRIu64 " the memory is neither what it was nor what it should be",
                       number, death);
        undone += is(before);
        done += is(after);
        host_leave(&host, &out);
        outbox_clear(&out);
        if (steps->survived) {
            CHECK(is(after));
            break;
        }
    }
    printf("change %u: %u deaths undone, %u after it was complete\n", number, undone, done);
    CHECK(undone && done && steps->survived);
}

int main(void)
{
    static struct rack_welcome w;
    const struct design *d = design_find(getenv("PAWL_TEST_DESIGN") ? getenv("PAWL_TEST_DESIGN") : "srvlock");
    CHECK(d && d->packet);
    const struct rack_identity identity = coord_identity_of_name("test");
    coord_make(&w.said.packet, COORD_WELCOME, "test", &identity, 1);
    w.said.packet.head.to.machine = 1;
    w.said.packet.head.generation = 1;
    snprintf(w.said.design, sizeof w.said.design, "%s", d->name);
    w.said.config = (struct rack_config){.space = w.said.packet.head.space,
                                         .machines = 4,
                                         .sessions = 2,
                                         .requests = 4,
                                         .servers = d->packet->server_packet && !d->packet->spills ? 2 : 0,
                                         .server = {5, 6},
                                         .locks = 100,
                                         .lease_ns = NS_PER_S,
                                         .retry_ns = NS_PER_MS};
    snprintf(path, sizeof path, "/dev/shm/pawl-test.%d", (int)getpid());
    const struct coord_list coordinators = coord_list_one(net_v4(1, 0));
    CHECK_EQ(host_create(path, &w, &coordinators, net_v4(1, 0), host_now() + 3600 * NS_PER_S), 0);
    CHECK_EQ(host_open(path, &host), 0);
    bytes = round_up(d->packet->host_bytes(&w.said.config), UNDO_LINE);
    before = malloc(bytes);
    after = malloc(bytes);
    steps = shared_memory(sizeof *steps);
    CHECK(before && after);
    host_enter(&host, &out);
    CHECK_EQ(acquire(0, 5), PACKET_WAIT);
    CHECK_EQ(acquire(1, 6), PACKET_WAIT);
    host_leave(&host, &out);
    for (unsigned i = 0; i < countof(changes); i++)
        try_every_step(i);
    unlink(path);
    return 0;
}
