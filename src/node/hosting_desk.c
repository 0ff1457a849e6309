/* SPDX-License-Identifier: Apache-2.0 */
/* Operators' questions to a service: spaces are listed, created, dropped and grown while it runs. */
#include "cluster/host.h"
#include "node/hosting.h"
#include "world/world.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOIN_NS (10 * NS_PER_S)         /* in which own granters of a space without hosts join; they go on trying after it */
#define LEAVE_NS (3 * NS_PER_S)         /* for hosts that are about to leave, or have left while locks still name them */
#define LEAVE_LOOK_NS (100 * NS_PER_MS) /* a switch looks for one host with each heartbeat */
#define LIFE_SHIFT 30                   /* of world_birth: as 'pawl serve' has it */
#define SUFFIX ".state"

/* ---- states in the folder ---- */

bool hosting_is_name(const char *name)
{
    size_t len = strnlen(name, COORD_NAME_LEN);
    if (!len || len == COORD_NAME_LEN || *name == '.')
        return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || (unsigned char)*c < ' ')
            return false;
    return true;
}

static int path_of(const struct hosting *h, const char *name, char out[STORE_PATH_LEN])
{
    int len = snprintf(out, STORE_PATH_LEN, "%s/%s" SUFFIX, h->p->folder, name);
    return len < STORE_PATH_LEN - 8 ? 0 : explain(-ENAMETOOLONG, "%s: the path is too long", h->p->folder);
}

static unsigned own_granters(const struct coord_params *p)
{
    return p->servers ? p->servers : hosting_has_decider(p->design);
}

static int load_one(struct hosting *h, const char *name)
{
    struct state_config settings;
    struct coord_params p;
    char path[STORE_PATH_LEN];
    int rc = path_of(h, name, path);
    if (!rc)
        rc = service_settings(&disk_real, path, name, &settings);
    if (!rc)
        rc = service_params(&settings, &p);
    if (rc)
        return rc;
    struct hosted *s = hosting_make(name, path);
    if (!s)
        return explain(-ENOMEM, "out of memory");
    s->like = settings.config;
    p.like = &s->like;
    s->own = own_granters(&p);
    s->decider = s->own && !p.servers;
    const struct state_params state = {.disk = &disk_real, .how = STORE_CONTINUE};
    return hosting_add(h, s, &p, &state);
}

int hosting_load(struct hosting *h)
{
    struct dirent **names = NULL;
    if (h->list)
        return hosting_etcd_look(h, false);
    int rc = 0, count = h->p->folder ? scandir(h->p->folder, &names, NULL, alphasort) : 0;
    if (count < 0)
        return errno == ENOENT ? 0 : explain(-errno, "%s: %s", h->p->folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        char name[COORD_NAME_LEN];
        size_t len = strlen(names[i]->d_name), suffix = strlen(SUFFIX);
        bool ours = len > suffix && len - suffix < sizeof name && !strcmp(names[i]->d_name + len - suffix, SUFFIX);
        snprintf(name, sizeof name, "%.*s", ours ? (int)(len - suffix) : 0, names[i]->d_name);
        if (!rc && ours && hosting_is_name(name))
            rc = hosting_find(h, name) ? explain(-EEXIST, "%s: the service has two states of the space '%s'", h->p->folder, name)
                                       : load_one(h, name);
        free(names[i]);
    }
    free(names);
    return rc;
}

/* ---- list ---- */

static void fill(struct hosted *s, struct spaces_entry *e)
{
    struct coordinating_status now = coordinating_status(&s->c);
    snprintf(e->name, sizeof e->name, "%s", s->name);
    snprintf(e->design, sizeof e->design, "%s", s->c.params.design->name);
    e->identity = now.config.identity;
    e->granter = now.granter;
    e->locks = s->c.params.locks;
    e->keys_used = now.keys_used;
    e->lease_ns = s->c.params.lease_ns;
    e->member_ns = max_u64(s->c.params.member_ns, s->c.params.lease_ns);
    e->keys = s->c.params.keys ? s->c.params.keys : PAWL_KEYS_DENSE;
    e->hosts = now.hosts;
    e->hosts_max = s->c.params.machines;
    e->sessions = s->c.params.sessions;
    e->holds = s->c.params.requests;
    e->servers = s->c.params.servers;
    e->leads = now.leads;
    for (unsigned i = 0; i < s->own && s->granters; i++)
        e->own += granter_state(&s->granters[i]) != GRANTER_NONE;
}

