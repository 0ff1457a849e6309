/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AGAIN_NS (100 * NS_PER_MS)
#define PATIENCE_NS (3 * NS_PER_S)
#define TENANTS_MAX 65536u /* of a command: their numbers have 16 bits */

/* As long as its answer. */
union question {
    struct {
        struct netlock_packet p;
        struct netlock_command c;
    };
    uint8_t bytes[NETLOCK_COMMAND_BYTES];
};

static bool is_answer(const void *data, uint32_t len, const union question *q)
{
    const struct netlock_packet *a = data;
    return len == NETLOCK_COMMAND_BYTES && packet_readable(&a->head) && a->head.family == PACKET_NETLOCK &&
           a->head.type == NETLOCK_COMMANDED && a->head.space == q->p.head.space && a->head.nonce == q->p.head.nonce;
}

/* The short id of the switch's space, which it tells. */
static int ask_space(struct policy_switch *s)
{
    struct coord_packet q, a;
    struct net_addr self;
    const struct seal_asker asker = seal_asker(&s->ring);
    coord_make(&q, COORD_WHICH, s->space, NULL, world_random(&world_real) | 1);
    int rc = udp_source_for(s->at, &self);
    if (!rc)
        rc = exchange(s->at, &asker, self, &q, sizeof q, COORD_THIS, world_now(&world_real) + PATIENCE_NS, &a, sizeof a);
    if (!rc)
        s->id = a.head.space;
    return rc;
}

static int exchange_with(struct policy_switch *s, struct udp *udp, union question *q, struct netlock_status *out)
{
    static struct udp_batch batch;
    for (uint64_t end = world_now(&world_real) + PATIENCE_NS; world_now(&world_real) < end;) {
        q->p.head.to.port ^= 1; /* the original or its backup: the one that listens there takes its own */
        seal_prove(&s->ring, q, sizeof *q, &q->c.proof);
        const struct udp_out send = {.to = s->at, .len = sizeof *q, .data = q};
        udp_send(udp, &send, 1);
        unsigned n = udp_wait(udp, &batch, 0, world_now(&world_real) + AGAIN_NS);
        for (unsigned i = 0; i < n; i++)
            if (is_answer(batch.packet[i].data, batch.packet[i].len, q)) {
                const struct netlock_packet *a = (const struct netlock_packet *)(const void *)batch.packet[i].data;
                if (a->stamp != (uint64_t)-COORD_ANEW) {
                    memcpy(out, a + 1, sizeof *out);
                    return -(int)min_u64(a->stamp, 4095);
                }
                q->p.stamp = a->head.index; /* as a recorded command does not know it */
                q->p.head.to.port ^= 1;     /* the same receiver once more */
            }
    }
    return -ETIMEDOUT;
}

int policy_ask(struct policy_switch *s, const struct netlock_command *c, struct netlock_status *out)
{
    union question q;
    struct udp udp;
    struct net_addr self;
    int rc = s->id ? 0 : ask_space(s);
    if (!rc)
        rc = udp_source_for(s->at, &self);
    if (!rc)
        rc = udp_open(&udp, self);
    if (rc)
        return rc;
    memset(&q, 0, sizeof q);
    q.p.head = (struct packet_head){.version = PACKET_VERSION,
                                    .family = PACKET_NETLOCK,
                                    .type = NETLOCK_COMMAND,
                                    .space = s->id + s->rack, /* as rack_space_id() has it */
                                    .nonce = world_random(&world_real),
                                    .from = {MACHINE_OPERATOR, (uint16_t)world_random(&world_real)},
                                    .to = {MACHINE_SWITCH, PORT_POOL}};
    q.c = *c;
    udp.key = seal_asker(&s->ring).key;
    udp.opens = seal_known(&udp.key);
    rc = exchange_with(s, &udp, &q, out);
    udp_close(&udp);
    return rc;
}

void policy_quotas(struct policy_switch *s, struct json *j)
{
    struct netlock_command c = {.kind = NETLOCK_COMMAND_STATUS};
    struct netlock_status status;
    if (j)
        json_array(j, "quotas");
    for (; c.tenant < TENANTS_MAX && !policy_ask(s, &c, &status) && status.quota_rate; c.tenant = status.quota_tenant + 1) {
        if (!j) {
            printf("quota of tenant %-4" PRIu32 " %16" PRIu64 " requests a second, %" PRIu32 " at once\n", status.quota_tenant,
                   status.quota_rate, status.quota_burst);
            continue;
        }
        json_object(j, NULL);
        json_u64(j, "tenant", status.quota_tenant);
        json_u64(j, "rate", status.quota_rate);
        json_u64(j, "burst", status.quota_burst);
        json_end(j);
    }
    if (j)
        json_end(j);
}
