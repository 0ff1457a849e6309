/* SPDX-License-Identifier: Apache-2.0 */
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

bool rebuild_reported(struct rebuild_lock *l, uint16_t machine, const struct fission_entry *e)
{
    uint32_t generation = fission_generation_of_place(e->client);
    if (generation != l->age.generation && (l->word & FISSION_WORD_HELD))
        return false;
    if (!fission_reported(&l->word, &l->token, machine, e->mode))
        return false;
    l->age.base = fission_base_of(l->age, generation, l->token);
    l->age.generation = generation;
    return true;
}

bool rebuild_report(struct rebuild *r, struct rebuild_lock *locks, uint64_t count, const struct fission_packet *p)
{
    uint16_t machine = p->head.from.machine;
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    if (!r->closed || machine > r->machines || r->state[machine] == REBUILD_SILENT)
        return false;
    /* A packet after the last one is a duplicate: the hold may have been released since. */
    for (unsigned i = 0; i < p->count && r->state[machine] == REBUILD_HEARD; i++) {
        struct fission_entry e = entries[i];
        bool known = e.nonce < count && e.mode >= FISSION_SHARED && e.mode <= FISSION_PLACE;
        bool news = known && !(locks[e.nonce].word & FISSION_WORD_HELD);
        if (known && rebuild_reported(&locks[e.nonce], machine, &e))
            r->held += news;
        else
            r->bad++;
    }
    if ((p->flags & FISSION_DONE) && r->state[machine] == REBUILD_HEARD)
        r->state[machine] = REBUILD_TOLD;
    return true;
}

bool rebuild_closed(struct rebuild *r, uint64_t now, bool (*lives)(const void *ctx, uint16_t machine, uint64_t now),
                    const void *ctx)
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

bool rebuild_clear(struct rebuild_lock *lock, uint32_t options, uint16_t heir, struct fission_packet *look)
{
    uint64_t token = __atomic_load_n(&lock->token, __ATOMIC_ACQUIRE); /* before the word: see fission_token_at */
    uint64_t word = __atomic_load_n(&lock->word, __ATOMIC_ACQUIRE), next = word;
    bool inherited = (word & FISSION_WORD_SHARED) && heir != MACHINE_NONE;
    struct fission_meta m;
    const struct fission_packet p = {.head = {.type = inherited ? FISSION_TAKE : FISSION_FREE},
                                     .client = {heir, PORT_POOL},
                                     .term = fission_word_term(word),
                                     .old_mode = FISSION_EXCLUSIVE};
    fission_decide(&p, &(struct fission_policy){.options = options}, &next, &token, &m);
    if (!__atomic_compare_exchange_n(&lock->word, &word, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&lock->token, token, __ATOMIC_RELEASE);
    *look = (struct fission_packet){.head = {.version = PACKET_VERSION,
                                             .family = PACKET_FISSION,
                                             .type = FISSION_LOOK,
                                             .generation = lock->age.generation,
                                             .from = {MACHINE_SWITCH, PORT_POOL},
                                             .to = {inherited ? heir : MACHINE_NONE, PORT_POOL}},
                                    .word = m.word,
                                    .token = m.token};
    return true;
}
