/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's decider on real interfaces, in both shapes and modes: grants, two packets out of one, a switch whose control process
 * dies and comes back, a program replaced under traffic, and everything else passing by. */
#include "dataplane/fission.h"
#include "lib/base.h"
#include "tests/lab/rack.h"

#include <linux/ethtool.h>
#include <signal.h>
#include <sys/wait.h>

#define LOCKS 4096
#define PATIENCE_MS 10000 /* a packet comes at once, unless the machine is too busy to carry it */

static int client[3], pool[3]; /* sockets of hosts 1 and 2 */

static struct fission_packet request(uint16_t machine, uint8_t type, uint8_t mode, uint64_t index, uint64_t nonce)
{
    struct fission_packet f = {
        .head = {.version = PACKET_VERSION,
                 .family = PACKET_FISSION,
                 .type = type,
                 .space = RACK_SPACE,
                 .index = index,
                 .nonce = nonce,
                 .from = {machine, 6000},
                 .to = {MACHINE_SWITCH, 0}},
        .mode = mode,
        .old_mode = mode,
        .client = {machine, 6000},
    };
    return f;
}

static void send_packet(int fd, const struct fission_packet *f)
{
    CHECK_EQ(send(fd, f, sizeof *f, 0), sizeof *f);
}

/* The packet with this nonce; others are of earlier tries. */
static bool receive(int fd, uint64_t nonce, struct fission_packet *out)
{
    for (int tries = 0; tries < 100; tries++) {
        size_t len = rack_receive(fd, out, sizeof *out, PATIENCE_MS);
        if (!len)
            return false;
        CHECK_EQ(len, sizeof *out);
        if (out->head.nonce == nonce)
            return true;
    }
    return false;
}

static void exclusive(uint64_t index)
{
    struct fission_packet f = request(1, FISSION_ACQUIRE, FISSION_EXCLUSIVE, index, 1), g, r;
    send_packet(client[1], &f);
    CHECK(receive(client[1], 1, &g));
    CHECK_EQ(g.head.type, FISSION_GRANT);
    CHECK(g.flags & FISSION_AGENT);
    /* Another host's request reaches the holder's pool. */
    f = request(2, FISSION_ACQUIRE, FISSION_EXCLUSIVE, index, 2);
    send_packet(client[2], &f);
    CHECK(receive(pool[1], 2, &r));
    CHECK_EQ(r.head.type, FISSION_ACQUIRE);
    /* Freed, its answer comes back; then it is granted to the other, with a higher token. */
    f = request(1, FISSION_FREE, FISSION_EXCLUSIVE, index, 3);
    f.head.from.port = PORT_POOL;
    f.term = g.term;
    send_packet(pool[1], &f);
    CHECK(receive(pool[1], 3, &r));
    CHECK(r.flags & FISSION_DONE);
    f = request(2, FISSION_ACQUIRE, FISSION_EXCLUSIVE, index, 4);
    send_packet(client[2], &f);
    CHECK(receive(client[2], 4, &r));
    CHECK_EQ(r.head.type, FISSION_GRANT);
    CHECK(r.token > g.token);
}

/* Readers of host 2 on a lock whose agent is host 1: each gets its grant, and the agent hears of each. */
static void doubled(uint64_t index, unsigned count)
{
    struct fission_packet f = request(1, FISSION_ACQUIRE, FISSION_SHARED, index, 10), g;
    unsigned lost = 0;
    send_packet(client[1], &f);
    CHECK(receive(client[1], 10, &g));
    for (uint64_t i = 0; i < count; i++) {
        f = request(2, FISSION_ACQUIRE, FISSION_SHARED, index, 1000 + i);
        send_packet(client[2], &f);
        if (!receive(client[2], 1000 + i, &g)) {
            lost++;
            continue;
        }
        CHECK_EQ(g.head.type, FISSION_GRANT);
        CHECK_EQ(g.inca, i + 2);
        if (!receive(pool[1], 1000 + i, &g)) {
            lost++;
            continue;
        }
        CHECK_EQ(g.head.type, FISSION_ACQUIRE);
        CHECK(g.flags & FISSION_COPY);
        CHECK_EQ(g.inca, i + 2);
    }
    CHECK_BETWEEN(lost, 0, count / 100);
    /* Many at once, so that the driver has several in its queue. */
    for (uint64_t i = 0; i < 64; i++) {
        f = request(2, FISSION_ACQUIRE, FISSION_SHARED, index, 100000 + i);
        send_packet(client[2], &f);
    }
    for (uint64_t i = 0; i < 64; i++) {
        CHECK(receive(client[2], 100000 + i, &g));
        CHECK_EQ(g.head.type, FISSION_GRANT);
        CHECK(receive(pool[1], 100000 + i, &g));
        CHECK_EQ(g.head.type, FISSION_ACQUIRE);
    }
}

