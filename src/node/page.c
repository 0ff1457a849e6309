/* SPDX-License-Identifier: Apache-2.0 */
#include "node/page.h"
#include "client/rack_look.h"
#include "lib/explain.h"
#include "lib/json.h"
#include "node/figures.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

const char page_html[] = {
#include "node/page.inc"
};
const size_t page_html_len = sizeof page_html;

#define LOOK_NS (2 * NS_PER_S)   /* between two looks */
#define ASKED_NS (10 * NS_PER_S) /* a page that asked so long ago is closed */
#define SAMPLES 90u              /* three minutes */
#define LOCKS_MAX 100u           /* that are shown: of many, those with the most waiters */
#define SPACES_MAX 64u           /* that are looked at: as many as a service has */
#define PLACE_BYTES 128

struct sample {
    uint64_t at_ns, grants, packets, verbs, waits, losses;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t thread;
    bool runs, stop;
    uint64_t asked_ns; /* when a page asked last; 0: never */
    char *locks;       /* the latest look, a JSON array without its brackets; null: none yet */
    struct sample sample[SAMPLES];
    unsigned samples; /* ever */
} page = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- rates ---- */

static void take_sample(void)
{
    struct figures_part *parts;
    struct sample s = {.at_ns = world_now(&world_real)};
    unsigned count = figures_collect(&parts);
    for (unsigned i = 0; i < count; i++) {
        const struct granter_figures *g = &parts[i].granter;
        const struct memnode_counts *m = &parts[i].memory.counts;
        if (parts[i].kind == FIGURES_GRANTER) {
            s.packets += g->packets;
            for (unsigned by = 0; by < GRANT_DECIDERS; by++)
                s.grants += g->grants[by] == PACKET_UNCOUNTED ? 0 : g->grants[by];
            s.waits += g->design.waited == PACKET_UNCOUNTED ? 0 : g->design.waited;
            s.losses += g->design.lapsed == PACKET_UNCOUNTED ? 0 : g->design.lapsed;
        } else if (parts[i].kind == FIGURES_MEMORY) {
            s.packets += m->packets;
            s.verbs += m->verbs;
            s.waits += m->waits;
            s.losses += m->fences + m->silent;
        } else {
            s.losses += parts[i].coordinator.watch.hosts_lost;
        }
    }
    free(parts);
    pthread_mutex_lock(&page.mutex);
    page.sample[page.samples++ % SAMPLES] = s;
    pthread_mutex_unlock(&page.mutex);
}

static void write_rates(struct json *j)
{
    unsigned count = page.samples < SAMPLES ? page.samples : SAMPLES, first = page.samples - count;
    json_array(j, "rates");
    for (unsigned i = first + 1; i < first + count; i++) {
        const struct sample *a = &page.sample[(i - 1) % SAMPLES], *b = &page.sample[i % SAMPLES];
        double seconds = (double)(b->at_ns - a->at_ns) / (double)NS_PER_S;
        json_object(j, NULL);
        json_double(j, "grants", (double)(int64_t)(b->grants - a->grants) / seconds);
        json_double(j, "packets", (double)(int64_t)(b->packets - a->packets) / seconds);
        json_double(j, "verbs", (double)(int64_t)(b->verbs - a->verbs) / seconds);
        json_double(j, "waits", (double)(int64_t)(b->waits - a->waits) / seconds);
        json_double(j, "losses", (double)(int64_t)(b->losses - a->losses) / seconds);
        json_end(j);
    }
    json_end(j);
}

/* ---- a look at the locks ---- */

struct look {
    struct json j;
    const struct rack_look *rack;
    unsigned locks;
};

static int write_claim(void *ctx, const struct inspect_claim *c)
{
    struct json *j = ctx;
    json_object(j, NULL);
    json_bool(j, "holds", c->holds);
    json_string(j, "mode", c->mode == PAWL_SHARED ? "shared" : c->mode == PAWL_EXCLUSIVE ? "exclusive" : NULL);
    json_u64(j, "host", c->session.machine);
    json_u64(j, "session", c->session.slot);
    json_u64(j, "pid", c->session.pid);
    json_u64(j, "since", c->session.opened_s);
    json_string(j, "label", c->session.label);
    json_end(j);
    return 0;
}

static int write_lock(void *ctx, const struct inspect_lock *lock)
{
    struct look *l = ctx;
    json_object(&l->j, NULL);
    if (lock->key.name)
        json_bytes(&l->j, "name", lock->key.name, lock->key.id);
    else
        json_u64(&l->j, "name", lock->key.id);
    json_u64(&l->j, "holders", lock->holders);
    json_u64(&l->j, "waiters", lock->waiters);
    json_array(&l->j, "claims");
    rack_look_claims(l->rack, lock->index, write_claim, &l->j);
    json_end(&l->j);
    json_end(&l->j);
    return ++l->locks >= LOCKS_MAX;
}

static void write_space(struct look *l, const struct figures_part *p)
{
    struct rack_look rack;
    char at[NET_ADDR_TEXT], place[PLACE_BYTES];
    net_addr_print(p->at, at);
    snprintf(place, sizeof place, "%s/%s", at, p->space);
    int rc = rack_look_open(place, &rack);
    json_object(&l->j, NULL);
    json_string(&l->j, "space", p->space);
    json_string(&l->j, "error", rc ? explained() : NULL);
    json_array(&l->j, "hosts");
    for (unsigned i = 0; !rc && i < rack.hosts; i++) {
        json_object(&l->j, NULL);
        net_addr_print(rack.list[i].host.at, at);
        json_u64(&l->j, "host", rack.list[i].host.machine);
        json_u64(&l->j, "life", rack.list[i].host.life);
        json_string(&l->j, "at", at);
        json_bool(&l->j, "silent", rack.list[i].silent);
        json_end(&l->j);
    }
    json_end(&l->j);
    json_array(&l->j, "locks");
    l->rack = &rack;
    l->locks = 0;
    if (!rc)
        rack_look_locks(&rack, write_lock, l);
    json_end(&l->j);
    json_end(&l->j);
    if (!rc)
        rack_look_close(&rack);
}

