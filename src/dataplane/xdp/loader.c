/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/xdp/fan.h"
#include "dataplane/xdp/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <linux/bpf.h>

/* ---- what went wrong ---- */

static _Thread_local char grumble[256]; /* the last warning of libbpf */

__attribute__((format(printf, 2, 0))) static int listen_to_libbpf(enum libbpf_print_level level, const char *format, va_list list)
{
    /* The program's log is long, and its lines come one by one: the first of several warnings says it best. */
    if (level == LIBBPF_WARN && !*grumble)
        vsnprintf(grumble, sizeof grumble, format, list);
    return 0;
}

static int fail_load(int rc, const struct plane_options *o)
{
    if (rc == -EPERM) /* -EACCES is the verifier's */
        return explain(-EPERM, "loading a program into the kernel needs root, or CAP_BPF and CAP_NET_ADMIN (%s)", grumble);
    if (rc == -E2BIG && strstr(grumble, "prog '")) /* of a map it means that there is no memory */
        return explain(rc, "this kernel's verifier gives up on the program '%s' (%s): a later kernel takes it", o->program,
                       grumble);
    if (rc == -ENOMEM || rc == -E2BIG)
        return explain(-ENOMEM, "%" PRIu32 " locks take %" PRIu64 " MiB of kernel memory, which is not there", o->locks_max,
                       plane_lock_bytes(o->program, o->locks_max) >> 20);
    return explain(rc, "the kernel refuses the program '%s': %s (%s)", o->program, strerror(-rc), grumble);
}

const char *plane_missing(void)
{
    return NULL;
}

/* ---- opening ---- */

#define LEASE_DRIFT_DIVISOR 5000 /* as designs/fisslock/decider.c has it */

static const struct plane_image *find_image(const char *name)
{
    for (size_t i = 0; i < plane_image_count; i++)
        if (!strcmp(plane_images[i].name, name))
            return &plane_images[i];
    return NULL;
}

uint64_t plane_lock_bytes(const char *program, uint64_t locks)
{
    const struct plane_image *image = find_image(program);
    return image ? locks * image->lock_bytes : 0;
}

int plane_map_fd(const struct plane *p, const char *name)
{
    int fd = bpf_object__find_map_fd_by_name(p->object, name);
    return fd < 0 ? -ENOENT : fd;
}

/* Constants are the program's own, and device maps and keys are filled in by every process anew; everything else is state. */
static bool is_state(const struct bpf_map *map)
{
    enum bpf_map_type type = bpf_map__type(map);
    return type != BPF_MAP_TYPE_DEVMAP && type != BPF_MAP_TYPE_DEVMAP_HASH &&
           strncmp(bpf_map__name(map), ".rodata", strlen(".rodata")) != 0 && strcmp(bpf_map__name(map), "seals") != 0 &&
           strcmp(bpf_map__name(map), "seal_ways") != 0;
}

static void pin_path(const struct plane *p, const struct bpf_map *map, char out[PIN_PATH])
{
    snprintf(out, PIN_PATH, "%s/%s", p->pins, bpf_map__name(map));
    for (char *c = out + strlen(p->pins); *c; c++)
        if (*c == '.')
            *c = '_'; /* a BPF file system has no names with dots */
}

/* A lease in ticks, with the allowed drift of clocks, and with the ticks in which it begins and ends. */
static uint64_t lease_ticks(uint64_t lease_ns)
{
    struct timespec tick = {0};
    if (!lease_ns || clock_getres(CLOCK_MONOTONIC_COARSE, &tick) || !tick.tv_nsec)
        return lease_ns; /* far too long, and so not wrong */
    return (lease_ns + lease_ns / LEASE_DRIFT_DIVISOR) / (uint64_t)tick.tv_nsec + 2;
}

