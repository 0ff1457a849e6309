/* SPDX-License-Identifier: Apache-2.0 */
#include "node/memory.h"
#include "client/near_path.h"
#include "client/segment.h"
#include "cluster/coordinator.h"
#include "cluster/seals.h"
#include "fabric/shm.h"
#include "lib/explain.h"
#include "pawl.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_NS (50 * NS_PER_MS) /* how often it looks whether to stop, and at its clients */
#define CLIENTS_SPARE 16         /* beside twice the sessions: numbers of lost clients are given again when they are fenced */
#define LIFE_SHIFT 30            /* of world_birth: quarters of a second, of which 32 bits last until 2054 */

/* Files of former lives whose process was killed. A process that lives has its file locked. A link to a map of the kernel is of use
 * as long as the map is there. */
static void remove_former(const char *space)
{
    char pattern[NEAR_PATH];
    glob_t found;
    snprintf(pattern, sizeof pattern, SEGMENT_DIR "/pawl.%u.node.%s.*", (unsigned)geteuid(), space);
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = open(found.gl_pathv[i], O_RDWR | O_CLOEXEC);
        if (fd >= 0 ? !flock(fd, LOCK_EX | LOCK_NB) : errno == ENOENT)
            unlink(found.gl_pathv[i]);
        if (fd >= 0)
            close(fd);
    }
    globfree(&found);
}

/* A file that clients on this machine map, too. */
static int make_file(struct memory_node *m)
{
    char path[NEAR_PATH];
    remove_former(m->p.space);
    near_path(m->p.space, m->place.life, path);
    m->file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (m->file < 0 || flock(m->file, LOCK_EX | LOCK_NB))
        return explain(-errno, "%s: %s", path, strerror(errno));
    int rc = segment_reserve(m->file, &m->care.header);
    if (rc)
        return explain(-rc, "%s: cannot reserve %llu bytes of lock memory: %s (lower --locks, or make room in " SEGMENT_DIR ")",
                       path, (unsigned long long)m->care.header.total_bytes, strerror(rc));
    return 0;
}

/* A map of the kernel, by a link to it. An earlier process of this life may have left one. */
static int show_map(const struct memory_node *m)
{
    char path[NEAR_PATH];
    remove_former(m->p.space);
    near_path(m->p.space, m->place.life, path);
    unlink(path);
    return symlink(m->p.home->pinned, path) ? explain(-errno, "%s: %s", path, strerror(errno)) : 0;
}

/* Taken from the machine where it is first touched. */
static int make_memory(struct memory_node *m, uint64_t bytes, struct memory_place *out)
{
    int rc = m->p.local ? make_file(m) : 0, fd = m->file;
    if (rc)
        return rc;
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED)
        return explain(-errno, "cannot map %llu bytes of lock memory: %s (lower --locks, --sessions or --holds)",
                       (unsigned long long)bytes, strerror(errno));
    out->memory = memory;
    return 0;
}

/* Memory that an earlier process left is taken as it is, if it is what was asked for. */
static int adopt(struct memory_node *m)
{
    const struct layout_header *there = m->place.memory;
    const char *fault = layout_fault(there, m->care.header.total_bytes);
    m->p.layout.birth = there->token_base;
    int rc = fault ? 0 : care_format(&m->care, &m->p.layout);
    if (rc)
        return rc;
    if (fault || m->care.header.checksum != there->checksum)
        return explain(-EEXIST, "the memory that an earlier process left has another shape (%s); --fresh begins anew",
                       fault ? fault : "its design, --keys, --locks, --sessions, --holds, --lease or --tune");
    return 0;
}

/* The mark that says what this is comes last: a process that dies before leaves memory that is no space yet. */
static void format(struct memory_node *m)
{
    struct layout_header *there = m->place.memory;
    struct layout_header header = m->care.header;
    uint64_t magic = header.magic;
    header.magic = 0;
    memcpy(there, &header, sizeof header);
    __atomic_store_n(&there->magic, magic, __ATOMIC_RELEASE);
}

static bool is_keyed(const struct memory_node *m)
{
    return m->p.ring && m->p.ring->count;
}

