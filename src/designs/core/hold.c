/* SPDX-License-Identifier: Apache-2.0 */
/* Hold records: taking, changing, giving back. */
#include "designs/core/design.h"
#include "designs/core/kept.h"

#include <pthread.h>

#define MISSES_MAX 16 /* so that two sessions in turns seldom pay for changing over */

/* ---- the record that a thread keeps ---- */

__attribute__((tls_model("initial-exec"))) _Thread_local struct hold_kept hold_kept;

static struct session *keepers;
static pthread_mutex_t keepers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

static void give_back(void *arg)
{
    struct hold_kept *k = arg;
    pthread_mutex_lock(&keepers_lock);
    for (struct session *s = keepers; s && k->session; s = s->next)
        if (s->id == k->session) {
            uint64_t word = record_word(RECORD_FREE, record_serial(s->shadow[k->record]), 0);
            __atomic_store_n(&s->shadow[k->record], word, __ATOMIC_RELEASE);
            k->session = 0;
        }
    pthread_mutex_unlock(&keepers_lock);
}

/* The child has none of the parent's sessions, and must not touch their records. */
static void forget_after_fork(void)
{
    keepers = NULL;
    hold_kept.session = 0;
    pthread_mutex_init(&keepers_lock, NULL);
}

static void make_thread_end(void)
{
    int rc = pthread_key_create(&thread_end, give_back);
    assert(rc == 0); /* one of 1,024 keys */
    pthread_atfork(NULL, NULL, forget_after_fork);
}

void hold_keeping_begin(struct session *me)
{
    static uint64_t last_id;
    pthread_once(&thread_end_once, make_thread_end);
    pthread_mutex_lock(&keepers_lock);
    me->id = ++last_id;
    me->next = keepers;
    keepers = me;
    pthread_mutex_unlock(&keepers_lock);
}

void hold_keeping_end(struct session *me)
{
    pthread_mutex_lock(&keepers_lock);
    for (struct session **at = &keepers; *at; at = &(*at)->next)
        if (*at == me) {
            *at = me->next;
            break;
        }
    me->id = 0;
    pthread_mutex_unlock(&keepers_lock);
}

static void keep(struct hold_kept *k, uint64_t session, uint32_t record)
{
    if (unlikely(!k->returns)) {
        k->returns = pthread_setspecific(thread_end, k) == 0;
    }
    k->session = session;
    k->record = record;
    k->misses = 0;
}

/* Whether there is room to keep a record of that session. One of another session is kept for a while, as long as this thread may
 * return to it, but not for ever: that session may have ended, or be used no more. */
static bool make_room(struct hold_kept *k, uint64_t session)
{
    if (likely(!k->session) || k->session == session || ++k->misses < MISSES_MAX)
        return !k->session;
    give_back(k);
    k->session = 0;
    return true;
}

/* ---- records ---- */

/* Another use of the same record has another serial, so that an old grant is not taken for the present one. */
static uint64_t next_serial(uint64_t word)
{
    return (record_serial(word) + 1) & FIELD_MAX(RECORD_SERIAL_BITS);
}

static void fill(struct hold *out, uint64_t index, uint64_t serial, uint32_t record)
{
    out->index = index;
    out->serial = serial;
    out->record = record;
    out->place = 0;
    out->start = 0;
    out->end = RANGE_UNITS_MAX;
    out->limit = 0;
    out->exact = false;
}

static int search(const struct seat *seat, uint64_t index, struct hold *out)
{
    for (uint32_t record = 0; record < seat->space->record_count; record++) {
        uint64_t *word = &seat->me->shadow[record];
        uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (record_state(was) != RECORD_FREE)
            continue;
        uint64_t taken = record_word(RECORD_WAIT, next_serial(was), index);
        if (__atomic_compare_exchange_n(word, &was, taken, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            fill(out, index, next_serial(was), record);
            uint32_t used = __atomic_load_n(&seat->me->records_used, __ATOMIC_RELAXED);
            while (used <= record && !__atomic_compare_exchange_n(&seat->me->records_used, &used, record + 1, false,
                                                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                ;
            return 0;
        }
    }
    return -PAWL_ELIMIT;
}

__attribute__((noinline)) int hold_open(const struct seat *seat, uint64_t index, struct hold *out)
{
    struct hold_kept *k = &hold_kept;
    if (unlikely(k->session != seat->me->id || !k->session))
        return search(seat, index, out);
    uint64_t serial = next_serial(__atomic_load_n(&seat->me->shadow[k->record], __ATOMIC_RELAXED));
    fill(out, index, serial, k->record);
    k->session = 0;
    return 0;
}

__attribute__((noinline)) void hold_close(const struct seat *seat, const struct hold *h)
{
    struct hold_kept *k = &hold_kept;
    assert(h->record < seat->space->record_count);
    bool keeps = seat->me->id && make_room(k, seat->me->id);
    if (keeps)
        keep(k, seat->me->id, h->record);
    uint64_t word = record_word(keeps ? RECORD_SPARE : RECORD_FREE, h->serial, 0);
    if (!fab_is_shm(seat->ep))
        hold_write(seat, h, word); /* if it fails the session is lost, and its records are looked at by others only */
    __atomic_store_n(&seat->me->shadow[h->record], word, __ATOMIC_RELEASE);
}

void hold_forget(const struct seat *seat, const struct hold *h)
{
    assert(!fab_is_shm(seat->ep));
    __atomic_store_n(&seat->me->shadow[h->record], record_word(RECORD_FREE, h->serial, 0), __ATOMIC_RELEASE);
}

int hold_write(const struct seat *seat, const struct hold *h, uint64_t word)
{
    assert(h->record < seat->space->record_count && !fab_is_shm(seat->ep));
    if (!seat->space->design->recover)
        return 0; /* only recovery reads the records of others: without it the two round trips per hold are saved */
    if (seat_records_home(seat)) { /* in the store buffer; whatever verb comes next is posted after it */
        fab_own_store64(seat->ep, seat_desc_addr(seat, h->record) + seat->space->desc_record, word);
        return 0;
    }
    fab_addr addr = space_record_addr(seat->space, seat->me->slot, h->record);
    if (seat->ep->node == FAB_NODE_ELSEWHERE) { /* a memory node: it takes effect before whatever verb of the session comes next */
        fab_own_store64(seat->ep, addr, word);
        return 0;
    }
    if (seat->space->design->node_tends &&
        FAB_NODE(addr) == seat->ep->node) { /* a session on that node does not go through the NIC */
        fab_local_store64(seat->ep, addr, word);
        fab_local_fence(seat->ep);
        return 0;
    }
    return seat_retry(seat, seat_write64(seat, addr, word));
}

int hold_change(const struct seat *seat, const struct hold *h, enum record_state from, enum record_state to)
{
    uint64_t expect = record_word(from, h->serial, h->index), word = record_word(to, h->serial, h->index);
    if (h->record >= seat->space->record_count ||
        !__atomic_compare_exchange_n(&seat->me->shadow[h->record], &expect, word, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return -PAWL_ENOTOWNER;
    return fab_is_shm(seat->ep) ? 0 : hold_write(seat, h, word);
}