/* Sets the length of a map, or its contents. */
static int size_map(struct bpf_map *map, const struct plane_options *o)
{
    const char *name = bpf_map__name(map);
    struct plane_settings settings = o->settings;
    settings.lease_ticks = lease_ticks(settings.lease_ns);
    if (!strcmp(name, "locks"))
        return bpf_map__set_max_entries(map, o->locks_max);
    if (!strcmp(name, "words")) /* a memory node's, in pages */
        return bpf_map__set_max_entries(map, o->locks_max);
    if (!strcmp(name, "clients") || !strcmp(name, "owners"))
        return bpf_map__set_max_entries(map, o->settings.options);
    if (!strcmp(name, "hosts") || !strcmp(name, "seals"))
        return bpf_map__set_max_entries(map, (o->hosts_max ? o->hosts_max : o->settings.machines) + 1);
    if (!strcmp(name, ".rodata.settings"))
        return bpf_map__set_initial_value(map, &settings, sizeof settings);
    if (!strcmp(name, "works"))
        return bpf_map__set_max_entries(map, (uint32_t)libbpf_num_possible_cpus() * FAN_WORKS);
    if (!o->netlock)
        return 0;
    if (!strcmp(name, "memory"))
        return bpf_map__set_value_size(map, (uint32_t)o->netlock->bytes);
    if (!strcmp(name, "latches") || !strcmp(name, "here"))
        return bpf_map__set_max_entries(map, o->netlock->locks);
    if (!strcmp(name, ".rodata.netlock"))
        return bpf_map__set_initial_value(map, o->netlock, sizeof *o->netlock);
    return 0;
}

static int prepare(struct plane *p, const struct plane_options *o)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, p->object)
    {
        const char *name = bpf_map__name(map);
        int rc = size_map(map, o);
        if (!rc && p->pins[0] && is_state(map)) {
            char path[PIN_PATH];
            pin_path(p, map, path);
            if (o->fresh)
                unlink(path); /* a program that still uses it goes on with it until it is replaced */
            p->found = p->found || !access(path, F_OK);
            rc = bpf_map__set_pin_path(map, path);
        }
        if (rc)
            return explain(rc, "map %s: %s", name, strerror(-rc));
    }
    return 0;
}

/* Whether the state was made for this rack: a rack with other numbers must not continue with it. */
static int check_live(struct plane *p, const struct plane_options *o)
{
    uint64_t bytes = 0;
    void *at = NULL;
    int rc = plane_map(p, ".data.live", &at, &bytes);
    if (rc == -ENOENT)
        return 0; /* the program keeps no state */
    if (rc || bytes < sizeof(struct plane_live))
        return rc ? rc : -EPROTO;
    p->live = at;
    if (!p->live->layout) {
        p->found = false; /* the process that pinned it died before anything was decided */
        p->live->settings = o->settings;
        p->live->life = o->life;
        p->live->epoch = o->epoch;
        p->live->closed = o->closed;
        __atomic_store_n(&p->live->layout, PLANE_LAYOUT, __ATOMIC_RELEASE);
        return 0;
    }
    struct plane_settings s = p->live->settings;
    /* The state is the same with a key and without, and however often the program tries. */
    p->live->settings.keyed = s.keyed = o->settings.keyed;
    p->live->settings.simple = s.simple = o->settings.simple;
    if (p->live->layout != PLANE_LAYOUT || memcmp(&s, &o->settings, sizeof s) != 0)
        return explain(-EEXIST, "%s has the state of another rack: other space, port, locks or machines", p->pins);
    return 0;
}

static int load_as(struct plane *p, const struct plane_options *o)
{
    const struct plane_image *image = find_image(o->program);
    if (!image)
        return explain(-ENOENT, "there is no program '%s'", o->program);
    if (image->lock_bytes && !o->locks_max)
        return explain(-EINVAL, "the program '%s' needs a number of locks", o->program);
    size_t len;
    const void *bytes = image->bytes(&len);
    LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = o->program);
    *grumble = 0;
    libbpf_set_print(listen_to_libbpf);
    p->object = bpf_object__open_mem(bytes, len, &opts);
    if (!p->object) {
        grumble[strcspn(grumble, "\n")] = 0;
        return fail_load(-errno, o);
    }
    static const char *const probes[] = {"twin_probe", "fan_probe", "cost_run", "cost_restore"};
    int rc = 0;
    for (size_t i = 0; i < countof(probes) && !rc; i++) {
        struct bpf_program *probe = bpf_object__find_program_by_name(p->object, probes[i]);
        rc = probe ? bpf_program__set_autoload(probe, o->probe) : 0;
    }
    if (!rc)
        rc = prepare(p, o);
    if (rc)
        return rc;
    rc = bpf_object__load(p->object);
    grumble[strcspn(grumble, "\n")] = 0;
    if (rc == -EINVAL && p->found)
        return explain(-EEXIST, "%s has the state of another rack: %s", p->pins, grumble);
    return rc ? fail_load(rc, o) : check_live(p, o);
}

