/* The decider on words in memory, 16 bytes per lock. */
#include "dataplane/fission.h"
#include "designs/fisslock/fisslock.h"

#define TOKEN_EPOCH_SHIFT                                                                                                          \
    32 /* what was granted before the state was last lost lies below: lives are counted in quarters of a second */

struct decider {
    struct fission_rules rules;
    struct packet_drops drops;
    uint32_t options;
    uint64_t locks;
    uint64_t asked[(UINT16_MAX + 1) / 64]; /* a bit per machine */
    struct {
        uint64_t word, token;
    } lock[];
};

uint64_t fisslock_switch_bytes(const struct rack_config *config)
{
    return sizeof(struct decider) + config->locks * sizeof(((struct decider *)NULL)->lock[0]);
}

void fisslock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now)
{
    struct decider *d = state;
    d->rules = (struct fission_rules){.space = config->space, .machines = config->machines, .locks = config->locks};
    d->drops = (struct packet_drops){0};
    d->options = (uint32_t)config->options;
    d->locks = config->locks;
    memset(d->asked, 0, sizeof d->asked);
    for (uint64_t i = 0; i < d->locks; i++) {
        d->lock[i].word = 0;
        d->lock[i].token = (uint64_t)life << TOKEN_EPOCH_SHIFT;
    }
}

static void emit(struct outbox *out, const void *data, uint32_t len, uint32_t options, const struct fission_meta *m, uint32_t dest)
{
    struct fission_packet *p = outbox_add(out, len);
    if (!p)
        return;
    memcpy(p, data, len);
    if (m)
        fission_rewrite(p, options, m, dest);
}

/* Whether it was answered here. */
static bool answered(struct decider *d, const struct fission_packet *p, uint32_t len, struct outbox *out)
{
    uint16_t machine = fission_presence_of(p);
    uint64_t *word = &d->asked[machine / 64], bit = UINT64_C(1) << (machine % 64);
    bool asked = *word & bit;
    bool absent = machine != MACHINE_NONE && fission_absent(p, &asked);
    if (asked && machine != MACHINE_NONE)
        *word |= bit;
    struct fission_packet *answer = absent ? outbox_add(out, len) : NULL;
    if (answer) {
        memcpy(answer, p, len);
        fission_answer_for_absent(answer);
    }
    return absent;
}

void fisslock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct decider *d = state;
    const struct fission_packet *p = data;
    struct fission_meta m;
    enum fission_fault fault = fission_verify(data, len, &d->rules);
    if (fault != FISSION_FINE) {
        ++*(fault == FISSION_BAD ? &d->drops.bad : fault == FISSION_ALIEN ? &d->drops.alien : &d->drops.stale);
        return;
    }
    if (answered(d, p, len, out))
        return;
    if (!fission_concerns_lock(p)) {
        emit(out, data, len, d->options, NULL, 0);
        return;
    }
    uint64_t index = p->head.index;
    uint32_t dest = fission_decide(p, d->options, &d->lock[index].word, &d->lock[index].token, &m);
    for (uint32_t one = FISSION_TO_CLIENT; one <= FISSION_BACK; one <<= 1)
        if (dest & one)
            emit(out, data, len, d->options, &m, one);
}

const struct packet_drops *fisslock_switch_drops(const void *state)
{
    return &((const struct decider *)state)->drops;
}

uint64_t fisslock_switch_word(const void *state, uint64_t index)
{
    return ((const struct decider *)state)->lock[index].word;
}