static int place_memory(struct memory_node *m, uint32_t clients)
{
    const struct memory_home *home = m->p.home;
    struct memory_need need = {.bytes = m->care.header.total_bytes,
                               .clients = clients,
                               .space = rack_short_id(&m->identity),
                               .life = (uint32_t)(m->p.layout.birth >> LIFE_SHIFT),
                               .at = m->udp.at,
                               .lease_ns = m->p.layout.lease_ns,
                               .caps = m->p.layout.caps,
                               .fresh = m->p.fresh,
                               .ring = is_keyed(m) ? m->p.ring : NULL};
    m->place.life = need.life;
    int rc = !home || (m->p.local && home->takes_memory) ? make_memory(m, need.bytes, &m->place) : 0;
    need.memory = m->place.memory;
    if (!rc && home)
        rc = home->open(home->ctx, &need, &m->place);
    if (rc)
        return rc;
    if (is_keyed(m)) {
        m->owners = home ? m->place.owners : calloc(clients, sizeof *m->owners);
        if (!m->owners)
            return explain(-ENOMEM, "out of memory for %u clients", clients);
    }
    m->place.found = m->place.found && ((const struct layout_header *)m->place.memory)->magic;
    if (m->place.found)
        return adopt(m);
    format(m);
    return 0;
}

/* After the memory is formatted, and before a client asks. */
static int let_others_in(struct memory_node *m)
{
    const struct memory_home *home = m->p.home;
    int rc = m->p.local && home && home->pinned ? show_map(m) : 0;
    if (!rc && m->p.local && m->p.layout.design->node_tends && !(home && home->tend))
        rc = memory_tend_start(&m->tend, m->p.space, m->udp.at, m->place.memory, &m->care);
    return rc;
}

static bool process_ended(uint64_t process)
{
    return !fab_shm_gone(process, 0);
}

static bool same_machine(const struct memnode_from *a, const struct memnode_from *b)
{
    struct net_addr of[2];
    memcpy(&of[0], a, sizeof of[0]);
    memcpy(&of[1], b, sizeof of[1]);
    return net_addr_same_ip(of[0], of[1]);
}

static int make_node(struct memory_node *m, uint32_t clients)
{
    uint32_t caps = m->p.layout.caps;
    const struct memnode_params node = {
        .space = m->p.space,
        .id = rack_short_id(&m->identity),
        .life = m->place.life,
        .lease_ns = m->p.layout.lease_ns,
        .clients = clients,
        .shut = m->p.home ? m->p.home->shut : NULL,
        .ctx = m->p.home ? m->p.home->ctx : NULL,
        .can = (m->p.home ? m->p.home->can : 0u) | (fab_has(caps, FAB_ATOMIC128) ? VERBS_CAN_ATOMIC128 : 0u) |
               (fab_has(caps, FAB_MASKED) ? VERBS_CAN_MASKED : 0u) | (fab_has(caps, FAB_WAIT) ? VERBS_CAN_WAIT : 0u) |
               (fab_has(caps, FAB_CPU_ATOMIC64) ? VERBS_CAN_CPU : 0u),
        .memory = m->place.memory,
        .bytes = m->care.header.total_bytes,
        .table = m->place.table,
        .mistakes = m->p.mistakes,
        .ended = m->p.local ? process_ended : NULL,
        .same_machine = same_machine};
    m->node = memnode_new(&node);
    return m->node ? 0 : explain(-ENOMEM, "out of memory for %u clients", clients);
}

int memory_node_open(struct memory_node *m, const struct memory_node_params *p)
{
    char at[NET_ADDR_TEXT];
    memset(m, 0, sizeof *m);
    m->p = *p;
    m->udp.fd = m->file = -1;
    m->identity = coord_identity_of_name(p->space);
    m->p.layout.caps = p->home ? p->home->caps : p->local ? MEMORY_NODE_LOCAL_CAPS : MEMORY_NODE_CAPS;
    assert(!p->home || !p->local || ((p->home->pinned || p->home->takes_memory) && p->layout.design->node_tends));
    m->p.layout.birth = world_birth(&world_real);
    int rc = care_format(&m->care, &m->p.layout);
    if (rc == -EINVAL || rc == -EFBIG)
        return explain(rc, "the space would be too large, or a size is out of bounds: see --locks, --sessions and --holds");
    if (rc)
        return rc;
    uint32_t clients = (uint32_t)min_u64(2 * m->p.layout.sessions + CLIENTS_SPARE, MEMNODE_CLIENTS_MAX);
    m->clients = clients;
    net_addr_print(p->at, at);
    if (is_keyed(m) && p->home && !p->home->drops)
        return explain(
            -PAWL_ENOTSUP,
            "with --on ofi and verbs no program checks tags: use a network of the rack's own and --insecure without --key, "
            "or serve by udp");
    rc = udp_open(&m->udp, p->at); /* first: of two processes one has the memory */
    if (rc)
        return explain(rc, "cannot listen at %s: %s (--listen; 'ss -lunp' shows the process that has a port)", at, strerror(-rc));
    rc = place_memory(m, clients);
    if (!rc)
        rc = make_node(m, clients);
    if (!rc && p->home)
        rc = p->home->begin(p->home->ctx, &m->care);
    if (!rc)
        rc = let_others_in(m);
    if (rc) {
        memory_node_close(m);
        return rc;
    }
    bool known = p->fresh || m->place.found; /* no client holds what is not in memory */
    m->silent_until_ns = known ? 0 : care_silent_until(world_now(&world_real), p->layout.lease_ns);
    return 0;
}

