/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/service.h"
#include "cluster/mistakes.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RESTORE_LIVES (UINT32_C(1) << 20) /* that an older or damaged state may not know of: three days' */
#define PEEKS_MAX 5u                      /* a snapshot of the leader may replace what is read */
#define HOSTS_AT_ONCE 64u                 /* records of one append */
#define GARBAGE_MAX (UINT64_C(256) << 10) /* bytes of records that later ones replace, until a snapshot */

/* For messages. */
static const char *where_of(const struct service *s)
{
    return s->etcd ? s->etcd->leader.place : s->file.path;
}

/* ---- the log ---- */

/* Whether it fits. */
static bool add(const struct service *s, struct service_batch *b, enum state_record type, const void *data, uint16_t len)
{
    const struct store_record r = {.type = (uint8_t)type, .len = len, .data = data};
    uint32_t cost = s->store->ops->cost(&r);
    if (b->count == SERVICE_RECORDS || b->used + cost > STORE_APPEND_MAX - 64) /* room for the end of the append */
        return false;
    b->record[b->count++] = r;
    b->used += cost;
    return true;
}

static int forget_batch(struct service_batch *b)
{
    b->count = 0;
    b->used = b->bytes_used = 0;
    return 0;
}

static int append(struct service *s, struct service_batch *b)
{
    int rc = b->count ? s->store->ops->append(s->store, b->record, b->count) : 0;
    s->failed += rc != 0;
    forget_batch(b);
    return rc;
}

static int append_one(struct service *s, enum state_record type, const void *data, uint16_t len)
{
    add(s, &s->batch, type, data, len);
    return append(s, &s->batch);
}

/* ---- what is not in the log yet ---- */

/* The change of a key. Whether it fits. */
static bool add_key(const struct service *s, struct service_batch *b, uint64_t cell)
{
    const struct directory *d = &s->state.directory;
    bool gone = d->key[cell].state == DIRECTORY_LEAVING;
    if (sizeof b->bytes - b->bytes_used < STATE_KEY_MAX)
        return false;
    uint8_t *record = b->bytes + b->bytes_used;
    uint16_t len = state_name(d, cell, gone, record);
    if (!add(s, b, gone ? STATE_GONE : STATE_NAME, record, len))
        return false;
    b->bytes_used += len;
    return true;
}

static int write_names(struct service *s, struct service_batch *b)
{
    struct directory *d = &s->state.directory;
    while (d->changed.count) {
        uint64_t end = 0;
        while (end < d->changed.count && add_key(s, b, d->changed.cell[end]))
            end++;
        int rc = append(s, b);
        if (rc)
            return rc;
        directory_wrote(d, end);
    }
    return 0;
}

/* Values that were set. */
static int write_values(struct service *s, struct service_batch *b)
{
    struct values *v = &s->state.values;
    while (v->changed_count) {
        uint64_t end = 0;
        for (; end < v->changed_count && sizeof b->bytes - b->bytes_used >= STATE_VALUE_MAX; end++) {
            uint8_t *record = b->bytes + b->bytes_used;
            uint16_t len = state_value(&v->value[v->changed[end]], record);
            if (!add(s, b, STATE_VALUE, record, len))
                break;
            b->bytes_used += len;
        }
        int rc = MISTAKE(s->coordinator.config.mistakes, COORD_MISTAKE_UNSAVED) ? forget_batch(b) : append(s, b);
        if (rc)
            return rc;
        values_wrote(v, end);
    }
    return 0;
}

static int write_station(struct service *s, struct service_batch *b, struct coord_station *station, unsigned place, bool serves)
{
    struct state_station t;
    memset(&t, 0, sizeof t);
    t.at = station->at;
    t.life = station->life;
    t.place = (uint16_t)place;
    t.serves = serves;
    assert(t.life && t.life <= s->state.lives); /* I15: reserved before it is given */
    add(s, b, STATE_STATION, &t, sizeof t);
    int rc = append(s, b);
    if (rc)
        return rc;
    *(serves ? &s->state.server[place] : &s->state.switch_[place]) = t;
    station->unwritten = false;
    return 0;
}

