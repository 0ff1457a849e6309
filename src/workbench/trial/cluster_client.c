/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks of a client of the simulated cluster: a keeper for each of its sessions, and its work. */
#include "workbench/trial/cluster.h"

#include <errno.h>
#include <string.h>

static bool is_first(const struct cluster_session *s)
{
    return s == &s->client->at[0];
}

bool cluster_session_valid(const struct cluster_client *client, unsigned node)
{
    const struct cluster_session *s = &client->at[node];
    return s->open && client->process->alive && !s->session.ended && seat_alive(&s->seat, world_now(&client->process->host->world));
}

bool cluster_client_valid(const struct cluster_client *client)
{
    if (client->lost)
        return false;
    for (unsigned i = 0; i < client->cluster->params.nodes; i++)
        if ((i == 0 || client->at[i].open) && !cluster_session_valid(client, i))
            return false;
    return true;
}

static struct seat seat_of(struct cluster_session *s, struct fab_ep *ep)
{
    return (struct seat){.space = &s->space, .me = &s->session, .ep = ep, .world = &s->client->process->host->world};
}

/* ---- opening ---- */

/* Reads where everything is. */
static int attach(struct cluster_session *s)
{
    fab_addr base = FAB_ADDR(s->node->host->id, 0);
    int rc = 0;
    if (s->far)
        rc = cluster_far_connect(s);
    else
        sim_ep_reconnect(s->ep);
    if (!rc)
        rc = fab_read(s->ep, base, &s->header, round_up(sizeof s->header, 8));
    if (rc)
        return rc;
    if (layout_fault(&s->header, s->node->host->memory_bytes < s->header.total_bytes ? 0 : s->header.total_bytes))
        return -EAGAIN; /* the node has not formatted it yet */
    rc = layout_adopt(&s->header, s->ep);
    if (rc)
        return rc;
    layout_space(&s->header, base, &s->space);
    return 0;
}

static int open_session(struct cluster_session *s)
{
    const struct cluster_client *client = s->client;
    int rc = attach(s);
    if (rc)
        return rc;
    s->seat = seat_of(s, s->ep);
    struct session_params p = {
        .lease_ns = client->cluster->params.lease_ns,
        .proof = (uint64_t)client->process->id << 32 | (uint32_t)client->process->generation,
        .label = "simulated",
        .home = s->home,
    };
    if (s->far) { /* its descriptors are at the node, too */
        p.proof = fab_node_proof(&s->far->node);
        p.home = 0;
    }
    struct session_place place;
    if (client->cluster->params.assigned) {
        rc = cluster_connect(s->node, s->ep, &p, &place);
        p.place = &place;
    }
    return rc ? rc : session_open(&s->seat, &p);
}

/* A session is lost. Another process with new connections takes this one's place: the old ones may be shut out. */
static void restart_client(void *arg, uint64_t tag)
{
    struct cluster_client *client = arg;
    if (!client->process->alive && client->process->host->up && client->process->generation == tag)
        sim_process_restart(client->process);
}

static void start_again(struct cluster_client *client)
{
    struct sim *sim = &client->cluster->sim;
    sim_at_timer(sim, sim_now(sim) + CLUSTER_RETRY_NS, restart_client, client, client->process->generation);
    sim_process_crash(client->process); /* does not return to its tasks */
}

/* Connecting names the life of the node in which the session was opened: in another life it is void. */
static void make_ready(struct cluster_task *task, unsigned node)
{
    struct cluster_session *s = &task->client->at[node];
    if (s->far && s->far->node.dead)
        start_again(task->client);
    if (!s->far)
        sim_ep_reconnect_to(task->ep, s->node->host->id);
    if (!s->node->host->up || s->node->host->births != s->header.token_base >> 32)
        start_again(task->client);
    task->lockers[node].seat = seat_of(s, s->far ? s->ep : task->ep);
    table_init(&task->lockers[node].table, &s->header, FAB_ADDR(s->node->host->id, 0));
    task->lockers[node].together = &task->together;
    task->ready[node] = true;
}

