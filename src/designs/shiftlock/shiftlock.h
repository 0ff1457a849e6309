/* SPDX-License-Identifier: Apache-2.0 */
/* ShiftLock (FAST'25): a queue of writers threaded through the clients, readers counted in the lock, and hand-over from client to
 * client. docs/designs/shiftlock.md has the argument and says where this departs from the paper.
 *
 *     entry.c    the lock entry and the verbs on it (3.3, 3.4)
 *     note.c     the messages between clients: Successor, Handover, ModeChanged (3.2)
 *     acquire.c  Algorithm 2, and giving up
 *     release.c  Algorithm 3
 *     convert.c  conversions (not in the paper)
 *     recover.c  counting anew, instead of the reset of 3.6
 *     design.c   the tables: shiftlock, shiftlock64 */
#ifndef PAWL_DESIGNS_SHIFTLOCK_SHIFTLOCK_H
#define PAWL_DESIGNS_SHIFTLOCK_SHIFTLOCK_H

#include "designs/core/census.h"
#include "designs/core/design.h"
#include "designs/shiftlock/mistakes.h"

/* ---- the entry ---- */

/* Figure 3's fields. The 40 bits of node id and queue pair number are here 24 bits that name a writer (session slot and hold
 * record) and 16 of the lock's era. An odd era means that the lock is being counted anew: no client enters or is let in. */
struct shift_entry {
    uint64_t rel;     /* RelCnt: rises by one with every release, and with every step of a recovery */
    uint32_t readers; /* RdrCnt: those that hold and those that wait */
    uint32_t tail;    /* the last writer in the queue; 0: none */
    uint32_t era;
    bool epoch; /* Epoch of the paper: flips when writers let readers in */
};

/* How the fields lie in a word of 128 or 64 bits. */
struct shift_form {
    uint8_t width; /* bytes */
    uint8_t rel_shift, rel_bits;
    uint8_t readers_shift, readers_bits;
    uint8_t tail_shift, slot_bits, record_bits;
    uint8_t era_shift, era_bits;
    uint8_t echo_shift, echo_bits; /* RelCnt's low bits again, in the other half: a READ of both halves that is torn shows it */
    uint8_t epoch_shift;
};

extern const struct shift_form shift_form128, shift_form64;

u128 shift_pack(const struct shift_form *f, struct shift_entry e);
struct shift_entry shift_unpack(const struct shift_form *f, u128 word);

/* Which fields an atomic compares or replaces. */
enum shift_fields { SHIFT_REL = 1, SHIFT_READERS = 2, SHIFT_TAIL = 4, SHIFT_ERA = 8, SHIFT_EPOCH = 16, SHIFT_ALL = 31 };

/* ---- the design, and what can be set ---- */

extern const struct design design_shiftlock, design_shiftlock64;

enum shift_knob {
    SHIFT_WRITERS_MAX, /* N: so many writers in a row, then the readers' turn; UINT32_MAX: no bound */
    SHIFT_KEEP_ON,     /* beyond N while no reader waits (left open in 3.5.2) */
    SHIFT_AT_ONCE,     /* 0: RelCnt before the note, as in Algorithm 3 */
};

static inline uint32_t shift_knob(const struct seat *seat, enum shift_knob knob)
{
    return seat->space->knobs.value[knob];
}

static inline bool shift_errs(const struct seat *seat, uint32_t mistake)
{
    return MISTAKE(seat->space->design->mistakes, mistake);
}
static inline const struct shift_form *shift_form(const struct seat *seat)
{
    return seat->space->design->variant;
}

/* Whether readers leave by an addition, as in the paper. An addition needs no second try but may take effect late, so lost sessions
 * are fenced before they are counted out. On shared memory a session that is merely stopped cannot be fenced, and a second try
 * costs little: there readers compare. */
static inline bool shift_adds(const struct seat *seat)
{
    return !fab_is_shm(seat->ep);
}

/* A writer may hand the lock over first and move RelCnt afterwards, so RelCnt may lag behind the value that tokens were taken from,
 * by so many hand-overs at most. Counting anew moves it on by more. */
#define SHIFT_LAG_MAX 15

/* A lock in memory. */
struct shift_lock {
    uint64_t entry[2]; /* shiftlock64: the entry, then a counter from which tokens come */
};

static inline fab_addr shift_addr(const struct seat *seat, uint64_t index)
{
    return space_lock_addr(seat->space, index);
}

