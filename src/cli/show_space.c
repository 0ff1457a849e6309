/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

int open_to_show(const char *command, const char *place, struct observer *o)
{
    int rc = observer_open(place, o);
    if (rc == -ENOENT)
        return cli_say(command, EXIT_NO, "there is no space %s; 'pawl space list' lists those of this user", place);
    return rc ? cli_fail(command, rc) : 0;
}

/* ---- sessions ---- */

static int count_session(void *ctx, const struct inspect_session *s)
{
    struct session_counts *c = ctx;
    if (s->health == SESSION_LIVE || s->health == SESSION_OPENING)
        c->live++;
    else
        c->lost++;
    return 0;
}

int count_sessions(const struct observer *o, struct session_counts *out)
{
    *out = (struct session_counts){0};
    return inspect_sessions(&o->locker, count_session, out);
}

void print_session_header(void)
{
    printf("%8s  %-8s %-10s %-19s  %s\n", "PID", "STATE", "LEASE LEFT", "SESSION SINCE", "COMMAND");
}

void print_session(const struct inspect_session *s)
{
    char command[COMMAND_LEN], left[LEASE_TEXT_LEN], since[32];
    time_t opened = (time_t)s->opened_s;
    struct tm tm;
    cli_command_of(s, command);
    cli_lease_left(s, left);
    if (!localtime_r(&opened, &tm) || !strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &tm))
        since[0] = 0;
    char pid[16] = "-";
    if (s->pid)
        snprintf(pid, sizeof pid, "%" PRIu32, s->pid);
    printf("%8s  %-8s %-10s %-19s  ", pid, session_health_name(s->health), left, since);
    cli_put_text(stdout, command, strlen(command));
    if (!s->pid)
        printf(", client %" PRIu32, s->client);
    if (s->machine)
        printf(" on host %" PRIu32, s->machine);
    putchar('\n');
}

static int print_each(void *ctx, const struct inspect_session *s)
{
    print_session(s);
    return 0;
}

static int json_each(void *ctx, const struct inspect_session *s)
{
    struct json *j = ctx;
    json_object(j, NULL);
    cli_json_session(j, s);
    json_end(j);
    return 0;
}

/* ---- the space ---- */

/* The rest has addresses and no memory. */
static uint64_t bytes_used(const struct observer *o)
{
    struct stat st;
    return stat(o->segment->path, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static uint32_t node_count(const struct layout_header *h)
{
    return h->nodes ? h->nodes : 1;
}

static int print_space(const struct observer *o, const char *place, const struct session_counts *c)
{
    const struct layout_header *h = &o->header;
    char caps[192] = ""; /* all names */
    char users[USERS_LEN];
    cli_place_users(place, users);
    printf("space      %s, which %s\n", place, users);
    if (o->segment)
        printf("segment    %s, %" PRIu64 " KiB, %" PRIu64 " KiB in use\n", o->segment->path, o->segment->size / 1024,
               bytes_used(o) / 1024);
    else
        printf("memory     of memory node %u of %u, %" PRIu64 " KiB\n", h->node + 1u, node_count(h), h->total_bytes / 1024);
    printf("design     %s: %s\n", o->space.design->name, o->space.design->summary);
    printf("keys       %s, room for %" PRIu64 " locks\n", cli_keys_name(h->keys), h->capacity);
    if (h->range_units)
        printf("ranges     in units of %" PRIu64 " bytes, made for %" PRIu64 " units, room for %" PRIu64 "\n", h->unit_bytes,
               h->range_units, h->range_max);
    printf("fabric     %s\n", bits_text(h->caps, fab_cap_name, " ", caps, sizeof caps));
    printf("sessions   %" PRIu32 " live, %" PRIu32 " lost, of %" PRIu32 " with %" PRIu32 " holds each\n", c->live, c->lost,
           h->slot_count, h->record_count);
    if (!c->live && !c->lost)
        return 0;
    putchar('\n');
    print_session_header();
    return inspect_sessions(&o->locker, print_each, NULL);
}

static int json_space(const struct observer *o, const char *place, const struct session_counts *c)
{
    const struct layout_header *h = &o->header;
    struct json j;
    json_open(&j, stdout);
    char users[USERS_LEN];
    cli_place_users(place, users);
    json_string(&j, "space", place);
    json_string(&j, "users", users);
    json_string(&j, "segment", o->segment ? o->segment->path : NULL);
    json_u64(&j, "bytes", h->total_bytes);
    if (o->segment)
        json_u64(&j, "bytes_used", bytes_used(o));
    else
        json_null(&j, "bytes_used");
    if (!o->segment) {
        json_u64(&j, "node", h->node + 1u);
        json_u64(&j, "nodes", node_count(h));
    }
    json_string(&j, "design", o->space.design->name);
    json_string(&j, "keys", cli_keys_name(h->keys));
    json_u64(&j, "capacity", h->capacity);
    if (h->range_units) {
        json_u64(&j, "unit_bytes", h->unit_bytes);
        json_u64(&j, "range_units", h->range_units);
        json_u64(&j, "range_max", h->range_max);
    }
    json_bits(&j, "capabilities", h->caps, fab_cap_name);
    json_u64(&j, "sessions_max", h->slot_count);
    json_u64(&j, "holds_max", h->record_count);
    json_u64(&j, "sessions_live", c->live);
    json_u64(&j, "sessions_lost", c->lost);
    json_array(&j, "sessions");
    int rc = inspect_sessions(&o->locker, json_each, &j);
    json_end(&j);
    int lost = json_finish(&j);
    return rc ? rc : lost;
}

int show_space(const char *command, const char *place, bool json)
{
    struct observer o;
    struct session_counts c;
    int status = open_to_show(command, place, &o);
    if (status)
        return status;
    int rc = count_sessions(&o, &c);
    if (!rc)
        rc = json ? json_space(&o, place, &c) : print_space(&o, place, &c);
    observer_close(&o);
    return rc ? cli_fail(command, rc) : 0;
}
