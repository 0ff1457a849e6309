/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/netlock/plane.h"
#include "dataplane/netlock_packets.h"
#include "lib/hash.h"

#include <errno.h>
#include <string.h>

/* ---- memory ---- */

static uint64_t registers(const struct plane_config *c, enum netlock_array array)
{
    switch (array) {
    case NETLOCK_SEEN:
    case NETLOCK_TICKETS:
        return c->requests;
    case NETLOCK_METER:
        return c->tenants;
    case NETLOCK_QUEUES:
        return (uint64_t)c->locks * NETLOCK_PRIORITIES;
    case NETLOCK_NONCE:
    case NETLOCK_FLAGS:
    case NETLOCK_PLACE:
    case NETLOCK_SINCE:
        return c->slots;
    default:
        return c->locks;
    }
}

static uint32_t cells_for(const struct plane_config *c)
{
    uint32_t cells = 16;
    while (cells < 2 * c->locks)
        cells *= 2;
    return cells;
}

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at += round_up(bytes, CACHE_LINE);
    return here;
}

/* Where everything lies; returns the end. */
static uint64_t lay_out(struct plane *p, const struct plane_config *c)
{
    uint64_t at = round_up(sizeof(struct plane), CACHE_LINE);
    for (unsigned i = 0; i < NETLOCK_ARRAYS; i++)
        p->arrays_at[i] = place(&at, registers(c, (enum netlock_array)i) *
                                         (netlock_is_wide((enum netlock_array)i) ? sizeof(uint64_t) : sizeof(uint32_t)));
    p->table_at = place(&at, cells_for(c) * sizeof(uint32_t));
    p->index_at = place(&at, c->locks * sizeof(uint64_t));
    p->quota_at = place(&at, c->tenants * sizeof(struct netlock_quota));
    p->charged_at = place(&at, c->requests * sizeof(uint64_t));
    p->free_at = place(&at, c->locks * sizeof(uint32_t));
    p->taken_at = place(&at, c->slots);
    p->open_at = place(&at, c->locks * sizeof(uint64_t));
    p->active_at = place(&at, c->locks * sizeof(uint32_t));
    p->notify_at = place(&at, c->locks * sizeof(uint32_t));
    p->claims_at = place(&at, c->requests * sizeof(uint32_t));
    return at;
}

uint64_t plane_bytes(const struct plane_config *config)
{
    struct plane scratch = {.used = 0};
    return lay_out(&scratch, config);
}

static void *part(const struct plane *p, uint64_t at)
{
    return (char *)(uintptr_t)p + at;
}

void plane_init(struct plane *p, const struct plane_config *config)
{
    assert(config->slots && config->locks && config->requests && config->tenants);
    p->config = *config;
    lay_out(p, config);
    p->cells = cells_for(config);
    uint32_t *free_next = part(p, p->free_at);
    for (uint32_t i = 0; i < config->locks; i++)
        free_next[i] = i + 1;
}

/* ---- a program in the kernel beside us ---- */

#define BUSY_TRIES 100000 /* while another packet of the lock or request passes: microseconds at most */

static struct plane_kernel kernel;

void plane_in_kernel(struct plane *p, const struct plane_kernel *k)
{
    p->in_kernel = k != NULL;
    kernel = k ? *k : (struct plane_kernel){0};
}

void plane_describe(const struct plane_config *c, uint64_t from, struct netlock_memory *m)
{
    struct plane p = {.used = 0};
    m->bytes = from + lay_out(&p, c) + NETLOCK_CELL_MAX;
    for (unsigned i = 0; i < NETLOCK_ARRAYS; i++)
        m->arrays_at[i] = from + p.arrays_at[i];
    m->open_at = from + p.open_at;
    m->active_at = from + p.active_at;
    m->notify_at = from + p.notify_at;
    m->claims_at = from + p.claims_at;
    m->quota_at = from + p.quota_at;
    m->unfinished_at = from + offsetof(struct plane, counts.unfinished);
    m->locks = c->locks;
    m->requests = c->requests;
    m->stride = c->stride;
    m->tenants = c->tenants;
}