static void list(struct hosting *h, const struct spaces_ask *q, struct spaces_answer *a)
{
    uint64_t next = q->packet.head.index;
    if (*q->packet.space) {
        struct hosted *s = hosting_find(h, q->packet.space);
        if (s)
            fill(s, &a->entry[a->count++]);
        return;
    }
    for (; next < h->count && a->count < SPACES_ENTRIES; next++)
        fill(h->space[next], &a->entry[a->count++]);
    a->packet.head.index = next < h->count ? next : 0;
}

/* ---- create ---- */

static int check_new(struct hosting *h, const struct spaces_ask *q)
{
    const char *name = q->packet.space;
    if (!hosting_is_name(name))
        return explain(-EINVAL, "the name of a space has 1 to %d bytes, no slash, and does not begin with a dot",
                       COORD_NAME_LEN - 1);
    int rc = h->list ? hosting_etcd_look(h, true) : 0; /* another service may have made it */
    if (rc)
        return rc;
    if (hosting_find(h, name))
        return explain(-EEXIST, "the space '%s' exists already", name);
    return 0;
}

/* Settings that the operator did not name are the service's usual ones. */
static int new_params(const struct hosting *h, const struct spaces_ask *q, struct coord_params *p)
{
    *p = h->p->usual;
    if (*q->design)
        p->design = design_find(q->design);
    if (!p->design || p->design->kind == DESIGN_BUSTED || p->design->kind == DESIGN_BASELINE)
        return explain(-EINVAL, "there is no design '%s'; 'pawl doctor --matrix' lists the designs", q->design);
    if (p->design->substrates & DESIGN_ON_NODE)
        return explain(-EOPNOTSUPP, "the design '%s' runs on a memory node, which is a process of its own: pawl serve --design %s",
                       p->design->name, p->design->name);
    if (!p->design->packet || !(p->design->substrates & DESIGN_ON_UDP))
        return explain(-EOPNOTSUPP, "the design '%s' does not run between machines", p->design->name);
    p->keys = q->keys ? (enum pawl_keys)q->keys : p->keys;
    p->locks = q->locks ? q->locks : p->locks;
    p->lease_ns = q->lease_ns ? q->lease_ns : p->lease_ns;
    p->member_ns = q->member_ns ? q->member_ns : max_u64(p->member_ns, p->lease_ns);
    p->machines = (uint16_t)min_u64(q->hosts ? q->hosts : p->machines, UINT16_MAX);
    p->sessions = (uint16_t)min_u64(q->sessions ? q->sessions : p->sessions, UINT16_MAX);
    p->requests = (uint16_t)min_u64(q->holds ? q->holds : p->requests, UINT16_MAX);
    p->group = q->group;
    bool needs = p->design->packet->server_packet && !p->design->packet->spills;
    p->servers = (uint16_t)min_u64(q->servers ? q->servers
                                   : needs    ? (p->design->packet->divides ? RACKS_DEFAULT : 1)
                                              : 0,
                                   UINT16_MAX);
    p->fresh = true;
    return 0;
}

/* A dropped space of that name goes before the new one: lives, and so tokens, go on above its own. */
static int prepare(const struct hosting *h, const char *path)
{
    char old[STORE_PATH_LEN + 8];
    snprintf(old, sizeof old, "%s.old", path);
    if (mkdir(h->p->folder, 0700) && errno != EEXIST)
        return explain(-errno, "%s: %s", h->p->folder, strerror(errno));
    if (access(path, F_OK) && !access(old, F_OK))
        disk_real.ops->rename(&disk_real, old, path);
    return 0;
}

/* The place of its state: a file, or a connection to etcd. */
static int make_place(struct hosting *h, struct hosted *s)
{
    if (h->list)
        return hosting_etcd_attach(h, s);
    int rc = path_of(h, s->name, s->path);
    return rc ? rc : prepare(h, s->path);
}

/* The coordinator runs, and the own granters have joined, or go on trying. */
static int begin(struct hosting *h, struct hosted *s)
{
    int rc = h->list ? hosting_etcd_enlist(h, s) : 0;
    if (!rc)
        rc = hosting_start(h, s);
    if (!rc)
        rc = hosting_start_granters(h, s, true);
    if (!rc)
        rc = hosting_join_granters(h, s, world_now(&world_real) + JOIN_NS);
    return rc == -ETIMEDOUT ? 0 : rc;
}

