/* SPDX-License-Identifier: Apache-2.0 */
/* Values beside locks (values.h): a holder asks for the value of its lock, or sets it. */
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"

#include <errno.h>
#include <string.h>

/* Whether a client may hold the lock with this index and generation. */
static bool exists(const struct coordinator *c, const struct packet_head *h)
{
    if (!c->directory)
        return h->index < c->config.locks && !h->generation;
    uint64_t cell = directory_cell(c->directory, h->index);
    return cell < c->directory->count && c->directory->key[cell].state == DIRECTORY_USED &&
           c->directory->key[cell].generation == h->generation;
}

static int set(struct coordinator *c, struct value *v, const struct coord_value *p)
{
    if (p->packet.term != c->term)
        return -ESTALE; /* sent when another coordinator led, which may have told a later holder of the value */
    if (MISTAKE(c->config.mistakes, COORD_MISTAKE_LATE))
        v->floor = v->token = v->step = 0;
    return values_set(c->values, v, p->token, p->step, p->bytes, p->len);
}

uint32_t coord_on_value(struct coordinator *c, const struct coord_value *p, void *answer)
{
    struct coord_value *a = answer;
    struct value *v =
        c->values && exists(c, &p->packet.head) ? values_of(c->values, p->packet.head.index, p->packet.head.generation) : NULL;
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_VALUED, c->space, &c->config.identity, p->packet.head.nonce);
    a->packet.head.to = p->packet.head.from;
    a->packet.head.index = p->packet.head.index;
    a->packet.head.generation = p->packet.head.generation;
    a->packet.code = v ? 0 : -PAWL_ENOTOWNER;
    if (v && p->sets)
        a->packet.code = set(c, v, p);
    if (v && !p->sets) {
        value_read(v, p->token);
        a->packet.code = v->len ? 0 : -PAWL_ENOVALUE;
        a->len = v->len;
        memcpy(a->bytes, v->bytes, v->len);
    }
    assert(!v || a->packet.code == -ESTALE || v->floor >= p->token); /* I26 */
    c->unwritten = v && v->unwritten && c->logged;
    return sizeof *a;
}
