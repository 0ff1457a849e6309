/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop and the tasks. */
#include "world/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEED_SUBSTRATE UINT64_C(0x5355425354524154) /* so that the layers' generators differ although the seed is one */

static void config_defaults(struct sim_config *config)
{
    if (!config->model)
        config->model = model_find("default");
    if (!config->events_max)
        config->events_max = SIM_EVENTS_MAX;
    if (!config->time_max_ns)
        config->time_max_ns = SIM_TIME_MAX_NS;
    if (!config->tasks_max)
        config->tasks_max = SIM_TASKS_MAX;
    if (!config->stack_bytes)
        config->stack_bytes = FIBER_STACK_BYTES;
}

int sim_init(struct sim *sim, const struct sim_config *config)
{
    memset(sim, 0, sizeof *sim);
    sim->config = *config;
    config_defaults(&sim->config);
    sim->model = sim->config.model;
    rng_seed(&sim->random, config->seed ^ SEED_SUBSTRATE);
    sim->hash = mix64(config->seed);
    unsigned tasks_max = sim->config.tasks_max;
    int rc = config->chooser ? 0 : sim_heap_init(&sim->heap); /* a chooser has its own list */
    if (rc)
        return rc;
    rc = fiber_pool_init(&sim->fibers, tasks_max, sim->config.stack_bytes);
    if (rc) {
        sim_heap_free(&sim->heap);
        return rc;
    }
    sim->tasks = sim_alloc(tasks_max * sizeof *sim->tasks);
    sim->processes = sim_alloc(SIM_PROCESSES_MAX * sizeof *sim->processes);
    if (!sim->tasks || !sim->processes) {
        sim_free(sim);
        return -ENOMEM;
    }
    for (unsigned i = tasks_max; i-- > 0;) {
        sim->tasks[i] = (struct sim_task){.sim = sim, .id = i, .next = sim->free_tasks};
        sim->free_tasks = &sim->tasks[i];
    }
    sim_faults_init(sim);
    return 0;
}

void sim_free(struct sim *sim)
{
    assert(sim->processes || !sim->process_count); /* sim_init may have ended half-way */
    for (unsigned i = 0; i < sim->process_count; i++)
        sim_give_back(sim->processes[i]);
    for (unsigned i = 0; i < sim->host_count; i++) {
        if (sim->hosts[i]->memory && !sim_arena)
            munmap(sim->hosts[i]->memory, sim->hosts[i]->memory_bytes);
        sim_give_back(sim->hosts[i]);
    }
    sim_give_back(sim->processes);
    sim_give_back(sim->tasks);
    fiber_pool_free(&sim->fibers);
    sim_heap_free(&sim->heap);
    memset(sim, 0, sizeof *sim);
}

void sim_hooks_add(struct sim *sim, const struct sim_hooks *hooks)
{
    assert(sim->hook_count < SIM_HOOKS_MAX);
    sim->hooks[sim->hook_count++] = *hooks;
}

/* ---- events ---- */

/* With a chooser: what the running task causes is of its thread and, if nothing else is said, in its order. */
static void push_pending(struct sim *sim, uint64_t at_ns, struct sim_pending p)
{
    struct sim_chooser *c = sim->config.chooser;
    const struct sim_task *task = p.task ? p.task : sim->current;
    p.at_ns = max_u64(at_ns, sim->now_ns);
    p.thread |= task ? task->process->id + 1 : c->thread;
    if (!p.lane)
        p.lane = task ? (uint64_t)(uintptr_t)task : p.thread;
    sim_chooser_push(sim, &p);
}

/* Into the chooser's list with all that is said of it, or else into the heap. */
static inline void schedule(struct sim *sim, uint64_t at_ns, struct sim_pending p, bool background)
{
    if (unlikely(sim->config.chooser)) {
        push_pending(sim, at_ns, p);
        return;
    }
    const struct sim_event event = {.fn = p.fn, .arg = p.arg, .tag = p.tag, .background = background};
    sim->foreground += !background;
    sim_heap_push(&sim->heap, max_u64(at_ns, sim->now_ns), &event);
}

void sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag)
{
    schedule(sim, at_ns, (struct sim_pending){.fn = fn, .arg = arg, .tag = tag}, false);
}

void sim_at_background(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag)
{
    schedule(sim, at_ns, (struct sim_pending){.fn = fn, .arg = arg, .tag = tag, .timer = true}, true);
}

void sim_at_lane(struct sim *sim, uint64_t at_ns, const void *lane, sim_event_fn fn, void *arg, uint64_t tag)
{
    schedule(sim, at_ns, (struct sim_pending){.fn = fn, .arg = arg, .tag = tag, .lane = (uint64_t)(uintptr_t)lane}, false);
}

void sim_at_lane_front(struct sim *sim, uint64_t at_ns, const void *lane, sim_event_fn fn, void *arg, uint64_t tag)
{
    const struct sim_pending p = {.fn = fn, .arg = arg, .tag = tag, .lane = (uint64_t)(uintptr_t)lane, .front = true};
    schedule(sim, at_ns, p, false);
}

void sim_at_drain(struct sim *sim, uint64_t at_ns, const uint64_t *drained, sim_event_fn fn, void *arg, uint64_t tag)
{
    const struct sim_pending p = {.fn = fn,
                                  .arg = arg,
                                  .tag = tag,
                                  .lane = (uint64_t)(uintptr_t)drained,
                                  .last = drained,
                                  .stale_above = tag - 1,
                                  .thread = SIM_THREAD_APART};
    schedule(sim, at_ns, p, false);
}

void sim_at_timer(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag)
{
    schedule(sim, at_ns, (struct sim_pending){.fn = fn, .arg = arg, .tag = tag, .timer = true}, false);
}

void sim_at_once(struct sim *sim, uint64_t at_ns, sim_event_fn fn, void *arg, uint64_t tag)
{
    schedule(sim, at_ns, (struct sim_pending){.fn = fn, .arg = arg, .tag = tag, .at_once = true}, false);
}

static void print_place(const struct sim *sim, uint32_t host)
{
    const struct sim_task *task = sim->current;
    fprintf(sim->config.trace, "%12" PRIu64 " h%u", sim->now_ns, host);
    if (task)
        fprintf(sim->config.trace, "/p%u.%" PRIu64 "/%s#%u", task->process->id, task->process->generation, task->name, task->id);
}

void sim_note_print(struct sim *sim, const char *what, uint32_t host, uint64_t a, uint64_t b)
{
    print_place(sim, host);
    fprintf(sim->config.trace, " %s 0x%" PRIx64 " 0x%" PRIx64 "\n", what, a, b);
}

void sim_remark(const struct sim *sim, const char *what, const char *text)
{
    if (!sim->config.trace)
        return;
    if (sim->current)
        print_place(sim, sim->current->process->host->id);
    else
        fprintf(sim->config.trace, "%12" PRIu64, sim->now_ns);
    fprintf(sim->config.trace, " %s %s\n", what, text);
}

static enum sim_end run_chosen(struct sim *sim)
{
    struct sim_pending next;
    while (!sim->stopped) {
        if (sim->events >= sim->config.events_max || sim->config.chooser->crowded)
            return SIM_EVENTS_END;
        if (!sim_chooser_pop(sim, &next))
            return SIM_IDLE;
        if (next.at_ns > sim->config.time_max_ns)
            return SIM_TIME_END;
        sim->now_ns = max_u64(sim->now_ns, next.at_ns);
        sim->events++;
        sim_fold(sim, sim->now_ns ^ next.sequence << 40);
        next.fn(next.arg, next.tag);
    }
    return SIM_STOPPED;
}