/* Outside of the mutex: hosts that are silent take their time. */
static void look(void)
{
    struct figures_part *parts;
    struct look l = {.locks = 0};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    unsigned count = out ? figures_collect(&parts) : 0;
    if (!out)
        return;
    json_init(&l.j, out);
    json_array(&l.j, NULL);
    for (unsigned i = 0, spaces = 0; i < count && spaces < SPACES_MAX; i++)
        if (parts[i].kind == FIGURES_COORDINATOR && parts[i].coordinator.leads) {
            write_space(&l, &parts[i]);
            spaces++;
        }
    json_finish(&l.j);
    fclose(out);
    free(parts);
    pthread_mutex_lock(&page.mutex);
    free(page.locks);
    page.locks = text;
    pthread_mutex_unlock(&page.mutex);
}

static void *watch(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&page.mutex);
    while (!page.stop) {
        uint64_t now = world_now(&world_real), until = now + LOOK_NS;
        bool asked = page.asked_ns && now - page.asked_ns < ASKED_NS;
        pthread_mutex_unlock(&page.mutex);
        take_sample();
        if (asked)
            look();
        const struct timespec end = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)};
        pthread_mutex_lock(&page.mutex);
        while (!page.stop && world_now(&world_real) < until)
            pthread_cond_timedwait(&page.wake, &page.mutex, &end);
    }
    pthread_mutex_unlock(&page.mutex);
    return NULL;
}

int page_start(void)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&page.wake, &clock);
    pthread_condattr_destroy(&clock);
    page.stop = false;
    page.runs = !pthread_create(&page.thread, NULL, watch, NULL);
    return page.runs ? 0 : explain(-EAGAIN, "cannot start a thread");
}

void page_stop(void)
{
    if (!page.runs)
        return;
    pthread_mutex_lock(&page.mutex);
    page.stop = true;
    pthread_cond_signal(&page.wake);
    pthread_mutex_unlock(&page.mutex);
    pthread_join(page.thread, NULL);
    pthread_cond_destroy(&page.wake);
    free(page.locks);
    page.locks = NULL;
    page.runs = false;
}

/* ---- the data ---- */

static void write_part(struct json *j, const struct figures_part *p)
{
    char at[NET_ADDR_TEXT];
    net_addr_print(p->at, at);
    json_object(j, NULL);
    json_string(j, "space", p->space);
    json_string(j, "design", p->design);
    json_string(j, "at", at);
    json_bool(j, "ready", p->ready);
    if (p->kind == FIGURES_COORDINATOR) {
        const struct coordinator_figures *c = &p->coordinator;
        json_string(j, "role", "coordinator");
        json_bool(j, "leads", c->leads);
        json_u64(j, "term", c->term);
        json_u64(j, "hosts", c->hosts);
        json_u64(j, "hosts_max", c->hosts_max);
        json_u64(j, "names", c->keys);
        json_u64(j, "locks", c->locks);
        json_u64(j, "granters", c->granters);
        json_u64(j, "granters_wanted", c->granters_wanted);
        json_u64(j, "hosts_lost", c->watch.hosts_lost);
        json_u64(j, "granters_lost", c->watch.granters_lost);
    } else if (p->kind == FIGURES_GRANTER) {
        const struct granter_figures *g = &p->granter;
        json_string(j, "role", g->is_switch ? "switch" : "lock server");
        json_u64(j, "life", g->life);
        json_u64(j, "packets", g->packets);
        json_u64_if(j, "grants", g->grants[GRANT_BY_SWITCH] != PACKET_UNCOUNTED,
                    g->grants[GRANT_BY_SWITCH] + g->grants[GRANT_BY_SERVER] + g->grants[GRANT_BY_AGENT]);
        json_u64_if(j, "waiting", g->design.waiting != PACKET_UNCOUNTED, g->design.waiting);
        json_bool(j, "alone", g->alone);
        json_bool(j, "superseded", g->superseded);
    } else {
        json_string(j, "role", "memory node");
        json_u64(j, "life", p->memory.life);
        json_u64(j, "clients", p->memory.clients);
        json_u64(j, "packets", p->memory.counts.packets);
    }
    json_end(j);
}

void page_write_status(FILE *out)
{
    struct figures_part *parts;
    struct json j;
    unsigned count = figures_collect(&parts);
    pthread_mutex_lock(&page.mutex);
    page.asked_ns = world_now(&world_real);
    fprintf(out, "{\"looks\": %s, \"now\": ", page.locks ? page.locks : "[]");
    json_init(&j, out);
    json_object(&j, NULL);
    json_bool(&j, "ready", figures_ready());
    json_array(&j, "parts");
    for (unsigned i = 0; i < count; i++)
        write_part(&j, &parts[i]);
    json_end(&j);
    write_rates(&j);
    json_finish(&j);
    fputs("}\n", out);
    pthread_mutex_unlock(&page.mutex);
    free(parts);
}
