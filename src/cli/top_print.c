/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROWS_PLAIN 50 /* of a table that is not on a terminal; JSON has all */
#define LINES_ABOVE 3 /* of the table: the summary, an empty line, the header */

#define HOME "\033[H"
#define END_OF_LINE "\033[K"
#define END_OF_SCREEN "\033[J"
#define CURSOR_OFF "\033[?25l"
#define CURSOR_ON "\033[?25h"

static pawl_key key_of(const struct top_row *r)
{
    return (pawl_key){.name = r->named ? r->name : NULL, .id = r->id};
}

static uint64_t waiting_ns(const struct top_look *l, const struct top_row *r)
{
    return r->waits_since_ns ? l->at_ns - r->waits_since_ns : 0;
}

/* ---- a table ---- */

struct first_holder {
    struct inspect_session session;
    bool found;
};

static int note_holder(void *ctx, const struct inspect_claim *claim)
{
    struct first_holder *f = ctx;
    if (!claim->holds)
        return 0;
    f->session = claim->session;
    f->found = true;
    return 1;
}

static void put_holder(FILE *out, const struct top_look *l, const struct top_row *r)
{
    struct first_holder f = {0};
    char who[SESSION_NAME_LEN], command[COMMAND_LEN];
    if (top_claims(l, r->index, note_holder, &f) < 0 || !f.found)
        return;
    cli_session_name(&f.session, who);
    cli_command_of(&f.session, command);
    fprintf(out, "  %s", who);
    if (f.session.machine)
        fprintf(out, " on host %" PRIu32, f.session.machine);
    fprintf(out, " (");
    cli_put_text(out, command, strlen(command));
    putc(')', out);
}

static void put_row(FILE *out, const struct top_look *l, const struct top_row *r)
{
    char waiting[16] = "-", mode[32];
    if (r->waits_since_ns)
        snprintf(waiting, sizeof waiting, "%.1f s", (double)waiting_ns(l, r) / NS_PER_S);
    snprintf(mode, sizeof mode, "%s%s", cli_mode_name(r->mode), r->gone ? ", dead" : "");
    fprintf(out, "%9s %7" PRIu32 " %7" PRIu32 " %10.1f  %-15s  ", waiting, r->waiters, r->holders, r->grants_per_s, mode);
    cli_put_key(out, key_of(r));
    put_holder(out, l, r);
}

/* One line of text, of which a terminal gets as much as fits: a character of several bytes counts as one column. */
static void print_line(const char *text, size_t len, unsigned columns, bool live)
{
    size_t at = 0;
    for (unsigned used = 0; at < len; at++) {
        bool begins = ((unsigned char)text[at] & 0xc0) != 0x80;
        if (begins && live && used++ == columns)
            break;
    }
    fwrite(text, 1, at, stdout);
    fputs(live ? END_OF_LINE "\n" : "\n", stdout);
}

int top_table(const char *place, const struct top_look *l, const struct top_row *rows, size_t count, bool live)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (live && (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col))
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    size_t room = !live ? ROWS_PLAIN : size.ws_row > LINES_ABOVE + 1 ? (size_t)size.ws_row - LINES_ABOVE - 1 : 1;
    size_t waited = 0;
    for (size_t i = 0; i < count; i++)
        waited += rows[i].waiters > 0;
    if (live)
        fputs(CURSOR_OFF HOME, stdout);
    for (size_t i = 0; i < LINES_ABOVE + min_u64(count, room); i++) {
        char *text = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        if (!out)
            return cli_say("top", EXIT_UNAVAILABLE, "no memory");
        if (i == 0)
            fprintf(out, "%s: %zu lock%s in use, %zu waited for, %.1f grants/s%s", place, count, count == 1 ? "" : "s", waited,
                    l->grants_per_s, live ? "; q ends" : "");
        if (i == 0 && l->is_rack && l->rack.silent)
            fprintf(out, "; %u of %u hosts do not answer", l->rack.silent, l->rack.hosts);
        if (i == LINES_ABOVE - 1)
            fprintf(out, "%9s %7s %7s %10s  %-15s  %s", "WAITING", "WAITERS", "HOLDERS", "GRANTS/S", "MODE",
                    "LOCK AND FIRST HOLDER");
        if (i >= LINES_ABOVE)
            put_row(out, l, &rows[i - LINES_ABOVE]);
        fclose(out);
        print_line(text, len, size.ws_col, live);
        free(text);
    }
    if (live)
        fputs(END_OF_SCREEN, stdout);
    else if (count > room)
        printf("and %zu more\n\n", count - room);
    else
        putchar('\n');
    return cli_flush(0);
}

void top_leave(void)
{
    fputs(CURSOR_ON, stdout);
    fflush(stdout);
}

/* ---- JSON ---- */

static int json_claim(void *ctx, const struct inspect_claim *claim)
{
    struct json *j = ctx;
    json_object(j, NULL);
    json_string(j, "claim", claim->holds ? "holds" : "waits");
    cli_json_session(j, &claim->session);
    json_end(j);
    return 0;
}

int top_json(const char *place, const struct top_look *l, const struct top_row *rows, size_t count)
{
    struct json j;
    int rc = 0;
    json_open(&j, stdout);
    json_string(&j, "space", place);
    json_double(&j, "grants_per_second", l->grants_per_s);
    json_array(&j, "locks");
    for (size_t i = 0; i < count; i++) {
        const struct top_row *r = &rows[i];
        json_object(&j, NULL);
        cli_json_key(&j, "name", key_of(r));
        json_string(&j, "mode", cli_mode_name(r->mode));
        cli_json_token(&j, true, r->token);
        json_u64_if(&j, "waiting_ns", r->waits_since_ns, waiting_ns(l, r));
        json_u64(&j, "waiters", r->waiters);
        json_u64(&j, "holders", r->holders);
        json_u64(&j, "dead_holders", r->gone);
        json_double(&j, "grants_per_second", r->grants_per_s);
        json_array(&j, "sessions");
        if (!rc)
            rc = top_claims(l, r->index, json_claim, &j);
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    if (l->is_rack)
        json_u64(&j, "hosts_silent", l->rack.silent);
    int lost = json_finish(&j);
    return rc ? cli_fail("top", rc) : lost ? EXIT_UNAVAILABLE : 0;
}
