#include "designs/fisslock/directory.h"
#include "lib/hash.h"

/* ---- slots ---- */

static uint32_t buckets_for(uint64_t capacity)
{
    uint32_t buckets = 16;
    while (buckets < capacity)
        buckets *= 2;
    return buckets;
}

static uint64_t slots_at(void)
{
    return round_up(sizeof(struct directory), CACHE_LINE);
}

static uint64_t buckets_at(const struct rack_config *c)
{
    return slots_at() + c->switch_locks * sizeof(struct slot);
}

uint64_t directory_bytes(const struct rack_config *config)
{
    return buckets_at(config) + buckets_for(config->switch_locks) * sizeof(uint32_t);
}

struct slot *directory_slot_at(const struct directory *d, uint32_t slot)
{
    return (struct slot *)((char *)(uintptr_t)d + d->slots_at) + slot;
}

static uint32_t *bucket_of(const struct directory *d, uint64_t index)
{
    return (uint32_t *)((char *)(uintptr_t)d + d->buckets_at) + (mix64(index) & d->mask);
}

static uint32_t find(const struct directory *d, uint64_t index)
{
    uint32_t slot = *bucket_of(d, index);
    while (slot != SLOT_NONE && directory_slot_at(d, slot)->index != index)
        slot = directory_slot_at(d, slot)->next;
    return slot;
}

const struct slot *directory_find(const struct directory *d, uint64_t index)
{
    uint32_t slot = find(d, index);
    return slot == SLOT_NONE ? NULL : directory_slot_at(d, slot);
}

uint32_t directory_slot(const struct directory *d, uint64_t index)
{
    uint32_t slot = find(d, index);
    return slot != SLOT_NONE && directory_slot_at(d, slot)->state == SLOT_HERE ? slot : SLOT_NONE;
}

static void put(struct directory *d, uint32_t slot, uint64_t index, enum slot_state state)
{
    uint32_t *bucket = bucket_of(d, index);
    *directory_slot_at(d, slot) = (struct slot){.index = index, .next = *bucket, .state = state};
    *bucket = slot;
}

static void drop(struct directory *d, uint32_t slot)
{
    struct slot *s = directory_slot_at(d, slot);
    uint32_t *at = bucket_of(d, s->index);
    while (*at != slot)
        at = &directory_slot_at(d, *at)->next;
    *at = s->next;
    s->state = SLOT_FREE;
    s->next = d->free;
    d->free = slot;
}

/* The first locks are here when it begins. Servers know that (WELCOME). */
void directory_init(struct directory *d, const struct rack_config *config, uint32_t life, uint64_t lease_ns)
{
    assert(config->switch_locks < SLOT_NONE);
    memset(d, 0, sizeof *d);
    d->config = *config;
    d->life = life;
    d->lease_ns = lease_ns;
    d->capacity = (uint32_t)config->switch_locks;
    d->mask = buckets_for(d->capacity) - 1;
    d->slots_at = slots_at();
    d->buckets_at = buckets_at(config);
    d->free = SLOT_NONE;
    for (uint32_t i = 0; i <= d->mask; i++)
        ((uint32_t *)((char *)d + d->buckets_at))[i] = SLOT_NONE;
    for (uint32_t i = 0; i < d->capacity; i++)
        put(d, i, i, SLOT_HERE);
}

/* ---- wards ---- */

static uint32_t ward_epoch(const struct directory *d, unsigned ward)
{
    return d->ward[ward].life > d->life ? d->ward[ward].life : d->life;
}

uint32_t directory_epoch(const struct directory *d, uint64_t index)
{
    return ward_epoch(d, ward_of(&d->config, index));
}

bool directory_open(const struct directory *d, uint64_t index, uint64_t now)
{
    unsigned ward = ward_of(&d->config, index);
    return d->ward[ward].life && now >= d->ward[ward].opens_ns;
}

#define EPOCHS_PER_ENTRY (sizeof(struct fission_entry) / sizeof(uint32_t))