static int write_stations(struct service *s, struct service_batch *b)
{
    struct coordinator *c = &s->coordinator;
    int rc = 0;
    for (unsigned i = 0; i < RACK_SERVERS_MAX && !rc; i++)
        if (c->server[i].unwritten)
            rc = write_station(s, b, &c->server[i], i, true);
    for (unsigned i = 0; i < RACKS_MAX && !rc; i++)
        if (c->switch_[i].unwritten)
            rc = write_station(s, b, &c->switch_[i], i, false);
    return rc;
}

/* Whether leases that were given before this coordinator began have ended. */
static bool are_over(const struct service *s, uint64_t now)
{
    const struct coordinator *c = &s->coordinator;
    return !c->changed && now - c->start_ns > lease_surely_over(max_u64(s->state.hosts.member_ns, s->state.lease_ns));
}

static int write_counters(struct service *s, struct service_batch *b, uint64_t now)
{
    struct coordinator *c = &s->coordinator;
    uint32_t lives = coordinator_lives_wanted(c, now);
    bool over = are_over(s, now), settled = coordinator_is_settled(c);
    uint64_t lease = over ? c->config.lease_ns : s->state.lease_ns;
    struct state_hosts hosts = {.member_ns = over ? rack_member_ns(&c->config) : s->state.hosts.member_ns,
                                .settled = settled ? c->config.identity.version : s->state.hosts.settled};
    const struct rules *wanted = coordinator_wants(c);
    assert((lease >= c->config.lease_ns && hosts.member_ns >= rack_member_ns(&c->config)) ||
           MISTAKES(c->config.mistakes)); /* I16 */
    assert(!over || now >= c->open_ns);   /* I16: no longer lease is forgotten while it runs */
    if (lives)
        add(s, b, STATE_LIVES, &lives, sizeof lives);
    if (lease != s->state.lease_ns)
        add(s, b, STATE_LEASE, &lease, sizeof lease);
    if (memcmp(&hosts, &s->state.hosts, sizeof hosts) != 0)
        add(s, b, STATE_HOSTS, &hosts, sizeof hosts);
    if (wanted)
        add(s, b, STATE_RULES, wanted, sizeof *wanted);
    int rc = append(s, b);
    if (rc)
        return rc;
    if (lives)
        s->state.lives = c->lives = lives;
    s->state.lease_ns = lease;
    s->state.hosts = hosts;
    if (settled)
        coordinator_set_settled(c);
    if (wanted)
        coordinator_set_rules(c, wanted);
    s->state.rules = c->rules;
    return 0;
}

/* About as long as the records of all names. */
static uint64_t names_bytes(const struct directory *d)
{
    return d->bytes_live + d->used * sizeof(struct state_key);
}

static uint64_t values_bytes(const struct values *v)
{
    return v->count * STATE_VALUE_MAX;
}

/* Records of hosts that have come and gone, some at a time. */
static int write_some_hosts(struct service *s, struct service_batch *b, uint16_t *next)
{
    struct state_host record[HOSTS_AT_ONCE];
    struct coordinator *c = &s->coordinator;
    unsigned count = 0;
    memset(record, 0, sizeof record);
    for (; *next <= c->config.machines && count < HOSTS_AT_ONCE; ++*next) {
        uint32_t life = coordinator_host_life(c, *next);
        if (life == s->state.host[*next])
            continue;
        record[count] = (struct state_host){.life = life, .number = *next};
        add(s, b, STATE_HOST, &record[count], sizeof record[count]);
        count++;
    }
    int rc = append(s, b);
    for (unsigned i = 0; i < count && !rc; i++) {
        assert(record[i].life <= s->state.lives || MISTAKES(c->config.mistakes)); /* I15 */
        s->state.host[record[i].number] = record[i].life;
        s->members[record[i].number].unwritten = false;
    }
    return rc;
}

/* No client waits for the record of a host that has gone. Until it is written, a coordinator that restarts waits for the host in
 * vain. */
static int write_hosts(struct service *s, struct service_batch *b, bool idle)
{
    struct coordinator *c = &s->coordinator;
    bool due = idle && c->hosts_changed;
    int rc = 0;
    for (uint16_t m = 1; m <= c->config.machines && c->hosts_changed; m++)
        due = due || s->members[m].unwritten;
    for (uint16_t next = 1; due && next <= c->config.machines && !rc;)
        rc = write_some_hosts(s, b, &next);
    if (due && !rc)
        c->hosts_changed = false;
    return rc;
}

