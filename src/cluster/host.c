/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_MAGIC UINT64_C(0x37306874736f6877) /* changes with the layout */
#define PERMISSIONS 0600

uint64_t host_now(void)
{
    return world_clock(CLOCK_BOOTTIME);
}

/* ---- the file ---- */

static void robust_mutex(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
}

static uint64_t memory_bytes(const struct packet_design *d, const struct rack_config *c)
{
    return round_up(d->host_bytes(c), UNDO_LINE);
}

static void place_parts(struct host_header *h, const struct packet_design *d)
{
    const struct rack_config *c = &h->config;
    h->sessions_at = round_up((uint64_t)sizeof *h, CACHE_LINE);
    h->bells_at = round_up(h->sessions_at + c->sessions * sizeof(struct host_session), CACHE_LINE);
    h->uses_at = round_up(h->bells_at + rack_requests(c) * sizeof(uint32_t), CACHE_LINE);
    h->memory_at = round_up(h->uses_at + rack_requests(c) * sizeof(uint32_t), 4096);
    h->undo_at = round_up(h->memory_at + memory_bytes(d, c), 4096);
    h->bytes = h->undo_at + undo_bytes(memory_bytes(d, c));
}

static void attach(struct host *h, void *base)
{
    h->header = base;
    h->sessions = (struct host_session *)((char *)base + h->header->sessions_at);
    h->bells = (uint32_t *)((char *)base + h->header->bells_at);
    h->uses = (uint32_t *)((char *)base + h->header->uses_at);
    h->memory = (char *)base + h->header->memory_at;
    h->undo = (struct undo *)((char *)base + h->header->undo_at);
}

