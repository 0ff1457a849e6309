/* SPDX-License-Identifier: Apache-2.0 */
#include "node/figures.h"
#include "dataplane/fission.h"
#include "dataplane/netlock_wire.h"
#include "designs/srvlock/srvlock.h"
#include "world/world.h"

#include <inttypes.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t mutex;
    struct figures_board *board[FIGURES_PARTS];
    unsigned count;
    bool ready;
} shown = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void figures_show(struct figures_board *b)
{
    memset(b, 0, sizeof *b);
    b->published_ns = world_now(&world_real);
    pthread_mutex_init(&b->mutex, NULL);
    pthread_mutex_lock(&shown.mutex);
    b->shown = shown.count < FIGURES_PARTS;
    if (b->shown)
        shown.board[shown.count++] = b;
    pthread_mutex_unlock(&shown.mutex);
}

void figures_hide(struct figures_board *b)
{
    pthread_mutex_lock(&shown.mutex);
    for (unsigned i = 0; i < shown.count; i++)
        if (shown.board[i] == b) {
            memmove(&shown.board[i], &shown.board[i + 1], (shown.count - i - 1) * sizeof shown.board[0]);
            shown.count--;
            break;
        }
    pthread_mutex_unlock(&shown.mutex);
    pthread_mutex_destroy(&b->mutex);
}

void figures_publish(struct figures_board *b, const struct figures_part *part)
{
    pthread_mutex_lock(&b->mutex);
    b->part = *part;
    b->published_ns = world_now(&world_real);
    pthread_mutex_unlock(&b->mutex);
}

unsigned figures_collect(struct figures_part **out)
{
    unsigned count = 0;
    pthread_mutex_lock(&shown.mutex);
    *out = calloc(shown.count + 1u, sizeof **out);
    for (unsigned i = 0; i < shown.count && *out; i++) {
        struct figures_board *b = shown.board[i];
        pthread_mutex_lock(&b->mutex);
        if (*b->part.space) /* it has published something */
            (*out)[count++] = b->part;
        pthread_mutex_unlock(&b->mutex);
    }
    pthread_mutex_unlock(&shown.mutex);
    return count;
}

bool figures_live(uint64_t within_ns)
{
    uint64_t now = world_now(&world_real);
    bool live = true;
    pthread_mutex_lock(&shown.mutex);
    for (unsigned i = 0; i < shown.count; i++) {
        pthread_mutex_lock(&shown.board[i]->mutex);
        live = live && now - shown.board[i]->published_ns < within_ns;
        pthread_mutex_unlock(&shown.board[i]->mutex);
    }
    pthread_mutex_unlock(&shown.mutex);
    return live;
}

void figures_set_ready(void)
{
    pthread_mutex_lock(&shown.mutex);
    shown.ready = true;
    pthread_mutex_unlock(&shown.mutex);
}

bool figures_ready(void)
{
    pthread_mutex_lock(&shown.mutex);
    bool ready = shown.ready && shown.count;
    for (unsigned i = 0; i < shown.count && ready; i++) {
        pthread_mutex_lock(&shown.board[i]->mutex);
        ready = shown.board[i]->part.ready;
        pthread_mutex_unlock(&shown.board[i]->mutex);
    }
    pthread_mutex_unlock(&shown.mutex);
    return ready;
}

/* ---- the types of lock packets ---- */