static bool order(const struct plane *p, enum netlock_order_kind kind, uint32_t lock)
{
    struct netlock_order o = {.kind = (uint32_t)kind, .lock = lock, .index = plane_index(p, lock)};
    return !kernel.order(kernel.ctx, &o) && o.done;
}

static bool is_idle(const struct plane *p, uint32_t lock);

void plane_shut(struct plane *p, uint32_t lock)
{
    for (unsigned i = 0; p->in_kernel && i < BUSY_TRIES && !order(p, NETLOCK_ORDER_CLOSE, lock); i++)
        ;
}

bool plane_shut_if_empty(struct plane *p, uint32_t lock)
{
    return is_idle(p, lock) && (!p->in_kernel || order(p, NETLOCK_ORDER_IF_EMPTY, lock));
}

void plane_reopen(struct plane *p, uint32_t lock)
{
    if (p->in_kernel)
        order(p, NETLOCK_ORDER_OPEN, lock);
}

void plane_grace(const struct plane *p)
{
    if (p->in_kernel)
        kernel.grace(kernel.ctx);
}

void plane_set_notify(struct plane *p, uint32_t lock, bool notify)
{
    uint32_t *cell = (uint32_t *)part(p, p->notify_at) + lock;
    __atomic_store_n(cell, notify, __ATOMIC_RELEASE);
}

/* ---- which locks are here ---- */

static uint32_t *table(const struct plane *p)
{
    return part(p, p->table_at);
}

uint64_t plane_index(const struct plane *p, uint32_t lock)
{
    return ((const uint64_t *)part(p, p->index_at))[lock];
}

static uint32_t home_of(const struct plane *p, uint64_t index)
{
    return (uint32_t)mix64(index) & (p->cells - 1);
}

uint32_t plane_match(const struct plane *p, uint64_t index)
{
    const uint32_t *cells = table(p);
    for (uint32_t i = home_of(p, index); cells[i]; i = (i + 1) & (p->cells - 1))
        if (plane_index(p, cells[i] - 1) == index)
            return cells[i] - 1;
    return PLANE_NO_LOCK;
}

static void table_insert(struct plane *p, uint32_t lock)
{
    uint32_t *cells = table(p), i = home_of(p, plane_index(p, lock));
    while (cells[i])
        i = (i + 1) & (p->cells - 1);
    cells[i] = lock + 1;
}

/* The entries behind it move up, so that no search ends too early. */
static void table_delete(struct plane *p, uint32_t lock)
{
    uint32_t *cells = table(p), mask = p->cells - 1, hole = home_of(p, plane_index(p, lock));
    while (cells[hole] != lock + 1)
        hole = (hole + 1) & mask;
    for (uint32_t i = (hole + 1) & mask; cells[i]; i = (i + 1) & mask) {
        uint32_t home = home_of(p, plane_index(p, cells[i] - 1));
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            cells[hole] = cells[i];
            hole = i;
        }
    }
    cells[hole] = 0;
}

/* ---- regions ---- */

uint32_t plane_region_slots(const struct plane_region *r)
{
    return r->size + (r->levels ? r->levels : NETLOCK_PRIORITIES) * (uint32_t)r->wait_size;
}

struct plane_region plane_region(const struct plane *p, uint32_t lock)
{
    uint64_t bounds = plane_get(p, NETLOCK_BOUNDS, lock);
    return (struct plane_region){.left = (uint32_t)(bounds >> 32),
                                 .size = (uint16_t)(bounds >> 16),
                                 .levels = (uint16_t)(bounds >> 8 & 0xff),
                                 .wait_size = (uint16_t)(bounds & 0xff)};
}