int cluster_want_session(struct cluster_task *task, unsigned node)
{
    struct cluster_client *client = task->client;
    struct cluster_session *s = &client->at[node];
    if (likely(task->ready[node]))
        return 0;
    if (!s->kept) {
        s->kept = true;
        client->keepers++;
        const struct sim_task *keeper = sim_spawn(client->process, "keeper", cluster_keeper_task, s);
        assert(keeper);
    }
    while (!s->open) {
        cluster_sleep(task, CLUSTER_RETRY_NS);
        if (!cluster_client_valid(client))
            return -PAWL_ELOST;
    }
    make_ready(task, node);
    return 0;
}

/* ---- working ---- */

static void work_task(void *arg)
{
    struct cluster_task *task = arg;
    struct cluster_client *client = task->client;
    if (!client->cluster->params.work(task))
        start_again(client);
    client->done[task->number] = true;
    client->working--;
}

static void start_work(struct cluster_client *client)
{
    struct cluster *c = client->cluster;
    client->working = 0;
    for (unsigned i = 0; i < c->params.tasks; i++) {
        struct cluster_task *task = &client->tasks[i];
        task->ep = client->at[0].far ? client->at[0].ep : sim_ep_new(c->fabric, client->process);
        assert(task->ep);
        memset(task->ready, 0, sizeof task->ready);
        together_reset(&task->together); /* the process before this one may have died in the middle */
        make_ready(task, 0);
        if (client->done[i])
            continue;
        client->working++;
        task->actor.task = sim_spawn(client->process, "work", work_task, task);
        assert(task->actor.task);
    }
}

static void sleep_on_clock(struct fab_ep *ep, uint64_t ns)
{
    fab_wait_any(ep, NULL, 0, world_now(ep->world) + ns);
}

void cluster_sleep(struct cluster_task *task, uint64_t ns)
{
    sleep_on_clock(task->ep, ns);
}

/* ---- keeping ---- */

static void keep_until_done(struct cluster_session *s)
{
    struct keeper keeper;
    keeper_init(&keeper, &s->seat, CLUSTER_ROUND_NS);
    keeper.tend_next = SESSION_TEND_AT_ONCE * s->client->id;
    while (s->client->working) {
        sleep_on_clock(s->ep, keeper.pause_ns);
        int rc = keeper_step(&keeper);
        if (rc == -PAWL_ELOST || rc == -FAB_EFENCED) {
            /* The tasks find out by themselves at their next step, and start again. */
            sleep_on_clock(s->ep, min_u64(s->client->cluster->params.lease_ns, 3 * CLUSTER_ROUND_NS));
            start_again(s->client);
        }
    }
}

/* All sessions of the client are closed. */
static void finish(struct cluster_client *client)
{
    client->finished = true;
    client->process->crashable = false;
    client->cluster->clients_done++;
    sim_process_crash(client->process); /* it exits: a client that shares the node's memory counts as gone only then */
}

/* Opens the session, renews it until the work is done, closes it. */
void cluster_keeper_task(void *arg)
{
    struct cluster_session *s = arg;
    struct cluster_client *client = s->client;
    struct cluster *c = client->cluster;
    memset(s->session.seen, 0, cluster_slots(&c->params) * sizeof *s->session.seen); /* a new process has seen nothing */
    if (is_first(s)) {
        client->lost = false;
        client->keepers = 1;
        s->kept = true;
    }
    s->ep = c->params.on_node ? cluster_far_ep(s) : sim_ep_new(c->fabric, client->process);
    assert(s->ep);
    if (!s->far)
        sim_ep_use_rarely(s->ep); /* a verb every few milliseconds */
    int rc;
    while ((rc = open_session(s))) {
        if (rc == -FAB_EFENCED || rc == -PAWL_ELOST)
            start_again(client);
        sleep_on_clock(s->ep, CLUSTER_RETRY_NS);
    }
    if (s->far && s->space.desc_size) {
        rc = fab_node_set_own(&s->far->node, s->session.home, (uint64_t)CLUSTER_RECORDS * s->space.desc_size);
        assert(!rc);
    }
    s->open = true;
    c->sessions++;
    if (is_first(s))
        start_work(client);
    keep_until_done(s);
    rc = session_close(&s->seat);
    s->open = false;
    if (rc) /* could not be told: others will find it dead */
        c->lost++;
    if (s->far)
        fab_node_leave(&s->far->node, world_now(s->ep->world) + CLUSTER_RETRY_NS);
    if (--client->keepers == 0)
        finish(client);
}