unsigned directory_entries(const struct directory *d)
{
    return (unsigned)((d->config.servers + EPOCHS_PER_ENTRY - 1) / EPOCHS_PER_ENTRY);
}

void directory_tell(const struct directory *d, struct fission_entry *entries)
{
    for (unsigned i = 0; i < d->config.servers; i++) {
        uint32_t epoch = ward_epoch(d, i);
        memcpy((char *)entries + i * sizeof epoch, &epoch, sizeof epoch);
    }
}

static struct place server_of(const struct directory *d, unsigned ward)
{
    return (struct place){d->config.server[ward], PORT_SERVER};
}

void directory_forward(struct directory *d, const struct fission_packet *p, uint32_t len, uint16_t flags, uint64_t now,
                       struct outbox *out)
{
    uint64_t index = p->head.index;
    if (p->hops >= FISSION_HOPS_MAX || !directory_open(d, index, now)) {
        d->counts.refused++; /* whoever sent it says it again */
        return;
    }
    struct fission_packet *copy = outbox_add(out, len);
    if (!copy)
        return;
    const struct slot *s = directory_find(d, index);
    memcpy(copy, p, len);
    copy->head.to = server_of(d, ward_of(&d->config, index));
    copy->flags = (uint16_t)((p->flags & ~(SPILL_SERVED | SPILL_DEAD | SPILL_MOVING)) | flags);
    if (s && s->state == SLOT_LEAVING)
        copy->flags |= SPILL_MOVING;
    d->counts.forwarded++;
    d->counts.dead += (flags & SPILL_DEAD) != 0;
}

/* ---- moves ---- */

static struct fission_packet *say(struct directory *d, enum spill_type type, unsigned ward, struct outbox *out)
{
    return spill_packet(out, type, d->config.space, ward_epoch(d, ward), (struct place){MACHINE_SWITCH, PORT_POOL},
                        server_of(d, ward), 0);
}

static void say_move(struct directory *d, uint32_t slot, const struct directory_lock *locks, struct outbox *out)
{
    const struct slot *s = directory_slot_at(d, slot);
    bool gives = s->state == SLOT_LEAVING;
    struct fission_packet *p = say(d, gives ? SPILL_GIVE : SPILL_CALL, ward_of(&d->config, s->index), out);
    if (!p)
        return; /* it is said again */
    p->head.index = s->index;
    p->head.nonce = s->round;
    if (!gives)
        return;
    p->word = locks[slot].word;
    p->token = locks[slot].token;
    if ((d->config.options & FISSLOCK_BUSTED_BLANK) && !(p->word & FISSION_WORD_HELD))
        p->word = p->token = 0;
}

static void begin_move(struct directory *d, uint32_t slot, const struct directory_lock *locks, uint64_t now, struct outbox *out)
{
    assert(d->moves < MOVES_MAX);
    d->move[d->moves].slot = slot;
    d->move[d->moves++].due_ns = now + d->config.retry_ns;
    d->leaving += directory_slot_at(d, slot)->state == SLOT_LEAVING;
    say_move(d, slot, locks, out);
}

static void end_move(struct directory *d, uint32_t slot)
{
    unsigned i = 0;
    while (i < d->moves && d->move[i].slot != slot)
        i++;
    assert(i < d->moves);
    d->move[i] = d->move[--d->moves];
    d->leaving -= directory_slot_at(d, slot)->state == SLOT_LEAVING;
}

void directory_call(struct directory *d, uint64_t index, uint64_t now, struct outbox *out)
{
    uint32_t slot = d->free;
    d->free = directory_slot_at(d, slot)->next;
    put(d, slot, index, SLOT_CALLED);
    directory_slot_at(d, slot)->round = ++d->round;
    begin_move(d, slot, NULL, now, out);
}

void directory_give(struct directory *d, uint32_t slot, const struct directory_lock *locks, uint64_t now, struct outbox *out)
{
    directory_slot_at(d, slot)->state = SLOT_LEAVING; /* not decided here from now on */
    begin_move(d, slot, locks, now, out);
}