int plane_room(const struct plane *p, uint64_t index, uint32_t slots, uint32_t *left)
{
    const uint8_t *taken = part(p, p->taken_at);
    uint32_t pipe = plane_pipe(&p->config, index), last = plane_pipe_start(&p->config, pipe + 1);
    for (uint32_t at = (uint32_t)max_u64(p->free_slot, plane_pipe_start(&p->config, pipe)); at < last && slots <= last - at;) {
        const uint8_t *hole = memchr(taken + at, 0, last - at);
        if (!hole || slots > last - (uint32_t)(hole - taken))
            break;
        const uint8_t *end = memchr(hole, 1, slots);
        if (!end) {
            *left = (uint32_t)(hole - taken);
            return 0;
        }
        at = (uint32_t)(end - taken);
    }
    return -ENOSPC;
}

static bool region_fits(const struct plane *p, const struct plane_region *r)
{
    const uint8_t *taken = part(p, p->taken_at);
    uint32_t slots = plane_region_slots(r);
    if (!r->size || r->size > NETLOCK_SIZE_MAX || r->wait_size > UINT8_MAX || r->levels > NETLOCK_PRIORITIES ||
        slots > p->config.slots || r->left > p->config.slots - slots)
        return false;
    for (uint32_t i = 0; i < slots; i++)
        if (taken[r->left + i])
            return false;
    return true;
}

static void region_take(struct plane *p, const struct plane_region *r, uint8_t taken)
{
    const uint8_t *all = part(p, p->taken_at);
    memset((uint8_t *)part(p, p->taken_at) + r->left, taken, plane_region_slots(r));
    if (!taken && r->left < p->free_slot)
        p->free_slot = r->left;
    while (p->free_slot < p->config.slots && all[p->free_slot])
        p->free_slot++;
}

static bool is_idle(const struct plane *p, uint32_t lock)
{
    return netlock_is_empty(plane_get(p, NETLOCK_ENDS, lock)) && !plane_waiting(p, lock);
}

uint64_t plane_waiting(const struct plane *p, uint32_t lock)
{
    return netlock_waiting_here(plane_get(p, NETLOCK_BOUNDS, lock), plane_get(p, NETLOCK_WAITING, lock));
}

bool plane_lows(const struct plane *p, uint32_t lock)
{
    return plane_get(p, NETLOCK_WAITING, lock) != plane_waiting(p, lock);
}

/* Empty slots: no nonce of a past request is found there. */
static void settle_in(struct plane *p, uint32_t lock, const struct plane_region *r)
{
    region_take(p, r, 1);
    for (uint32_t i = 0; i < plane_region_slots(r); i++) {
        plane_set(p, NETLOCK_NONCE, r->left + i, 0);
        plane_set(p, NETLOCK_FLAGS, r->left + i, NETLOCK_ENDED);
    }
    uint32_t levels = !r->wait_size ? 0 : r->levels ? r->levels : NETLOCK_PRIORITIES;
    plane_set(p, NETLOCK_BOUNDS, lock, (uint64_t)r->left << 32 | (uint32_t)r->size << 16 | levels << 8 | r->wait_size);
}

static const enum netlock_array per_lock[] = {NETLOCK_BOUNDS, NETLOCK_ROUNDS, NETLOCK_ARRIVALS, NETLOCK_WAITING,
                                              NETLOCK_ENDS,   NETLOCK_PEAK,   NETLOCK_EXCL,     NETLOCK_TOKEN};

static bool in_pipe(const struct plane *p, uint64_t index, const struct plane_region *r)
{
    uint32_t pipe = plane_pipe(&p->config, index);
    return r->left >= plane_pipe_start(&p->config, pipe) &&
           r->left + plane_region_slots(r) <= plane_pipe_start(&p->config, pipe + 1);
}

uint32_t plane_pipe_used(const struct plane *p, uint32_t pipe)
{
    const uint8_t *taken = part(p, p->taken_at);
    uint32_t used = 0;
    for (uint32_t i = plane_pipe_start(&p->config, pipe); i < plane_pipe_start(&p->config, pipe + 1); i++)
        used += taken[i];
    return used;
}