static const char *const srv_types[FIGURES_TYPES] = {
    [SRV_ACQUIRE] = "acquire",   [SRV_RELEASE] = "release", [SRV_CONVERT] = "convert", [SRV_STAY] = "stay",
    [SRV_LEASE] = "lease",       [SRV_GRANT] = "grant",     [SRV_REFUSED] = "refused", [SRV_QUEUED] = "queued",
    [SRV_RELEASED] = "released", [SRV_LEASED] = "leased",   [SRV_REPORT] = "report",   [SRV_REPORTED] = "reported",
};
static const char *const fission_types[FIGURES_TYPES] = {
    [FISSION_ACQUIRE] = "acquire", [FISSION_RELEASE] = "release", [FISSION_FREE] = "free",   [FISSION_GRANT] = "grant",
    [FISSION_ACK] = "released",    [FISSION_REFUSED] = "refused", [FISSION_FLAGS] = "flags", [FISSION_LOOK] = "look",
    [FISSION_CENSUS] = "census",   [FISSION_ANSWER] = "answer",   [FISSION_LEASE] = "lease", [FISSION_TAKE] = "take",
    [FISSION_REPORT] = "report",   [FISSION_PROBE] = "probe",     [FISSION_CHASE] = "chase", [FISSION_ASK] = "ask",
};
static_assert((unsigned)NETLOCK_TYPES <= FIGURES_TYPES, "each has its count");
static const char *const netlock_types[FIGURES_TYPES] = {
    [NETLOCK_ACQUIRE] = "acquire",     [NETLOCK_RELEASE] = "release",
    [NETLOCK_CANCEL] = "cancel",       [NETLOCK_LEASE] = "lease",
    [NETLOCK_GRANT] = "grant",         [NETLOCK_RELEASED] = "released",
    [NETLOCK_GONE] = "gone",           [NETLOCK_REFUSED] = "refused",
    [NETLOCK_LEASED] = "leased",       [NETLOCK_PUSH] = "push",
    [NETLOCK_PUSHED] = "pushed",       [NETLOCK_NOTIFY] = "notify",
    [NETLOCK_LAST] = "last",           [NETLOCK_TAKE] = "take",
    [NETLOCK_HANDOVER] = "handover",   [NETLOCK_GIVE] = "give",
    [NETLOCK_GIVEN] = "given",         [NETLOCK_SYNC] = "sync",
    [NETLOCK_SYNCED] = "synced",       [NETLOCK_REPORT] = "report",
    [NETLOCK_TAKE_MANY] = "take-many", [NETLOCK_HANDOVER_MANY] = "handover-many",
    [NETLOCK_BEAT] = "beat",           [NETLOCK_TAKEN_MANY] = "taken-many",
    [NETLOCK_TERM] = "term",           [NETLOCK_ELSEWHERE] = "elsewhere",
    [NETLOCK_COMMAND] = "command",     [NETLOCK_COMMANDED] = "commanded",
    [NETLOCK_DATA] = "data",           [NETLOCK_ANSWER] = "answer",
    [NETLOCK_CONVERT] = "convert",     [NETLOCK_STAY] = "stay",
    [NETLOCK_CONVERTED] = "converted", [NETLOCK_PROBE] = "probe",
    [NETLOCK_CHASE] = "chase",         [NETLOCK_FOLLOW] = "follow",
    [NETLOCK_HOLD] = "hold",           [NETLOCK_KNOWN] = "known",
};

static const struct {
    uint8_t family, grant;
    const char *const *types;
} families[] = {{PACKET_SERVER, SRV_GRANT, srv_types},
                {PACKET_FISSION, FISSION_GRANT, fission_types},
                {PACKET_NETLOCK, NETLOCK_GRANT, netlock_types}};

uint8_t figures_grant_type(uint8_t family)
{
    for (size_t i = 0; i < countof(families); i++)
        if (families[i].family == family)
            return families[i].grant;
    return 0;
}

static const char *type_name(uint8_t family, unsigned type)
{
    for (size_t i = 0; i < countof(families); i++)
        if (families[i].family == family && families[i].types[type])
            return families[i].types[type];
    return NULL;
}

/* ---- the text format of Prometheus ---- */

struct row {
    const char *name, *help;
    enum { COUNTER, GAUGE, SECONDS } type; /* SECONDS: a counter of nanoseconds that is printed in seconds */
    enum figures_kind kind;
    const char *label; /* name="value" beside the space; null: none */
    size_t at;         /* of the uint64_t, in struct figures_part */
};

#define C(field) FIGURES_COORDINATOR, NULL, offsetof(struct figures_part, coordinator.field)
#define CL(label, field) FIGURES_COORDINATOR, label, offsetof(struct figures_part, coordinator.field)
#define G(field) FIGURES_GRANTER, NULL, offsetof(struct figures_part, granter.field)
#define GL(label, field) FIGURES_GRANTER, label, offsetof(struct figures_part, granter.field)
#define M(field) FIGURES_MEMORY, NULL, offsetof(struct figures_part, memory.field)
#define ML(label, field) FIGURES_MEMORY, label, offsetof(struct figures_part, memory.field)