static int fill(int fd, const struct host_header *like, const struct packet_design *d)
{
    struct host h = {.design = d};
    int rc = posix_fallocate(fd, 0, (off_t)like->bytes); /* all of it now: a page that is missing later would be a SIGBUS */
    if (rc)
        return -rc;
    void *base = mmap(NULL, like->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    memcpy(base, like, sizeof *like);
    attach(&h, base);
    robust_mutex(&h.header->mutex);
    robust_mutex(&h.header->serving);
    for (unsigned i = 0; i < like->config.sessions; i++)
        robust_mutex(&h.sessions[i].life);
    undo_init(h.undo, memory_bytes(d, &like->config));
    d->host_init(h.memory, &like->config, like->machine, like->life, host_now());
    munmap(base, like->bytes);
    return 0;
}

static const char *dirname_of(const char *path, char out[HOST_PATH_LEN])
{
    snprintf(out, HOST_PATH_LEN, "%s", path);
    return dirname(out);
}

ONCE int host_create(const char *path, const struct rack_welcome *welcome, const struct coord_list *coordinators,
                     struct net_addr self, uint64_t stamp)
{
    const struct coord_welcome *w = &welcome->said;
    const struct design *design = design_find(w->design);
    char folder[HOST_PATH_LEN], nameless[32];
    if (!design || !design->packet)
        return -PAWL_ENOTSUP;
    struct host_header h;
    memset(&h, 0, sizeof h);
    h.magic = HOST_MAGIC;
    memcpy(h.space, w->packet.space, sizeof h.space);
    memcpy(h.design, w->design, sizeof h.design);
    memcpy(h.places[0].servers, welcome->servers, sizeof h.places[0].servers);
    memcpy(h.places[0].switches, w->switches, sizeof h.places[0].switches);
    h.places[0].version = w->places;
    h.coordinators = *coordinators;
    h.term = w->packet.term;
    h.nonce = w->packet.head.nonce;
    h.heard_ns = h.moved_ns = host_now();
    h.pool = net_addr_at_port(self, 0);
    h.config = w->config;
    h.life = w->packet.head.generation;
    h.key = welcome->key;
    h.machine = w->packet.head.to.machine;
    h.until_ns = lease_valid_until(stamp, rack_member_ns(&h.config));
    place_parts(&h, design->packet);
    /* The file has no name until it is whole, so nothing is left of a process that dies before. */
    int fd = open(dirname_of(path, folder), O_RDWR | O_TMPFILE | O_CLOEXEC, PERMISSIONS);
    if (fd < 0)
        return -errno;
    int rc = fill(fd, &h, design->packet);
    snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", fd);
    if (!rc && linkat(AT_FDCWD, nameless, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
        rc = -errno;
    close(fd);
    return rc;
}

/* The design, if the header describes a file of that size; else nothing in it can be trusted. */
static const struct packet_design *check_header(const struct host_header *h, uint64_t bytes)
{
    struct host_header made = *h;
    if (h->magic != HOST_MAGIC || h->design[sizeof h->design - 1] || h->space[sizeof h->space - 1])
        return NULL;
    const struct design *d = design_find(h->design);
    const struct rack_config *c = &h->config;
    if (!d || !d->packet || !c->sessions || !c->requests || !c->locks || c->servers > RACK_SERVERS_MAX ||
        (uint64_t)c->sessions * c->requests > UINT64_C(1) << 20)
        return NULL;
    place_parts(&made, d->packet);
    bool same = made.bytes == bytes && made.bytes == h->bytes && made.sessions_at == h->sessions_at &&
                made.bells_at == h->bells_at && made.uses_at == h->uses_at && made.memory_at == h->memory_at &&
                made.undo_at == h->undo_at;
    return same ? d->packet : NULL;
}

/* Only files of this user that no other user can reach: another user could have put one there on purpose. */
static int check_owner(const struct stat *s, const char *path)
{
    if (!S_ISREG(s->st_mode))
        return explain(-PAWL_ESEGMENT, "%s is not a regular file", path);
    if (s->st_uid != geteuid())
        return explain(-EACCES, "%s: the host's memory belongs to user %u, who has to remove it", path, (unsigned)s->st_uid);
    if (s->st_mode & ~(mode_t)S_IFMT & ~(mode_t)PERMISSIONS)
        return explain(-EACCES, "%s: other users can reach the host's memory (mode %04o); 'chmod 600 %s' prevents that", path,
                       (unsigned)(s->st_mode & ~(mode_t)S_IFMT), path);
    return 0;
}

static int refuse_memory(const char *path)
{
    return explain(-PAWL_ESEGMENT,
                   "%s: the host's memory was made by another release of pawl, or is damaged; end the processes that use it "
                   "('fuser %s' lists them), and remove it: rm %s",
                   path, path, path);
}

ONCE int host_open(const char *path, struct host *h)
{
    struct stat s;
    struct host_header header;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? -errno : explain(-errno, "%s: cannot open the host's memory: %s", path, strerror(errno));
    memset(h, 0, sizeof *h);
    int rc = fstat(fd, &s) ? -errno : check_owner(&s, path);
    if (!rc && (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
                !(h->design = check_header(&header, (uint64_t)s.st_size))))
        rc = refuse_memory(path);
    void *base = rc ? MAP_FAILED : mmap(NULL, header.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!rc && base == MAP_FAILED)
        rc = -errno;
    close(fd);
    if (rc)
        return rc;
    attach(h, base);
    snprintf(h->path, sizeof h->path, "%s", path);
    h->dev = s.st_dev;
    h->ino = s.st_ino;
    if (host_lives(h, host_now()))
        return 0;
    host_retire(h);
    host_close(h);
    return -ESTALE;
}

void host_close(struct host *h)
{
    if (h->header)
        munmap(h->header, h->header->bytes);
    h->header = NULL;
}

static bool is_in_place(const struct host *h)
{
    struct stat s;
    return !stat(h->path, &s) && s.st_dev == h->dev && s.st_ino == h->ino;
}

/* A process may be stopped or killed anywhere in here, so each process that finds a dead memory removes its file. A lock on the
 * file keeps the look at the name and the removal together: the file of a successor stays. If another process has the lock, that
 * process is at it. */
void host_retire(struct host *h)
{
    __atomic_store_n(&h->header->dead, 1, __ATOMIC_RELEASE);
    int fd = is_in_place(h) ? open(h->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd < 0)
        return;
    struct stat s;
    if (!fstat(fd, &s) && s.st_dev == h->dev && s.st_ino == h->ino && !flock(fd, LOCK_EX | LOCK_NB) && is_in_place(h))
        unlink(h->path);
    close(fd);
}

bool host_retire_if_idle(struct host *h, struct outbox *out)
{
    const struct rack_config *c = &h->header->config;
    bool idle = true;
    host_enter(h, out);
    for (uint32_t i = 0; i < c->sessions && idle; i++)
        idle = h->sessions[i].state == HOST_SESSION_FREE;
    for (uint32_t i = 0; i < rack_requests(c) && idle; i++)
        idle = h->design->idle(h->memory, i);
    if (idle && h->design->leave)
        h->design->leave(h->memory, host_now(), out);
    if (idle)
        host_retire(h);
    host_leave(h, out);
    return idle;
}

bool host_lives(const struct host *h, uint64_t now)
{
    return !__atomic_load_n(&h->header->dead, __ATOMIC_ACQUIRE) && now < __atomic_load_n(&h->header->until_ns, __ATOMIC_ACQUIRE);
}

/* ---- changes ---- */

static void ring_all(struct host *h)
{
    for (uint32_t i = 0; i < rack_requests(&h->header->config); i++)
        __atomic_add_fetch(&h->bells[i], 1, __ATOMIC_RELEASE);
}

void host_lock(struct host *h)
{
    int rc = pthread_mutex_lock(&h->header->mutex);
    if (rc == EOWNERDEAD) {
        undo_roll_back(h->undo, h->memory);
        if (h->design->local_recover)
            h->design->local_recover(h->memory);
        ring_all(h); /* the dead process may have completed a change and not woken the waiters */
        pthread_mutex_consistent(&h->header->mutex);
    }
    assert(!rc || rc == EOWNERDEAD);
}

void host_unlock(struct host *h)
{
    pthread_mutex_unlock(&h->header->mutex);
}

void host_enter(struct host *h, struct outbox *out)
{
    host_lock(h);
    out->undo = h->undo;
    out->memory = h->memory;
}

void host_leave(struct host *h, struct outbox *out)
{
    assert(out->undo == h->undo); /* from host_enter */
    undo_commit(h->undo);
    host_unlock(h);
}

/* ---- where switches and lock servers are ---- */

/* The writer fills the table that does not count, then makes it count. A reader that finds another version afterwards may have read
 * a table that is being filled, and reads again. If the writer dies in between, the old table still counts. */
static struct net_addr read_place(const struct host_header *h, uint64_t offset)
{
    uint32_t before, after = __atomic_load_n(&h->places_version, __ATOMIC_ACQUIRE);
    struct net_addr at;
    do {
        before = after;
        memcpy(&at, (const char *)&h->places[before % 2] + offset, sizeof at);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&h->places_version, __ATOMIC_RELAXED);
    } while (unlikely(before != after));
    return at;
}

bool host_switch(const struct host_header *h, unsigned i, struct net_addr *out)
{
    *out = read_place(h, offsetof(struct host_places, switches) + i * sizeof *out);
    return net_addr_known(*out);
}

bool host_server(const struct host_header *h, unsigned i, struct net_addr *out)
{
    *out = read_place(h, offsetof(struct host_places, servers) + i * sizeof *out);
    return net_addr_known(*out);
}

uint32_t host_places_version(const struct host_header *h)
{
    return h->places[__atomic_load_n(&h->places_version, __ATOMIC_ACQUIRE) % 2].version;
}

/* An address of none says that it is not known, or, with port COORD_AWAY, that nothing is to be sent. */
static bool move_to(struct net_addr *place, struct net_addr to)
{
    if ((!net_addr_known(to) && to.port != COORD_AWAY) || (net_addr_is(*place, to) && place->reads == to.reads))
        return false;
    *place = to;
    return true;
}

bool host_move(struct host_header *h, const struct coord_beat *ack)
{
    uint32_t version = h->places_version, server = ack->packet.role;
    struct host_places *next = &h->places[(version + 1) % 2];
    *next = h->places[version % 2];
    bool moved = false, counted = ack->places > next->version && server <= h->config.servers;
    for (unsigned i = 0; i < RACKS_MAX; i++)
        moved |= move_to(&next->switches[i], ack->switches[i]);
    if (counted && server)
        moved |= move_to(&next->servers[server - 1], ack->packet.at);
    if (counted)
        next->version = ack->places;
    if (moved || counted)
        __atomic_store_n(&h->places_version, version + 1, __ATOMIC_RELEASE);
    return moved;
}

/* ---- sessions ---- */

/* Whether no thread holds the session's mutex: then the caller does, until it unlocks it. */
static bool is_orphan(struct host_session *s)
{
    int rc = pthread_mutex_trylock(&s->life);
    if (rc == EOWNERDEAD)
        pthread_mutex_consistent(&s->life);
    return !rc || rc == EOWNERDEAD;
}

bool host_is_left(struct host *h)
{
    bool left = true;
    for (uint32_t i = 0; i < h->header->config.sessions && left; i++) {
        struct host_session *s = &h->sessions[i];
        if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == HOST_SESSION_FREE)
            continue;
        left = is_orphan(s);
        if (left)
            pthread_mutex_unlock(&s->life);
    }
    return left;
}

int host_session_open(struct host *h, uint16_t port, uint64_t until_ns, struct outbox *out, uint32_t *session)
{
    host_enter(h, out);
    int rc = __atomic_load_n(&h->header->dead, __ATOMIC_ACQUIRE) ? -ESTALE : -PAWL_ELIMIT;
    for (uint32_t i = 0; i < h->header->config.sessions && rc == -PAWL_ELIMIT; i++) {
        struct host_session *s = &h->sessions[i];
        if (s->state != HOST_SESSION_FREE || !is_orphan(s))
            continue;
        s->serial++;
        s->pid = (uint32_t)getpid();
        s->port = port;
        s->sleeper = 0;
        s->why = 0;
        s->until_ns = until_ns;
        s->opened_s = world_clock(CLOCK_REALTIME) / NS_PER_S;
        world_process_name(s->label);
        __atomic_store_n(&s->state, HOST_SESSION_OPEN, __ATOMIC_RELEASE);
        *session = i;
        rc = 0;
    }
    host_leave(h, out);
    return rc;
}

void host_session_close(struct host *h, uint32_t session, struct outbox *out)
{
    struct host_session *s = &h->sessions[session];
    host_enter(h, out);
    assert(s->state != HOST_SESSION_FREE && s->pid == (uint32_t)getpid()); /* I6: the number is this process's until now */
    h->design->session_dead(h->memory, session, host_now(), out);
    __atomic_store_n(&s->state, HOST_SESSION_FREE, __ATOMIC_RELEASE);
    host_leave(h, out);
    pthread_mutex_unlock(&s->life);
}

ONCE bool host_look_after(struct host *h, uint32_t *session, struct outbox *out)
{
    bool found = false;
    for (; *session < h->header->config.sessions && !found; ++*session) {
        struct host_session *s = &h->sessions[*session];
        if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == HOST_SESSION_FREE)
            continue;
        bool orphan = is_orphan(s);
        host_enter(h, out);
        uint64_t now = host_now();
        bool over = now >= __atomic_load_n(&s->until_ns, __ATOMIC_ACQUIRE);
        bool late = over || !h->design->expiry(h->memory, *session);
        found = (orphan && s->state != HOST_SESSION_FREE) || (late && s->state == HOST_SESSION_OPEN);
        if (found) {
            h->design->session_dead(h->memory, *session, now, out);
            s->why = s->why ? s->why : over ? PAWL_WHY_LEASE : PAWL_WHY_GRANTER;
            __atomic_store_n(&s->state, orphan ? HOST_SESSION_FREE : HOST_SESSION_LOST, __ATOMIC_RELEASE);
        }
        host_leave(h, out);
        if (orphan)
            pthread_mutex_unlock(&s->life);
    }
    return found;
}

