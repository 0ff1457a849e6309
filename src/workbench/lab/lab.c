/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/lab/lab.h"
#include "client/net.h"
#include "workbench/lab/ip.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NETNS_DIR "/run/netns" /* where ip(8) keeps them */
#define SETTLE_MS 5000
#define END_PATIENCE_MS 1000 /* between SIGTERM and SIGKILL */

/* ---- names ---- */

static const char *plan_path(const char *name, const char *what, char out[LAB_PATH])
{
    snprintf(out, LAB_PATH, LAB_DIR "/%s%s%s", name, *what ? "/" : "", what);
    return out;
}

void lab_namespace(const struct lab *lab, unsigned rack, unsigned member, char out[LAB_PATH])
{
    if (!rack)
        snprintf(out, LAB_PATH, NETNS_DIR "/pawl-%s-spine", lab->id);
    else if (member == LAB_SWITCH)
        snprintf(out, LAB_PATH, NETNS_DIR "/pawl-%s-r%u-switch", lab->id, rack);
    else if (member == LAB_CORE)
        snprintf(out, LAB_PATH, NETNS_DIR "/pawl-%s-r%u-core", lab->id, rack);
    else
        snprintf(out, LAB_PATH, NETNS_DIR "/pawl-%s-r%u-h%u", lab->id, rack, member);
}

uint32_t lab_address(unsigned rack, unsigned member)
{
    return UINT32_C(0x0a4d0000) | rack << 8 | (member == LAB_SWITCH ? 254 : member);
}

void lab_mac(unsigned rack, unsigned member, uint8_t out[6])
{
    memcpy(out, (uint8_t[6]){0x02, 0x70, 0x77, 0, (uint8_t)rack, (uint8_t)(member == LAB_SWITCH ? 254 : member)}, 6);
}

void lab_port(const struct lab *lab, unsigned host, char out[16])
{
    if (lab->in_path)
        snprintf(out, 16, "p%u", host);
    else
        snprintf(out, 16, LAB_UPLINK);
}

void lab_bpf(const struct lab *lab, char out[LAB_PATH])
{
    plan_path(lab->name, "bpf", out);
}

/* Calls `fn` for every namespace that the lab has or was to have. Stops at an error of fn. */
static int each_namespace(const struct lab *lab, int (*fn)(const char *path, void *ctx), void *ctx)
{
    char path[LAB_PATH];
    int rc = 0;
    for (unsigned r = 1; r <= lab->racks && !rc; r++) {
        for (unsigned h = LAB_SWITCH; h <= lab->hosts && !rc; h++) {
            lab_namespace(lab, r, h, path);
            rc = fn(path, ctx);
        }
        lab_namespace(lab, r, LAB_CORE, path);
        rc = rc ? rc : lab->in_path ? 0 : fn(path, ctx);
    }
    lab_namespace(lab, 0, 0, path);
    return rc ? rc : lab->racks > 1 ? fn(path, ctx) : 0;
}

/* ---- the plan ---- */

