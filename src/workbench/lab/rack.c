/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/lab/rack.h"
#include "designs/core/design.h"
#include "designs/packet/packet.h"
#include "node/hosting.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS "10.77.%u.254" /* lab_address() of a rack's switch */
#define PORTS (16 * (LAB_HOSTS_MAX + 1))
#define WORDS (PORTS + 2 * LAB_PINS + 512)

bool lab_rack_has_switch(const struct lab_rack *r)
{
    const struct design *d = design_find(r->design);
    return d && d->packet && d->packet->switch_packet;
}

bool lab_rack_is_node(const struct lab_rack *r)
{
    const struct design *d = design_find(r->design);
    return d && d->substrates & DESIGN_ON_NODE_XDP;
}

bool lab_rack_can_divide(const char *design)
{
    const struct design *d = design_find(design);
    return d && d->packet && d->packet->switch_rules;
}

/* The rack whose coordinator it uses. */
static unsigned home(const struct lab_rack *r)
{
    return r->divided ? 1 : r->rack;
}

/* A subcommand of pawl, in the namespace of the rack's switch. */
static pid_t start(const struct lab_rack *r, const char *words)
{
    char line[WORDS + 64];
    snprintf(line, sizeof line, "exec /proc/%d/exe %s >/dev/null", (int)getpid(), words);
    pid_t pid = child_fork();
    if (pid)
        return pid > 0 ? pid : 0;
    setpgid(0, 0); /* the terminal's Ctrl-C is not for it: the parent says when to end */
    if (!lab_enter(r->lab, r->rack, LAB_SWITCH))
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

/* The interfaces that lock packets arrive by. */
static void list_ports(const struct lab_rack *r, char out[PORTS])
{
    char one[16];
    *out = 0;
    for (unsigned h = 1; h <= (r->lab->in_path ? r->lab->hosts : 1); h++) {
        lab_port(r->lab, h, one);
        snprintf(out + strlen(out), PORTS - strlen(out), "%s%s", h > 1 ? "," : "", one);
    }
    if (r->divided && r->lab->in_path && r->lab->racks > 1) /* packets of other racks' hosts arrive there */
        snprintf(out + strlen(out), PORTS - strlen(out), ",%s", LAB_SPINE);
}

void lab_rack_serve(struct lab_rack *r, const char *options, bool fresh)
{
    char words[WORDS], more[PORTS + LAB_PINS + 64], ports[PORTS], pins[LAB_PINS];
    lab_rack_pins(r, pins);
    list_ports(r, ports);
    if (fresh)
        lab_forget_hosts(r->lab);
    r->options = options;
    int len = lab_rack_is_node(r) ? snprintf(more, sizeof more, "--dev %s --pin %s", ports, pins)
                                  : snprintf(more, sizeof more, "--state " LAB_DIR "/%s/" LAB_STATE "%u", r->lab->name, r->rack);
    if (r->divided)
        snprintf(more + len, sizeof more - (size_t)len, " --racks %u", r->lab->racks);
    else if (hosting_has_decider(design_find(r->design)) && !strstr(options, "--servers"))
        snprintf(more + len, sizeof more - (size_t)len, " --own 0"); /* the switch is the lab's */
    snprintf(words, sizeof words, "serve --insecure --listen " ADDRESS ":7070 --space " LAB_SPACE " --design %s %s %s %s", r->rack,
             r->lab->id, r->design, options, more, fresh ? "--fresh" : "");
    *(lab_rack_is_node(r) ? &r->control : &r->coordinator) = start(r, words);
}

void lab_rack_control(struct lab_rack *r, bool fresh)
{
    char pins[LAB_PINS], ports[PORTS], number[32] = "", words[WORDS];
    if (lab_rack_is_node(r)) {
        lab_rack_serve(r, r->options, fresh);
        return;
    }
    lab_rack_pins(r, pins);
    list_ports(r, ports);
    if (r->divided)
        snprintf(number, sizeof number, "--rack %u", r->rack);
    snprintf(words, sizeof words,
             "switch --dev %s %s %s --join " ADDRESS ":7070 --listen " ADDRESS ":4747 --space " LAB_SPACE " --pin %s %s", ports,
             r->lab->in_path ? "--loop " LAB_LOOP_OUT "," LAB_LOOP_IN : "", number, home(r), r->rack, r->lab->id, pins,
             fresh ? "--fresh" : "");
    r->control = start(r, words);
}

bool lab_rack_move(const struct lab_rack *first, unsigned slot, unsigned end, unsigned to)
{
    char words[WORDS], place[LAB_PLACE];
    int status = -1;
    lab_rack_place(first, place);
    snprintf(words, sizeof words, "rules --space %s --shards %u:%u --to %u --wait 3 2>/dev/null", place, slot, end, to);
    pid_t pid = start(first, words);
    while (pid && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid && !status;
}

void lab_rack_pins(const struct lab_rack *r, char out[LAB_PINS])
{
    char bpf[LAB_PATH];
    lab_bpf(r->lab, bpf);
    snprintf(out, LAB_PINS, "%s/run%u", bpf, r->rack);
}

void lab_rack_forget(const struct lab_rack *r)
{
    char pins[LAB_PINS], line[LAB_PINS + 16];
    lab_rack_pins(r, pins);
    snprintf(line, sizeof line, "rm -rf '%s'", pins);
    (void)!system(line); /* the name was made here; leftovers go with the lab */
}

void lab_rack_stop(struct lab_rack *r)
{
    child_end(&r->control, SIGTERM);
    child_end(&r->coordinator, SIGTERM);
    lab_rack_forget(r);
}

void lab_rack_place(const struct lab_rack *r, char out[LAB_PLACE])
{
    snprintf(out, LAB_PLACE, "pawl://" ADDRESS ":7070/" LAB_SPACE, home(r), r->lab->id);
}