int plane_install(struct plane *plane, uint64_t index, const struct plane_region *region, uint32_t *out)
{
    struct plane *p = plane;
    const struct plane_region *r = region;
    uint32_t *free_next = part(p, p->free_at);
    if (plane_match(p, index) != PLANE_NO_LOCK)
        return -EEXIST;
    if (p->used == p->config.locks)
        return -ENOSPC;
    if (!region_fits(p, r) || !in_pipe(p, index, r))
        return -EINVAL;
    uint32_t lock = p->free_lock;
    assert(lock < p->config.locks); /* I7: one number, one lock */
    p->free_lock = free_next[lock];
    p->used++;
    ((uint64_t *)part(p, p->index_at))[lock] = index;
    table_insert(p, lock);
    for (unsigned i = 0; i < countof(per_lock); i++)
        plane_set(p, per_lock[i], lock, 0);
    for (uint32_t i = 0; i < NETLOCK_PRIORITIES; i++)
        plane_set(p, NETLOCK_QUEUES, lock * NETLOCK_PRIORITIES + i, 0);
    settle_in(p, lock, r);
    *out = lock;
    return 0;
}

void plane_remove(struct plane *p, uint32_t lock)
{
    const struct plane_region r = plane_region(p, lock);
    uint32_t *free_next = part(p, p->free_at);
    assert(p->used && plane_match(p, plane_index(p, lock)) == lock); /* I7 */
    if (p->in_kernel)
        order(p, NETLOCK_ORDER_REMOVE, lock);
    region_take(p, &r, 0);
    table_delete(p, lock);
    free_next[lock] = p->free_lock;
    p->free_lock = lock;
    p->used--;
}

bool plane_slide(struct plane *p, uint32_t lock)
{
    struct plane_region r = plane_region(p, lock);
    uint32_t left = r.left;
    if (p->free_slot > left || !is_idle(p, lock))
        return false;
    region_take(p, &r, 0);
    if (plane_room(p, plane_index(p, lock), plane_region_slots(&r), &left) || left >= r.left || !plane_shut_if_empty(p, lock)) {
        region_take(p, &r, 1);
        return false;
    }
    r.left = left;
    settle_in(p, lock, &r);
    plane_reopen(p, lock);
    return true;
}

int plane_resize(struct plane *p, uint32_t lock, uint16_t size)
{
    const struct plane_region old = plane_region(p, lock);
    struct plane_region r = old;
    if (!size || size > NETLOCK_SIZE_MAX)
        return -EINVAL;
    if (!plane_shut_if_empty(p, lock))
        return -EBUSY;
    r.size = size;
    region_take(p, &old, 0);
    int rc = plane_room(p, plane_index(p, lock), plane_region_slots(&r), &r.left);
    settle_in(p, lock, rc ? &old : &r);
    if (!rc) /* tickets count positions of a queue of that size */
        plane_set(p, NETLOCK_ENDS, lock, plane_get(p, NETLOCK_ENDS, lock) & NETLOCK_OVER);
    plane_reopen(p, lock);
    return rc;
}

/* ---- registers ---- */

static inline uint64_t read_register(void *ctx, enum netlock_array array, uint32_t index)
{
    const struct plane *p = ctx;
    debug_assert(index < registers(&p->config, array));
    const void *base = part(p, p->arrays_at[array]);
    return netlock_is_wide(array) ? ((const uint64_t *)base)[index] : ((const uint32_t *)base)[index];
}

static inline void write_register(void *ctx, enum netlock_array array, uint32_t index, uint64_t value)
{
    const struct plane *p = ctx;
    void *base = part(p, p->arrays_at[array]);
    if (netlock_is_wide(array))
        ((uint64_t *)base)[index] = value;
    else
        ((uint32_t *)base)[index] = (uint32_t)value;
}