/* The name of a writer in the queue. Never 0. */
static inline uint32_t shift_name(const struct seat *seat, const struct hold *h)
{
    return seat->me->slot << shift_form(seat)->record_bits | (h->record + 1);
}
static inline uint32_t shift_name_slot(const struct shift_form *f, uint32_t name)
{
    return name >> f->record_bits;
}
static inline uint32_t shift_name_record(const struct shift_form *f, uint32_t name)
{
    return (name & (uint32_t)FIELD_MAX(f->record_bits)) - 1;
}

static inline uint64_t shift_rel_add(const struct shift_form *f, uint64_t rel, uint64_t n)
{
    return f->rel_bits == 64 ? rel + n : (rel + n) & FIELD_MAX(f->rel_bits);
}
/* Whether `a` is `b` or later; counters may run over in between. */
static inline bool shift_rel_reached(const struct shift_form *f, uint64_t a, uint64_t b)
{
    return shift_rel_add(f, a, -b) >> (f->rel_bits - 1) == 0;
}
static inline uint32_t shift_era_bits(const struct shift_form *f)
{
    return f->era_bits;
}
static inline uint32_t shift_era_next(const struct shift_form *f, uint32_t era)
{
    return (era + 1) & (uint32_t)FIELD_MAX(shift_era_bits(f));
}
static inline bool shift_recounting(struct shift_entry e)
{
    return e.era & 1;
}

/* The value of RelCnt after a hold that began at `mine`, if it was `seen`: no later token is the same. */
static inline uint64_t shift_rel_after(const struct shift_form *f, uint64_t seen, uint64_t mine)
{
    return shift_rel_add(f, shift_rel_reached(f, seen, mine) ? seen : mine, 1);
}

/* Half of what fits: a reader that goes too far takes itself out again before the field runs over. */
static inline uint32_t shift_readers_max(const struct shift_form *f)
{
    return (uint32_t)FIELD_MAX(f->readers_bits) / 2;
}

/* ---- entry.c ---- */

struct shift_look;

/* An atomic on an entry, ready for a batch. */
void shift_op_cas(const struct seat *seat, uint64_t index, struct shift_entry compare, unsigned compared, struct shift_entry swap,
                  unsigned swapped, struct fab_op *op);
void shift_op_add_reader(const struct seat *seat, uint64_t index, struct fab_op *op);

/* Compares and replaces the named fields; *old is what was there, all of it. */
int shift_cas(const struct seat *seat, uint64_t index, struct shift_entry compare, unsigned compared, struct shift_entry swap,
              unsigned swapped, struct shift_entry *old);

/* The same with a look at a note, which is far, in one round trip: the look comes last if verbs keep their order, so it sees more.
 */
int shift_look_and_cas(const struct seat *seat, fab_addr at, struct shift_look *look, uint64_t index, struct shift_entry compare,
                       unsigned compared, struct shift_entry swap, unsigned swapped, struct shift_entry *old);
bool shift_matches(struct shift_entry a, struct shift_entry b, unsigned fields);

#define SHIFT_GUESSES 1024u
struct shift_session {
    uint64_t guesses[SHIFT_GUESSES];
};

/* An entry as this session has left it, and what it is believed to be: a free lock's. */
void shift_expect(const struct seat *seat, uint64_t index, struct shift_entry e);
struct shift_entry shift_guess(const struct seat *seat, uint64_t index);

/* Reads an entry in two parts. The first part is not newer than the second (128-bit READs are not atomic). */
int shift_look_rel_first(const struct seat *seat, uint64_t index, struct shift_entry *out);
int shift_look_rel_last(const struct seat *seat, uint64_t index, struct shift_entry *out);

/* Words to wait on: epoch and era; RelCnt. And waking their waiters. */
struct fab_cond shift_cond_epoch(const struct seat *seat, uint64_t index, struct shift_entry seen);
struct fab_cond shift_cond_rel(const struct seat *seat, uint64_t index, struct shift_entry seen);

/* The same over a fabric, where waiting is READs: until one of these fields is not as in *e, which is then what the last READ
 * found. */
int shift_poll(const struct seat *seat, uint64_t index, unsigned fields, struct shift_entry *e, uint64_t deadline);
void shift_wake_readers(const struct seat *seat, uint64_t index);
void shift_wake_writer(const struct seat *seat, uint64_t index);

/* The token of a hold that began when RelCnt was that. Where RelCnt has too few bits they come from a counter beside it. */
int shift_token(const struct seat *seat, const struct hold *h, struct shift_entry seen, uint64_t *token);

