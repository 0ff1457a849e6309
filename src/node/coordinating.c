/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "cluster/seals.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_NS (100 * NS_PER_MS) /* how often whether to stop */
#define LOOKS 8u                  /* of a coordinator that stands by, in a lease */

#define ANSWER_NS NS_PER_S /* in which a member that lives answers */

/* Of one address. A host's clients ask for names one after the other, each a thousand times a second at most. */
#define PACKETS_PER_S 50000u
#define PACKETS_AT_ONCE 20000u

/* ---- packets in ---- */

static unsigned open_all(const struct coordinating *c, struct udp_batch *batch, unsigned count)
{
    for (unsigned i = 0; i < count && c->ring.count; i++)
        seals_open(&c->ring, batch->packet[i].data, batch->packet[i].len, &batch->packet[i].key);
    return count;
}

/* Waits for packets until then, CLOCK_MONOTONIC. In a service its thread reads the socket. */
static unsigned receive(struct coordinating *c, struct udp_batch *batch, uint64_t deadline)
{
    return c->box ? mailbox_wait(c->box, batch, deadline) : open_all(c, batch, udp_wait(&c->udp, batch, 0, deadline));
}

static unsigned receive_more(struct coordinating *c, struct udp_batch *batch)
{
    return c->box ? mailbox_wait(c->box, batch, 0) : open_all(c, batch, udp_receive(&c->udp, batch));
}

/* Whether a packet counts: there is no key, or one has opened it. A question hears why not. */
static bool is_open(struct coordinating *c, const struct udp_batch *batch, unsigned i)
{
    const void *data = batch->packet[i].data;
    uint32_t len = batch->packet[i].len;
    bool tagged = seal_is_tagged(data, len);
    if (c->ring.count ? seal_known(&batch->packet[i].key) : !tagged)
        return true;
    struct coord_packet answer;
    const struct udp_out out = {.to = batch->packet[i].from,
                                .len = seals_refuse(data, len, c->ring.count ? COORD_WRONG_KEY : COORD_NO_KEY, &answer),
                                .data = &answer};
    struct udp plain = c->udp;
    plain.key = (struct seal_key){.k = {0}};
    if (out.len)
        udp_send(&plain, &out, 1);
    return false;
}

static const struct seal_key *key_of(const struct udp_batch *batch, unsigned i)
{
    return seal_known(&batch->packet[i].key) ? &batch->packet[i].key : NULL;
}

static bool is_of(const struct coord_packet *p, enum coord_type type, const char *space)
{
    return p && p->head.type == type && !strncmp(p->space, space, sizeof p->space);
}

/* Whether members of a space with this name send heartbeats to this address: then another coordinator had it, and they may hold
 * locks. Lock servers and switches are heard within a tenth of a second, hosts within a quarter of their lease. A heartbeat may
 * be late, and its sender gone: its sender is asked, and the answer counts. */
static bool has_members(struct coordinating *c, const struct coord_params *p, struct net_addr *member)
{
    static _Thread_local struct udp_batch batch;
    uint64_t now = world_now(&world_real), end = now + (c->listen_ns ? c->listen_ns : min_u64(LOOK_NS + p->lease_ns / 3, NS_PER_S)),
             nonce = world_random(&world_real);
    struct coord_packet which;
    coord_make(&which, COORD_WHICH, p->space, NULL, nonce);
    bool asked = false;
    for (; now < end && !*c->stop; now = world_now(&world_real)) {
        unsigned n = receive(c, &batch, min_u64(end, now + LOOK_NS));
        for (unsigned i = 0; i < n; i++) {
            const struct coord_packet *k = coord_check(batch.packet[i].data, batch.packet[i].len, 0);
            if (is_of(k, COORD_THIS, p->space) && k->head.nonce == nonce) {
                *member = batch.packet[i].from;
                return true;
            }
            if (!is_of(k, COORD_BEAT, p->space))
                continue;
            const struct udp_out question = {
                .to = batch.packet[i].from, .len = sizeof which, .data = &which, .key = key_of(&batch, i)};
            udp_send(&c->udp, &question, 1);
            if (!asked)
                end = world_now(&world_real) + ANSWER_NS;
            asked = true;
        }
    }
    return false;
}

