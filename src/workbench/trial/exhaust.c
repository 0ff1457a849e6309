/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/exhaust.h"
#include "workbench/trial/exhaust_image.h"
#include "workbench/trial/exhaust_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS (50 * NS_PER_MS) /* how often the parent looks after the explorer */
#define CLOCK_EVERY 256          /* schedules between two looks at the clock */

/* ---- the search: shared with the parent, which finds there at which schedule an explorer died ---- */

struct search {
    uint8_t answers[EXHAUST_ANSWERS_MAX], chosen[EXHAUST_ANSWERS_MAX];
    unsigned depth;  /* questions of the present schedule so far */
    unsigned prefix; /* that are answered as before, the last of them anew */
    bool cut;        /* the present schedule has more questions than there is room for */
    bool unlike;     /* a question had other answers than before */
    bool stop;       /* the parent's wish */
    FILE *trace;     /* of the present schedule; null: none */
    int rc;
    struct exhaust_result result;
};

static unsigned choose(struct sim_chooser *c, enum sim_question question, unsigned answers)
{
    static const char *const names[] = {
        [SIM_ASK_NEXT] = "another event comes first", [SIM_ASK_FAULT] = "a fault strikes", [SIM_ASK_FATE] = "it takes effect"};
    struct search *s = c->ctx;
    if (s->depth == EXHAUST_ANSWERS_MAX || answers > UINT8_MAX) {
        s->cut = true;
        return 0;
    }
    unsigned at = s->depth++;
    if (at >= s->prefix) {
        s->answers[at] = (uint8_t)answers;
        s->chosen[at] = 0;
    } else if (s->answers[at] && s->answers[at] != answers) {
        s->unlike = true;
    }
    s->answers[at] = (uint8_t)answers;
    c->fresh = s->depth >= s->prefix;
    if (s->chosen[at] >= answers)
        s->chosen[at] = 0;
    if (unlikely(s->trace) && s->chosen[at])
        fprintf(s->trace, "  CHOICE %u:%u of %u: %s\n", at, s->chosen[at], answers, names[question]);
    return s->chosen[at];
}

/* The next schedule, depth first: false if there is none. */
static bool advance(struct search *s)
{
    for (unsigned i = s->depth; i-- > 0;)
        if (s->chosen[i] + 1u < s->answers[i]) {
            s->chosen[i]++;
            s->prefix = i + 1;
            return true;
        }
    return false;
}

static void note_answers(const struct search *s, struct exhaust_result *out)
{
    out->answer_count = 0;
    for (unsigned i = 0; i < s->depth; i++)
        if (s->chosen[i])
            out->answers[out->answer_count++] = (struct exhaust_answer){.at = i, .answer = s->chosen[i]};
}

/* One schedule, of a world at its start. */
static void run_one(struct search *s, struct exhaust_world *w, FILE *trace)
{
    struct exhaust_result *r = &s->result;
    s->depth = 0;
    s->cut = false;
    s->trace = trace;
    w->chooser.choose = choose;
    w->chooser.ctx = s;
    w->chooser.fresh = !s->prefix;
    enum exhaust_end end = exhaust_world_run(w);
    r->schedules++;
    r->cut += end != EXHAUST_BAD && (end == EXHAUST_CUT || s->cut);
    r->beyond += w->chooser.beyond;
    r->events += w->campaign.sim->events;
    r->grants += w->campaign.oracle.grants;
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        r->strikes += w->campaign.sim->faults.counts[kind];
    if (end != EXHAUST_BAD && !s->unlike)
        return;
    r->failed = true;
    if (end == EXHAUST_BAD)
        memcpy(r->why, w->campaign.oracle.first, sizeof r->why);
    else
        snprintf(r->why, sizeof r->why, "the same answers led to another run");
    note_answers(s, r);
}

static uint64_t real_now(void)
{
    return world_now(&world_real);
}

/* Whether there is another schedule, and time for it. */
static bool goes_on(struct search *s, const struct exhaust_params *p, uint64_t began)
{
    struct exhaust_result *r = &s->result;
    if (r->failed)
        return false;
    if (!advance(s)) {
        r->complete = true;
        return false;
    }
    bool late = p->ns && r->schedules % CLOCK_EVERY == 0 && real_now() - began > p->ns;
    return !late && !(p->schedules_max && r->schedules >= p->schedules_max) && !__atomic_load_n(&s->stop, __ATOMIC_RELAXED);
}