/* Rows of one name follow each other. */
/* clang-format off */
static const struct row rows[] = {
    {"pawl_leads", "1: this coordinator leads its space, 0: it stands by.", GAUGE, C(leads)},
    {"pawl_term", "Term of the coordinator, or of the one that a lock server or switch follows.", GAUGE, C(term)},
    {"pawl_term", "", GAUGE, G(term)},
    {"pawl_hosts", "Hosts that are members of the space.", GAUGE, C(hosts)},
    {"pawl_hosts_max", "Hosts for which the space has numbers.", GAUGE, C(hosts_max)},
    {"pawl_granters", "Lock servers and switches that send heartbeats.", GAUGE, C(granters)},
    {"pawl_granters_wanted", "Lock servers and switches that the space needs.", GAUGE, C(granters_wanted)},
    {"pawl_names", "Keys that have a lock of the space.", GAUGE, C(keys)},
    {"pawl_locks", "Locks of the space.", GAUGE, C(locks)},
    {"pawl_state_bytes", "Bytes of the log of the space's state.", GAUGE, C(log_bytes)},
    {"pawl_state_appended_bytes", "Bytes appended to the log since its latest snapshot.", GAUGE, C(appended_bytes)},
    {"pawl_state_failures_total", "Appends to the log that failed.", COUNTER, C(appends_failed)},
    {"pawl_mailbox_packets", "Packets that wait for the coordinator.", GAUGE, C(mailbox_waiting)},
    {"pawl_mailbox_lost_total", "Packets that found the coordinator's queue full.", COUNTER, C(mailbox_lost)},
    {"pawl_led_total", "Times that this coordinator began to lead.", COUNTER, C(watch.led)},
    {"pawl_host_events_total", "Hosts that joined, left or were lost.", COUNTER, CL("event=\"joined\"", watch.hosts_joined)},
    {"pawl_host_events_total", "", COUNTER, CL("event=\"left\"", watch.hosts_left)},
    {"pawl_host_events_total", "", COUNTER, CL("event=\"lost\"", watch.hosts_lost)},
    {"pawl_granter_events_total", "Lock servers and switches that joined, stopped, were lost or came back.", COUNTER,
     CL("event=\"joined\"", watch.granters_joined)},
    {"pawl_granter_events_total", "", COUNTER, CL("event=\"stopped\"", watch.granters_stopped)},
    {"pawl_granter_events_total", "", COUNTER, CL("event=\"lost\"", watch.granters_lost)},
    {"pawl_granter_events_total", "", COUNTER, CL("event=\"back\"", watch.granters_back)},
    {"pawl_granter_recoveries_total", "Places of lost granters that have a living one again.", COUNTER, C(watch.recoveries)},
    {"pawl_granter_recovery_seconds_total", "How long those places had none.", SECONDS, C(watch.recovery_ns)},
    {"pawl_life", "Life of a lock server, switch or memory node.", GAUGE, G(life)},
    {"pawl_life", "", GAUGE, M(life)},
    {"pawl_alone", "1: no coordinator answers heartbeats.", GAUGE, G(alone)},
    {"pawl_superseded", "1: another member has its place, and it decides nothing.", GAUGE, G(superseded)},
    {"pawl_joined_anew_total", "Times that a lock server or switch joined anew, with empty state.", COUNTER, G(joined_anew)},
    {"pawl_lock_memory_bytes", "Lock memory.", GAUGE, G(memory_bytes)},
    {"pawl_lock_memory_bytes", "", GAUGE, M(bytes)},
    {"pawl_received_packets_total", "Packets that a daemon received.", COUNTER, G(packets)},
    {"pawl_received_packets_total", "", COUNTER, M(counts.packets)},
    {"pawl_sent_packets_total", "Packets that a lock server or switch sent.", COUNTER, G(answers)},
    {"pawl_echoes_total", "Echo packets that were sent back.", COUNTER, G(echoes)},
    {"pawl_grants_total", "Grants by the part that decided them, as they passed; retransmitted ones count.", COUNTER,
     GL("by=\"switch\"", grants[GRANT_BY_SWITCH])},
    {"pawl_grants_total", "", COUNTER, GL("by=\"server\"", grants[GRANT_BY_SERVER])},
    {"pawl_grants_total", "", COUNTER, GL("by=\"agent\"", grants[GRANT_BY_AGENT])},
    {"pawl_holds", "Locks that are held, as their lock server knows.", GAUGE, G(design.holds)},
    {"pawl_waiting", "Requests that wait in queues of a lock server.", GAUGE, G(design.waiting)},
    {"pawl_waits_total", "Requests that had to wait.", COUNTER, G(design.waited)},
    {"pawl_timeouts_total", "Requests that ended before they were granted.", COUNTER, G(design.gave_up)},
    {"pawl_tries_refused_total", "Requests that did not wait and found the lock held, or a quota used up.", COUNTER, G(design.refused)},
    {"pawl_retransmissions_total", "Requests that came again and were recognised.", COUNTER, G(design.repeated)},
    {"pawl_retransmissions_total", "", COUNTER, M(counts.repeats)},
    {"pawl_losses_total", "Hosts or clients that lost all they held, by reason.", COUNTER, GL("reason=\"lease\"", design.lapsed)},
    {"pawl_losses_total", "", COUNTER, ML("reason=\"silent\"", counts.silent)},
    {"pawl_losses_total", "", COUNTER, ML("reason=\"fenced\"", counts.fences)},
    {"pawl_overflows_total", "Requests that a switch passed on to a lock server: its queue was full, or the lock is elsewhere.", COUNTER,
     G(design.passed_on)},
    {"pawl_moves_total", "Locks that moved between switch and lock servers.", COUNTER, G(moves)},
    {"pawl_clients", "Clients of a memory node.", GAUGE, M(clients)},
    {"pawl_verbs_total", "Verbs that a memory node executed.", COUNTER, M(counts.verbs)},
    {"pawl_requests_total", "Requests of several verbs that a memory node executed.", COUNTER, M(counts.requests)},
    {"pawl_memory_waits_total", "Waits that a memory node parked.", COUNTER, M(counts.waits)},
    {"pawl_memory_wakes_total", "Waits that a memory node answered after a change.", COUNTER, M(counts.wakes)},
    {"pawl_client_events_total", "Clients of a memory node that connected or left.", COUNTER, ML("event=\"connected\"", counts.connects)},
    {"pawl_client_events_total", "", COUNTER, ML("event=\"left\"", counts.leaves)},
    {"pawl_dropped_packets_total", "Packets that were dropped, by reason.", COUNTER, CL("reason=\"bad\"", drops.bad)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"alien\"", drops.alien)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"stale\"", drops.stale)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"unreadable\"", drops.unreadable)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"forged\"", drops.forged)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"untagged\"", drops.untagged)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"limited\"", drops.limited)},
    {"pawl_dropped_packets_total", "", COUNTER, CL("reason=\"not-admin\"", drops.not_admin)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"bad\"", bad)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"alien\"", alien)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"stale\"", stale)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"unreadable\"", unreadable)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"foreign-coordinator\"", foreign)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"untagged\"", untagged)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"forged\"", forged)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"life-not-given\"", unissued)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"not-admin\"", not_admin)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"limited\"", limited)},
    {"pawl_dropped_packets_total", "", COUNTER, GL("reason=\"no-address\"", unroutable)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"late\"", counts.dropped)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"shut-out\"", counts.refused)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"forged\"", counts.forged)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"untagged\"", untagged)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"bad\"", counts.malformed)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"unreadable\"", strays)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"limited\"", counts.full)},
    {"pawl_dropped_packets_total", "", COUNTER, ML("reason=\"alien\"", counts.foreign)},
};
/* clang-format on */

