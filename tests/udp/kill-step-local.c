/* SPDX-License-Identifier: Apache-2.0 */
/* A process dies at every instruction of the short way on the host of FissLock's agent (designs/fisslock/host.c). The next process
 * finds that the dead one holds nothing by the step, that all other holds are intact, and that the lock can be acquired. */
#include "cluster/host.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "tests/udp/step.h"

#define NOW UINT64_C(1000000000)
#define REQUESTS 4
#define VICTIM REQUESTS /* the first request of the second session */
#define LOCK 7

static struct host host;
static struct outbox out;
static void *decider;
static char path[64];

/* Packets of the host to the decider and back, until there are none. */
static void carry(void)
{
    static struct outbox back;
    while (out.packets) {
        for (unsigned i = 0; i < out.packets; i++)
            fisslock_switch_packet(decider, outbox_packet(&out, i), out.packet[i].len, NOW, &back);
        outbox_clear(&out);
        host_enter(&host, &out);
        for (unsigned i = 0; i < back.packets; i++)
            fisslock_packet(host.memory, outbox_packet(&back, i), back.packet[i].len, NOW, &out);
        host_leave(&host, &out);
        outbox_clear(&back);
    }
    outbox_clear(&out);
}

static int acquire_at_once(uint32_t request, enum pawl_mode mode)
{
    const struct packet_ask ask = {.request = request, .port = 1000, .mode = mode, .index = LOCK};
    struct packet_answer answer;
    host_lock(&host);
    int rc = fisslock_local_acquire(host.memory, &ask, NOW, &answer);
    host_unlock(&host);
    return rc;
}

static int release_at_once(uint32_t request)
{
    host_lock(&host);
    int rc = fisslock_local_release(host.memory, request, NOW);
    host_unlock(&host);
    return rc;
}

static void change_acquire(enum pawl_mode mode)
{
    acquire_at_once(VICTIM, mode);
}

static void change_release(enum pawl_mode mode)
{
    release_at_once(VICTIM);
}

struct victim_arg {
    void (*change)(enum pawl_mode mode);
    enum pawl_mode mode;
};

static void victim(void *arg)
{
    struct victim_arg *v = arg;
    CHECK_EQ(host_open(path, &host), 0);
    begin();
    v->change(v->mode);
    end();
}

/* The other clients' holds are unchanged, and the victim has none. */
static void check_all(bool other_holds)
{
    struct fisslock_host *h = (struct fisslock_host *)(void *)host.memory;
    CHECK(fisslock_idle(h, VICTIM));
    CHECK_EQ(h->locals.taken, 0);
    CHECK_EQ(h->locals.step.active, 0);
    CHECK_EQ(host_session(h, 0)->held, other_holds);
    CHECK_EQ(host_session(h, VICTIM)->held, 0);
    CHECK_EQ(fisslock_holds(h, 0), other_holds);
    const struct agent *a = pool_agent_of(h, LOCK);
    CHECK(a && a->state == AGENT_LIVE);
    CHECK_EQ(a->holders.count, other_holds);
    CHECK_EQ(h->nodes_used, other_holds);
}

static void try_every_step(struct victim_arg *v, bool other_holds)
{
    bool releases = v->change == change_release;
    unsigned deaths = 0;
    for (uint64_t death = 0; death < STEPS_MAX; death++) {
        int status;
        if (releases)
            CHECK_EQ(acquire_at_once(VICTIM, v->mode), 0);
        *steps = (struct steps){.death = death};
        pid_t pid = child_start(victim, v);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(steps->survived || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        deaths += !steps->survived;
        /* The session is dead, as the kernel tells. */
        host_enter(&host, &out);
        fisslock_session_dead(host.memory, 1, NOW, &out);
        host_leave(&host, &out);
        CHECK_EQ(out.packets, 0);
        outbox_clear(&out);
        check_all(other_holds);
        CHECK_EQ(acquire_at_once(VICTIM, v->mode), 0);
        CHECK_EQ(release_at_once(VICTIM), 0);
        if (steps->survived)
            break;
    }
    printf("%s, %s: %u deaths\n", releases ? "release" : "acquire", v->mode == PAWL_SHARED ? "shared" : "exclusive", deaths);
    CHECK(deaths && steps->survived);
}

int main(void)
{
    static struct rack_welcome w;
    const struct packet_ask first = {.request = 0, .port = 1000, .mode = PAWL_SHARED, .index = LOCK};
    const struct packet_ask again = {.request = 0, .port = 1000, .mode = PAWL_EXCLUSIVE, .index = LOCK};
    const struct rack_identity identity = coord_identity_of_name("test");
    coord_make(&w.said.packet, COORD_WELCOME, "test", &identity, 1);
    w.said.packet.head.to.machine = 1;
    w.said.packet.head.generation = 1;
    snprintf(w.said.design, sizeof w.said.design, "fisslock-stay");
    w.said.config = (struct rack_config){
        .space = w.said.packet.head.space, .machines = 4, .sessions = 2, .requests = REQUESTS, .locks = 100, .retry_ns = NS_PER_MS};
    w.said.config.options = design_find(w.said.design)->packet->options;
    snprintf(path, sizeof path, "/dev/shm/pawl-test.%d", (int)getpid());
    const struct coord_list coordinators = coord_list_one(net_v4(1, 0));
    CHECK_EQ(host_create(path, &w, &coordinators, net_v4(1, 0), host_now() + 3600 * NS_PER_S), 0);
    CHECK_EQ(host_open(path, &host), 0);
    decider = calloc(1, fisslock_switch_bytes(&w.said.config));
    steps = shared_memory(sizeof *steps);
    CHECK(decider != NULL);
    fisslock_switch_init(decider, &w.said.config, 1, NOW);
    host_enter(&host, &out);
    CHECK_EQ(fisslock_acquire(host.memory, &first, NOW, &out), PACKET_WAIT);
    host_leave(&host, &out);
    carry();
    check_all(true);
    struct victim_arg acquire = {change_acquire, PAWL_SHARED}, release = {change_release, PAWL_SHARED};
    try_every_step(&acquire, true);
    try_every_step(&release, true);
    /* The last one gives it back, and the agent goes, for the host to want it again and again: then it stays. */
    for (unsigned i = 0; i < 4; i++) {
        host_enter(&host, &out);
        CHECK_EQ(fisslock_release(host.memory, 0, NOW, &out), 0);
        host_leave(&host, &out);
        carry();
        host_enter(&host, &out);
        int rc = fisslock_acquire(host.memory, &again, NOW, &out);
        host_leave(&host, &out);
        carry();
        CHECK(rc >= 0 && fisslock_holds(host.memory, 0));
    }
    host_enter(&host, &out);
    CHECK_EQ(fisslock_release(host.memory, 0, NOW, &out), 0);
    host_leave(&host, &out);
    CHECK_EQ(out.packets, 0);
    for (enum pawl_mode mode = PAWL_SHARED; mode <= PAWL_EXCLUSIVE; mode++) {
        acquire.mode = release.mode = mode;
        try_every_step(&acquire, false);
        try_every_step(&release, false);
    }
    unlink(path);
    return 0;
}