/* From one image of the world's start. */
static int explore_image(struct search *s, const struct exhaust_params *p, uint64_t began)
{
    struct exhaust_image image;
    struct exhaust_world *w;
    int rc = exhaust_image_open(&image);
    if (rc)
        return rc;
    rc = exhaust_world_make(p, NULL, &w);
    if (!rc)
        rc = exhaust_image_keep(&image, exhaust_world_fibers(w));
    if (!rc) {
        run_one(s, w, NULL);
        while (goes_on(s, p, began)) {
            exhaust_image_put_back(&image);
            run_one(s, w, NULL);
        }
        fiber_pool_free(exhaust_world_fibers(w));
    }
    exhaust_image_close(&image);
    return rc;
}

/* Each from its own beginning. */
static int explore_anew(struct search *s, const struct exhaust_params *p, uint64_t began)
{
    struct exhaust_world *w;
    int rc;
    do {
        rc = exhaust_world_make(p, NULL, &w);
        if (rc)
            return rc;
        run_one(s, w, NULL);
        exhaust_world_free(w);
    } while (goes_on(s, p, began));
    return 0;
}

/* All schedules, until one fails or the parent stops it. */
static void explore(struct search *s, const struct exhaust_params *p)
{
    uint64_t began = real_now();
    s->rc = EXHAUST_IMAGES && !p->anew ? explore_image(s, p, began) : explore_anew(s, p, began);
    s->result.ns = real_now() - began;
    s->result.cpu_ns = world_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/* ---- in a process of its own ---- */

static struct search *search_new(void)
{
    struct search *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return s == MAP_FAILED ? NULL : s;
}

static void note_death(struct search *s, int status)
{
    struct exhaust_result *r = &s->result;
    r->failed = true;
    snprintf(r->why, sizeof r->why, "the run ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    note_answers(s, r);
}

int exhaust_run(const struct exhaust_params *p, struct exhaust_result *out)
{
    struct search *s = search_new();
    int status = 0;
    if (!s)
        return -ENOMEM;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        munmap(s, sizeof *s);
        return -ENOMEM;
    }
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN); /* the parent stops it */
        signal(SIGTERM, SIG_IGN);
        explore(s, p);
        _exit(0);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
        if (p->stop && *p->stop)
            __atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
        if (p->progress)
            p->progress(p->ctx, s->result.schedules);
    }
    if (WIFSIGNALED(status))
        note_death(s, status);
    int rc = s->rc;
    memcpy(out, &s->result, sizeof *out);
    munmap(s, sizeof *s);
    return rc;
}

int exhaust_replay(const struct exhaust_params *p, const struct exhaust_answer *answers, unsigned count, FILE *trace,
                   struct exhaust_result *out)
{
    struct search *s = calloc(1, sizeof *s);
    struct exhaust_world *w;
    int rc = s ? exhaust_world_make(p, trace, &w) : -ENOMEM;
    if (rc) {
        free(s);
        return rc;
    }
    for (unsigned i = 0; i < count; i++) {
        assert(answers[i].at < EXHAUST_ANSWERS_MAX);
        s->chosen[answers[i].at] = (uint8_t)answers[i].answer;
        s->prefix = answers[i].at + 1 > s->prefix ? answers[i].at + 1 : s->prefix;
    }
    run_one(s, w, trace);
    memcpy(out, &s->result, sizeof *out);
    exhaust_world_free(w);
    free(s);
    return 0;
}

/* ---- plans and lists of answers ---- */

void exhaust_plan_make(const struct design *d, unsigned clients, unsigned ops, struct exhaust_plan *out)
{
    assert(clients <= EXHAUST_CLIENTS_MAX && ops <= EXHAUST_OPS_MAX);
    memset(out, 0, sizeof *out);
    out->clients = clients;
    for (unsigned i = 1; i < clients && d->features & DESIGN_RANGES; i += 2)
        out->parts |= UINT32_C(1) << i;
    for (unsigned i = 0; i < clients; i++)
        for (unsigned k = 0; k < ops; k++)
            out->ops[i][k] = d->features & DESIGN_SHARED && (i + k) % 2 ? 'S' : 'X';
}

static bool skip(const char **text, size_t *len, char mark)
{
    bool here = *len && **text == mark;
    *text += here;
    *len -= here;
    return here;
}