/* `idle`: no answer waits for it. */
static int write_all(struct service *s, bool idle, uint64_t now)
{
    struct service_batch *b = &s->batch;
    int names = write_names(s, b), rc = write_stations(s, b);
    if (!rc)
        rc = write_values(s, b);
    if (!rc)
        rc = write_counters(s, b, now);
    if (!rc)
        rc = write_hosts(s, b, idle);
    if (s->store->since_snapshot > GARBAGE_MAX + 2 * (names_bytes(&s->state.directory) + values_bytes(&s->state.values)))
        s->store->ops->snapshot(s->store, state_each, &s->state); /* if it fails, the log goes on */
    return names ? names : rc;
}

/* The same without a log. */
static void keep_all(struct service *s)
{
    struct coordinator *c = &s->coordinator;
    const struct rules *wanted = coordinator_wants(c);
    if (wanted)
        coordinator_set_rules(c, wanted);
    if (coordinator_is_settled(c))
        coordinator_set_settled(c);
    directory_wrote(&s->state.directory, s->state.directory.changed.count);
    values_wrote(&s->state.values, s->state.values.changed_count);
}

/* ---- packets ---- */

bool service_packet(struct service *s, const void *data, uint32_t len, struct net_addr from, uint64_t now,
                    struct service_answer *out)
{
    out->to = from;
    out->len = coordinator_packet(&s->coordinator, data, len, from, now, out->bytes);
    out->unwritten = s->coordinator.unwritten;
    return out->len != 0;
}

/* An answer about a key whose record could not be written says so: the client need not wait, and known keys are found (I7). */
static void withhold_key(const struct service *s, struct service_answer *a)
{
    struct coord_key *k = (struct coord_key *)(void *)a->bytes;
    const struct directory *d = &s->state.directory;
    if (k->packet.head.type == COORD_FOUND && !k->packet.code && !d->key[directory_cell(d, k->packet.head.index)].written)
        k->packet.code = -EIO;
}

bool service_leads(struct service *s)
{
    return !s->etcd || leader_renew(&s->etcd->leader);
}

static unsigned commit(struct service *s, struct service_answer *answers, unsigned count, uint64_t now)
{
    unsigned left = 0;
    if (!s->store) {
        keep_all(s);
        return count;
    }
    if (MISTAKE(s->coordinator.config.mistakes, COORD_MISTAKE_EARLY | COORD_MISTAKE_AHEAD) && count)
        return count; /* the next one without answers writes */
    if (!write_all(s, !count, now)) {
        assert(!s->state.directory.changed.count && !s->state.values.changed_count); /* I7, I18: all that is told is in the log */
        return count;
    }
    for (unsigned i = 0; i < count; i++) {
        if (answers[i].unwritten)
            continue;
        withhold_key(s, &answers[i]);
        if (left != i)
            memcpy(&answers[left], &answers[i], offsetof(struct service_answer, bytes) + answers[i].len);
        left++;
    }
    return left;
}

unsigned service_commit(struct service *s, struct service_answer *answers, unsigned count, uint64_t now)
{
    unsigned left = commit(s, answers, count, now);
    return s->etcd && !leader_leads(&s->etcd->leader) ? 0 : left; /* I22: whatever the answer tells, and however it was found */
}

/* ---- opening ---- */

static int open_store(struct service *s, const struct state_params *where, enum store_how how, struct store_identity *identity)
{
    int rc = where->etcd ? store_etcd_open(where->etcd, how, identity, state_take, state_each, &s->state)
                         : store_file_open(&s->file, where->disk, where->path, how, identity, state_take, state_each, &s->state);
    s->etcd = where->etcd;
    if (!rc)
        s->store = where->etcd ? &where->etcd->store : &s->file.store;
    return rc;
}

static void close_store(struct service *s)
{
    if (s->store)
        s->store->ops->close(s->store);
    s->store = NULL;
}

static bool same_config(const struct rack_config *a, const struct rack_config *b)
{
    struct rack_config like = *a;
    like.identity = b->identity;
    like.space = b->space;
    return !memcmp(&like, b, sizeof like);
}

