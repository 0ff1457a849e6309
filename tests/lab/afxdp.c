/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that bypass the network stack: locks over AF_XDP, with packets that must still come by the socket; a client that falls
 * back to the socket says why. */
#include "wire/afxdp.h"
#include "lib/base.h"
#include "tests/lab/channels.h"

#include <pawl.h>
#include <signal.h>
#include <sys/wait.h>

#define PORT 6100
#define SENDERS 32u /* whose frames come by both queues, but in one of 2^31 runs */
#define WHERE "pawl://10.77.1.254:7070/fast?wire=afxdp"

/* Echoes come back by the switch in the kernel; the first leaves by the socket, as the address of the switch is not known yet. */
static void echoes(void)
{
    char why[AFXDP_WHY];
    struct udp u;
    struct udp_batch *batch = calloc(1, sizeof *batch);
    const struct net_addr at = net_v4(htonl(lab_address(1, 1)), PORT);
    struct packet_head h = {
        .version = PACKET_VERSION, .family = PACKET_ECHO, .type = ECHO_ASK, .space = RACK_SPACE, .from = {1, PORT}};
    struct plane *p = rack_plane("relay", 0, NULL, false);
    unsigned fast = 0, slow = 0;
    rack_attach(p, PLANE_GENERIC);
    CHECK(batch);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    CHECK_EQ(udp_open(&u, at), 0);
    int rc = afxdp_open(u.at, &u.fast, why);
    if (rc)
        SKIP("%s", why);
    printf("%s: %s (%s), %s mode\n", afxdp_device(u.fast), afxdp_copies(u.fast), afxdp_why_copies(u.fast), afxdp_mode(u.fast));
    CHECK(!strcmp(afxdp_copies(u.fast), *afxdp_why_copies(u.fast) ? "copy" : "zero-copy"));
    struct afxdp *other = NULL;
    CHECK_EQ(afxdp_open(u.at, &other, why), -EBUSY); /* one of a machine */
    CHECK(strstr(why, "already"));
    for (uint64_t i = 1; i <= 1000; i++) {
        h.nonce = i;
        const struct udp_out out = {.to = net_v4(htonl(lab_address(1, LAB_SWITCH)), RACK_PORT), .len = sizeof h, .data = &h};
        bool went = afxdp_send(u.fast, &out, 1);
        if (!went)
            udp_send(&u, &out, 1);
        fast += went;
        slow += !went;
        unsigned n = udp_wait(&u, batch, 10 * NS_PER_US, UINT64_MAX); /* most sleep */
        CHECK_EQ(n, 1);
        CHECK_EQ(batch->packet[0].len, sizeof h);
        struct packet_head back = h;
        back.type = ECHO_BACK;
        CHECK(!memcmp(batch->packet[0].data, &back, offsetof(struct packet_head, from)));
        CHECK_EQ(batch->packet[0].from.port, RACK_PORT);
    }
    CHECK(slow >= 1 && slow < 10 && fast > 990);
    /* Other hosts' packets come the same way, and what is for another port passes to the stack. */
    int raw = rack_socket(2, 6200), plain;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(lab_address(1, 1))};
    CHECK_EQ(connect(raw, (struct sockaddr *)&to, sizeof to), 0);
    CHECK_EQ(send(raw, &h, sizeof h, 0), sizeof h);
    CHECK_EQ(udp_wait(&u, batch, 0, UINT64_MAX), 1);
    CHECK_EQ(batch->packet[0].from.port, 6200);
    plain = rack_socket(1, PORT + 1);
    to.sin_port = htons(RACK_PORT);
    to.sin_addr.s_addr = htonl(lab_address(1, LAB_SWITCH));
    char back[sizeof h];
    CHECK_EQ(send(plain, &h, sizeof h, 0), sizeof h);
    CHECK_EQ(rack_receive(plain, back, sizeof back, 10000), sizeof h);
    close(raw);
    close(plain);
    udp_close(&u);
    free(batch);
    plane_close(p, PLANE_REMOVE);
}

