/* SPDX-License-Identifier: Apache-2.0 */
/* A lock server that keeps data. A deed, which a request brings or its holder sends, is done once, under the lock, and answered to
 * the host together with the grant (4.1). The application does the deed; this file decides when the data may be touched.
 *
 * Once: a host numbers its deeds, and has one per request at a time; the server keeps the latest number and the reply. A server
 * that lost its memory has another life, and does nothing that was meant for the one before. Under the lock: tokens rise with every
 * hold that excludes others, so a holder that comes with a lower token than one before it has lost the lock meanwhile. A deed that
 * comes late, but before the next holder, is as good as done in time. */
#include "designs/netlock/server.h"

void netlock_server_apply(void *server, pawl_apply apply, void *ctx)
{
    struct server *s = server;
    s->apply = apply;
    s->apply_ctx = ctx;
}

bool server_sound_data(const struct server *s, const struct netlock_packet *p, uint32_t len)
{
    return netlock_sound_payload(&s->config, p, len) && p->data.machine == s->machine;
}

static struct deed *deed_of(struct server *s, const struct netlock_packet *p)
{
    uint64_t i = (uint64_t)p->head.from.machine * rack_requests(&s->config) + netlock_request_of(p->stamp);
    return (struct deed *)(void *)((char *)s + s->at.deeds) + i;
}

static bool passes(struct server *s, const struct netlock_packet *p)
{
    struct fence *f = &server_lock(s, p->head.index)->fence;
    bool reads = p->mode == NETLOCK_SHARED;
    if (p->token < f->written || (!reads && p->token < f->read))
        return MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_FENCE);
    *(reads ? &f->read : &f->written) = reads ? max_u64(f->read, p->token) : p->token;
    return true;
}

static void do_it(struct server *s, const struct netlock_packet *p, uint32_t len, struct deed *d)
{
    assert(d->id != p->stamp || d->life != p->head.epoch || MISTAKES(s->config.mistakes)); /* I14: at most once */
    d->id = p->stamp;
    d->life = p->head.epoch;
    d->nonce = p->head.nonce;
    d->token = p->token;
    d->ticket = p->ticket;
    d->granter = p->client;
    d->granter_life = p->life;
    d->mode = p->mode;
    d->len = 0;
    d->code = p->flags & NETLOCK_VOID ? NETLOCK_VOIDED : passes(s, p) ? NETLOCK_DONE : NETLOCK_FENCED;
    if (d->code != NETLOCK_DONE)
        return;
    const pawl_work work = {.lock = p->head.index,
                            .generation = p->head.generation,
                            .token = p->token,
                            .mode = p->mode,
                            .len = len - (uint32_t)sizeof *p,
                            .bytes = p + 1};
    size_t replied = s->apply(s->apply_ctx, &work, d->bytes, sizeof d->bytes);
    assert(replied <= sizeof d->bytes);
    d->len = (uint16_t)replied;
}

static void answer(struct server *s, const struct netlock_packet *p, const struct deed *d, struct outbox *out)
{
    struct netlock_packet *a = outbox_add(out, (uint32_t)sizeof *a + d->len);
    if (!a)
        return; /* as if it were lost: asked for again */
    netlock_head(a, s->config.space, NETLOCK_ANSWER, s->life, (struct place){s->machine, PORT_SERVER}, p->head.from);
    a->head.index = p->head.index;
    a->head.nonce = d->nonce;
    a->stamp = p->stamp;
    a->code = d->code;
    a->mode = d->mode;
    a->token = d->token;
    a->ticket = d->ticket;
    a->client = d->granter;
    a->life = d->granter_life;
    memcpy(a + 1, d->bytes, d->len);
}

void server_on_data(struct server *s, const struct netlock_packet *p, uint32_t len, struct outbox *out)
{
    struct deed *d = deed_of(s, p);
    bool known = d->id && d->life == p->head.epoch;
    if (p->head.epoch < max_u64(s->clients[p->head.from.machine].life, d->life) || (known && (int64_t)(p->stamp - d->id) < 0)) {
        s->drops.stale++;
        return;
    }
    if (p->pushed != s->life || !s->apply) {
        const struct deed none = {
            .nonce = p->head.nonce, .code = p->pushed != s->life ? NETLOCK_FORGOTTEN : NETLOCK_NO_SERVICE, .mode = p->mode};
        answer(s, p, &none, out);
        return;
    }
    if (!known || d->id != p->stamp || (MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_TWICE) && !(p->flags & NETLOCK_VOID)))
        do_it(s, p, len, d);
    answer(s, p, d, out);
}

bool server_forwards(struct server *s, const struct entry *e, uint64_t token, struct outbox *out)
{
    const struct netlock_packet *p = s->carried;
    if (!p || p->head.nonce != e->nonce || p->head.from.machine != server_machine_of(s, e))
        return false;
    union {
        struct netlock_packet packet;
        uint8_t bytes[sizeof(struct netlock_packet) + NETLOCK_PAYLOAD_MAX];
    } own;
    bool mine = p->data.machine == s->machine;
    struct netlock_packet *d = mine ? &own.packet : outbox_add(out, s->carried_len);
    if (!d)
        return true; /* as if it were lost */
    netlock_to_data(d, p, s->carried_len, (struct place){s->machine, PORT_SERVER}, s->life);
    d->mode = e->mode;
    d->ticket = 0;
    d->token = token;
    if (mine)
        server_on_data(s, d, s->carried_len, out);
    return true;
}