static void others_pass(void)
{
    char text[16];
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    int a = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(lab_enter(&rack, 1, 2), 0);
    int b = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7), .sin_addr.s_addr = htonl(lab_address(1, 2))};
    CHECK_EQ(bind(b, (struct sockaddr *)&to, sizeof to), 0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(sendto(a, "whatever", 8, 0, (struct sockaddr *)&to, sizeof to), 8);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(rack_receive(b, text, sizeof text, PATIENCE_MS), 8);
        CHECK(!memcmp(text, "whatever", 8));
    }
    close(a);
    close(b);
}

static void open_sockets(void)
{
    for (unsigned h = 1; h <= 2; h++) {
        client[h] = rack_socket(h, 6000);
        pool[h] = rack_socket(h, RACK_PORT);
    }
}

static void close_sockets(void)
{
    for (unsigned h = 1; h <= 2; h++) {
        close(client[h]);
        close(pool[h]);
    }
}

/* Native XDP_TX and redirects on veth reach only an end that has a native program, too. */
static struct plane *lend_programs(const char *where, unsigned namespace)
{
    enum plane_mode got;
    struct plane *p;
    struct plane_options o = {.program = "echo"};
    CHECK_EQ(lab_enter(&rack, 1, namespace), 0);
    CHECK_EQ(plane_open(&o, &p), 0);
    if (plane_attach_program(p, where, "pass_all", PLANE_NATIVE, &got))
        CHECK_FAIL("%s", explained());
    return p;
}

/* A lock packet in a VLAN is not for the switch. In generic mode its tag is in the frame only if no card handles tags: at the
 * switch's end the start of the program sees to that; the other end of a veth is its owner's. */
static void tagged_pass(struct plane *p)
{
    struct packet_head h = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = ECHO_ASK, .space = RACK_SPACE}, back;
    struct plane_counters before, after;
    struct plane *filter;
    const struct plane_options o = {.program = "noise"};
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    CHECK_EQ(plane_open(&o, &filter), 0);
    CHECK_EQ(plane_filter(filter, LAB_DEVICE, "noise_in", "tag_out"), 0);
    CHECK_EQ(lab_enter(&rack, 1, LAB_CORE), 0);
    CHECK_EQ(plane_tags("psw", ETH_FLAG_TXVLAN, false), 0);
    CHECK_EQ(plane_count(p, &before), 0);
    CHECK_EQ(send(client[1], &h, sizeof h, 0), sizeof h);
    for (int i = 0; i < PATIENCE_MS && !plane_count(p, &after) && after.reason[PLANE_VLAN] == before.reason[PLANE_VLAN]; i++)
        usleep(1000);
    CHECK(after.reason[PLANE_VLAN] > before.reason[PLANE_VLAN]);
    CHECK_EQ(after.verdict[PLANE_ANSWERED], before.verdict[PLANE_ANSWERED]);
    CHECK_EQ(rack_receive(client[1], &back, sizeof back, 0), 0);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    plane_close(filter, PLANE_REMOVE);
}

/* Frames of 9,000 bytes do not fit into one buffer of a driver: natively it takes only programs that allow several (xdp.frags). */
static void be_jumbo(void)
{
    CHECK_EQ(lab_enter(&rack, 1, LAB_CORE), 0);
    CHECK_EQ(system("ip link set dev psw mtu 9000"), 0);
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    CHECK_EQ(system("ip link set dev " LAB_UPLINK " mtu 9000"), 0);
}