/* Frames of every receive queue come the same way. */
static void both_queues(void)
{
    char why[AFXDP_WHY];
    struct udp u;
    struct udp_batch *batch = calloc(1, sizeof *batch);
    const struct packet_head h = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = ECHO_ASK, .space = RACK_SPACE};
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(lab_address(1, 1))};
    uint64_t came[2];
    CHECK(batch);
    channels_set(LAB_CORE, "p1", 2);
    channels_set(1, LAB_DEVICE, 2);
    CHECK_EQ(udp_open(&u, net_v4(htonl(lab_address(1, 1)), PORT)), 0);
    int rc = afxdp_open(u.at, &u.fast, why);
    if (rc)
        CHECK_FAIL("%s", why);
    CHECK_EQ(afxdp_queues(u.fast), 2);
    for (unsigned i = 0; i < SENDERS; i++) {
        int raw = rack_socket(2, (uint16_t)(6300 + i));
        CHECK_EQ(connect(raw, (const struct sockaddr *)(const void *)&to, sizeof to), 0);
        CHECK_EQ(send(raw, &h, sizeof h, 0), sizeof h);
        struct pollfd wait = {.fd = afxdp_fd(u.fast), .events = POLLIN};
        CHECK_EQ(poll(&wait, 1, 10000), 1);
        CHECK_EQ(afxdp_receive(u.fast, batch), 1);
        CHECK_EQ(batch->packet[0].from.port, 6300 + i);
        close(raw);
    }
    if (!strcmp(afxdp_mode(u.fast), "native")) {
        channels_count(1, LAB_DEVICE, came);
        printf("%" PRIu64 " frames came by the first queue, %" PRIu64 " by the second\n", came[0], came[1]);
        CHECK(came[0] && came[1]);
    }
    udp_close(&u);
    free(batch);
}

/* One process has the way past the stack, another of the same host has not; both lock. The switch in the kernel is the only one. */
static void locks(const char *design, unsigned own)
{
    char words[512];
    pawl *p, *q;
    pawl_grant g, other;
    snprintf(
        words, sizeof words,
        "serve --insecure --listen 10.77.1.254:7070 --space fast --design %s --own %u --keys dense --locks 100 --lease 20s --fresh",
        design, own);
    pid_t coordinator = rack_start(words);
    pid_t control =
        rack_start("switch --dev " LAB_UPLINK " --join 10.77.1.254:7070 --listen 10.77.1.254:4747 --space fast --fresh");
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    if (pawl_open(WHERE, NULL, &p) || pawl_open(WHERE, NULL, &q)) /* the second says that it is UDP */
        CHECK_FAIL("%s", pawl_explain());
    for (uint64_t i = 0; i < 100; i++) {
        CHECK_EQ(pawl_timedlock(p, pawl_id(i % 7), PAWL_EXCLUSIVE, pawl_in(10 * NS_PER_S), &g), 0);
        CHECK_EQ(pawl_trylock(q, pawl_id(i % 7), PAWL_SHARED, &other), -PAWL_EHELD);
        CHECK_EQ(pawl_unlock(p, &g), 0);
        CHECK_EQ(pawl_timedlock(q, pawl_id(i % 7), PAWL_SHARED, pawl_in(10 * NS_PER_S), &other), 0);
        CHECK(other.token > g.token);
        CHECK_EQ(pawl_unlock(q, &other), 0);
    }
    CHECK_EQ(pawl_close(q), 0);
    CHECK_EQ(pawl_close(p), 0);
    rack_end(control);
    rack_end(coordinator);
    printf("%s: 200 locks by two processes of a host\n", design);
}

int main(void)
{
    rack_up("afxdp", 2, false);
    echoes();
    both_queues();
    locks("fisslock", 0);
    locks("netlock", 1); /* a lock server */
    CHECK_EQ(lab_down(rack.name), 0);
    return 0;
}