/* ---- opening ---- */

static int open_service(struct coordinating *c)
{
    int rc = service_open(&c->service, &c->params, &c->state, host_now());
    c->leads = !rc;
    c->service.coordinator.own = c->udp.at;
    c->service.coordinator.keyed = c->ring.count;
    if (!rc)
        c->params.locks = c->service.coordinator.config.locks;
    if (!rc && c->etcd) { /* the next time it goes on with what is there */
        c->state.how = STORE_CONTINUE;
        c->params.fresh = false;
        c->params.follows = true;
    }
    return rc;
}

static void close_service(struct coordinating *c)
{
    service_close(&c->service);
    c->leads = false;
    watch_forget(&c->watch);
}

/* ---- with etcd ---- */

__attribute__((format(printf, 2, 3))) static void report(const struct coordinating *c, const char *format, ...)
{
    char text[LEADER_PLACE_LEN + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->etcd->report(c->params.space, text);
}

static bool is_passing(int rc)
{
    return rc == -ESTALE || rc == -ETIMEDOUT || rc == -EBUSY || rc == -ECONNREFUSED || rc == -EIO || rc == -ENOSPC;
}

/* Waits until the coordinator that leads, if one does, has been silent for its lease; -EBUSY: it is not silent. */
static int wait_for_vacancy(struct coordinating *c)
{
    struct leader *l = &c->store.leader;
    uint64_t beat = 0;
    for (;;) {
        int rc = store_etcd_look(&c->store, host_now() + l->lease_ns);
        if (rc || leader_is_vacant(l))
            return rc;
        if (beat && beat != l->seen.beat_revision) {
            char at[NET_ADDR_TEXT];
            net_addr_print(l->seen.term.at, at);
            return explain(-EBUSY,
                           "%s: the coordinator at %s leads the space '%s'. Stop all of its coordinators first; or start without "
                           "--fresh and --restore, to stand by",
                           l->place, at, c->params.space);
        }
        beat = l->seen.beat_revision;
        if (*c->stop)
            return -EINTR;
        l->etcd->ops->pause(l->etcd, l->lease_ns / LOOKS);
    }
}

static struct leader_params leader_params(const struct coordinating_etcd *e, const char *space)
{
    return (struct leader_params){.etcd = e->etcd,
                                  .prefix = e->prefix,
                                  .space = space,
                                  .place = e->place,
                                  .lease_ns = e->lease_ns,
                                  .nonce = world_random(&world_real) | 1};
}

int coordinating_settings(const struct coordinating_etcd *e, const char *space, struct state_config *settings)
{
    const struct leader_params p = leader_params(e, space);
    struct store_etcd *store = calloc(1, sizeof *store);
    if (!store)
        return explain(-ENOMEM, "out of memory");
    int rc = leader_open(&store->leader, &p);
    if (!rc)
        rc = service_settings_etcd(store, space, settings);
    free(store);
    return rc;
}

/* A new state, or one that is restored, needs the leader's place at once. A coordinator that goes on with what is there checks that
 * it could, and stands by. */
static int leading_open(struct coordinating *c)
{
    struct leader_params p = leader_params(c->etcd, c->params.space);
    p.at = net_addr_known(c->udp.at) ? c->udp.at : (struct net_addr){.port = 0};
    p.mistakes = c->params.mistakes;
    int rc = leader_open(&c->store.leader, &p);
    c->state.etcd = &c->store;
    if (!rc && c->state.how == STORE_CONTINUE) {
        rc = service_peek(&c->params, &c->state);
        c->params.follows = true;
        return rc;
    }
    if (rc)
        return rc;
    rc = wait_for_vacancy(c);
    if (!rc)
        rc = leader_take(&c->store.leader);
    return rc ? rc : open_service(c);
}

static void publish(struct coordinating *c, unsigned hosts);
static void publish_figures(struct coordinating *c, unsigned hosts);

static void answer_questions(struct coordinating *c)
{
    static _Thread_local struct udp_batch batch;
    static _Thread_local _Alignas(8) uint8_t answer[PACKET_MAX];
    const struct leader *l = &c->store.leader;
    unsigned n = receive(c, &batch, world_now(&world_real) + l->lease_ns / LOOKS);
    for (unsigned i = 0; i < n; i++) {
        struct udp_out out = {.to = batch.packet[i].from, .data = answer, .key = key_of(&batch, i)};
        if (!is_open(c, &batch, i))
            continue;
        out.len = coord_stand_by(batch.packet[i].data, batch.packet[i].len, c->store.identity.id, c->params.space,
                                 l->seen.term.lease_ns ? l->seen.term.at : (struct net_addr){.port = 0}, answer);
        if (out.len)
            udp_send(&c->udp, &out, 1);
    }
}

/* Until it leads, or is stopped. */
static void leading_stand_by(struct coordinating *c)
{
    struct leader *l = &c->store.leader;
    bool led = c->leads, lost = false;
    close_service(c);
    pthread_mutex_lock(&c->looking);
    c->status.leads = false;
    pthread_mutex_unlock(&c->looking);
    if (led)
        report(c, "stands by: %s", explained());
    for (uint64_t look_ns = 0; !*c->stop && !c->leads && !c->ended;) {
        answer_questions(c);
        publish_figures(c, 0);
        if (host_now() < look_ns)
            continue;
        int rc = store_etcd_look(&c->store, host_now() + l->lease_ns / 4);
        look_ns = host_now() + l->lease_ns / LOOKS;
        if (!rc && leader_is_vacant(l)) {
            rc = leader_take(l);
            rc = rc ? rc : open_service(c);
            if (rc)
                close_service(c);
        }
        if (rc && !is_passing(rc)) {
            __atomic_store_n(&c->ended, rc, __ATOMIC_RELEASE);
            report(c, "ends: %s", explained());
        }
        bool silent = rc && rc != -EBUSY && rc != -ESTALE;
        if (silent && !lost)
            report(c, "stands by, and etcd does not answer: %s", explained());
        if (lost && !silent)
            report(c, "etcd answers again");
        lost = silent;
    }
    if (c->leads)
        report(c, "leads, with term %" PRIu64, l->number);
}

int coordinating_listen(struct udp *udp, struct net_addr at)
{
    int rc = udp_open(udp, at);
    if (!rc)
        return 0;
    char text[NET_ADDR_TEXT];
    net_addr_print(at, text);
    udp->fd = -1;
    return explain(rc, "cannot listen at %s: %s (--listen; 'ss -lunp' shows the process that has a port)", text, pawl_strerror(rc));
}

int coordinating_open(struct coordinating *c, const struct coord_params *params, const struct state_params *state,
                      struct net_addr at)
{
    const struct state_params nowhere = {.how = STORE_FRESH};
    const volatile sig_atomic_t *stop = c->stop;
    const struct coordinating_etcd *etcd = c->etcd;
    struct mailbox *box = c->box;
    const struct udp udp = c->udp;
    uint64_t listen_ns = c->listen_ns;
    const struct seal_ring ring = c->ring;
    memset(c, 0, sizeof *c);
    c->stop = stop;
    c->etcd = etcd;
    c->box = box;
    c->listen_ns = listen_ns;
    c->ring = ring;
    c->udp = box ? udp : (struct udp){.fd = -1};
    c->params = *params;
    c->state = state ? *state : nowhere;
    int rc = box ? 0 : coordinating_listen(&c->udp, at); /* first: a coordinator that cannot listen leaves the state alone */
    if (rc)
        return rc;
    c->udp.key = ring.count ? seal_asker(&ring).key : (struct seal_key){.k = {0}};
    struct net_addr member;
    if (state && state->how == STORE_FRESH && at.port && has_members(c, params, &member)) {
        char text[NET_ADDR_TEXT];
        net_addr_print(member, text);
        rc = explain(-EADDRINUSE,
                     "members of a space '%s' send heartbeats to this address, one of them from %s: they may hold locks. Stop them "
                     "before a new space begins; or start without --fresh, with the state of their space",
                     params->space, text);
    }
    if (!rc)
        rc = c->etcd ? leading_open(c) : open_service(c);
    if (rc)
        coordinating_close(c);
    else if (c->leads)
        publish(c, 0);
    return rc;
}

/* For the steward, which answers the sender. */
static void one_packet(struct coordinating *c, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key)
{
    const struct outbox *o = service_steward_packet(&c->service, data, len, host_now());
    for (unsigned i = 0; i < o->packets; i++) {
        const struct udp_out out = {.to = from, .len = o->packet[i].len, .data = outbox_packet(o, i), .key = key};
        udp_send(&c->udp, &out, 1);
    }
}

#define TOGETHER (4 * UDP_BATCH) /* answers that wait for one sync of the log: twice as many as the clients of a usual host */

/* Lock servers and switches hear of a host before it hears that it has joined. */
static void send_news(struct coordinating *c, const struct service_answer *answers, unsigned count)
{
    static _Thread_local _Alignas(8) uint8_t bytes[PACKET_MAX];
    for (unsigned i = 0; i < count; i++) {
        const struct coord_packet *p = (const struct coord_packet *)(const void *)answers[i].bytes;
        struct udp_out out = {.data = bytes};
        if (p->head.type != COORD_WELCOME || p->role != COORD_HOST)
            continue;
        for (unsigned s = 0; (out.len = coordinator_news(&c->service.coordinator, p->head.to.machine, &s, bytes, &out.to));)
            udp_send(&c->udp, &out, 1);
    }
}

static void send_answers(struct coordinating *c, const struct service_answer *answers, unsigned count)
{
    struct udp_out out[UDP_BATCH];
    uint64_t now = host_now();
    send_news(c, answers, count);
    for (unsigned sent = 0; sent < count; sent += UDP_BATCH) {
        unsigned n = (unsigned)min_u64(UDP_BATCH, count - sent);
        for (unsigned i = 0; i < n; i++) {
            const struct service_answer *a = &answers[sent + i];
            out[i] = (struct udp_out){.to = a->to, .len = a->len, .data = a->bytes, .key = seal_known(&a->key) ? &a->key : NULL};
            watch_answer(&c->watch, c->params.space, answers[sent + i].bytes, answers[sent + i].to, now);
        }
        udp_send(&c->udp, out, n);
    }
}

/* Changes by an operator, done or refused: shards that move, sessions that are broken. Refusals are logged seldom: any sender can
 * cause them. So are questions about a change that has begun. A command that is to come again, with the number of the answer, is
 * not refused yet. */
static void say_command(struct coordinating *c, const struct coord_packet *ask, const void *answer, struct net_addr from,
                        uint64_t now)
{
    const struct coord_packet *a = answer;
    char at[NET_ADDR_TEXT];
    uint64_t withheld = 0;
    bool breaks = ask->head.type == COORD_BREAK, begun = a->code == -EINPROGRESS;
    if (ask->head.family != PACKET_COORDINATOR || (!breaks && (ask->head.type != COORD_RULES || ask->code != 1)) ||
        a->code == COORD_ANEW || (a->code && !log_may(begun ? &c->begun : &c->refusals, now, &withheld)))
        return;
    enum log_level level = a->code && !begun ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE;
    bool shut = a->code == COORD_ADMIN_ONLY;
    const char *why = shut                ? "it came with the cluster's key, and needs the admin key"
                      : a->code && !begun ? pawl_strerror(a->code)
                                          : "an operator asked for it";
    const char *key = ask->head.from.port ? "host" : seal_role(&c->ring, !shut);
    net_addr_print(from, at);
    if (breaks)
        log_event(level, a->code ? "session not broken" : "session broken", LOG_TEXT("space", c->params.space),
                  LOG_TEXT("from", at), LOG_TEXT("key", key), LOG_NUMBER("host", ask->head.to.machine),
                  LOG_NUMBER("session", ask->role), LOG_NUMBER("pid", ask->stamp), LOG_NUMBER("lock", ask->head.index),
                  LOG_NUMBER("withheld", withheld), LOG_TEXT("why", why));
    else
        log_event(level,
                  begun     ? "rules begin to change"
                  : a->code ? "rules not changed"
                            : "rules changed",
                  LOG_TEXT("space", c->params.space), LOG_TEXT("from", at), LOG_TEXT("key", key),
                  LOG_NUMBER("first", ask->head.index), LOG_NUMBER("end", ask->head.generation),
                  LOG_NUMBER("rack", ask->role + UINT64_C(1)), LOG_NUMBER("withheld", withheld), LOG_TEXT("why", why));
}

/* A command without the admin key. */
static void refuse_command(struct coordinating *c, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key)
{
    struct coord_packet answer;
    const struct udp_out out = {.to = from, .len = seals_refuse(data, len, COORD_ADMIN_ONLY, &answer), .data = &answer, .key = key};
    if (!out.len)
        return;
    udp_send(&c->udp, &out, 1);
    say_command(c, data, &answer, from, host_now());
}

/* The packets of a batch. How many answers there are. */
static unsigned take_batch(struct coordinating *c, const struct udp_batch *batch, struct service_answer *answers)
{
    unsigned count = 0;
    uint64_t now = host_now();
    for (unsigned i = 0; i < batch->count; i++) {
        const void *data = batch->packet[i].data;
        uint32_t len = coord_unpadded(data, batch->packet[i].len);
        struct net_addr from = batch->packet[i].from;
        if (!is_open(c, batch, i)) {
            c->service.coordinator.drops.untagged++;
            continue;
        }
        c->service.coordinator.drops.bad += !len;
        if (!len)
            continue;
        if (!limits_take(&c->packets, from, PACKETS_PER_S, PACKETS_AT_ONCE, now)) {
            c->service.coordinator.drops.limited++;
            continue;
        }
        if (!seals_admit(&c->ring, data, len)) {
            c->service.coordinator.drops.not_admin++;
            refuse_command(c, data, batch->packet[i].len, from, &batch->packet[i].key);
        } else if (service_is_for_steward(&c->service, data, len))
            one_packet(c, data, len, from, key_of(batch, i));
        else if (service_packet(&c->service, data, len, from, host_now(), &answers[count])) {
            answers[count].key = batch->packet[i].key;
            seals_hand_out(&c->ring, &answers[count].key, data, answers[count].bytes);
            say_command(c, data, answers[count].bytes, from, now);
            count++;
        }
    }
    return count;
}

/* For other threads. */
static void publish(struct coordinating *c, unsigned hosts)
{
    struct coordinator *k = &c->service.coordinator;
    const struct coord_station *s = &k->switch_[0];
    struct coordinating_status now = {.leads = true,
                                      .hosts = hosts,
                                      .keys_used = k->directory ? k->directory->used : 0,
                                      .config = k->config,
                                      .granter = s->away ? (struct net_addr){.port = 0} : s->at,
                                      .yield = k->yield,
                                      .vacant = s->stopped && !s->away};
    if (!k->design->packet->switch_packet)
        now.granter = k->server[0].at;
    pthread_mutex_lock(&c->looking);
    c->status = now;
    k->own_switch = c->own_switch;
    pthread_mutex_unlock(&c->looking);
}

static void publish_figures(struct coordinating *c, unsigned hosts)
{
    const struct service *s = &c->service;
    const struct coordinator *k = &s->coordinator;
    uint64_t now = host_now();
    struct figures_part p = {.kind = FIGURES_COORDINATOR, .ready = true, .at = c->udp.at};
    struct coordinator_figures *f = &p.coordinator;
    if (!figures_due(&c->board, now))
        return;
    *f = (struct coordinator_figures){.leads = c->leads, .stands_by = !c->leads, .watch = c->watch.counts};
    if (c->leads) {
        bool switches = k->design->packet->switch_packet;
        f->term = k->term;
        f->hosts = hosts;
        f->hosts_max = k->config.machines;
        f->keys = k->directory ? k->directory->used : 0;
        f->locks = k->config.locks;
        f->drops = k->drops;
        f->drops.forged += __atomic_load_n(&c->refused_commands[0], __ATOMIC_ACQUIRE);
        f->drops.not_admin += __atomic_load_n(&c->refused_commands[1], __ATOMIC_ACQUIRE);
        f->granters = watch_granters(&c->watch);
        f->granters_wanted = k->config.servers + (switches ? max_u64(k->config.racks, 1) : 0);
        f->appends_failed = s->failed;
        f->appended_bytes = s->store ? s->store->since_snapshot : 0;
        f->log_bytes = s->store && !s->etcd ? s->file.end : 0;
        p.ready = f->granters >= f->granters_wanted;
    }
    if (c->box)
        mailbox_count(c->box, &f->mailbox_waiting, &f->mailbox_lost);
    snprintf(p.space, sizeof p.space, "%s", c->params.space);
    snprintf(p.design, sizeof p.design, "%s", c->params.design->name);
    figures_publish(&c->board, &p);
}

void coordinating_own_switch(struct coordinating *c, struct net_addr at)
{
    pthread_mutex_lock(&c->looking);
    c->own_switch = at;
    pthread_mutex_unlock(&c->looking);
}

struct coordinating_status coordinating_status(struct coordinating *c)
{
    pthread_mutex_lock(&c->looking);
    struct coordinating_status now = c->status;
    pthread_mutex_unlock(&c->looking);
    return now;
}

/* Packets for hosts that did not ask. A host has one of the keys. */
static void send_more(struct coordinating *c, uint8_t *bytes)
{
    struct udp_out more = {.data = bytes};
    while ((more.len = coordinator_more(&c->service.coordinator, bytes, &more.to)))
        for (unsigned i = 0; i < max_u64(c->ring.count, 1); i++) {
            struct seal_key key;
            if (c->ring.count) {
                key = seals_for_host(&c->ring, i, bytes);
                more.key = &key;
            }
            udp_send(&c->udp, &more, 1);
        }
}

/* Until it is stopped, or leads no more. */
static void lead(struct coordinating *c)
{
    static _Thread_local struct udp_batch batch;
    static _Thread_local struct service_answer answers[TOGETHER];
    while (!*c->stop && service_leads(&c->service)) {
        unsigned n = receive(c, &batch, world_now(&world_real) + LOOK_NS), count = 0;
        for (; n; n = count + UDP_BATCH <= TOGETHER ? receive_more(c, &batch) : 0)
            count += take_batch(c, &batch, &answers[count]);
        send_answers(c, answers, service_commit(&c->service, answers, count, host_now()));
        send_more(c, answers[0].bytes);
        unsigned hosts = coordinator_tick(&c->service.coordinator, host_now());
        publish(c, hosts);
        watch_service(&c->watch, &c->service, host_now());
        publish_figures(c, hosts);
        service_steward_tick(&c->service, host_now());
    }
}

void coordinating_run(struct coordinating *c)
{
    figures_show(&c->board);
    while (!*c->stop && !c->ended) {
        if (c->leads)
            lead(c);
        if (c->etcd && !*c->stop)
            leading_stand_by(c);
    }
    figures_hide(&c->board);
}

int coordinating_grow(struct coordinating *c, uint64_t locks)
{
    uint64_t before = c->params.locks;
    assert(c->leads);
    service_commit(&c->service, NULL, 0, host_now()); /* hosts that have left */
    close_service(c);
    c->params.locks = locks;
    c->params.fresh = false;
    c->state.how = STORE_CONTINUE;
    int rc = open_service(c);
    if (!rc)
        return 0;
    char why[512];
    snprintf(why, sizeof why, "%s", explained());
    close_service(c);
    c->params.locks = before;
    int back = c->etcd ? 0 : open_service(c); /* with etcd it stands by, and the next leader reads the log */
    return back ? back : explain(rc, "%s", why);
}

void coordinating_close(struct coordinating *c)
{
    if (!c->box)
        udp_close(&c->udp);
    close_service(c);
    if (c->etcd && c->store.leader.etcd)
        leader_resign(&c->store.leader);
}
