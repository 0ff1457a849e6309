/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's packets: whatever comes, a host, a server, the switch and the steward drop it or take it, stay within their memory, and
 * do not grant exclusively what another holds. The input is a list of packets; the first byte of each names the receiver and says
 * how its head is made. */
#include "designs/netlock/netlock.h"
#include "designs/netlock/server.h"
#include "designs/netlock/switch.h"
#include "designs/packet/chase.h"
#include "tests/check.h"
#include "tests/fuzz/queues.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct rack_config config = {
    .space = 7,
    .machines = 2,
    .sessions = 2,
    .requests = 4,
    .servers = 1,
    .server = {3},
    .locks = 4,
    .lease_ns = NS_PER_MS,
    .retry_ns = 10 * NS_PER_US,
    .options = NETLOCK_CHURN | NETLOCK_PRIORITY | NETLOCK_FEW | UINT64_C(64) << NETLOCK_SLOTS_SHIFT,
};

static void check_server(struct server *s)
{
    for (uint64_t index = 0; index < config.locks; index++) {
        const struct lock *l = server_lock(s, index);
        CHECK(l->holders <= 1 || l->mode == NETLOCK_SHARED);
        CHECK(l->place != LOCK_LENT || !l->holders);
    }
}

/* Carries heartbeats to the steward, and its answers back. */
static void carry_beats(void *w, void *server, void *steward, const struct outbox *said, uint64_t now)
{
    static struct outbox answers, more;
    for (unsigned i = 0; i < said->packets; i++) {
        const struct packet_head *h = outbox_packet(said, i);
        if (h->to.machine != MACHINE_STEWARD)
            continue;
        outbox_clear(&answers);
        outbox_clear(&more);
        netlock_steward_packet(steward, h, said->packet[i].len, now, &answers);
        for (unsigned j = 0; j < answers.packets; j++)
            if (h->from.machine == MACHINE_SWITCH)
                netlock_switch_packet(w, outbox_packet(&answers, j), answers.packet[j].len, now, &more);
            else
                netlock_server_packet(server, outbox_packet(&answers, j), answers.packet[j].len, now, &more);
    }
}

/* Keeps the longest that it was sent. */
static size_t apply(void *ctx, const pawl_work *w, void *reply, size_t room)
{
    uint32_t *longest = ctx;
    CHECK(w->len <= NETLOCK_PAYLOAD_MAX && room == NETLOCK_PAYLOAD_MAX && w->lock < config.locks);
    *longest = w->len > *longest ? w->len : *longest;
    memcpy(reply, w->bytes, w->len);
    return w->len;
}

/* Draws bytes for a data server, in most cases for one that exists. */
static void draw_data(struct netlock_packet *p)
{
    p->stamp = (p->stamp % 8) * NETLOCK_SERIAL_STEP + (p->stamp >> 8) % 9;
    if (p->data.machine % 4) {
        p->data = (struct place){3, PORT_SERVER};
        p->stamp += netlock_request_of(p->head.nonce) - netlock_request_of(p->stamp);
    }
    p->client.machine = p->client.machine % 4 ? p->client.machine % 4 : MACHINE_SWITCH;
    p->client.port %= 3;
    p->code %= 8;
    p->mode %= 4;
}

/* A packet with room for what may follow it. */
union drawn {
    struct netlock_packet p;
    uint8_t bytes[sizeof(struct netlock_packet) + NETLOCK_PAYLOAD_MAX + 64];
    struct {
        struct netlock_packet probe;
        struct chase_step step[4];
    };
};

#define DRAWN_BYTES (8 + sizeof(struct netlock_packet) - sizeof(struct packet_head)) /* of the input, for one packet */

static struct packet_head draw_head(const uint8_t *data)
{
    return (struct packet_head){.version = PACKET_VERSION,
                                .family = PACKET_NETLOCK,
                                .type = data[1],
                                .space = config.space,
                                .epoch = data[2] % 3,
                                .index = data[3] % 5,
                                .nonce = (data[4] % 8) * NETLOCK_SERIAL_STEP + data[5] % 9,
                                .from = {(uint16_t)(data[6] & 64   ? MACHINE_SWITCH
                                                    : data[6] & 32 ? MACHINE_STEWARD
                                                    : data[6] & 16 ? MACHINE_OPERATOR
                                                                   : data[6] % 5u),
                                         data[7] % 3},
                                .to = {(uint16_t)(data[0] & 16 ? MACHINE_SWITCH : 1u + data[0] % 3u), PORT_POOL}};
}