static void try_shape(bool in_path, enum plane_mode mode)
{
    struct plane *lent[2] = {0};
    printf("%s, %s\n", in_path ? "in-path" : "one-armed", plane_mode_name(mode));
    rack_up("decider", 2, in_path);
    open_sockets();
    if (mode == PLANE_NATIVE && !in_path)
        be_jumbo();
    struct plane *p = rack_plane("fission", LOCKS, NULL, false);
    rack_attach(p, mode);
    if (mode == PLANE_NATIVE && in_path) {
        lent[0] = lend_programs(LAB_DEVICE, 1);
        lent[1] = lend_programs(LAB_DEVICE, 2);
    } else if (mode == PLANE_NATIVE) {
        lent[0] = lend_programs("psw", LAB_CORE);
    }
    exclusive(7);
    doubled(8, 500);
    others_pass();
    if (mode == PLANE_GENERIC && !in_path)
        tagged_pass(p);
    plane_close(p, PLANE_REMOVE);
    plane_close(lent[0], PLANE_REMOVE);
    plane_close(lent[1], PLANE_REMOVE);
    close_sockets();
    CHECK_EQ(lab_down(rack.name), 0);
}

/* ---- state that outlives its process ---- */

static uint64_t nonce = 1000000;

/* Whether an exclusive request is granted; if so the lock is host 2's from now on. */
static bool is_granted(uint64_t index)
{
    struct fission_packet f = request(2, FISSION_ACQUIRE, FISSION_EXCLUSIVE, index, ++nonce), g;
    send_packet(client[2], &f);
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        int from[] = {client[2], pool[2], pool[1]};
        for (size_t i = 0; i < countof(from); i++)
            if (rack_receive(from[i], &g, sizeof g, i == 0) && g.head.nonce == nonce) {
                CHECK_EQ(g.head.type, from[i] == client[2] ? FISSION_GRANT : FISSION_ACQUIRE);
                return from[i] == client[2];
            }
    }
    CHECK_FAIL("a packet was lost");
}

static pid_t start_control(const char *pins, bool fresh)
{
    int ready[2];
    char c;
    CHECK_EQ(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        struct plane *p = rack_plane("fission", LOCKS, pins, fresh);
        rack_attach(p, PLANE_GENERIC);
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void end_control(pid_t pid)
{
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void survives(void)
{
    char bpf[LAB_PATH], pins[LAB_PATH + 8];
    rack_up("decider", 2, false);
    open_sockets();
    lab_bpf(&rack, bpf);
    snprintf(pins, sizeof pins, "%s/sw", bpf);
    pid_t pid = start_control(pins, false);
    CHECK(is_granted(1));
    end_control(pid);
    /* Without a control process the switch goes on. */
    CHECK(!is_granted(1));
    CHECK(is_granted(2));
    /* Other control processes take over, one after the other, while packets flow; locks stay held, and no packet is lost. */
    for (uint64_t round = 0; round < 3; round++) {
        pid_t traffic = fork();
        if (!traffic) {
            for (uint64_t i = 0; i < 150; i++)
                if (!is_granted(100 + round * 150 + i) || is_granted(1))
                    _exit(1);
            _exit(0);
        }
        int status;
        pid = start_control(pins, false);
        end_control(pid);
        CHECK_EQ(waitpid(traffic, &status, 0), traffic);
        CHECK_EQ(status, 0);
    }
    CHECK(!is_granted(1) && !is_granted(2));
    /* Begun anew, everything is free. */
    pid = start_control(pins, true);
    CHECK(is_granted(1));
    end_control(pid);
    struct plane *p = rack_plane("fission", LOCKS, pins, false);
    CHECK(plane_found(p));
    rack_attach(p, PLANE_GENERIC);
    plane_close(p, PLANE_REMOVE);
    CHECK(access(pins, F_OK));
    close_sockets();
    CHECK_EQ(lab_down(rack.name), 0);
}

int main(void)
{
    survives();
    for (int in_path = 0; in_path < 2; in_path++) {
        try_shape(in_path, PLANE_GENERIC);
        try_shape(in_path, PLANE_NATIVE);
    }
    return 0;
}