void memory_node_close(struct memory_node *m)
{
    memory_tend_stop(&m->tend);
    udp_close(&m->udp);
    if (!m->p.home)
        free(m->owners);
    m->owners = NULL;
    memnode_free(m->node);
    if (m->p.home)
        m->p.home->close(m->p.home->ctx);
    else if (m->place.memory)
        munmap(m->place.memory, m->care.header.total_bytes);
    if (m->p.local && (m->place.memory || m->file >= 0)) {
        char path[NEAR_PATH];
        near_path(m->p.space, m->place.life, path);
        unlink(path);
    }
    if (m->file >= 0)
        close(m->file);
    m->file = -1;
    m->node = NULL;
    m->place.memory = NULL;
}

/* A client that opens pawl:// asks for a coordinator first. It is told that here is a memory node. Echoes come back. */
static uint32_t answer_other(struct memory_node *m, void *packet, uint32_t len, struct seal_key *used)
{
    struct packet_head *h = packet;
    if (is_keyed(m) && (len < sizeof *h || !seals_open(m->p.ring, packet, len, used))) {
        struct coord_packet answer;
        m->untagged++;
        uint32_t answer_len = seals_refuse(packet, len, COORD_WRONG_KEY, &answer);
        memcpy(packet, &answer, answer_len);
        return answer_len;
    }
    if (len >= sizeof *h && len <= PACKET_MAX && packet_readable(h) && h->family == PACKET_ECHO) {
        bool asks = h->type == ECHO_ASK;
        h->type = ECHO_BACK;
        m->strays += !asks;
        return asks ? len : 0;
    }
    const struct coord_packet *ask = coord_check(packet, len, 0);
    if (!ask || (ask->head.type != COORD_JOIN && ask->head.type != COORD_WHO && ask->head.type != COORD_RULES &&
                 ask->head.type != COORD_SPACE)) {
        m->strays++;
        return 0;
    }
    struct coord_packet answer;
    coord_make(&answer, COORD_REFUSED, m->p.space, &m->identity, ask->head.nonce);
    bool other = *ask->space && strncmp(ask->space, m->p.space, sizeof ask->space); /* empty: of any */
    answer.code = other ? -ENOENT : -EPROTOTYPE;
    memcpy(answer.space, ask->space, sizeof answer.space);
    memcpy(packet, &answer, sizeof answer);
    return sizeof answer;
}

static_assert(sizeof(struct net_addr) == sizeof(struct memnode_from), "an address is what a packet came from");

static void send_wakes(struct memory_node *m)
{
    struct {
        struct verbs_wait w;
        struct seal_trail room;
    } tagged;
    struct udp_out out = {.data = &tagged};
    struct memnode_from to;
    while ((out.len = memnode_more(m->node, &tagged.w, &to))) {
        if (m->owners)
            out.len = seal_trail_put(&m->owners[tagged.w.head.client].by, &tagged, out.len);
        memcpy(&out.to, &to, sizeof out.to);
        udp_send(&m->udp, &out, 1);
    }
}

/* All but how many clients there are, which takes a look at each. */
static struct memory_figures figures_of(const struct memory_node *m)
{
    struct memory_drops by_home = {0};
    struct memnode_counts c = *memnode_counts(m->node);
    if (m->p.home && m->p.home->drops)
        m->p.home->drops(m->p.home->ctx, &by_home);
    c.forged += by_home.forged;
    c.foreign += by_home.foreign;
    c.malformed += by_home.malformed;
    c.dropped += by_home.late;
    c.refused += by_home.refused;
    return (struct memory_figures){.ready = m->ready,
                                   .life = m->place.life,
                                   .bytes = m->care.header.total_bytes,
                                   .untagged = m->untagged + by_home.untagged,
                                   .strays = m->strays,
                                   .counts = c};
}