/* A pass visits the arrays in their order, each once: the rule of the hardware. */
static inline uint64_t visit_register(void *ctx, enum netlock_array array, uint32_t index)
{
#ifdef PAWL_CHECKED
    struct plane *p = ctx;
    assert(array >= p->visited);
    p->visited = (uint8_t)(array + 1);
#endif
    return read_register(ctx, array, index);
}

uint64_t plane_get(const struct plane *p, enum netlock_array array, uint32_t index)
{
    return read_register((void *)(uintptr_t)p, array, index);
}

void plane_set(struct plane *p, enum netlock_array array, uint32_t index, uint64_t value)
{
    write_register(p, array, index, value);
}

int plane_quota(struct plane *p, uint16_t tenant, const struct netlock_quota *quota)
{
    if (tenant >= p->config.tenants)
        return -EINVAL;
    ((struct netlock_quota *)part(p, p->quota_at))[tenant] = *quota;
    return 0;
}

struct netlock_quota plane_quota_of(const struct plane *p, uint16_t tenant)
{
    return tenant < p->config.tenants ? ((const struct netlock_quota *)part(p, p->quota_at))[tenant] : (struct netlock_quota){0};
}

/* ---- passes ---- */

/* The registers that a packet of the lock reaches. */
static inline struct netlock_registers reached(struct plane *p, uint32_t lock, const struct netlock_pass *pass)
{
    uint32_t request = netlock_request_cell(pass->machine, pass->nonce, p->config.stride, p->config.requests);
    uint32_t tenant = pass->tenant < p->config.tenants ? pass->tenant : 0;
    return (struct netlock_registers){p, visit_register, write_register, lock, request, tenant};
}

static inline void set_quota(const struct plane *p, struct netlock_pass *pass, uint32_t tenant)
{
    const struct netlock_quota *quota = (const struct netlock_quota *)part(p, p->quota_at) + tenant;
    pass->rate = quota->rate;
    pass->burst = quota->burst;
}

uint32_t plane_charge(struct plane *p, uint16_t tenant, uint16_t machine, uint64_t nonce, uint32_t now)
{
    struct netlock_pass pass = {.op = NETLOCK_OP_ACQUIRE, .tenant = tenant, .machine = machine, .nonce = nonce, .now = now};
    const struct netlock_registers r = reached(p, 0, &pass);
    uint64_t *charged = (uint64_t *)part(p, p->charged_at) + r.request;
    if (tenant >= p->config.tenants || *charged == nonce)
        return 0;
    set_quota(p, &pass, r.tenant);
    p->visited = 0;
    if (!netlock_within_quota(&pass, &r))
        return pass.out_wait ? pass.out_wait : 1;
    *charged = nonce;
    return 0;
}

/* The same by the program in the kernel, which other packets pass meanwhile. */
static void pass_in_kernel(const struct plane *p, uint32_t lock, struct netlock_pass *pass)
{
    struct netlock_order o = {.kind = NETLOCK_ORDER_PASS, .lock = lock, .index = plane_index(p, lock), .pass = *pass};
    int rc = 0;
    for (unsigned i = 0; i < BUSY_TRIES && !rc && !o.done && (!i || o.pad); i++)
        rc = kernel.order(kernel.ctx, &o);
    if (!rc && o.done) {
        *pass = o.pass;
        return;
    }
    pass->out = 0; /* as if the packet were lost */
    pass->next = NETLOCK_OP_NONE;
}

void plane_pass(struct plane *p, uint32_t lock, struct netlock_pass *pass)
{
    if (p->in_kernel) {
        p->counts.passes++;
        pass_in_kernel(p, lock, pass);
        return;
    }
    const struct netlock_registers r = reached(p, lock, pass);
    set_quota(p, pass, r.tenant);
    p->visited = 0;
    pass->mistakes = p->mistakes;
    p->counts.passes++;
    netlock_run(pass, &r);
}
