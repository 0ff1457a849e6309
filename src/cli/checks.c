/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"
#include "dataplane/xdp/loader.h"
#include "fabric/rdma.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

#define UDP_BUFFER_BYTES (4 << 20)            /* what wire/udp.c asks for */
#define SHM_ENOUGH_BYTES (UINT64_C(64) << 20) /* ten spaces of the default size */

/* The verdict: all is well, or `otherwise`, and then there is advice; and the text that says what was found. */
__attribute__((format(printf, 5, 6))) static void found(struct check *c, bool well, enum check_state otherwise, const char *advice,
                                                        const char *format, ...)
{
    va_list list;
    va_start(list, format);
    c->state = well ? CHECK_OK : otherwise;
    c->advice = well ? NULL : advice;
    vsnprintf(c->found, sizeof c->found, format, list);
    va_end(list);
}

/* ---- what pawl needs ---- */

static void check_kernel(struct check *c)
{
    struct utsname u;
    if (uname(&u)) {
        found(c, false, CHECK_MISSING, NULL, "its version cannot be read");
        return;
    }
    char *rest;
    unsigned long major = strtoul(u.release, &rest, 10), minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
    bool fits = major > 5 || (major == 5 && minor >= 4);
    found(c, fits, CHECK_MISSING, "pawl needs Linux 5.4 or later (pidfd_open)", "%s %s, %s", u.sysname, u.release, u.machine);
}

static void check_waitv(struct check *c)
{
    bool has = syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) >= 0 || errno != ENOSYS;
    found(c, has, CHECK_COULD, "with Linux 5.16 or later a waiter learns of a holder's death at once rather than within 5 ms", "%s",
          has ? "waiters sleep on the lock and on its holder's life at once" : "the kernel has none");
}

static void check_robust(struct check *c)
{
    void *head;
    size_t len;
    bool has = syscall(SYS_get_robust_list, 0, &head, &len) == 0;
    found(c, has, CHECK_MISSING, "a sandbox may forbid get_robust_list and set_robust_list; allow them", "%s",
          has ? "the kernel reports deaths of holders" : strerror(errno));
}

static void check_pidfd(struct check *c)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    found(c, fd >= 0, CHECK_MISSING, "needs Linux 5.3 or later; a sandbox may forbid pidfd_open", "%s",
          fd >= 0 ? "a dead process is told from one that reuses its id" : strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void check_shm(struct check *c)
{
    struct statvfs v;
    if (statvfs(SEGMENT_DIR, &v) || access(SEGMENT_DIR, W_OK)) {
        found(c, false, CHECK_MISSING, "mount a tmpfs at " SEGMENT_DIR ", or put spaces elsewhere with --space local:/PATH",
              SEGMENT_DIR ": %s", strerror(errno));
        return;
    }
    uint64_t size = (uint64_t)v.f_blocks * v.f_frsize, left = (uint64_t)v.f_bavail * v.f_frsize;
    found(c, left >= SHM_ENOUGH_BYTES, CHECK_COULD,
          "a space takes a few MiB: 'pawl space drop' what is not used, or remount " SEGMENT_DIR " larger (-o size=)",
          "%llu MiB, %llu MiB free", (unsigned long long)(size >> 20), (unsigned long long)(left >> 20));
}

static void check_system(struct check *c)
{
    int rc = segment_check_system();
    found(c, !rc, CHECK_COULD, "'pawl doctor --fix' as root makes " SEGMENT_SYSTEM_DIR ", where users of this machine share locks",
          "%s",
          !rc              ? SEGMENT_SYSTEM_DIR
          : rc == -ENOTDIR ? SEGMENT_SYSTEM_DIR " does not exist; each user has local: alone"
                           : SEGMENT_SYSTEM_DIR " could be changed by any user, and is not used");
}

static void check_atomic128(struct check *c)
{
#if defined __x86_64__
    unsigned a, b, ecx = 0, d;
    bool has = __get_cpuid(1, &a, &b, &ecx, &d) && ecx & bit_CMPXCHG16B;
    found(c, has, CHECK_MISSING, "no x86-64 processor since 2006 lacks it; a virtual machine may hide it", "%s",
          has ? "cmpxchg16b" : "the processor lacks cmpxchg16b");
#else
    found(c, true, CHECK_OK, NULL, "load and store exclusive pair");
#endif
}

/* Capabilities of shared memory here. Other fabrics may have fewer, and a space keeps those that it was made with. */
static void check_capabilities(struct check *c)
{
    char names[sizeof c->found] = "";
    found(c, true, CHECK_OK, NULL, "%s", bits_text(FAB_SHM_CAPS, fab_cap_name, ", ", names, sizeof names));
}

static void check_cores(struct check *c)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    found(c, n > 1, CHECK_COULD,
          "on one core every handover is a switch between processes; give the machine a second one if that matters", "%ld", n);
}