int host_break(struct host *h, uint32_t session, uint32_t serial, struct outbox *out)
{
    if (session >= h->header->config.sessions)
        return -ENOENT;
    struct host_session *s = &h->sessions[session];
    if (s->serial != serial || s->state == HOST_SESSION_FREE)
        return -ENOENT;
    if (s->state == HOST_SESSION_LOST)
        return 0; /* the answer to an earlier packet was lost */
    h->design->session_dead(h->memory, session, host_now(), out);
    s->why = PAWL_WHY_BROKEN;
    __atomic_store_n(&s->state, HOST_SESSION_LOST, __ATOMIC_RELEASE);
    return 0;
}

void host_claims(const struct host *h, uint64_t from, uint64_t now, struct coord_claimed *out)
{
    const struct rack_config *c = &h->header->config;
    uint64_t request = from;
    out->count = 0;
    for (; request < rack_requests(c) && out->count < COORD_CLAIMS_MAX; request++) {
        struct packet_claim claim;
        if (!h->design->claim || !h->design->claim(h->memory, (uint32_t)request, &claim))
            continue;
        uint32_t session = (uint32_t)request / c->requests;
        const struct host_session *s = &h->sessions[session];
        struct coord_claim *o = &out->claim[out->count++];
        *o = (struct coord_claim){.index = claim.index,
                                  .token = claim.token,
                                  .left_ns = s->until_ns == UINT64_MAX ? UINT64_MAX : s->until_ns - min_u64(s->until_ns, now),
                                  .opened_s = s->opened_s,
                                  .session = session,
                                  .pid = s->pid,
                                  .mode = claim.mode,
                                  .holds = claim.holds,
                                  .serial = s->serial};
        memcpy(o->label, s->label, sizeof o->label);
    }
    out->packet.head.index = request < rack_requests(c) ? request : 0;
}