/* Compares the configuration of the log with that of the command line. */
static int check_config(const struct service *s, const struct coord_params *p, const struct rack_config *config)
{
    const struct state_config *c = &s->state.config;
    if (strncmp(c->design, p->design->name, sizeof c->design) != 0)
        return explain(-EINVAL, "%s: the space has the design '%s', not '%s'; another design is another space: --fresh",
                       where_of(s), c->design, p->design->name);
    if (c->config.locks > config->locks)
        return explain(-EINVAL, "%s: the space has %" PRIu64 " locks, and can grow but not shrink: --locks %" PRIu64 " is less",
                       where_of(s), c->config.locks, config->locks);
    if (c->config.keys != config->keys || c->config.group != config->group)
        return explain(-EINVAL,
                       "%s: the space has %" PRIu64
                       " locks and %s keys, and its names have their locks by that: it goes with --keys as they were",
                       where_of(s), c->config.locks,
                       c->config.keys == PAWL_KEYS_NAMED    ? "named"
                       : c->config.keys == PAWL_KEYS_SPARSE ? "sparse"
                                                            : "dense");
    if (c->config.racks != config->racks)
        return explain(-EINVAL, "%s: the space has %u racks, and its locks are divided among them: it goes with --racks as it was",
                       where_of(s), c->config.racks);
    return 0;
}

/* Whether the configurations differ by the number of locks alone. */
static bool only_grows(const struct rack_config *from, const struct rack_config *to)
{
    struct rack_config like = *from;
    like.locks = to->locks;
    return to->locks > from->locks && same_config(&like, to);
}

/* The next configuration: the log has it, and the longest lease, before any member hears of it (I16). It has the next version,
 * unless the space grows in place: then hosts go on with the configuration that they have joined, and are told how many locks there
 * are. */
static int change_config(struct service *s, const struct coord_params *p, struct rack_config *config, bool restored)
{
    bool same = same_config(&s->state.config.config, config);
    bool in_place = !restored && only_grows(&s->state.config.config, config) && !coordinator_keeps_size(p);
    config->identity = s->state.config.config.identity;
    config->space = rack_short_id(&config->identity);
    if (same && !restored)
        return 0;
    if (state_has_names(config) && config->locks > s->state.directory.locks && directory_grow(&s->state.directory, config->locks))
        return explain(-ERANGE, "%s: the space has grown %u times, and cannot grow again", s->file.path, DIRECTORY_PARTS_MAX - 1);
    config->identity.version += !in_place;
    s->state.config.config = *config;
    s->state.lease_ns = max_u64(s->state.lease_ns, config->lease_ns);
    s->state.hosts.member_ns = max_u64(s->state.hosts.member_ns, rack_member_ns(config));
    if (restored) /* hosts may be missing in it */
        s->state.hosts.settled = 0;
    if (MISTAKE(p->mistakes, COORD_MISTAKE_LEASE)) {
        s->state.lease_ns = config->lease_ns;
        s->state.hosts = (struct state_hosts){.member_ns = rack_member_ns(config), .settled = config->identity.version};
        memset(s->state.host, 0, sizeof s->state.host);
    }
    assert(s->state.lease_ns >= config->lease_ns && s->state.hosts.member_ns >= rack_member_ns(config)); /* I16 */
    add(s, &s->batch, STATE_CONFIG, &s->state.config, sizeof s->state.config);
    add(s, &s->batch, STATE_LEASE, &s->state.lease_ns, sizeof s->state.lease_ns);
    add(s, &s->batch, STATE_HOSTS, &s->state.hosts, sizeof s->state.hosts);
    int rc = restored ? s->store->ops->snapshot(s->store, state_each, &s->state) : append(s, &s->batch);
    s->batch.count = s->batch.used = s->batch.bytes_used = 0;
    return rc ? explain(rc, "%s: cannot be written: %s", where_of(s), strerror(-rc)) : 0;
}

/* Lives of a former space of that name, as far as they can be read. */
static uint32_t lives_before(struct service *s, const struct state_params *where, const char *space)
{
    struct service *old = s->before = calloc(1, sizeof *old);
    struct store_identity identity = {.space = ""};
    uint32_t lives = 0;
    if (!old)
        return 0;
    snprintf(identity.space, sizeof identity.space, "%s", space);
    if (!open_store(old, where, STORE_RESTORE, &identity))
        lives = old->state.lives;
    service_close(old);
    free(old);
    s->before = NULL;
    return lives;
}

