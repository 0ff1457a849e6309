/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded by tests/xdp/coverage.py: programs for the kernel are replaced by those that count what they come by, and what they
 * have counted is written down before they are closed. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNTS ".data.cover" /* where tests/xdp/coverage.py has put the counters */

/* The counters are not atomic, and some are derived from others: one CPU at a time. */
long sysconf(int name)
{
    long (*ask)(int) = (__typeof__(ask))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_NPROCESSORS_ONLN ? 1 : ask(name);
}

struct bpf_object *bpf_object__open_mem(const void *bytes, size_t size, const struct bpf_object_open_opts *opts)
{
    struct bpf_object *(*open_mem)(const void *, size_t, const struct bpf_object_open_opts *) =
        (__typeof__(open_mem))dlsym(RTLD_NEXT, "bpf_object__open_mem");
    char path[512];
    static char instead[1 << 22];
    snprintf(path, sizeof path, "%s/%s.o", getenv("PAWL_COVERAGE"), opts->object_name);
    FILE *f = fopen(path, "re");
    if (!f)
        return open_mem(bytes, size, opts);
    size_t len = fread(instead, 1, sizeof instead, f);
    fclose(f);
    return open_mem(instead, len, opts);
}

void bpf_object__close(struct bpf_object *object)
{
    void (*close_object)(struct bpf_object *) = (__typeof__(close_object))dlsym(RTLD_NEXT, "bpf_object__close");
    static unsigned number;
    struct bpf_map *map = bpf_object__find_map_by_name(object, COUNTS);
    size_t size = map ? bpf_map__value_size(map) : 0;
    char *counts = size ? malloc(size) : NULL, path[512];
    const int zero = 0;
    if (counts && bpf_map__fd(map) >= 0 && !bpf_map_lookup_elem(bpf_map__fd(map), &zero, counts)) {
        snprintf(path, sizeof path, "%s/%s.%d.%u.counts", getenv("PAWL_COVERAGE"), bpf_object__name(object), (int)getpid(),
                 number++);
        FILE *f = fopen(path, "we");
        if (f) {
            fwrite(counts, 1, size, f);
            fclose(f);
        }
    }
    free(counts);
    close_object(object);
}