static void write_head(FILE *out, const char *name, const char *help, bool counter)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, counter ? "counter" : "gauge");
}

/* A value of a label: backslashes, quotes and ends of lines are escaped. */
static void write_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c == '\n')
            fputs("\\n", out);
        else
            fputc(*c, out);
    fputc('"', out);
}

static const char *role_of(const struct figures_part *p)
{
    return p->kind == FIGURES_COORDINATOR ? "coordinator"
           : p->kind == FIGURES_MEMORY    ? "memory"
           : p->granter.is_switch         ? "switch"
                                          : "server";
}

/* A lock server or switch is told apart by its address: a process may have several of one space. */
static void write_labels(FILE *out, const char *name, const struct figures_part *p, const char *more)
{
    fprintf(out, "%s{space=", name);
    write_quoted(out, p->space);
    fprintf(out, ",role=\"%s\"", role_of(p));
    if (p->kind == FIGURES_GRANTER) {
        char at[NET_ADDR_TEXT];
        net_addr_print(p->at, at);
        fprintf(out, ",at=\"%s\"", at);
    }
    fprintf(out, "%s%s} ", more ? "," : "", more ? more : "");
}

static void write_rows(FILE *out, const struct figures_part *parts, unsigned count)
{
    const char *latest = "", *help = "";
    for (size_t r = 0; r < countof(rows); r++) {
        const struct row *row = &rows[r];
        help = *row->help ? row->help : help;
        for (unsigned i = 0; i < count; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&parts[i] + row->at, sizeof value);
            if (parts[i].kind != row->kind || value == PACKET_UNCOUNTED)
                continue;
            if (strcmp(latest, row->name) != 0)
                write_head(out, row->name, help, row->type != GAUGE);
            latest = row->name;
            write_labels(out, row->name, &parts[i], row->label);
            if (row->type == SECONDS)
                fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", value / NS_PER_S, value % NS_PER_S);
            else
                fprintf(out, "%" PRIu64 "\n", value);
        }
    }
}

