/* What a host knows of wards: the epoch of each. One that has risen means that the server of the ward has forgotten what it
 * decided, and that nothing of the ward that this host has is true any more. */
#include "designs/fisslock/pool.h"
#include "designs/fisslock/spill.h"

uint32_t ward_epoch(const struct fisslock_host *h, uint64_t index)
{
    return h->wards ? h->ward_epoch[index % h->wards] : h->rules.epoch;
}

/* By which a packet is to be judged. */
struct fission_rules ward_rules(const struct fisslock_host *h, const void *data, uint32_t len)
{
    struct fission_rules rules = h->rules;
    if (len >= sizeof(struct packet_head))
        rules.epoch = ward_epoch(h, ((const struct packet_head *)data)->index);
    return rules;
}

static void lapse(struct event *e, unsigned ward)
{
    struct fisslock_host *h = e->h;
    h->reborn = true;
    h->counts.lapses++;
    edit(e, &h->census);
    if (h->census.id && h->census.index % h->wards == ward)
        h->census.id = 0;
    lease_forget_proofs(e);
    for (uint32_t i = 0; i < h->agents_touched && h->agents_used; i++)
        if (host_agent(h, i)->state != AGENT_NONE && host_agent(h, i)->index % h->wards == ward)
            pool_agent_free(e, host_agent(h, i));
    for (uint32_t i = 0; i < h->request_count; i++) {
        struct request *r = host_request(h, i);
        if (r->index % h->wards == ward)
            lease_lose(e, r);
    }
}

/* The epochs came with the lease, so that whoever has one knows them. `news`: all is forgotten anyway. */
void ward_heard(struct event *e, const struct fission_packet *p, bool news)
{
    struct fisslock_host *h = e->h;
    unsigned servers = h->config.servers;
    if (!p->count || !servers || p->count * sizeof(struct fission_entry) < servers * sizeof(uint32_t)) {
        edit(e, &h->wards);
        h->wards = 0; /* the switch has room for all */
        return;
    }
    bool knew = h->wards && !news;
    edit(e, &h->wards);
    edit(e, &h->ward_epoch);
    h->wards = (uint16_t)servers;
    for (unsigned i = 0; i < servers; i++) {
        uint32_t epoch;
        memcpy(&epoch, (const char *)(p + 1) + i * sizeof epoch, sizeof epoch);
        if (knew && epoch <= h->ward_epoch[i])
            continue;
        h->ward_epoch[i] = epoch;
        if (knew)
            lapse(e, i);
    }
}