/* With etcd the granters run elsewhere: they must outlast a service that ends. */
static int create(struct hosting *h, const struct spaces_ask *q, struct spaces_answer *a)
{
    struct coord_params p;
    int rc = check_new(h, q);
    if (!rc)
        rc = new_params(h, q, &p);
    if (rc)
        return rc;
    const struct state_params state = {.disk = &disk_real,
                                       .how = STORE_FRESH,
                                       .id = {world_random(&world_real), world_random(&world_real)},
                                       .life = (uint32_t)(world_birth(&world_real) >> LIFE_SHIFT)};
    struct hosted *s = hosting_make(q->packet.space, NULL);
    if (!s)
        return explain(-ENOMEM, "out of memory");
    rc = make_place(h, s);
    if (rc) {
        hosting_free(s);
        return rc;
    }
    s->own = h->list ? 0 : own_granters(&p);
    s->decider = s->own && !p.servers;
    rc = hosting_add(h, s, &p, &state);
    if (rc)
        return rc;
    rc = begin(h, s);
    if (rc) {
        char path[STORE_PATH_LEN];
        snprintf(path, sizeof path, "%s", s->path);
        hosting_remove(h, s);
        if (*path)
            unlink(path);
        return rc;
    }
    fill(s, &a->entry[a->count++]);
    return 0;
}

/* ---- drop, grow ---- */

/* Hosts that may hold something; the coordinator's thread does not run. */
static unsigned users_of(const struct hosted *s, unsigned *leaving)
{
    const struct coordinator *k = &s->c.service.coordinator;
    unsigned live = 0;
    *leaving = 0;
    for (uint16_t m = 1; m <= k->config.machines && s->c.leads; m++) {
        live += k->members[m].live;
        *leaving += !k->members[m].live && coordinator_host_life(k, m);
    }
    return live;
}

/* Stops the coordinator if no host uses the space, or in spite of them. 0: it is stopped. Else it runs. The LEAVE of a host whose
 * sessions have just ended may still be on its way: hosts that are there are looked at again before the operator is refused. */
static int halt(struct hosting *h, struct hosted *s, bool force, const char *what)
{
    const struct timespec moment = {.tv_nsec = LEAVE_LOOK_NS};
    for (uint64_t end = world_now(&world_real) + LEAVE_NS;;) {
        unsigned leaving, live;
        hosting_stop(s);
        live = users_of(s, &leaving);
        bool late = world_now(&world_real) > end;
        if (force || (!live && (!leaving || late)))
            return 0;
        int rc = hosting_start(h, s);
        if (rc)
            return rc;
        if (late)
            return explain(-EBUSY, "%u host%s use%s the space '%s'; end their sessions, or %s with --force, which loses them", live,
                           live == 1 ? "" : "s", live == 1 ? "s" : "", s->name, what);
        nanosleep(&moment, NULL);
    }
}

static int find_to_change(struct hosting *h, const struct spaces_ask *q, struct hosted **out)
{
    *out = hosting_find(h, q->packet.space);
    return *out ? 0 : explain(-ENOENT, "the service has no space '%s'", q->packet.space);
}

/* The log stays: lives of a space that is made anew under the name begin above its own. */
static int forget_file(const char *path)
{
    char beside[STORE_PATH_LEN + 8];
    snprintf(beside, sizeof beside, "%s.old", path);
    int rc = disk_real.ops->rename(&disk_real, path, beside);
    snprintf(beside, sizeof beside, "%s.lock", path);
    unlink(beside);
    return rc ? explain(rc, "%s: %s. The service has the space again when it is restarted", path, strerror(-rc)) : 0;
}

/* The coordinator does not run. If it does not lead, or etcd does not answer, it goes on. */
static int forget_in_etcd(struct hosting *h, struct hosted *s)
{
    char at[NET_ADDR_TEXT], why[SPACES_TEXT];
    net_addr_print(s->c.store.leader.seen.term.at, at);
    int rc = s->c.leads ? hosting_etcd_delist(h, s)
                        : explain(-EAGAIN, "the coordinator at %s leads the space '%s': ask that one to drop it", at, s->name);
    if (!rc)
        return 0;
    snprintf(why, sizeof why, "%s", explained());
    hosting_start(h, s);
    return explain(rc, "%s", why);
}