/* The verifier of an older kernel goes through the tries of a decision one by one, and gives up. It takes the program with one. */
static int load(struct plane *p, const struct plane_options *o)
{
    static const struct plane_image *refused; /* by this kernel: it takes seconds to find out */
    const struct plane_image *image = find_image(o->program);
    struct plane_options options = *o;
    options.settings.simple |= image && image == refused;
    int rc = load_as(p, &options);
    if (rc == -E2BIG && !options.settings.simple) {
        bpf_object__close(p->object);
        p->object = NULL;
        refused = image;
        options.settings.simple = 1;
        rc = load_as(p, &options);
    }
    p->simple = options.settings.simple;
    return rc;
}

int plane_open(const struct plane_options *o, struct plane **out)
{
    struct plane *p = calloc(1, sizeof *p);
    if (!p)
        return explain(-ENOMEM, "no memory");
    if (o->pins && snprintf(p->pins, sizeof p->pins, "%s", o->pins) >= (int)sizeof p->pins) {
        free(p);
        return explain(-ENAMETOOLONG, "the folder '%.40s...' has too long a name", o->pins);
    }
    int rc = 0;
    if (p->pins[0] && mkdir(p->pins, 0700) && errno != EEXIST)
        rc = explain(-errno, "%s: %s; it should lie in a BPF file system (mount -t bpf bpf /sys/fs/bpf)", p->pins, strerror(errno));
    if (!rc)
        rc = load(p, o);
    if (rc) {
        plane_close(p, PLANE_LEAVE);
        return rc;
    }
    *out = p;
    return 0;
}

bool plane_simple(const struct plane *p)
{
    return p->simple;
}

bool plane_found(const struct plane *p)
{
    return p->found;
}

static void unpin_maps(const struct plane *p)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, p->object)
    {
        char path[PIN_PATH];
        pin_path(p, map, path);
        unlink(path);
    }
    rmdir(p->pins);
}

static void detach_all(const struct plane *p)
{
    for (unsigned i = 0; i < p->devices; i++) {
        char path[PIN_PATH], name[IF_NAMESIZE];
        bpf_link_detach(p->device[i].link);
        if (p->device[i].keeps_tags && if_indextoname(p->device[i].ifindex, name))
            plane_tags(name, ETH_FLAG_RXVLAN, true);
        snprintf(path, sizeof path, "%s/link-%" PRIu32, p->pins, p->device[i].ifindex);
        if (p->pins[0])
            unlink(path);
    }
}

void plane_close(struct plane *p, enum plane_end how)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->maps; i++)
        munmap(p->map[i].at, p->map[i].bytes);
    ring_buffer__free(p->mail);
    if (how != PLANE_LEAVE) {
        detach_all(p);
        plane_unfilter(p);
    }
    if (how == PLANE_REMOVE && p->pins[0])
        unpin_maps(p);
    for (unsigned i = 0; i < p->devices; i++)
        close(p->device[i].link);
    bpf_object__close(p->object);
    free(p);
}

/* ---- while it runs ---- */

int plane_map(struct plane *p, const char *name, void **at, uint64_t *bytes)
{
    const struct bpf_map *map = bpf_object__find_map_by_name(p->object, name);
    if (!map)
        return -ENOENT;
    if (p->maps == PLANE_MAPS_MAX)
        return -ENOSPC;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t len = round_up((uint64_t)round_up(bpf_map__value_size(map), 8u) * bpf_map__max_entries(map), page);
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (memory == MAP_FAILED)
        return explain(-errno, "map %s: %s", name, strerror(errno));
    p->map[p->maps].at = *at = memory;
    p->map[p->maps].bytes = *bytes = len;
    p->maps++;
    return 0;
}

volatile struct plane_live *plane_live(struct plane *p)
{
    return p->live;
}

int plane_set_host(struct plane *p, uint16_t machine, const struct plane_host *host)
{
    uint32_t key = machine;
    int fd = plane_map_fd(p, "hosts");
    if (fd < 0)
        return fd;
    if (bpf_map_update_elem(fd, &key, host, BPF_ANY))
        return explain(-errno, "machine %u is beyond those of the rack", machine);
    return 0;
}

static int sum_counters(int fd, struct plane_counters *sum)
{
    int cpus = libbpf_num_possible_cpus();
    struct plane_counters *each = cpus > 0 ? calloc((size_t)cpus, sizeof *each) : NULL;
    uint32_t zero = 0;
    int rc = !each ? -ENOMEM : bpf_map_lookup_elem(fd, &zero, each) ? -errno : 0;
    if (!rc) {
        *sum = (struct plane_counters){0};
        for (int i = 0; i < cpus; i++)
            for (size_t k = 0; k < sizeof *sum / sizeof(uint64_t); k++)
                ((uint64_t *)sum)[k] += ((const uint64_t *)&each[i])[k];
    }
    free(each);
    return rc;
}