/* A verb that goes with a step into the lock, in the same round trip, and draws from that counter: its result is the hold's token
 * if the step alone has granted the lock. 0: there is none, or no trip to spare. */
void shift_token_drawn(const struct seat *seat, struct hold *h, uint64_t drawn);
unsigned shift_op_draw(const struct seat *seat, const struct hold *h, struct fab_op *op, uint64_t *drawn);

/* ---- records ---- */

/* Writes a record's word and does the verbs after it: intent before effect (I5). */
int shift_publish_and(const struct seat *seat, const struct hold *h, enum record_state state, struct fab_op *ops, unsigned n);

/* The same of a writer that joins the queue, whose descriptor has no note of a successor then. */
int shift_publish_joining(const struct seat *seat, const struct hold *h, struct fab_op *ops, unsigned n);

/* Claims a hold for this task among the tasks of the session: -PAWL_ENOTOWNER if it is not in that state, or not that one: a
 * copy of the grant from before a conversion has the same record, but another token. */
int shift_claim(const struct seat *seat, const struct hold *h, enum record_state from, enum record_state to);

/* ---- note.c ---- */

/* How many writers came in a row, and by how much RelCnt may lag behind what the holder knows it will be. */
struct shift_run {
    uint64_t writers;
    unsigned lag;
};

enum shift_kind { SHIFT_SUCCESSOR = 1, SHIFT_HANDOVER, SHIFT_MODE_CHANGED };

/* A message in a client's descriptor: one WRITE. Its sum shows whether it is torn or out of date. */
struct shift_note {
    uint64_t nonce; /* of the waiting writer's attempt */
    uint64_t what;  /* kind 8, era 16, lock 40: a client has several locks, and a lock several eras */
    uint64_t value; /* Successor: where its descriptor is; else the RelCnt at which the lock is the receiver's */
    uint64_t extra; /* Successor: RelCnt when it joined; else consecutive writers, by how much RelCnt may lag 4, and the epoch 1 */
    uint64_t sum;
};

/* A descriptor, in the memory of the session that waits or holds. */
struct shift_desc {
    /* The owner's own, which no other client reads: the entry when the lock was granted; consecutive writers and lag. */
    uint64_t mine[2], writers;
    struct shift_note grant; /* written by the predecessor */
    uint64_t joined;         /* RelCnt when it joined; the owner's own, too */
    /* The token; over a fabric, the hold record; the note of the successor. In this order what the owner writes before a step into
     * the lock (record, no note) is one WRITE, and what it writes before a step out (token, record) is another. */
    uint64_t token, record;
    struct shift_note next;
};
static_assert(sizeof(struct shift_desc) == 2 * CACHE_LINE, "descriptors do not share lines");

/* Where the descriptor of a writer in the queue is; `again`: the remembered address was wrong. */
int shift_find_desc(const struct seat *seat, uint32_t name, bool again, fab_addr *out);

/* Leaves a note, and wakes the client that waits for it. */
int shift_leave_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, enum shift_kind kind,
                     struct shift_note note);

/* The same without waiting until it has arrived. The next verb must follow at once: it may take the note along. */
void shift_post_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, enum shift_kind kind,
                     struct shift_note note);

/* A look at a note: what to wait for until it changes, and the note itself where both come by one READ (`known`). */
struct shift_look {
    struct fab_cond conds[FAB_CONDS_MAX]; /* room for more */
    unsigned n;
    bool known;
    struct shift_note note;
};
void shift_look_note(const struct seat *seat, fab_addr at, struct shift_look *out);

/* Whether notes there are read by verbs: descriptors of a session without memory of its own lie at the node of the locks. Then a
 * look costs no round trip that goes with a note to another client, or with the end of a wait. */
bool shift_is_far(const struct seat *seat, fab_addr at);
int shift_leave_and_look(const struct seat *seat, fab_addr to, uint64_t index, uint32_t era, enum shift_kind kind,
                         struct shift_note note, fab_addr at, struct shift_look *look);

/* Waits until it is not as in *look, which then has it if it is far: see fab_watch. */
int shift_wait_note(const struct seat *seat, fab_addr at, struct shift_look *look, uint64_t deadline);

/* A note of ours, if it is whole and about this lock in this era. `look`: one that was just taken; null: none. */
bool shift_read_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, const struct shift_look *look,
                     struct shift_note *out);