enum sim_end sim_run(struct sim *sim, uint64_t until_ns)
{
    assert(!sim->current); /* not from a task */
    sim->stopped = false;
    if (sim->config.chooser)
        return run_chosen(sim);
    while (sim->foreground) {
        if (sim->stopped)
            return SIM_STOPPED;
        if (sim->events >= sim->config.events_max)
            return SIM_EVENTS_END;
        uint64_t next_ns = sim_heap_next_ns(&sim->heap);
        if (next_ns > sim->config.time_max_ns)
            return SIM_TIME_END;
        if (next_ns > until_ns) {
            sim->now_ns = max_u64(sim->now_ns, until_ns);
            return SIM_UNTIL;
        }
        uint64_t sequence;
        const struct sim_event event = sim_heap_pop(&sim->heap, &sim->now_ns, &sequence);
        sim->events++;
        sim->foreground -= !event.background;
        sim_fold(sim, sim->now_ns ^ sequence << 40);
        event.fn(event.arg, event.tag);
    }
    return SIM_IDLE;
}

void sim_stop(struct sim *sim)
{
    sim->stopped = true;
}

/* ---- tasks ---- */

static void task_fire(void *arg, uint64_t turn);

struct sim_task *sim_spawn(struct sim_process *process, const char *name, sim_task_fn fn, void *arg)
{
    struct sim *sim = process->sim;
    assert(process->alive);
    struct sim_task *task = sim->free_tasks;
    struct fiber *fiber = fiber_pool_take(&sim->fibers);
    if (!task || !fiber)
        return NULL;
    sim->free_tasks = task->next;
    sim->tasks_live++;
    *task = (struct sim_task){.sim = sim,
                              .process = process,
                              .fiber = fiber,
                              .name = name,
                              .id = task->id,
                              .turn = task->turn + 1,
                              .timer_ns = task->timer_ns, /* the slot's old timer event may still be queued */
                              .deadline_ns = UINT64_MAX,
                              .next = process->tasks};
    if (process->tasks)
        process->tasks->prev = task;
    process->tasks = task;
    fiber_start(fiber, fn, arg);
    sim_note(sim, "spawn", process->host->id, process->id, task->id);
    sim_task_wake_at(task, sim->now_ns);
    return task;
}

/* The task is over, one way or the other: its slot and fiber are free. */
void sim_task_release(struct sim_task *task)
{
    struct sim *sim = task->sim;
    assert(task->process && task != sim->current);
    if (task->prev)
        task->prev->next = task->next;
    else
        task->process->tasks = task->next;
    if (task->next)
        task->next->prev = task->prev;
    fiber_pool_give_back(&sim->fibers, task->fiber);
    task->turn++;
    task->process = NULL;
    task->fiber = NULL;
    task->waiting = false;
    task->prev = NULL;
    task->next = sim->free_tasks;
    sim->free_tasks = task;
    sim->tasks_live--;
}

/* A wake-up has come: goes on with the task unless it is stale, paused, or the process crashes at this very point. */
static void task_fire(void *arg, uint64_t turn)
{
    struct sim_task *task = arg;
    struct sim *sim = task->sim;
    struct sim_process *process = task->process;
    if (task->turn != turn)
        return;
    uint64_t paused_until_ns = max_u64(process->paused_until_ns, process->host->paused_until_ns);
    if (unlikely(sim->config.chooser) && paused_until_ns <= sim->now_ns && process->crashable &&
        sim_chooser_strikes(sim, FAULT_PAUSE)) {
        paused_until_ns = sim->now_ns + sim->config.chooser->pause_ns;
        sim_process_pause(process, paused_until_ns);
    }
    if (paused_until_ns <= sim->now_ns && sim_fault_stalls(process))
        paused_until_ns = process->paused_until_ns;
    if (unlikely(paused_until_ns > sim->now_ns)) {
        task->deferred = true;
        sim_at_timer(sim, paused_until_ns, task_fire, task, turn);
        return;
    }
    if (process->crashable && sim_fault_draw(sim, FAULT_CRASH_CLIENT)) {
        sim_faults_crash(process);
        return;
    }
    task->deferred = false;
    task->turn++;
    sim->current = task;
    if (unlikely(sim->config.trace))
        sim_note_print(sim, "goes on", process->host->id, task->turn, 0);
    bool ended = fiber_resume(task->fiber);
    sim->current = NULL;
    if (ended)
        sim_task_release(task);
    else if (unlikely(process->dying))
        sim_process_crash(process);
}