static void write_refusals(FILE *out, const struct figures_part *parts, unsigned count)
{
    write_head(out, "pawl_refused_total", "Members and questions that the coordinator refused, by reason.", true);
    for (unsigned i = 0; i < count; i++)
        for (unsigned r = 0; r < WATCH_REFUSALS && parts[i].kind == FIGURES_COORDINATOR; r++) {
            char label[64];
            snprintf(label, sizeof label, "reason=\"%s\"", watch_refusal_name((enum watch_refusal)r));
            write_labels(out, "pawl_refused_total", &parts[i], label);
            fprintf(out, "%" PRIu64 "\n", parts[i].coordinator.watch.refused[r]);
        }
}

/* Types that have not come yet are left out. */
static void write_types(FILE *out, const struct figures_part *parts, unsigned count)
{
    write_head(out, "pawl_lock_packets_total", "Lock packets of a lock server or switch, by direction and type.", true);
    for (unsigned i = 0; i < count; i++)
        for (unsigned n = 0; n < 2 * FIGURES_TYPES && parts[i].kind == FIGURES_GRANTER; n++) {
            const struct granter_figures *g = &parts[i].granter;
            unsigned type = n / 2;
            uint64_t value = n % 2 ? g->out[type] : g->in[type];
            char label[96];
            const char *name = type_name(g->family, type);
            if (!value || !name)
                continue;
            snprintf(label, sizeof label, "direction=\"%s\",type=\"%s\"", n % 2 ? "out" : "in", name);
            write_labels(out, "pawl_lock_packets_total", &parts[i], label);
            fprintf(out, "%" PRIu64 "\n", value);
        }
}

void figures_write(FILE *out)
{
    struct figures_part *parts;
    unsigned count = figures_collect(&parts);
    write_head(out, "pawl_ready", "1: the process and all its parts do their work.", false);
    fprintf(out, "pawl_ready %d\n", figures_ready());
    write_head(out, "pawl_log_lines_lost_total", "Lines of the log that could not be written.", true);
    fprintf(out, "pawl_log_lines_lost_total %" PRIu64 "\n", log_lost());
    write_rows(out, parts, count);
    write_refusals(out, parts, count);
    write_types(out, parts, count);
    free(parts);
}
