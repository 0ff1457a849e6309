/* SPDX-License-Identifier: Apache-2.0 */
/* Further spaces of services whose states are in etcd. Their logs are under PREFIX/FIRST/spaces/NAME/, where FIRST is the space
 * that the services were started with. The list of them is the keys PREFIX/FIRST/list/NAME. Every service of FIRST reads the list
 * again and again, and has a coordinator for each space in it, which leads or stands by.
 *
 * A space is put into the list after its log was made. It is taken out by its leader, under the leader's term. Its log stays, so
 * that a space that is made anew under the name begins above its lives. */
#include "cluster/host.h"
#include "node/hosting.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (NS_PER_S / 2) /* in which etcd answers: operators wait meanwhile */

/* ---- keys ---- */

static int key_of(const struct hosting *h, const char *name, char out[ETCD_KEY_LEN])
{
    const struct coordinating_etcd *e = h->p->etcd;
    int len = snprintf(out, ETCD_KEY_LEN, "%s%s%s/list/%s", e->prefix, *e->prefix ? "/" : "", h->p->coord.space, name);
    return len < (int)ETCD_KEY_LEN ? 0 : explain(-ENAMETOOLONG, "%s: the names of the spaces are too long", h->p->etcd->place);
}

int hosting_etcd_open(struct hosting *h)
{
    const struct coordinating_etcd *e = h->p->etcd;
    const char *prefix;
    if (!e)
        return 0;
    int len = snprintf(h->further, sizeof h->further, "%s%s%s/spaces", e->prefix, *e->prefix ? "/" : "", h->p->coord.space);
    if (len >= (int)sizeof h->further)
        return explain(-ENAMETOOLONG, "%s: the prefix and the name of the space are too long", e->place);
    return e->open(e->place, &h->list, &prefix);
}

void hosting_etcd_close(struct hosting *h)
{
    if (h->list)
        h->p->etcd->close(h->list);
}

/* Each space has a connection of its own: its coordinator's thread waits for answers. */
int hosting_etcd_attach(struct hosting *h, struct hosted *s)
{
    const char *prefix;
    s->etcd = *h->p->etcd;
    s->etcd.prefix = h->further;
    int rc = s->etcd.open(s->etcd.place, &s->etcd.etcd, &prefix);
    s->own_etcd = !rc;
    return rc;
}

/* ---- the list ---- */

struct names {
    size_t skip; /* of a key: up to the name */
    char name[HOSTING_SPACES][COORD_NAME_LEN];
    unsigned count;
};

static int take_name(void *ctx, const struct etcd_pair *p)
{
    struct names *n = ctx;
    const char *name = strlen(p->key) > n->skip ? p->key + n->skip : "";
    if (n->count < HOSTING_SPACES && hosting_is_name(name))
        snprintf(n->name[n->count++], COORD_NAME_LEN, "%s", name);
    return 0;
}

static int read_list(struct hosting *h, struct names *out)
{
    char from[ETCD_KEY_LEN], end[ETCD_KEY_LEN];
    out->count = 0;
    int rc = key_of(h, "", from);
    if (rc)
        return rc;
    out->skip = strlen(from);
    snprintf(end, sizeof end, "%s", from);
    end[out->skip - 1] = '/' + 1; /* all keys below */
    return h->list->ops->read(h->list, from, end, HOSTING_SPACES, host_now() + ANSWER_NS, take_name, out);
}

static bool is_listed(const struct names *n, const char *name)
{
    for (unsigned i = 0; i < n->count; i++)
        if (!strcmp(n->name[i], name))
            return true;
    return false;
}

int hosting_etcd_enlist(struct hosting *h, const struct hosted *s)
{
    char key[ETCD_KEY_LEN];
    uint64_t revision;
    int rc = key_of(h, s->name, key);
    const struct etcd_transaction t = {.change = {{.key = key, .value = s->name, .len = (uint32_t)strlen(s->name)}}, .changes = 1};
    return rc ? rc : h->list->ops->commit(h->list, &t, host_now() + ANSWER_NS, &revision);
}

int hosting_etcd_delist(struct hosting *h, struct hosted *s)
{
    char key[ETCD_KEY_LEN], end[ETCD_KEY_LEN + 1];
    int rc = key_of(h, s->name, key);
    snprintf(end, sizeof end, "%s\x01", key); /* this key alone: no byte of a name is below a space */
    const struct etcd_transaction t = {.change = {{.key = key, .end = end}}, .changes = 1};
    rc = rc ? rc : leader_commit(&s->c.store.leader, &t);
    if (!rc)
        s->c.store.leader.term = 0; /* it does not resign: no other coordinator leads the space before it has read the list */
    return rc;
}

/* ---- spaces that others have made or dropped ---- */

static int load(struct hosting *h, const char *name)
{
    struct state_config settings;
    struct coord_params p;
    struct hosted *s = hosting_make(name, NULL);
    if (!s)
        return explain(-ENOMEM, "out of memory");
    int rc = hosting_etcd_attach(h, s);
    if (!rc)
        rc = coordinating_settings(&s->etcd, name, &settings);
    if (!rc)
        rc = service_params(&settings, &p);
    if (rc) {
        hosting_free(s);
        return rc;
    }
    s->like = settings.config;
    p.like = &s->like;
    const struct state_params state = {.how = STORE_CONTINUE};
    return hosting_add(h, s, &p, &state);
}

/* The next look tries again what failed: etcd may not have answered, or a leader have changed the log meanwhile. */
static void load_more(struct hosting *h, const struct names *n, bool start)
{
    for (unsigned i = 0; i < n->count; i++) {
        if (hosting_find(h, n->name[i]))
            continue;
        int rc = load(h, n->name[i]);
        struct hosted *s = hosting_find(h, n->name[i]);
        if (!rc && start)
            rc = hosting_start(h, s);
        if (rc)
            h->p->report(n->name[i], explained());
    }
}

int hosting_etcd_look(struct hosting *h, bool start)
{
    struct names n;
    int rc = read_list(h, &n);
    if (rc)
        return rc;
    for (unsigned i = h->count; i-- > 1;) {
        struct hosted *s = h->space[i];
        if (is_listed(&n, s->name) && !__atomic_load_n(&s->c.ended, __ATOMIC_ACQUIRE))
            continue;
        log_event(LOG_LEVEL_NOTICE, "space ends here", LOG_TEXT("space", s->name),
                  LOG_TEXT("why", "it was dropped, or its state is another one now"));
        hosting_remove(h, s);
    }
    load_more(h, &n, start);
    return 0;
}