static int plan_client(const char *text, size_t len, struct exhaust_plan *out, const char **reason)
{
    bool marked = skip(&text, &len, '!'), resident = skip(&text, &len, '@'), part = skip(&text, &len, '/');
    if (out->clients == EXHAUST_CLIENTS_MAX)
        *reason = "it has more than 8 clients";
    else if (!len || len > EXHAUST_OPS_MAX)
        *reason = "a client has 1 to 8 operations";
    else if (strspn(text, EXHAUST_LETTERS) < len)
        *reason = "operations are X and S, Y and T of a second lock, A and B of both; with a deadline small letters";
    else if (out->residents && !resident)
        *reason = "clients on the node of the lock memory (@) come last";
    if (*reason)
        return -EINVAL;
    out->spared |= (uint32_t)!marked << out->clients;
    out->parts |= (uint32_t)part << out->clients;
    memcpy(out->ops[out->clients++], text, len);
    out->residents += resident;
    return 0;
}

int exhaust_plan_parse(const char *text, struct exhaust_plan *out, const char **reason)
{
    memset(out, 0, sizeof *out);
    *reason = NULL;
    for (;; text++) {
        size_t len = strcspn(text, ",");
        int rc = plan_client(text, len, out, reason);
        text += len;
        if (rc)
            return rc;
        if (!*text)
            break;
    }
    if (out->spared == (UINT32_C(1) << out->clients) - 1)
        out->spared = 0; /* no client is marked: all are */
    return 0;
}

void exhaust_plan_text(const struct exhaust_plan *plan, char *out, size_t room)
{
    size_t len = 0;
    *out = 0;
    for (unsigned i = 0; i < plan->clients && len < room; i++)
        len +=
            (size_t)snprintf(out + len, room - len, "%s%s%s%s%s", i ? "," : "", plan->spared && !(plan->spared >> i & 1) ? "!" : "",
                             i >= plan->clients - plan->residents ? "@" : "", plan->parts >> i & 1 ? "/" : "", plan->ops[i]);
}

unsigned exhaust_plan_locks(const struct exhaust_plan *plan)
{
    for (unsigned i = 0; i < plan->clients; i++)
        if (strpbrk(plan->ops[i], "YTABytab"))
            return EXHAUST_LOCKS_MAX;
    return 1;
}

int exhaust_answers_parse(const char *text, struct exhaust_answer *out, unsigned *count)
{
    for (*count = 0;; text++) {
        char *end;
        unsigned long at = strtoul(text, &end, 10);
        if (end == text || *end != ':' || at >= EXHAUST_ANSWERS_MAX || *count == EXHAUST_ANSWERS_MAX)
            return -EINVAL;
        text = end + 1;
        unsigned long answer = strtoul(text, &end, 10);
        if (end == text || answer > UINT8_MAX || (*end && *end != ','))
            return -EINVAL;
        out[(*count)++] = (struct exhaust_answer){.at = (unsigned)at, .answer = (unsigned)answer};
        text = end;
        if (!*text)
            return 0;
    }
}

const char *exhaust_refuses(const struct exhaust_params *p)
{
    const struct design *d = p->design;
    bool shared = false, impatient = false;
    for (unsigned i = 0; i < p->plan.clients; i++) {
        shared |= strpbrk(p->plan.ops[i], "SsTt") != NULL;
        impatient |= strpbrk(p->plan.ops[i], "xsytab") != NULL;
    }
    if (p->faults & FAULT_BIT(FAULT_DELAY))
        return "delays are part of every schedule, and not a fault here";
    if (p->faults & ~EXHAUST_FAULTS)
        return "only loss, duplicate, reorder, unknown, pause and crash-client have a small form";
    if (d->packet && p->faults & FAULT_BIT(FAULT_UNKNOWN))
        return "outcomes are unknown of verbs only, and the design sends packets";
    if (p->faults & ~d->tolerates)
        return "the design does not tolerate these faults";
    if (p->strikes && !p->faults)
        return "there are no faults that could strike";
    if (shared && !(d->features & DESIGN_SHARED))
        return "the design has no shared locks";
    if (impatient && !(d->features & DESIGN_TIMEOUT))
        return "the design's waiters do not give up";
    if (p->plan.residents && d->packet)
        return "there is no node of the lock memory that clients (@) could run on";
    if (p->plan.parts && !(d->features & DESIGN_RANGES))
        return "the design has no ranges, so a client cannot want a part (/)";
    if (d->packet && d->packet->divides)
        return "a design with several switches is no small world";
    return NULL;
}