static int drop(struct hosting *h, const struct spaces_ask *q)
{
    struct hosted *s;
    char path[STORE_PATH_LEN];
    int rc = find_to_change(h, q, &s);
    if (!rc && s == h->space[0])
        rc = explain(-EPERM, "the service was started with the space '%s': stop the service instead", s->name);
    if (!rc)
        rc = halt(h, s, q->force, "drop it");
    if (!rc && h->list)
        rc = forget_in_etcd(h, s);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%s", s->path);
    hosting_remove(h, s);
    return h->list ? 0 : forget_file(path);
}

/* With etcd it is the leader that lets the space grow. The others read the log before they lead. */
static int check_growth(const struct hosting *h, struct hosted *s, uint64_t locks)
{
    char at[NET_ADDR_TEXT];
    if (locks <= s->c.params.locks)
        return explain(-EINVAL, "the space '%s' has %" PRIu64 " locks, and can grow but not shrink", s->name, s->c.params.locks);
    if (!h->list || coordinating_status(&s->c).leads)
        return 0;
    net_addr_print(s->c.store.leader.seen.term.at, at);
    return explain(-EAGAIN, "the coordinator at %s leads the space '%s': ask that one to let it grow", at, s->name);
}

/* Granters elsewhere are refused by the coordinator since they have fewer locks, and join anew by themselves. */
static int grow(struct hosting *h, const struct spaces_ask *q, struct spaces_answer *a)
{
    struct hosted *s;
    int rc = find_to_change(h, q, &s);
    if (!rc)
        rc = check_growth(h, s, q->locks);
    const char *why_not = rc ? NULL : coordinator_keeps_size(&s->c.params);
    bool in_place = !rc && !why_not,
         keep = in_place && s->c.params.design->packet->server_grow; /* own granters go on, and hear of it */
    bool granted = !rc && s->granters && granter_state(&s->granters[0]) != GRANTER_NONE;
    if (in_place && !keep)
        hosting_stop_granters(s); /* while the coordinator hears it */
    if (!rc)
        rc = halt(h, s, q->force || in_place, "grow it");
    if (rc == -EBUSY)
        return explain(rc,
                       "the space '%s' cannot grow while hosts use it: %s. End their sessions, or use --force, which loses them",
                       s->name, why_not);
    if (rc)
        return rc;
    if (!keep)
        hosting_stop_granters(s); /* their memory is as large as the space was */
    rc = s->c.leads ? coordinating_grow(&s->c, q->locks) : explain(-EAGAIN, "another coordinator leads the space '%s'", s->name);
    char why[SPACES_TEXT];
    snprintf(why, sizeof why, "%s", rc ? explained() : "");
    if ((s->c.leads || h->list) && !hosting_start(h, s) && granted && !keep && !hosting_start_granters(h, s, false))
        hosting_join_granters(h, s, world_now(&world_real) + LEAVE_NS); /* those that hosts keep waiting join later */
    if (rc)
        return explain(rc, "%s", why);
    fill(s, &a->entry[a->count++]);
    return 0;
}

/* ---- answers ---- */

static int execute(struct hosting *h, const struct spaces_ask *q, struct spaces_answer *a)
{
    switch ((enum spaces_verb)q->verb) {
    case SPACES_LIST:
        break; /* no command */
    case SPACES_CREATE:
        return create(h, q, a);
    case SPACES_DROP:
        return drop(h, q);
    case SPACES_GROW:
        return grow(h, q, a);
    }
    return explain(-EOPNOTSUPP, "the service does not know this question: its build is an older one");
}

/* Operators' commands that change something, done or refused. */
static void say_command(const struct hosting *h, const struct spaces_ask *q, int code, struct net_addr from)
{
    static const char *const verbs[] = {[SPACES_CREATE] = "created", [SPACES_DROP] = "dropped", [SPACES_GROW] = "grown"};
    char event[64], space[COORD_NAME_LEN + 1], at[NET_ADDR_TEXT];
    const char *verb = q->verb < countof(verbs) && verbs[q->verb] ? verbs[q->verb] : "changed";
    snprintf(event, sizeof event, "space %s%s", code ? "not " : "", verb);
    snprintf(space, sizeof space, "%.*s", COORD_NAME_LEN, q->packet.space);
    net_addr_print(from, at);
    const char *key = q->packet.head.from.port ? "host" : seal_role(&h->p->ring, code != COORD_ADMIN_ONLY);
    log_event(code ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, event, LOG_TEXT("space", space), LOG_TEXT("from", at),
              LOG_TEXT("key", key), LOG_TEXT("why", code ? explained() : "an operator asked for it"));
}

