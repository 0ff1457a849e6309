/* SPDX-License-Identifier: Apache-2.0 */
/* Semaphores (beyond the paper): shared holds with a limit. A place is granted by the agent alone, in a shared tenure that is
 * closed to readers at the decider from its first packet to its last (fission_starves). So the agent knows all holders, and can
 * count them (I25). A tenure that was taken over, or that a decider made of the hosts' reports, is closed if the one before it was;
 * its agent grants nothing in it before a census has found the holders, which report their limit.
 *
 * In a tenure that is open, the decider may let readers in at any time. A place is not granted there: if there are holders the
 * request is refused, since those have no limit, and else the tenure ends, and one that is closed begins with the request. */
#include "designs/fisslock/host.h"

/* A shared request without a limit takes a place, too. */
enum places_say places_for(const struct fisslock_host *h, const struct agent *a, uint16_t limit)
{
    assert(a->right == FISSION_SHARED);
    bool wrong = MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_PLACES);
    if (!a->closed && !limit)
        return PLACES_GRANT;
    if (!a->closed)
        return a->holders.count ? PLACES_REFUSE : PLACES_MOVE;
    if (a->doubt && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_GUESS))
        return PLACES_FULL; /* as far as is known */
    if (limit && a->holders.count && a->limit != limit && !wrong)
        return PLACES_REFUSE;
    uint32_t most = a->holders.count ? a->limit : limit;
    return most && a->holders.count >= most + wrong ? PLACES_FULL : PLACES_GRANT;
}

struct fission_entry places_entry(const struct node *n)
{
    return (struct fission_entry){n->nonce, n->client, n->limit, n->limit ? FISSION_PLACE : n->mode, n->priority};
}

bool places_read(const struct fission_entry *entry, struct asking *out)
{
    bool place = entry->mode == FISSION_PLACE;
    *out = (struct asking){.nonce = entry->nonce,
                           .client = entry->client,
                           .mode = place ? FISSION_SHARED : entry->mode,
                           .priority = entry->priority,
                           .limit = place ? entry->inca : 0};
    return place ? entry->inca && entry->inca <= FISSION_LIMIT_MAX
                 : entry->mode == FISSION_SHARED || entry->mode == FISSION_EXCLUSIVE;
}

/* The holders have another limit, or none. Should the packet be lost, the client asks again. */
void places_refuse(struct event *e, const struct agent *a, uint64_t nonce, struct place client)
{
    if (client.machine == e->h->machine) {
        struct fiss_request *r = pool_request_of(e->h, nonce);
        if (r && r->index == a->index && r->state == FISS_WAITING)
            request_end(e, r, -PAWL_ELIMITS);
        return;
    }
    struct fission_packet *p = pool_packet(e, FISSION_REFUSED, a->index, nonce, 0);
    if (!p)
        return;
    p->head.to = p->client = client;
    p->term = a->term;
    p->mode = FISSION_PLACE;
}