/* Those that the log tells of; a client's request that comes late is none. */
static uint64_t refusals(const struct memory_figures *f)
{
    return f->counts.refused + f->counts.forged + f->counts.malformed + f->counts.foreign + f->counts.full + f->untagged +
           f->strays;
}

/* The node is free of I/O: its counts tell what happened to its clients. */
static void watch_clients(struct memory_node *m, uint64_t now)
{
    const struct memory_figures f = figures_of(m);
    const struct memnode_counts *c = &f.counts, *b = &m->said.counts;
    uint64_t withheld;
    bool changed = c->connects != b->connects || c->leaves != b->leaves || c->fences != b->fences || c->silent != b->silent;
    if (changed && log_may(&m->changing, now, &withheld)) {
        bool lost = c->fences != b->fences || c->silent != b->silent;
        log_event(lost ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, lost ? "clients lost" : "clients changed",
                  LOG_TEXT("space", m->p.space), LOG_NUMBER("clients", memnode_clients(m->node)),
                  LOG_NUMBER("connected", c->connects - b->connects), LOG_NUMBER("left", c->leaves - b->leaves),
                  LOG_NUMBER("fenced", c->fences - b->fences), LOG_NUMBER("silent", c->silent - b->silent),
                  LOG_TEXT("why", lost ? "they were silent for two leases, or others fenced them" : "they connected or left"));
        m->said.counts.connects = c->connects;
        m->said.counts.leaves = c->leaves;
        m->said.counts.fences = c->fences;
        m->said.counts.silent = c->silent;
    }
    if (refusals(&f) == refusals(&m->said) || !log_may(&m->refusing, now, &withheld))
        return;
    log_event(
        LOG_LEVEL_WARNING, "packets dropped", LOG_TEXT("space", m->p.space), LOG_NUMBER("refused", c->refused - b->refused),
        LOG_NUMBER("forged", c->forged - b->forged), LOG_NUMBER("untagged", f.untagged - m->said.untagged),
        LOG_NUMBER("malformed", c->malformed - b->malformed), LOG_NUMBER("foreign", c->foreign - b->foreign),
        LOG_NUMBER("limited", c->full - b->full), LOG_NUMBER("unreadable", f.strays - m->said.strays),
        LOG_TEXT("why", "their senders were shut out or have their share of clients, or they are malformed or of another space"));
    m->said.untagged = f.untagged;
    m->said.strays = f.strays;
    m->said.counts.refused = c->refused;
    m->said.counts.forged = c->forged;
    m->said.counts.malformed = c->malformed;
    m->said.counts.foreign = c->foreign;
    m->said.counts.full = c->full;
}

static void look_around(struct memory_node *m, uint64_t now)
{
    if (!m->ready && now >= m->silent_until_ns) {
        m->ready = true;
        memnode_ready(m->node);
        log_event(LOG_LEVEL_INFO, "memory node serves", LOG_TEXT("space", m->p.space), LOG_NUMBER("life", m->place.life),
                  LOG_TEXT("why", m->place.found ? "it goes on with the memory of an earlier process"
                                  : m->p.fresh   ? "no client holds anything from before"
                                                 : "leases from before have ended"));
    }
    if (m->p.home && m->p.home->tend)
        m->p.home->tend(m->p.home->ctx, now);
    if (now >= m->tick_ns) {
        memnode_tick(m->node, now);
        m->tick_ns = now + min_u64(LOOK_NS, m->p.layout.lease_ns / 8);
        watch_clients(m, now);
    }
}

static void publish(struct memory_node *m)
{
    struct figures_part p = {.kind = FIGURES_MEMORY, .ready = m->ready, .at = m->udp.at, .memory = figures_of(m)};
    p.memory.clients = memnode_clients(m->node);
    snprintf(p.space, sizeof p.space, "%s", m->p.space);
    snprintf(p.design, sizeof p.design, "%s", m->p.layout.design->name);
    figures_publish(&m->board, &p);
}