static const char not_admin[] = "spaces are changed with the admin key only, which the key file has not";

/* Why this sender may only list spaces; null: it may change them, too. With a key a holder of the cluster's may, whose number is 0,
 * and who has the admin key if there is one; without one a program on the service's machine. */
static const char *why_not(const struct hosting *h, const struct spaces_ask *q, struct net_addr from)
{
    const struct place *by = &q->packet.head.from;
    struct net_addr self;
    if (h->p->ring.count && (by->machine || by->port))
        return "spaces are changed with the cluster's key only, and not with a host's";
    if (h->p->ring.count)
        return seal_proved(&h->p->ring, q, sizeof *q, offsetof(struct spaces_ask, packet.term)) ? NULL : not_admin;
    bool here = !udp_source_for(from, &self) && net_addr_same_ip(self, from);
    return here ? NULL : "the service has no key: its spaces are changed on its own machine only";
}

/* A command counts once, also if its packet was recorded and is sent again: it repeats a number that the service has told, and that
 * changes with each command. */
static bool is_new(struct hosting *h, const struct spaces_ask *q)
{
    if (!h->challenge)
        h->challenge = world_random(&world_real) | 1;
    return q->packet.stamp == h->challenge;
}

static void do_command(struct hosting *h, const struct spaces_ask *q, struct net_addr from, struct spaces_answer *a)
{
    h->challenge = world_random(&world_real) | 1;
    a->packet.code = execute(h, q, a);
    say_command(h, q, a->packet.code, from);
}

/* Any sender can ask for that: seldom in the log. The coordinator of the space counts it, or the first one. */
static void refuse_command(struct hosting *h, const struct spaces_ask *q, const char *why, struct net_addr from,
                           struct spaces_answer *a)
{
    struct hosted *s = hosting_find(h, q->packet.space);
    uint64_t withheld;
    a->packet.code = explain(why == not_admin ? COORD_ADMIN_ONLY : -EACCES, "%s", why);
    __atomic_add_fetch(&(s ? s : h->space[0])->c.refused_commands[why == not_admin], 1, __ATOMIC_RELEASE);
    if (log_may(&h->refusals, host_now(), &withheld))
        say_command(h, q, a->packet.code, from);
}

void hosting_answer(struct hosting *h, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key)
{
    const struct spaces_ask *q = data;
    struct spaces_answer fresh = {.count = 0}, *a = NULL;
    if (len < sizeof *a || q->design[sizeof q->design - 1])
        return; /* the answer is not longer than the question */
    for (unsigned i = 0; i < HOSTING_SPACES && q->packet.head.nonce && q->verb != SPACES_LIST; i++)
        if (h->done[i].packet.head.nonce == q->packet.head.nonce)
            a = &h->done[i];
    if (!a) {
        const char *why = q->verb == SPACES_LIST ? NULL : why_not(h, q, from);
        bool changes = q->verb != SPACES_LIST && !why && is_new(h, q);
        a = changes ? &h->done[h->done_next++ % HOSTING_SPACES] : &fresh;
        memset(a, 0, sizeof *a);
        coord_make(&a->packet, COORD_SPACES, q->packet.space, NULL, q->packet.head.nonce);
        explain_nothing();
        if (changes) {
            do_command(h, q, from, a);
        } else if (why) {
            refuse_command(h, q, why, from, a);
        } else if (q->verb == SPACES_LIST) {
            list(h, q, a);
        } else {
            a->packet.code = COORD_ANEW;
            a->packet.stamp = h->challenge;
        }
        snprintf(a->text, sizeof a->text, "%s", a->packet.code ? explained() : "");
    }
    const struct udp_out out = {.to = from, .len = sizeof *a, .data = a, .key = seal_known(key) ? key : NULL};
    udp_send(&h->udp, &out, 1);
}