static void on_hand(struct directory *d, struct directory_lock *locks, const struct fission_packet *p)
{
    uint32_t slot = find(d, p->head.index);
    struct slot *s = slot == SLOT_NONE ? NULL : directory_slot_at(d, slot);
    if (!s || s->state != SLOT_CALLED || (s->round != p->head.nonce && !(d->config.options & FISSLOCK_BUSTED_ROUND)))
        return; /* of another round, or heard before */
    end_move(d, slot);
    locks[slot] = (struct directory_lock){p->word, p->token};
    s->state = SLOT_HERE;
    d->counts.in++;
}

static void on_given(struct directory *d, const struct fission_packet *p)
{
    uint32_t slot = find(d, p->head.index);
    struct slot *s = slot == SLOT_NONE ? NULL : directory_slot_at(d, slot);
    if (!s || s->state != SLOT_LEAVING || s->round != p->head.nonce)
        return;
    end_move(d, slot);
    drop(d, slot);
    d->counts.out++;
}

/* ---- servers ---- */

/* The server of this ward has forgotten everything. What it decided is void; so are words on their way to and from it, since
 * nobody knows whether it had them. Those that are here are not touched. */
static void reset_ward(struct directory *d, unsigned ward, uint64_t now)
{
    d->ward[ward].blank = true;
    d->ward[ward].opens_ns = d->config.options & FISSLOCK_BUSTED_AMNESIA ? now : now + d->lease_ns;
    for (unsigned i = d->moves; i-- > 0;) {
        uint32_t slot = d->move[i].slot;
        if (ward_of(&d->config, directory_slot_at(d, slot)->index) != ward)
            continue;
        end_move(d, slot);
        drop(d, slot);
    }
}

static void on_hello(struct directory *d, unsigned ward, const struct fission_packet *p, uint64_t now, struct outbox *out)
{
    uint32_t life = p->stamp;
    if (life < d->ward[ward].life || !life)
        return; /* of an earlier life */
    if (life > d->ward[ward].life && d->ward[ward].life)
        reset_ward(d, ward, now);
    d->ward[ward].life = life;
    struct fission_packet *answer = say(d, SPILL_WELCOME, ward, out);
    if (!answer)
        return;
    answer->stamp = life;
    answer->token = d->life;
    answer->word = d->capacity;
    answer->flags = d->ward[ward].blank ? 0 : FISSION_DONE;
}

void directory_packet(struct directory *d, struct directory_lock *locks, const void *data, uint32_t len, uint64_t now,
                      struct outbox *out)
{
    const struct fission_packet *p = data;
    unsigned ward = 0;
    if (!spill_verify(p, len, &d->config))
        return;
    while (ward < d->config.servers && d->config.server[ward] != p->head.from.machine)
        ward++;
    if (ward == d->config.servers || p->head.from.port != PORT_SERVER)
        return;
    if (p->head.type == SPILL_HELLO) {
        on_hello(d, ward, p, now, out);
        return;
    }
    if (p->head.epoch != ward_epoch(d, ward) || (p->head.type != SPILL_HEAT && ward_of(&d->config, p->head.index) != ward))
        return;
    switch (p->head.type) {
    case SPILL_HAND:
        on_hand(d, locks, p);
        break;
    case SPILL_GIVEN:
        on_given(d, p);
        break;
    case SPILL_HEAT:
        usage_heard(d, p);
        break;
    default:
        return;
    }
    usage_pump(d, locks, now, out);
}

uint64_t directory_tick(struct directory *d, struct directory_lock *locks, uint64_t now, struct outbox *out)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < d->moves && out->packets < OUTBOX_PACKETS / 2; i++) {
        if (d->move[i].due_ns <= now) {
            say_move(d, d->move[i].slot, locks, out);
            d->move[i].due_ns = now + d->config.retry_ns;
        }
        next = min_u64(next, d->move[i].due_ns);
    }
    usage_pump(d, locks, now, out);
    return next;
}
