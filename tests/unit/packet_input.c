/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of all packet designs, given what they do not expect. A call with a number that is not there is refused and changes
 * nothing. A packet that is too short or too long, of another family, version, space or machine, is dropped and counted. */
#include "cluster/coordinator.h"
#include "designs/packet/packet.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>

#define MACHINE 1
#define SESSIONS 2
#define REQUESTS 4
#define ALL (SESSIONS * REQUESTS)
#define LOCKS 10

static const char *const designs[] = {"srvlock", "netlock", "netlock-switches", "fisslock", "fisslock-stay", "fisslock-racks"};

static const struct packet_design *d;
static struct rack_config config;
static char *host, *before;
static struct outbox out;
static uint64_t now;

static void start(const char *name)
{
    const struct design *design = design_find(name);
    CHECK(design && design->packet);
    struct coord_params p = {.design = design,
                             .space = "test",
                             .locks = LOCKS,
                             .lease_ns = NS_PER_S,
                             .retry_ns = NS_PER_MS,
                             .machines = 3,
                             .sessions = SESSIONS,
                             .requests = REQUESTS,
                             .racks = packet_divides(design->packet) ? 2 : 0,
                             .life = 5,
                             .fresh = true};
    const char *why = NULL;
    p.servers = packet_divides(design->packet) && design->packet->server_bytes ? 2 : design->packet->server_bytes ? 1 : 0;
    if (coordinator_config(&p, &config, &why))
        CHECK_FAIL("%s: %s", name, why);
    d = design->packet;
    free(host);
    free(before);
    host = calloc(1, d->host_bytes(&config));
    before = malloc(d->host_bytes(&config));
    CHECK(host && before);
    now = 10 * NS_PER_S;
    outbox_clear(&out);
    d->host_init(host, &config, MACHINE, 5, now);
}

static void remember(void)
{
    memcpy(before, host, d->host_bytes(&config));
    outbox_clear(&out);
}

static bool unchanged(void)
{
    return !memcmp(before, host, d->host_bytes(&config)) && !out.packets && !out.wakes;
}

static int ask(uint32_t request, uint64_t index, enum pawl_mode mode)
{
    const struct packet_ask a = {.request = request, .port = 9, .mode = mode, .index = index};
    return d->acquire(host, &a, now, &out);
}

/* ---- calls ---- */

static void calls(const char *name)
{
    struct packet_answer answer;
    struct packet_claim claim;
    start(name);
    remember();
    CHECK(ask(0, LOCKS, PAWL_EXCLUSIVE) < 0);
    CHECK(ask(0, UINT64_MAX, PAWL_EXCLUSIVE) < 0);
    CHECK_EQ(d->release(host, 0, now, &out), -PAWL_ENOTOWNER);
    CHECK(d->give_up(host, 0, -ETIMEDOUT, now, &out) <= 0);
    if (d->convert)
        CHECK(d->convert(host, 0, PAWL_SHARED, now, &out) < 0);
    CHECK(!d->claim(host, ALL - 1, &claim));
    if (!unchanged())
        CHECK_FAIL("%s: a call that was refused has changed something", name);
    CHECK(d->idle(host, 0) && !d->holds(host, 0));

    CHECK_EQ(ask(0, 1, PAWL_EXCLUSIVE), PACKET_WAIT);
    CHECK(!d->idle(host, 0) && !d->holds(host, 0));
    CHECK(d->claim(host, 0, &claim) && claim.index == 1 && !claim.holds);
    remember();
    CHECK(d->release(host, 0, now, &out) < 0);
    CHECK_EQ(d->outcome(host, 0, &answer), -EINPROGRESS);
    if (!unchanged())
        CHECK_FAIL("%s: a call for a request that waits has changed something", name);
    d->session_dead(host, 0, now, &out);
    CHECK_EQ(d->outcome(host, 0, &answer), 0);
    CHECK(answer.result < 0 && !d->holds(host, 0));
    if (d->host_grants) {
        struct packet_grants g = d->host_grants(host);
        CHECK(!g.by_switch && !g.by_agent && !g.by_server && !g.local);
    }
    if (d->renew) { /* leases are asked for again: they were not given */
        outbox_clear(&out);
        d->renew(host, now + 2 * NS_PER_S, &out);
        CHECK(out.packets || !d->server_bytes);
    }
}

/* ---- packets ---- */

static uint64_t dropped(void)
{
    const struct packet_drops p = d->host_drops(host);
    return p.bad + p.alien + p.stale + p.unreadable;
}

static _Alignas(8) uint8_t packet[PACKET_MAX + 8];

/* The first packet that the host sent, as if another host of the rack had sent it here. */
static uint32_t echo(void)
{
    struct packet_head *h = (struct packet_head *)(void *)packet;
    uint32_t len = out.packet[0].len;
    memcpy(packet, outbox_packet(&out, 0), len);
    struct place to = h->to;
    h->to = h->from;
    h->from = to;
    return len;
}

static void hears(const char *name, const char *what, uint32_t len)
{
    uint64_t drops = dropped();
    struct packet_answer answer;
    outbox_clear(&out);
    d->packet(host, packet, len, now, &out);
    if (dropped() != drops + 1 || out.wakes || out.packets || !d->outcome(host, 0, &answer))
        CHECK_FAIL("%s: a packet %s was not dropped (%u packets, %u wakes)", name, what, out.packets, out.wakes);
}

static void packets(const char *name)
{
    start(name);
    CHECK_EQ(ask(0, 1, PAWL_EXCLUSIVE), PACKET_WAIT);
    for (unsigned i = 0; !out.packets && i < 100; i++, now += NS_PER_MS) /* some ask for a lease first */
        d->tick(host, now, &out);
    CHECK(out.packets);
    uint32_t len = echo();
    struct packet_head *h = (struct packet_head *)(void *)packet, good = *h;
    hears(name, "of no bytes", 0);
    hears(name, "shorter than its head", sizeof *h - 1);
    hears(name, "shorter than its family's", sizeof *h);
    hears(name, "longer than any", PACKET_MAX + 1);
    h->family ^= 1;
    hears(name, "of another family", len);
    *h = good;
    h->version++;
    hears(name, "of another version", len);
    *h = good;
    h->features ^= 0x80;
    hears(name, "with a feature that is not known", len);
    *h = good;
    h->from.machine = MACHINE_NONE;
    hears(name, "from no machine", len);
    *h = good;
    h->index = LOCKS;
    hears(name, "of no lock", len);
    *h = good;
    h->space += 1000;
    hears(name, "of another space", len);
    *h = good;
    h->to.machine++;
    hears(name, "for another machine", len);
    *h = good;
    h->type = 250;
    hears(name, "of no type", len);
    *h = good;
}

int main(void)
{
    for (unsigned i = 0; i < countof(designs); i++) {
        printf("%s\n", designs[i]);
        fflush(stdout);
        calls(designs[i]);
        packets(designs[i]);
    }
    free(host);
    free(before);
    return 0;
}