static void begin_fresh(struct service *s, const struct coord_params *p, const struct state_params *where,
                        struct rack_config *config)
{
    const struct rack_identity made = {.id = {where->id[0], where->id[1]}, .version = 1};
    if (rack_id_known(&made) && !MISTAKE(p->mistakes, COORD_MISTAKE_ANONYMOUS))
        config->identity = made; /* else that of the parameters, or of the name */
    config->space = rack_short_id(&config->identity);
    snprintf(s->state.config.design, sizeof s->state.config.design, "%s", p->design->name);
    s->state.config.config = *config;
    s->state.lease_ns = config->lease_ns;
    s->state.hosts = (struct state_hosts){.member_ns = rack_member_ns(config), .settled = config->identity.version};
    s->state.lives = where->path || where->etcd ? (uint32_t)max_u64(where->life, lives_before(s, where, p->space)) : p->life;
    rules_init(&s->state.rules, config->racks);
    if (state_has_names(config))
        directory_init(&s->state.directory, (enum pawl_keys)config->keys, config->locks);
}

static int open_log(struct service *s, struct coord_params *p, const struct state_params *where, struct rack_config *config)
{
    struct store_identity identity = {.id = {where->id[0], where->id[1]}};
    enum store_how how = where->how;
    bool torn = MISTAKE(p->mistakes, COORD_MISTAKE_TORN) && how == STORE_CONTINUE;
    snprintf(identity.space, sizeof identity.space, "%s", p->space);
    if (how == STORE_FRESH)
        begin_fresh(s, p, where, config);
    int rc = open_store(s, where, torn ? STORE_RESTORE : how, &identity);
    if (rc == -ENOENT && MISTAKE(p->mistakes, COORD_MISTAKE_ANONYMOUS)) {
        begin_fresh(s, p, where, config);
        how = STORE_FRESH;
        rc = open_store(s, where, how, &identity);
    }
    if (rc)
        return rc;
    if (torn && s->state.config.config.locks)
        s->store->ops->snapshot(s->store, state_each, &s->state);
    if (how == STORE_FRESH)
        return 0;
    if (!s->state.config.config.locks)
        return explain(-EBADMSG, "%s: the configuration of the space cannot be read", where_of(s));
    directory_loaded(&s->state.directory);
    if (p->follows)
        p->locks = config->locks = max_u64(config->locks, s->state.config.config.locks);
    rc = check_config(s, p, config);
    if (how == STORE_RESTORE)
        s->state.lives += RESTORE_LIVES;
    return rc ? rc : change_config(s, p, config, how == STORE_RESTORE);
}

/* Lives for the start: those of the former coordinator end here. */
static int reserve(struct service *s, const struct coord_params *p)
{
    s->first_life = s->state.lives;
    if (MISTAKE(p->mistakes, COORD_MISTAKE_CLOCK))
        s->first_life = p->life;
    if (!s->store)
        return 0;
    uint32_t lives = (uint32_t)min_u64(s->first_life + (uint64_t)COORD_LIVES_AHEAD, UINT32_MAX);
    if (lives == UINT32_MAX)
        return explain(-EOVERFLOW, "%s: all lives are used up; begin a new space with --fresh", where_of(s));
    int rc = append_one(s, STATE_LIVES, &lives, sizeof lives);
    s->state.lives = lives;
    return rc ? explain(rc, "%s: cannot be written: %s", where_of(s), strerror(-rc)) : 0;
}

int service_open(struct service *s, const struct coord_params *params, const struct state_params *where, uint64_t now)
{
    struct coord_params p = *params;
    struct rack_config config;
    const char *why = NULL;
    memset(s, 0, sizeof *s);
    p.directory = p.keys == PAWL_KEYS_NAMED || p.keys == PAWL_KEYS_SPARSE ? &s->state.directory : NULL;
    p.values = p.design->features & DESIGN_VALUES ? &s->state.values : NULL;
    int rc = coordinator_config(&p, &config, &why);
    if (rc)
        return explain(rc, "%s", why);
    s->members = calloc(p.machines + UINT64_C(1), sizeof *s->members);
    if (!s->members)
        return explain(-ENOMEM, "out of memory");
    if (where->path || where->etcd)
        rc = open_log(s, &p, where, &config);
    else
        begin_fresh(s, &p, where, &config);
    if (!rc)
        rc = reserve(s, &p);
    if (!rc) {
        p.identity = config.identity;
        p.life = s->first_life;
        p.state = s->store ? &s->state : NULL;
        rc = coordinator_init(&s->coordinator, &p, s->members, now, &why);
        assert(!rc && !memcmp(&s->coordinator.config, &config, sizeof config));
        rc = service_steward_open(s, where->path || where->etcd ? where->how == STORE_FRESH : p.fresh);
    }
    if (rc)
        service_close(s);
    return rc;
}

