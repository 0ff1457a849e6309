#include "designs/fisslock/rebuild.h"
#include "lib/base.h"

#include <string.h>

void rebuild_begin(struct rebuild *r, uint16_t machines, uint64_t silent_until)
{
    assert(machines < REBUILD_MACHINES_MAX);
    memset(r, 0, sizeof *r);
    r->closed = true;
    r->machines = machines;
    r->silent_until = silent_until;
}

void rebuild_expect(struct rebuild *r, const uint64_t *machines, unsigned words)
{
    for (unsigned m = 1; m <= r->machines && m / 64 < words; m++)
        if (!(machines[m / 64] >> (m % 64) & 1) && r->state[m] == REBUILD_SILENT)
            r->state[m] = REBUILD_APART;
}

uint16_t rebuild_heard(struct rebuild *r, uint16_t machine)
{
    if (!r->closed || machine > r->machines)
        return 0;
    if (r->state[machine] == REBUILD_SILENT)
        r->state[machine] = REBUILD_HEARD;
    return r->state[machine] == REBUILD_APART ? FISSION_CLOSED | FISSION_DENIED : FISSION_CLOSED;
}

bool rebuild_report(struct rebuild *r, struct rebuild_lock *locks, uint64_t count, const struct fission_packet *p)
{
    uint16_t machine = p->head.from.machine;
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    if (!r->closed || machine > r->machines || r->state[machine] == REBUILD_SILENT)
        return false;
    /* What comes after the end is late: said before, and perhaps given back since. */
    for (unsigned i = 0; i < p->count && r->state[machine] == REBUILD_HEARD; i++) {
        struct fission_entry e = entries[i];
        bool known = e.nonce < count && (e.mode == FISSION_SHARED || e.mode == FISSION_EXCLUSIVE);
        if (known && fission_reported(&locks[e.nonce].word, &locks[e.nonce].token, machine, e.mode))
            r->holds++;
        else
            r->bad++;
    }
    if ((p->flags & FISSION_DONE) && r->state[machine] == REBUILD_HEARD)
        r->state[machine] = REBUILD_TOLD;
    return true;
}

bool rebuild_closed(struct rebuild *r, uint64_t now, bool (*lives)(const void *ctx, uint16_t machine, uint64_t now), const void *ctx)
{
    if (!r->closed)
        return false;
    for (uint16_t m = 1; m <= r->machines; m++) {
        if (r->state[m] == REBUILD_SILENT && now < r->silent_until)
            return true;
        if (r->state[m] == REBUILD_HEARD && lives(ctx, m, now))
            return true;
    }
    r->closed = false;
    return false;
}
