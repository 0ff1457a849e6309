/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks through the kernel's switch, against one and against one by one (all.h), in a lab: costs of processors, not of a
 * network. The coordinator and the switch's control process are commands of pawl. */
#include "bench/all.h"
#include "lib/explain.h"
#include "tests/lab/rack.h"

#include <inttypes.h>
#include <libgen.h>
#include <sys/prctl.h>

#define START_NS (30 * NS_PER_S)

static char command[4096]; /* build/pawl */

static void find_pawl(void)
{
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        kit_die("no /proc");
    self[n] = 0;
    snprintf(command, sizeof command, "%s/pawl", dirname(dirname(self)));
}

/* A subcommand of pawl beside the switch; ends with this process. */
static pid_t start(const char *words)
{
    char line[sizeof command + 512];
    snprintf(line, sizeof line, "exec %s %s >/dev/null", command, words);
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!lab_enter(&rack, 1, LAB_SWITCH))
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static void measure(struct kit *k, const char *design, const char *space, uint64_t locks)
{
    char words[512], place[128];
    pawl *p;
    snprintf(words, sizeof words,
             "serve --insecure --space %s --design %s --listen 10.77.1.254:7070 --fresh --locks %" PRIu64 " --keys dense %s", space,
             design, locks, !strcmp(design, "netlock") ? "--servers 1" : "--own 0");
    pid_t coordinator = start(words);
    snprintf(words, sizeof words, "switch --dev %s --join 10.77.1.254:7070 --space %s --listen 10.77.1.254:%d --fresh", LAB_UPLINK,
             space, RACK_PORT);
    pid_t control = start(words);
    if (lab_enter(&rack, 1, 1))
        kit_die("%s", explained());
    snprintf(place, sizeof place, "pawl://10.77.1.254:7070/%s", space);
    for (uint64_t until = kit_now() + START_NS; pawl_open(place, NULL, &p); usleep(20000))
        if (kit_now() > until)
            kit_die("the rack does not come up: %s", pawl_explain());
    all_measure(k, design, p, locks);
    pawl_close(p);
    kill(control, SIGTERM);
    waitpid(control, NULL, 0);
    kill(coordinator, SIGTERM);
    waitpid(coordinator, NULL, 0);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "ten locks through the kernel's switch at once, against one and against one by one, in a lab");
    find_pawl();
    rack_up("all", 1, false);
    printf("medians of rounds of %d turns each; the client spins, then sleeps\n", ALL_TURNS);
    measure(&k, "fisslock", "all-fisslock", 100000);
    /* NetLock's switch is for hot locks. Of cold ones each register is a miss in the caches: with 10,000 locks the ratio is 1.8x.
     */
    measure(&k, "netlock", "all-netlock", 200);
    return kit_end(&k);
}