static int take_settings(void *to, const struct store_record *r)
{
    if (r->type != STATE_CONFIG)
        return 0;
    if (r->len != sizeof(struct state_config))
        return -EINVAL;
    memcpy(to, r->data, r->len);
    return 0;
}

int service_settings(struct disk *disk, const char *path, const char *space, struct state_config *settings)
{
    struct store_file file;
    struct store_identity identity = {.space = ""};
    memset(settings, 0, sizeof *settings);
    snprintf(identity.space, sizeof identity.space, "%s", space);
    int rc = store_file_open(&file, disk, path, STORE_CONTINUE, &identity, take_settings, NULL, settings);
    if (!rc)
        file.store.ops->close(&file.store);
    return rc;
}

int service_settings_etcd(struct store_etcd *store, const char *space, struct state_config *settings)
{
    struct store_identity identity = {.space = ""};
    int rc = -EAGAIN;
    snprintf(identity.space, sizeof identity.space, "%s", space);
    for (unsigned i = 0; i < PEEKS_MAX && rc == -EAGAIN; i++) {
        memset(settings, 0, sizeof *settings);
        rc = store_etcd_peek(store, &identity, take_settings, settings);
    }
    return rc;
}

int service_params(const struct state_config *settings, struct coord_params *out)
{
    const struct rack_config *c = &settings->config;
    const struct design *d =
        strnlen(settings->design, sizeof settings->design) < sizeof settings->design ? design_find(settings->design) : NULL;
    if (!d || !d->packet)
        return explain(-EINVAL, "the space has the design '%.*s', which this build does not have", (int)sizeof settings->design - 1,
                       settings->design);
    *out = (struct coord_params){.design = d,
                                 .locks = c->locks,
                                 .lease_ns = c->lease_ns,
                                 .retry_ns = c->retry_ns,
                                 .member_ns = rack_member_ns(c),
                                 .machines = c->machines,
                                 .sessions = c->sessions,
                                 .requests = c->requests,
                                 .servers = c->servers,
                                 .racks = c->racks,
                                 .backup = c->switches == 2,
                                 .keys = (enum pawl_keys)c->keys,
                                 .group = c->group,
                                 .like = c};
    return 0;
}

static int peek_once(struct service *s, const struct coord_params *p, const struct state_params *where)
{
    struct store_identity identity = {.space = ""};
    struct rack_config config;
    const char *why = NULL;
    snprintf(identity.space, sizeof identity.space, "%s", p->space);
    int rc = coordinator_config(p, &config, &why);
    if (rc)
        return explain(rc, "%s", why);
    rc = store_etcd_peek(where->etcd, &identity, state_take, &s->state);
    if (rc)
        return rc;
    if (!s->state.config.config.locks)
        return explain(-EBADMSG, "%s: the configuration of the space cannot be read", where_of(s));
    rc = check_config(s, p, &config);
    if (rc || where->etcd->leader.seen.term.lease_ns == 0 || same_config(&s->state.config.config, &config))
        return rc;
    return explain(
        -EINVAL,
        "%s: the coordinator that leads has another lease, or other numbers of locks, hosts, sessions, holds or servers: all "
        "coordinators of a space have the same settings. To change them stop all, and start with the new ones",
        where_of(s));
}

int service_peek(const struct coord_params *params, const struct state_params *where)
{
    struct coord_params p = *params;
    int rc = -EAGAIN;
    for (unsigned i = 0; i < PEEKS_MAX && rc == -EAGAIN; i++) {
        struct service *s = calloc(1, sizeof *s);
        if (!s)
            return explain(-ENOMEM, "out of memory");
        s->etcd = where->etcd;
        p.directory = p.keys == PAWL_KEYS_NAMED || p.keys == PAWL_KEYS_SPARSE ? &s->state.directory : NULL;
        rc = peek_once(s, &p, where);
        state_free(&s->state);
        free(s);
    }
    return rc;
}

void service_close(struct service *s)
{
    if (s->before) { /* the process ended in the middle */
        service_close(s->before);
        free(s->before);
        s->before = NULL;
    }
    close_store(s);
    service_steward_close(s);
    state_free(&s->state);
    free(s->members);
    s->members = NULL;
}
