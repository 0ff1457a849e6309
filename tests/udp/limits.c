/* SPDX-License-Identifier: Apache-2.0 */
/* A host sends more packets than its limit, from its own address and with its own key. Those above the limit are dropped and
 * counted, clients of another host do not notice, and those of the greedy host itself go on when it has stopped. */
#include "tests/udp/forge.h"

#define LIMIT_PER_S 2000u
#define AT_ONCE 1000u   /* as roster_limit() has it */
#define PAIRS 200       /* of the other host: fewer packets than may come at once, if half of them are sent twice */
#define TOO_MANY 10000u /* packets that are dropped, before the test ends */
#define LOCK 5
#define OTHER_LOCK 6
#define IDLE_LOCK 7 /* of the greedy host's packets, which change nothing */

static struct host greedy, other;
static struct udp udp;

/* A release of a lock that the host does not hold. */
static uint32_t make(uint8_t family, void *bytes)
{
    struct packet_head *h = bytes;
    bool server = family == PACKET_SERVER;
    memset(bytes, 0, PACKET_MAX);
    *h = (struct packet_head){.version = PACKET_VERSION,
                              .family = family,
                              .type = server                     ? SRV_RELEASE
                                      : family == PACKET_FISSION ? (uint8_t)FISSION_RELEASE
                                                                 : (uint8_t)NETLOCK_RELEASE,
                              .space = greedy.header->config.space,
                              .epoch = family == PACKET_FISSION ? forge_board->switch_life : greedy.header->life,
                              .index = IDLE_LOCK,
                              .nonce = (UINT64_C(1) << 40) + 2,
                              .from = {greedy.header->machine, 1000},
                              .to = {server ? greedy.header->config.server[0] : MACHINE_SWITCH, server ? PORT_SERVER : PORT_POOL}};
    if (family == PACKET_FISSION) {
        struct fission_packet *p = bytes;
        p->client = h->from;
        p->mode = p->old_mode = FISSION_EXCLUSIVE;
        return sizeof *p;
    }
    if (family == PACKET_NETLOCK) {
        struct netlock_packet *p = bytes;
        p->mode = NETLOCK_EXCLUSIVE;
        p->client = h->from;
        return sizeof *p;
    }
    ((struct srv_packet *)bytes)->mode = PAWL_EXCLUSIVE;
    return sizeof(struct srv_packet);
}

static uint64_t limited(const struct host *h)
{
    return __atomic_load_n(&forge_board->limited[h->header->machine], __ATOMIC_ACQUIRE);
}

/* A burst of the greedy host. */
static void flood(const struct udp_out *out)
{
    for (unsigned i = 0; i < AT_ONCE / 4; i++)
        udp_send(&udp, out, 1);
}

int main(void)
{
    static _Alignas(8) uint8_t bytes[PACKET_MAX];
    const char *design = rack_design("srvlock");
    pawl_grant g, h;
    unsigned pairs = 0;
    rack_owner = getpid();
    snprintf(rack_space, sizeof rack_space, "test%d", (int)rack_owner);
    atexit(rack_cleanup);
    rack_make_key();
    forge_host_packets = LIMIT_PER_S;
    forge_board = shared_memory(sizeof *forge_board);
    pid_t rack = child_start(forge_rack_main, (void *)(uintptr_t)design);
    WAIT_FOR(__atomic_load_n(&forge_board->ready, __ATOMIC_ACQUIRE));
    pawl *holder = forge_open(FORGE_HOLDER), *rival = forge_open(FORGE_RIVAL);
    CHECK_OK(pawl_lock(holder, pawl_id(LOCK), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_lock(rival, pawl_id(OTHER_LOCK), PAWL_EXCLUSIVE, &h));
    CHECK_OK(pawl_unlock(rival, &h));
    forge_map_host(FORGE_HOLDER, &greedy);
    forge_map_host(FORGE_RIVAL, &other);
    WAIT_FOR(__atomic_load_n(&greedy.header->pool.port, __ATOMIC_ACQUIRE));
    CHECK_EQ(udp_open(&udp, net_addr_at_port(greedy.header->pool, 0)), 0);
    uint32_t port = forge_board->granter_ports[forge_board->granters - 1];
    const struct udp_out out = {.to = net_v4(RACK_LOCALHOST, (uint16_t)port),
                                .len = make(design_find(design)->packet->family, bytes),
                                .data = bytes,
                                .key = rack_ring.count ? &greedy.header->key : NULL};
    uint64_t end = pawl_in(LIMIT_NS);
    while (limited(&greedy) < TOO_MANY || pairs < PAIRS) {
        if (pawl_now() > end)
            CHECK_FAIL("%" PRIu64 " packets were dropped, and %u pairs done", limited(&greedy), pairs);
        if (limited(&greedy) < TOO_MANY)
            flood(&out);
        if (pairs < PAIRS && limited(&greedy)) { /* the greedy host is at its limit */
            CHECK_OK(pawl_lock(rival, pawl_id(OTHER_LOCK), PAWL_EXCLUSIVE, &h));
            CHECK_OK(pawl_unlock(rival, &h));
            pairs++;
        }
    }
    CHECK_EQ(limited(&other), 0);
    CHECK_OK(pawl_unlock(holder, &g)); /* the greedy host has kept its lock, and goes on */
    CHECK_OK(pawl_lock(rival, pawl_id(LOCK), PAWL_EXCLUSIVE, &h));
    CHECK_OK(pawl_unlock(rival, &h));
    CHECK_OK(pawl_close(holder));
    CHECK_OK(pawl_close(rival));
    printf("%s: %" PRIu64 " packets of the greedy host were dropped, and none of %u pairs of the other\n", design, limited(&greedy),
           pairs);
    host_close(&greedy);
    host_close(&other);
    child_kill(rack);
    return 0;
}