static void check_clock(struct check *c)
{
    struct timespec r = {0};
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &r)) {
        found(c, false, CHECK_MISSING, NULL, "%s", strerror(errno));
        return;
    }
    uint64_t tick = (uint64_t)r.tv_sec * NS_PER_S + (uint64_t)r.tv_nsec;
    found(c, tick <= WORLD_COARSE_LAG_NS, CHECK_MISSING,
          "leases are checked by this clock and it lags too far: use a kernel with HZ of 100 or more, or leases for ever",
          "ticks every %llu us; leases allow for %llu us", (unsigned long long)(tick / 1000),
          (unsigned long long)(WORLD_COARSE_LAG_NS / 1000));
}

/* ---- what it can do without ---- */

static void check_huge(struct check *c)
{
    char line[512];
    bool huge = false;
    FILE *mounts = fopen("/proc/self/mounts", "re");
    while (mounts && fgets(line, sizeof line, mounts)) {
        char *at = strstr(line, " " SEGMENT_DIR " tmpfs ");
        huge = huge || (at && strstr(at, "huge=") && !strstr(at, "huge=never"));
    }
    if (mounts)
        fclose(mounts);
    found(c, huge, CHECK_COULD,
          "spaces of a million locks and more are faster after: mount -o remount,huge=within_size " SEGMENT_DIR, SEGMENT_DIR " %s",
          huge ? "uses them" : "does not use them");
}

static bool capable(unsigned capability)
{
    unsigned long long effective = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "CapEff:", 7))
            effective = strtoull(line + 7, NULL, 16);
    if (status)
        fclose(status);
    return effective >> capability & 1;
}

static void check_bpf(struct check *c)
{
    bool rights = capable(CAP_SYS_ADMIN) || (capable(CAP_BPF) && capable(CAP_NET_ADMIN));
    bool types = !access("/sys/kernel/btf/vmlinux", R_OK);
    bool built = !plane_missing();
    found(c, rights && types && built, CHECK_COULD,
          built ? "a switch in the kernel needs root (or CAP_BPF and CAP_NET_ADMIN) and CONFIG_DEBUG_INFO_BTF"
                : "'scripts/deps xdp' installs what builds them: libbpf, clang and bpftool",
          "%s, %s%s", rights ? "may load programs" : "no right to load programs",
          types ? "the kernel describes its types" : "the kernel lacks /sys/kernel/btf/vmlinux",
          built ? "" : ", this build has none to load");
}

static void check_rdma(struct check *c)
{
    struct dirent **names = NULL;
    int n = scandir("/sys/class/infiniband", &names, NULL, alphasort), devices = 0;
    char first[64] = "no device";
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.' && !devices++)
            snprintf(first, sizeof first, "%.63s", names[i]->d_name); /* a device of the kernel has no longer name */
        free(names[i]);
    }
    free(names);
    found(c, devices, CHECK_COULD,
          "'pawl serve --on verbs' would use one; without a card, 'rdma link add rxe0 type rxe netdev eth0' makes one of software",
          "%s%s%s", first, devices > 1 ? " and others" : "", devices ? "; see the devices below" : "");
}

static void check_libfabric(struct check *c)
{
    const char *version = ofi_version();
    found(c, version, CHECK_COULD, "'pawl serve --on ofi' needs it; the Debian package is libfabric1", "%s%s",
          version ? "version " : "", version ? version : explained());
}

static void check_libibverbs(struct check *c)
{
    bool there = ibv_loads();
    found(c, there, CHECK_COULD, "'pawl serve --on verbs' needs it; the Debian packages are libibverbs1 and ibverbs-providers",
          "%s", there ? "installed" : explained());
}

/* Bursts that do not fit are lost, and said again later. */
static void check_udp(struct check *c)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = UDP_BUFFER_BYTES;
    socklen_t len = sizeof bytes;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) ||
        getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len)) {
        found(c, false, CHECK_COULD, "pawl:// and pawl serve need them; local: does not", "no sockets: %s", strerror(errno));
    } else {
        found(c, bytes >= UDP_BUFFER_BYTES, CHECK_COULD,
              "sysctl net.core.rmem_max=4194304 lets busy lock servers take larger bursts", "a socket's buffer holds up to %d KiB",
              bytes / 1024);
    }
    if (fd >= 0)
        close(fd);
}

const struct check_row checks[] = {
    {"kernel", check_kernel},
    {"futex_waitv", check_waitv},
    {"robust futexes", check_robust},
    {"pidfd", check_pidfd},
    {"shared memory", check_shm},
    {"system:", check_system},
    {"128-bit atomics", check_atomic128},
    {"local: can", check_capabilities},
    {"cores", check_cores},
    {"coarse clock", check_clock},
    {"huge pages", check_huge},
    {"BPF and XDP", check_bpf},
    {"RDMA", check_rdma},
    {"libfabric", check_libfabric},
    {"libibverbs", check_libibverbs},
    {"UDP", check_udp},
};
const size_t check_count = countof(checks);
