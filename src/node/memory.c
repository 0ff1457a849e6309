/* SPDX-License-Identifier: Apache-2.0 */
#include "node/memory.h"
#include "cluster/coordinator.h"
#include "lib/explain.h"
#include "pawl.h"
#include "world/world.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define LOOK_NS (50 * NS_PER_MS) /* how often it looks whether to stop, and at its clients */
#define CLIENTS_SPARE 16         /* beside twice the sessions: numbers of lost clients are given again when they are fenced */
#define LIFE_SHIFT 30            /* of world_birth: quarters of a second, of which 32 bits last until 2054 */

int memory_node_open(struct memory_node *m, const struct memory_node_params *p)
{
    char at[NET_ADDR_TEXT];
    memset(m, 0, sizeof *m);
    m->p = *p;
    m->udp.fd = -1;
    m->identity = coord_identity_of_name(p->space);
    m->p.layout.caps = MEMORY_NODE_CAPS;
    m->p.layout.birth = world_birth(&world_real);
    int rc = care_format(&m->care, &m->p.layout);
    if (rc == -EINVAL || rc == -EFBIG)
        return explain(rc, "the space would be too large, or a size is out of bounds: see --locks, --sessions and --holds");
    if (rc)
        return rc;
    /* Taken from the machine where it is first touched. */
    uint64_t bytes = m->care.header.total_bytes;
    m->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->memory == MAP_FAILED) {
        m->memory = NULL;
        return explain(-errno, "cannot map %llu bytes of lock memory: %s", (unsigned long long)bytes, strerror(errno));
    }
    memcpy(m->memory, &m->care.header, sizeof m->care.header);
    uint32_t clients = 2 * m->p.layout.sessions + CLIENTS_SPARE;
    const struct memnode_params node = {.space = p->space,
                                        .id = rack_short_id(&m->identity),
                                        .life = (uint32_t)(m->p.layout.birth >> LIFE_SHIFT),
                                        .lease_ns = p->layout.lease_ns,
                                        .clients = clients < MEMNODE_CLIENTS_MAX ? clients : MEMNODE_CLIENTS_MAX,
                                        .can = VERBS_CAN_ATOMIC128 | VERBS_CAN_MASKED | VERBS_CAN_WAIT,
                                        .memory = m->memory,
                                        .bytes = bytes};
    m->node = memnode_new(&node);
    rc = m->node ? udp_open(&m->udp, p->at) : -ENOMEM;
    net_addr_print(p->at, at);
    if (rc) {
        memory_node_close(m);
        return explain(rc, "cannot listen at %s: %s", at, strerror(-rc));
    }
    m->silent_until_ns = p->fresh ? 0 : care_silent_until(world_now(&world_real), p->layout.lease_ns);
    return 0;
}

void memory_node_close(struct memory_node *m)
{
    udp_close(&m->udp);
    memnode_free(m->node);
    if (m->memory)
        munmap(m->memory, m->care.header.total_bytes);
    m->node = NULL;
    m->memory = NULL;
}

/* A client that opens pawl:// asks for a coordinator first. It is told that here is a memory node. Echoes come back. */
static uint32_t answer_other(const struct memory_node *m, void *packet, uint32_t len)
{
    const struct packet_head *h = packet;
    if (len >= sizeof *h && len <= PACKET_MAX && packet_readable(h) && h->family == PACKET_ECHO)
        return h->type ? len : 0;
    const struct coord_packet *ask = coord_check(packet, len, 0);
    if (!ask || ask->head.type != COORD_JOIN)
        return 0;
    struct coord_packet answer;
    coord_make(&answer, COORD_REFUSED, m->p.space, &m->identity, ask->head.nonce);
    answer.code = strncmp(ask->space, m->p.space, sizeof ask->space) ? -ENOENT : -EPROTOTYPE;
    memcpy(answer.space, ask->space, sizeof answer.space);
    memcpy(packet, &answer, sizeof answer);
    return sizeof answer;
}

static_assert(sizeof(struct net_addr) == sizeof(struct memnode_from), "an address is what a packet came from");

static void send_wakes(struct memory_node *m)
{
    struct verbs_wait w;
    struct udp_out out = {.data = &w};
    struct memnode_from to;
    while ((out.len = memnode_more(m->node, &w, &to))) {
        memcpy(&out.to, &to, sizeof out.to);
        udp_send(&m->udp, &out, 1);
    }
}

static void look_around(struct memory_node *m, uint64_t now)
{
    if (!m->ready && now >= m->silent_until_ns) {
        m->ready = true;
        memnode_ready(m->node);
    }
    if (now >= m->tick_ns) {
        memnode_tick(m->node, now);
        m->tick_ns = now + min_u64(LOOK_NS, m->p.layout.lease_ns / 8);
    }
}

void memory_node_run(struct memory_node *m, const volatile sig_atomic_t *stop)
{
    static _Thread_local struct udp_batch batch;
    look_around(m, world_now(&world_real));
    while (!*stop) {
        struct udp_out out[UDP_BATCH];
        unsigned n = udp_wait(&m->udp, &batch, m->p.spin_ns, world_now(&world_real) + LOOK_NS), count = 0;
        uint64_t now = world_now(&world_real);
        for (unsigned i = 0; i < n; i++) {
            uint8_t *data = batch.packet[i].data;
            struct memnode_from from;
            memcpy(&from, &batch.packet[i].from, sizeof from);
            uint32_t len = batch.packet[i].len;
            bool verbs = len >= sizeof(struct verbs_head) && data[0] == VERBS_MAGIC;
            uint64_t random = verbs && data[2] == VERBS_CONNECT ? world_random(&world_real) : 0;
            len = verbs ? memnode_packet(m->node, data, len, &from, now, random) : answer_other(m, data, len);
            if (len)
                out[count++] = (struct udp_out){.to = batch.packet[i].from, .len = len, .data = data};
        }
        udp_send(&m->udp, out, count);
        send_wakes(m);
        look_around(m, now); /* after the packets: clients that were heard of are not silent */
    }
}