/* Whether a client's packet is tagged with the key with which the client has connected. */
static bool is_owners(struct memory_node *m, const struct verbs_head *h, const struct seal_asker *by)
{
    if (h->type == VERBS_CONNECT)
        return true;
    const struct memory_owner *o = h->client < m->clients ? &m->owners[h->client] : NULL;
    return o && (o->life != h->life || o->by.number == by->number); /* of another life: the node refuses it */
}

/* A client has connected, or asks again; or it had connected before this process began, by a key that is no longer valid. A sender
 * that has read another's nonce does not become that client. */
static bool takes_owner(struct memory_node *m, const struct verbs_head *h, const struct seal_asker *by)
{
    if (h->status != VERBS_OK || h->client >= m->clients)
        return true;
    struct memory_owner *o = &m->owners[h->client];
    if ((h->type & ~VERBS_ANSWER) != VERBS_CONNECT && o->life == h->life)
        return true;
    if (o->life == h->life && o->by.number != by->number)
        return false;
    *o = (struct memory_owner){.by = *by, .life = h->life};
    return true;
}

static uint32_t execute(struct memory_node *m, uint8_t *data, uint32_t len, const struct memnode_from *from, uint64_t now);

/* The same for packets with tags: the answer has the key of the question. */
static uint32_t tagged_packet(struct memory_node *m, uint8_t *data, uint32_t len, const struct memnode_from *from, uint64_t now)
{
    const struct verbs_head *h = (const struct verbs_head *)(const void *)data;
    struct seal_asker by;
    if (!seal_trail_open_any(m->p.ring, data, &len, &by) || len < sizeof *h || !is_owners(m, h, &by)) {
        m->untagged++;
        return 0;
    }
    len = execute(m, data, len, from, now);
    if (!len)
        return 0;
    if (!takes_owner(m, h, &by)) {
        m->untagged++;
        return 0;
    }
    return seal_trail_put(&by, data, len);
}

/* The length of its answer, in its place; 0: none. *used: the key of a packet that is not a client's. */
static uint32_t one_packet(struct memory_node *m, uint8_t *data, uint32_t len, const struct memnode_from *from, uint64_t now,
                           struct seal_key *used)
{
    const struct verbs_head *h = (const struct verbs_head *)(const void *)data;
    if (len < sizeof *h || h->magic != VERBS_MAGIC)
        return answer_other(m, data, len, used);
    return m->owners ? tagged_packet(m, data, len, from, now) : execute(m, data, len, from, now);
}

static uint32_t execute(struct memory_node *m, uint8_t *data, uint32_t len, const struct memnode_from *from, uint64_t now)
{
    const struct verbs_head *h = (const struct verbs_head *)(const void *)data;
    bool attaches = h->type == VERBS_ATTACH && m->p.home && m->p.home->can & VERBS_CAN_FABRIC;
    if (attaches || (m->p.home && (h->type == VERBS_BATCH || h->type == VERBS_WAIT)))
        return m->p.home->execute(m->p.home->ctx, data, len);
    return memnode_packet(m->node, data, len, from, now, h->type == VERBS_CONNECT ? world_random(&world_real) : 0);
}

void memory_node_run(struct memory_node *m, const volatile sig_atomic_t *stop)
{
    static _Thread_local struct udp_batch batch;
    figures_show(&m->board);
    look_around(m, world_now(&world_real));
    while (!*stop) {
        struct udp_out out[UDP_BATCH];
        struct seal_key used[UDP_BATCH] = {{.k = {0}}};
        unsigned n = udp_wait(&m->udp, &batch, m->p.spin_ns, world_now(&world_real) + LOOK_NS), count = 0;
        uint64_t now = world_now(&world_real);
        for (unsigned i = 0; i < n; i++) {
            uint8_t *data = batch.packet[i].data;
            struct memnode_from from;
            memcpy(&from, &batch.packet[i].from, sizeof from);
            uint32_t len = batch.packet[i].len;
            len = one_packet(m, data, len, &from, now, &used[i]);
            if (len)
                out[count++] = (struct udp_out){
                    .to = batch.packet[i].from, .len = len, .data = data, .key = seal_known(&used[i]) ? &used[i] : NULL};
        }
        udp_send(&m->udp, out, count);
        send_wakes(m);
        look_around(m, now); /* after the packets: clients that were heard of are not silent */
        if (figures_due(&m->board, now))
            publish(m);
    }
    figures_hide(&m->board);
}