static bool name_fits(const char *name)
{
    size_t len = strlen(name);
    return len && len <= LAB_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int write_plan(const struct lab *lab)
{
    char path[LAB_PATH];
    FILE *f = fopen(plan_path(lab->name, "plan", path), "we");
    if (!f)
        return explain(-errno, "%s: %s", path, strerror(errno));
    fprintf(f, "%s %u %u %d\n", lab->id, lab->racks, lab->hosts, lab->in_path);
    return fclose(f) ? explain(-errno, "%s: %s", path, strerror(errno)) : 0;
}

int lab_find(const char *name, struct lab *out)
{
    char path[LAB_PATH], line[64] = "", *at = line;
    struct lab l = {0};
    if (!name_fits(name))
        return explain(-EINVAL, "a lab's name has 1 to %d of a-z, 0-9 and '-'", LAB_NAME_MAX);
    FILE *f = fopen(plan_path(name, "plan", path), "re");
    if (!f)
        return explain(-errno, "there is no lab '%s'", name);
    bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    size_t id = strspn(line, "0123456789abcdef");
    memcpy(l.id, line, min_u64(id, sizeof l.id - 1));
    at += id;
    l.racks = (unsigned)strtoul(at, &at, 10);
    l.hosts = (unsigned)strtoul(at, &at, 10);
    l.in_path = strtoul(at, &at, 10) == 1;
    /* A crash while it was written: nothing was made yet. */
    if (!read || *at != '\n' || id != sizeof l.id - 1 || !l.racks || l.racks > LAB_RACKS_MAX || !l.hosts || l.hosts > LAB_HOSTS_MAX)
        l.racks = l.hosts = 0;
    l.complete = !access(plan_path(name, "up", path), F_OK);
    snprintf(l.name, sizeof l.name, "%s", name);
    *out = l;
    return 0;
}

/* Held while a lab is made or removed. If the process dies the kernel releases it, but only after an ip(8) that it started has
 * ended: that has inherited the lock, and may still change the network. */
static int take_turn(void)
{
    if (mkdir(LAB_DIR, 0755) && errno != EEXIST)
        return explain(errno == EACCES ? -EPERM : -errno, LAB_DIR ": %s%s", strerror(errno),
                       errno == EACCES ? "; network namespaces need root" : "");
    int fd = open(LAB_DIR "/turn", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        int rc = explain(errno == EACCES ? -EPERM : -errno, LAB_DIR "/turn: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    return fd;
}

/* ---- down ---- */

struct census {
    int signal; /* 0: count only */
    unsigned count;
};

static int visit_processes(const char *path, void *ctx)
{
    struct census *c = ctx;
    struct stat own, other;
    if (stat(path, &own))
        return 0;
    DIR *all = opendir("/proc");
    for (struct dirent *d; all && (d = readdir(all));) {
        char ns[LAB_PATH];
        long pid = strtol(d->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid())
            continue;
        snprintf(ns, sizeof ns, "/proc/%ld/ns/net", pid);
        if (stat(ns, &other) || other.st_ino != own.st_ino || other.st_dev != own.st_dev)
            continue;
        c->count++;
        if (c->signal)
            kill((pid_t)pid, c->signal);
    }
    if (all)
        closedir(all);
    return 0;
}

static unsigned census(const struct lab *lab, int signal)
{
    struct census c = {.signal = signal};
    each_namespace(lab, visit_processes, &c);
    return c.count;
}

unsigned lab_processes(const struct lab *lab)
{
    return census(lab, 0);
}

static void end_processes(const struct lab *lab)
{
    if (!census(lab, SIGTERM))
        return;
    for (unsigned i = 0; i < END_PATIENCE_MS / 10 && lab_processes(lab); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10 * (long)NS_PER_MS}, NULL);
    /* Twice, for children that were made meanwhile. */
    census(lab, SIGKILL);
    census(lab, SIGKILL);
}

static int remove_namespace(const char *path, void *ctx)
{
    (void)ctx;
    /* As ip netns del does: the namespace goes when its last process has. */
    umount2(path, MNT_DETACH);
    if (unlink(path) && errno != ENOENT)
        return explain(-errno, "%s: %s", path, strerror(errno));
    return 0;
}

static void space_of(const struct lab *lab, char out[LAB_SPACE_MAX])
{
    snprintf(out, LAB_SPACE_MAX, LAB_SPACE, lab->id);
}

void lab_forget_hosts(const struct lab *lab)
{
    char space[LAB_SPACE_MAX];
    space_of(lab, space);
    net_remove_hosts(space);
}

/* Removes the files that the coordinators of the lab have written (cluster/store_file.c). */
static void remove_state(const char *name, const char *space, unsigned racks)
{
    static const char *const ends[] = {".state", ".state.new", ".state.old", ".state.lock"};
    char what[48], path[LAB_PATH];
    for (unsigned rack = 1; rack <= racks; rack++) {
        for (size_t i = 0; i < countof(ends); i++) {
            snprintf(what, sizeof what, LAB_STATE "%u/%s%s", rack, space, ends[i]);
            unlink(plan_path(name, what, path));
        }
        snprintf(what, sizeof what, LAB_STATE "%u", rack);
        rmdir(plan_path(name, what, path));
    }
}

static int remove_lab(const char *name)
{
    struct lab lab = {0};
    char path[LAB_PATH], space[LAB_SPACE_MAX];
    int rc = lab_find(name, &lab);
    if (rc == -ENOENT) {
        rmdir(plan_path(name, "", path));
        return 0;
    }
    if (rc)
        return rc;
    end_processes(&lab);
    rc = each_namespace(&lab, remove_namespace, NULL);
    if (rc)
        return rc;
    space_of(&lab, space);
    lab_forget_hosts(&lab);
    remove_state(name, space, lab.racks);
    static const char *const files[] = {"up", "log", "bpf", "plan"}; /* the plan last: until then removal can start over */
    lab_bpf(&lab, path);
    umount2(path, MNT_DETACH);
    for (size_t i = 0; i < countof(files); i++)
        if (remove(plan_path(name, files[i], path)) && errno != ENOENT)
            return explain(-errno, "%s: %s", path, strerror(errno));
    rmdir(plan_path(name, "", path));
    return 0;
}

int lab_down(const char *name)
{
    int turn = take_turn();
    if (turn < 0)
        return turn;
    int rc = name_fits(name) ? remove_lab(name) : explain(-EINVAL, "'%s' is no name of a lab", name);
    close(turn);
    return rc;
}

/* ---- up ---- */

/* A bridge of this namespace stands for a cable. If the kernel has br_netfilter, every frame would also go through iptables; turns
 * that off. */
static void filter_nothing(void)
{
    static const char *const switches[] = {"iptables", "ip6tables", "arptables"};
    for (size_t i = 0; i < countof(switches); i++) {
        char path[LAB_PATH];
        snprintf(path, sizeof path, "/proc/sys/net/bridge/bridge-nf-call-%s", switches[i]);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* the kernel has no such thing */
        (void)!write(fd, "0", 1);
        close(fd);
    }
}

static int enter(const char *path)
{
    int ns = open(path, O_RDONLY | O_CLOEXEC), rc = ns < 0 || setns(ns, CLONE_NEWNET) ? -errno : 0;
    if (ns >= 0)
        close(ns);
    return rc;
}

/* Whether every interface in the namespace that was set up can carry packets: the kernel needs a moment for that. Enters it. */
static int see_ready(const char *path, void *ctx)
{
    bool *ready = ctx;
    struct ifaddrs *all = NULL;
    int rc = enter(path);
    if (rc)
        return rc;
    filter_nothing();
    rc = getifaddrs(&all) ? -errno : 0;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        if ((a->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP && !(a->ifa_flags & IFF_RUNNING))
            *ready = false;
    if (all)
        freeifaddrs(all);
    return rc;
}

static int settle(const struct lab *lab)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), rc = home < 0 ? -errno : 0;
    bool ready = false;
    for (unsigned ms = 0; !rc && !ready && ms < SETTLE_MS; ms += 5) {
        ready = true;
        rc = each_namespace(lab, see_ready, &ready);
        if (!ready)
            nanosleep(&(struct timespec){.tv_nsec = 5 * (long)NS_PER_MS}, NULL);
    }
    if (home >= 0) {
        if (setns(home, CLONE_NEWNET))
            rc = -errno;
        close(home);
    }
    return rc      ? explain(rc, "the namespaces cannot be entered: %s", strerror(-rc))
           : ready ? 0
                   : explain(-ETIMEDOUT, "the cables do not come up");
}

static int make(struct lab *lab)
{
    char path[LAB_PATH];
    if (mkdir(plan_path(lab->name, "", path), 0755) && errno != EEXIST)
        return explain(-errno, "%s: %s", path, strerror(errno));
    uint32_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return explain(-errno, "no random number to be had");
    snprintf(lab->id, sizeof lab->id, "%08x", id);
    int rc = write_plan(lab);
    if (rc)
        return rc;
    lab_bpf(lab, path);
    if (mkdir(path, 0700) || mount("bpf", path, "bpf", 0, "mode=0700"))
        return explain(errno == EPERM || errno == EACCES ? -EPERM : -errno, "no BPF file system at %s: %s", path, strerror(errno));
    rc = lab_build(lab);
    if (!rc)
        rc = settle(lab);
    if (rc)
        return rc;
    int fd = open(plan_path(lab->name, "up", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return explain(-errno, "%s: %s", path, strerror(errno));
    close(fd);
    lab->complete = true;
    return 0;
}

int lab_up(struct lab *lab)
{
    struct lab old = {0};
    if (!name_fits(lab->name) || !lab->hosts || lab->hosts > LAB_HOSTS_MAX || !lab->racks || lab->racks > LAB_RACKS_MAX)
        return explain(-EINVAL, "a lab has 1 to %d racks of 1 to %d hosts, and a name of a-z, 0-9 and '-'", LAB_RACKS_MAX,
                       LAB_HOSTS_MAX);
    if (geteuid())
        return explain(-EPERM, "network namespaces need root");
    int turn = take_turn();
    if (turn < 0)
        return turn;
    int rc = lab_find(lab->name, &old);
    if (!rc && old.complete)
        rc = explain(-EEXIST, "there is a lab '%s' already", lab->name);
    else
        rc = remove_lab(lab->name);
    if (!rc) {
        rc = make(lab);
        if (rc) {
            char why[512];
            snprintf(why, sizeof why, "%s", explained());
            remove_lab(lab->name);
            explain(rc, "%s", why);
        }
    }
    close(turn);
    return rc;
}

/* ---- inside ---- */

int lab_enter(const struct lab *lab, unsigned rack, unsigned member)
{
    char path[LAB_PATH];
    lab_namespace(lab, rack, member, path);
    int rc = enter(path);
    return rc ? explain(rc, "%s: %s", path, strerror(-rc)) : 0;
}