/* No successor has left a note so far. */
void shift_clear_note(const struct seat *seat, const struct hold *h);
static inline enum shift_kind shift_note_kind(const struct shift_note *n)
{
    return (enum shift_kind)(n->what >> 56);
}
static inline struct shift_run shift_note_run(const struct shift_note *n)
{
    return (struct shift_run){.writers = n->extra >> 5, .lag = (unsigned)field_get(n->extra, 1, 4)};
}
static inline uint64_t shift_note_extra(struct shift_run run, bool epoch)
{
    return run.writers << 5 | (uint64_t)run.lag << 1 | epoch;
}

/* RelCnt when the owner of this descriptor joined the queue: its successors join later. */
void shift_join(const struct seat *seat, const struct hold *h, uint64_t rel);
uint64_t shift_joined(const struct seat *seat, const struct hold *h);

/* The token of the exclusive hold that this descriptor is of. */
static inline fab_addr shift_token_addr(fab_addr desc)
{
    return desc + offsetof(struct shift_desc, token);
}

/* The entry at the time of the grant. It may have changed since. */
void shift_remember(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_run run);
struct shift_entry shift_recall(const struct seat *seat, const struct hold *h, struct shift_run *run);

/* ---- acquire.c ---- */

#define SHIFT_AGAIN 1 /* the lock is being or was counted anew: settle the record, and start over */

/* A writer's attempt. */
struct shift_try {
    struct shift_entry seen; /* when it joined */
    uint64_t nonce;
    uint64_t target; /* RelCnt at which the lock is its own */
    bool direct;     /* it is so already */
    struct shift_run run;
    bool drew; /* a token with the step into the lock */
    uint64_t drawn;
    fab_addr pred_desc;
    bool told_before;
    uint32_t pred;
    /* Looking after the sessions in the way. */
    uint64_t check_at, patience_ns, still_since;
    struct shift_entry still;
    unsigned strange;
};

int shift_acquire(const struct seat *seat, struct hold *h, uint64_t deadline);
int shift_step(const struct seat *seat, struct hold *h, struct design_try *t, struct fab_op *ops);
int shift_rest(const struct seat *seat, struct hold *h, struct design_try *t);

/* At the head of the queue: until the readers before have left. 0, SHIFT_AGAIN or an error; nothing is undone. */
int shift_await_readers(const struct seat *seat, const struct hold *h, struct shift_try *t, uint64_t deadline);

void shift_begin_watch(const struct seat *seat, struct shift_try *t);

/* Draws a token, notes and publishes that the lock is this hold's. */
int shift_granted(const struct seat *seat, struct hold *h, struct shift_entry e, struct shift_run run);

/* ---- release.c ---- */

int shift_release(const struct seat *seat, const struct hold *h);

/* Waits for the successor's note: 0, SHIFT_AGAIN if the entry has changed so that there may be none, or an error. */
int shift_await_successor(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_note *out);

/* Tells the successor at which RelCnt the lock is its own. */
int shift_tell(const struct seat *seat, const struct hold *h, const struct shift_note *succ, enum shift_kind kind,
               struct shift_entry after, uint64_t target, struct shift_run run);

/* ---- convert.c ---- */

int shift_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline);

/* ---- recover.c ---- */

/* The lock is to be counted anew. */
int shift_ask_recount(const struct seat *seat, uint64_t index);

/* Counts it; 0 when the era is even (again), or the error of a time-out, cancel or loss. The caller's own record is settled. */
int shift_recount(const struct seat *seat, uint64_t index, uint64_t deadline);

/* This task does not know whether its step took effect: its record says "may" until counting anew has begun, and then what is
 * certain. */
int shift_doubt(const struct seat *seat, const struct hold *h, enum record_state may, enum record_state then);

/* Looks whether the sessions with records of this lock live, and recovers from those that do not. `still`: nothing has moved for a
 * while, so if no session holds the lock, none will. */
int shift_check_dead(const struct seat *seat, uint64_t index, bool still);

/* Conditions that wake a waiter when any of them dies. *dying: one of them is already dead, so it cannot be waited for. */
unsigned shift_life_conds(const struct seat *seat, uint64_t index, struct fab_cond *conds, unsigned max, bool *dying);

/* The name in the queue of the writer that was counted; 0: none was. */
static inline uint32_t shift_counted_writer(const struct seat *seat, const struct census *c)
{
    return c->writers ? c->slot << shift_form(seat)->record_bits | (c->record + 1) : 0;
}

int shift_recover(const struct seat *seat, uint32_t dead, uint32_t epoch);

#endif