int plane_count(const struct plane *p, struct plane_counters *sum)
{
    int fd = plane_map_fd(p, "counters");
    return fd < 0 ? fd : sum_counters(fd, sum);
}

static int open_pinned(const char *pins, const char *name)
{
    char path[PIN_PATH];
    snprintf(path, sizeof path, "%s/%s", pins, name);
    int fd = bpf_obj_get(path);
    return fd < 0 ? explain(-errno, "%s: %s", path, strerror(errno)) : fd;
}

int plane_peek(const char *pins, struct plane_live *live, struct plane_counters *sum)
{
    uint32_t zero = 0;
    struct plane_live found;
    int fd = open_pinned(pins, LIVE_PIN);
    if (fd < 0)
        return fd;
    int rc = bpf_map_lookup_elem(fd, &zero, &found) ? explain(-errno, "%s: not of this version", pins) : 0;
    close(fd);
    if (!rc && found.layout != PLANE_LAYOUT)
        rc = explain(-EPROTO, "%s: of layout %" PRIu32 ", and this is %u", pins, found.layout, PLANE_LAYOUT);
    if (rc)
        return rc;
    fd = open_pinned(pins, "counters");
    if (fd < 0)
        return fd;
    rc = sum_counters(fd, sum);
    close(fd);
    if (!rc)
        *live = found;
    return rc;
}

int plane_forget(const char *pins)
{
    static const uint64_t none[2];
    uint32_t key = 0;
    int fd = open_pinned(pins, "locks"), rc = 0;
    if (fd < 0)
        return fd;
    while (!bpf_map_update_elem(fd, &key, none, BPF_EXIST)) /* to the end */
        key++;
    rc = errno == E2BIG && key ? 0 : -errno;
    close(fd);
    return rc;
}

int plane_order(struct plane *p, void *order, uint32_t len)
{
    struct plane_run run = {.in = order, .in_len = len, .out = order, .out_len = len};
    int rc = plane_run(plane_program(p, "order"), &run);
    return rc ? rc : run.verdict == XDP_PASS ? 0 : -EINVAL;
}

static int one_mail(void *ctx, void *data, size_t len)
{
    const struct plane *p = ctx;
    p->mail_to.fn(p->mail_to.ctx, data, (uint32_t)len);
    return 0;
}

int plane_mail(struct plane *p, plane_mail_fn fn, void *ctx, int ms)
{
    p->mail_to.fn = fn;
    p->mail_to.ctx = ctx;
    int fd = plane_map_fd(p, "mail");
    if (fd < 0)
        return fd;
    if (!p->mail)
        p->mail = ring_buffer__new(fd, one_mail, p, NULL);
    if (!p->mail)
        return explain(-errno, "map mail: %s", strerror(errno));
    int n = ring_buffer__poll(p->mail, ms);
    return n < 0 && n != -EINTR ? n : 0;
}

/* ---- for tests and measurements ---- */

int plane_program(const struct plane *p, const char *name)
{
    const struct bpf_program *program = bpf_object__find_program_by_name(p->object, name);
    return program ? bpf_program__fd(program) : -ENOENT;
}

uint32_t plane_verified(const struct plane *p)
{
    struct bpf_prog_info info = {0};
    uint32_t len = sizeof info;
    return bpf_obj_get_info_by_fd(plane_program(p, "plane"), &info, &len) ? 0 : info.verified_insns;
}

int plane_run(int program, struct plane_run *run)
{
    struct xdp_md context = {.data_end = run->in_len, .ingress_ifindex = run->ifindex};
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = run->in, .data_size_in = run->in_len, .data_out = run->out,
                .data_size_out = run->out ? run->out_len : 0, .repeat = (int)run->repeat);
    if (run->ifindex) {
        opts.ctx_in = &context;
        opts.ctx_size_in = sizeof context;
    }
    int rc = bpf_prog_test_run_opts(program, &opts);
    if (rc)
        return rc;
    run->out_len = opts.data_size_out;
    run->verdict = opts.retval;
    run->ns = opts.duration;
    return 0;
}

int plane_set_case(struct plane *p, const struct cost_case *c)
{
    uint32_t zero = 0;
    int fd = plane_map_fd(p, "cost_cases");
    return fd < 0 ? fd : bpf_map_update_elem(fd, &zero, c, BPF_ANY) ? -errno : 0;
}