void sim_task_block(struct sim_task *task)
{
    assert(task == task->sim->current);
    task->sim->current = NULL;
    fiber_yield(task->fiber);
}

/* The chooser finds by itself which wake-ups are stale: of these the task may be gone. */
static void wake_chosen(struct sim_ticket ticket, uint64_t at_ns, bool timer, bool yields)
{
    if (ticket.task->turn != ticket.turn)
        return;
    const struct sim_pending wake = {.fn = task_fire,
                                     .arg = ticket.task,
                                     .tag = ticket.turn,
                                     .task = ticket.task,
                                     .last = &ticket.task->turn,
                                     .stale_above = ticket.turn,
                                     .timer = timer,
                                     .yields = yields};
    push_pending(ticket.task->sim, at_ns, wake);
}

void sim_ticket_wake_at(struct sim_ticket ticket, uint64_t at_ns)
{
    if (unlikely(ticket.task->sim->config.chooser))
        wake_chosen(ticket, at_ns, false, false);
    else
        sim_at(ticket.task->sim, at_ns, task_fire, ticket.task, ticket.turn);
}

void sim_ticket_poll_at(struct sim_ticket ticket, uint64_t at_ns)
{
    if (ticket.task->sim->config.chooser)
        wake_chosen(ticket, at_ns, true, false);
    else
        sim_ticket_wake_at(ticket, at_ns);
}

void sim_task_yield(struct sim_task *task)
{
    if (!task->sim->config.chooser)
        return;
    wake_chosen(sim_ticket_take(task), task->sim->now_ns, false, true);
    sim_task_block(task);
}

void sim_task_wake_at(struct sim_task *task, uint64_t at_ns)
{
    sim_ticket_wake_at(sim_ticket_take(task), at_ns);
}

/* One timer event per task serves all its sleeps: it is queued again if it fires before the current deadline. Sleeps are
 * mostly ended by something else, and every one of them would leave an event behind. */
static void task_timer(void *arg, uint64_t at_ns)
{
    struct sim_task *task = arg;
    if (task->timer_ns != at_ns)
        return; /* an earlier one was needed meanwhile */
    task->timer_ns = 0;
    if (!task->process || !task->waiting || task->deadline_ns == UINT64_MAX)
        return;
    if (task->deadline_ns <= task->sim->now_ns) {
        task_fire(task, task->turn);
        return;
    }
    task->timer_ns = task->deadline_ns;
    sim_at(task->sim, task->timer_ns, task_timer, task, task->timer_ns);
}

int sim_task_wait(struct sim_task *task, uint64_t deadline_ns)
{
    struct sim *sim = task->sim;
    if (task->cancelled) {
        task->cancelled = false;
        return -ECANCELED;
    }
    if (deadline_ns <= sim->now_ns)
        return -ETIMEDOUT;
    task->deadline_ns = deadline_ns;
    if (unlikely(sim->config.chooser)) {
        if (deadline_ns != UINT64_MAX)
            wake_chosen(sim_ticket_take(task), deadline_ns, true, false);
    } else if (deadline_ns != UINT64_MAX && (!task->timer_ns || task->timer_ns > deadline_ns)) {
        task->timer_ns = deadline_ns;
        sim_at(sim, deadline_ns, task_timer, task, deadline_ns);
    }
    task->waiting = true;
    sim_task_block(task);
    task->waiting = false;
    task->deadline_ns = UINT64_MAX;
    if (task->cancelled) {
        task->cancelled = false;
        return -ECANCELED;
    }
    return deadline_ns <= sim->now_ns ? -ETIMEDOUT : 0;
}

void sim_task_cancel(struct sim_task *task)
{
    task->cancelled = true;
    if (task->waiting)
        sim_task_wake_at(task, task->sim->now_ns);
}