/* Draws the part that follows the packet, by its type; returns the whole length. */
static uint32_t draw_rest(union drawn *u, const uint8_t *data)
{
    const uint8_t how = data[0], *end = data + DRAWN_BYTES;
    uint32_t len = how & 128 ? how : (uint32_t)sizeof u->p + (how & 32 ? 64 : 0);
    bool brings = u->p.head.type == NETLOCK_ACQUIRE && u->p.flags & NETLOCK_PAYLOAD;
    if (brings || u->p.head.type == NETLOCK_DATA || u->p.head.type == NETLOCK_ANSWER) {
        draw_data(&u->p);
        len += how & 32 && !(how & 128) ? (uint32_t)end[-1] * 2 : 0;
    }
    if (u->p.head.type == NETLOCK_COMMAND) {
        memcpy(u->bytes + sizeof u->p, end - sizeof(struct netlock_command), sizeof(struct netlock_command));
        u->bytes[sizeof u->p] %= 6;
        len = NETLOCK_COMMAND_BYTES;
    }
    if (u->p.head.type == NETLOCK_PROBE || u->p.head.type == NETLOCK_CHASE) { /* a way of up to four steps */
        u->p.count = 1 + u->p.count % 4;
        u->p.room %= 5;
        for (uint32_t i = 0; i < u->p.count; i++)
            u->step[i] = (struct chase_step){.id = (end[(int)i - 8] % 8) * NETLOCK_SERIAL_STEP + end[(int)i - 4] % 8,
                                             .machine = 1 + i % 2,
                                             .kind = i % 2 ? 2 + end[(int)i - 8] % 3 : 1};
        len = sizeof u->p + u->p.count * sizeof u->step[0];
    }
    return len;
}

static uint32_t draw_packet(union drawn *u, const uint8_t *data)
{
    memset(u, 0, sizeof *u);
    u->p.head = draw_head(data);
    memcpy((uint8_t *)&u->p + sizeof u->p.head, data + 8, sizeof u->p - sizeof u->p.head);
    u->p.round %= 8;
    u->p.life %= 3;
    u->p.count %= 80;
    u->p.pushed %= 8;
    return draw_rest(u, data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outbox out;
    void *host = calloc(1, netlock_host_bytes(&config)), *w = calloc(1, netlock_switch_bytes(&config)),
         *server = calloc(1, netlock_server_bytes(&config)), *steward = calloc(1, netlock_steward_bytes(&config));
    CHECK(host && w && server && steward);
    uint64_t now = 1000;
    netlock_steward_init(steward, &config, 1, true, now);
    netlock_host_init(host, &config, 1, 1, now);
    netlock_switch_init(w, &config, 1, now);
    netlock_server_init(server, &config, 3, 1, true, now);
    uint32_t longest = 0;
    netlock_server_apply(server, apply, &longest);
    for (uint32_t i = 0; i < 4; i++) { /* requests that wait for answers */
        const struct packet_ask ask = {
            .request = i, .mode = PAWL_EXCLUSIVE, .index = i, .bytes = i % 2 ? &config : NULL, .len = 17 * i, .once = i == 3};
        netlock_acquire(host, &ask, now, &out);
    }
    for (; size >= DRAWN_BYTES; data += DRAWN_BYTES, size -= DRAWN_BYTES) {
        union drawn u;
        uint8_t how = data[0];
        uint32_t len = draw_packet(&u, data);
        now += (uint64_t)(how & 7) * NS_PER_US * 20;
        outbox_clear(&out);
        netlock_switch_tick(w, now, &out);
        netlock_server_tick(server, now, &out);
        carry_beats(w, server, steward, &out, now);
        outbox_clear(&out);
        switch (how >> 3 & 1 ? how % 4 : 0) {
        case 0:
            netlock_switch_packet(w, &u, len, now, &out);
            netlock_switch_tick(w, now, &out);
            break;
        case 1:
            netlock_server_packet(server, &u, len, now, &out);
            netlock_server_tick(server, now, &out);
            break;
        case 2:
            netlock_steward_packet(steward, &u, len, now, &out);
            break;
        default:
            netlock_host_packet(host, &u, len, now, &out);
            netlock_host_tick(host, now, &out);
            break;
        }
        check_queues(w, &config);
        check_server(server);
    }
    free(host);
    free(w);
    free(server);
    free(steward);
    return 0;
}
