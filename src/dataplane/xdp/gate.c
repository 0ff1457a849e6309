/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/xdp/gate.h"
#include "lib/explain.h"

#include "dataplane/xdp/gate.skel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct gate_filter {
    struct bpf_object *object;
    struct bpf_map *refused; /* packets, by CPU */
    volatile struct plane_seal *seals;
    uint64_t bytes; /* of the seals, as they are mapped */
    int cpus;
};

static int load(struct gate_filter *g, const struct gate_settings *settings)
{
    size_t len;
    const void *bytes = gate__elf_bytes(&len);
    g->object = bpf_object__open_mem(bytes, len, NULL);
    if (!g->object)
        return -errno;
    struct bpf_map *constants = bpf_object__find_map_by_name(g->object, ".rodata.settings");
    struct bpf_map *seals = bpf_object__find_map_by_name(g->object, "seals");
    g->refused = bpf_object__find_map_by_name(g->object, "refused");
    int rc = constants && seals && g->refused ? bpf_map__set_initial_value(constants, settings, sizeof *settings) : -ENOENT;
    rc = rc ? rc : bpf_map__set_max_entries(seals, settings->machines + 1);
    return rc ? rc : bpf_object__load(g->object);
}

int gate_open(const struct gate_settings *settings, struct gate_filter **out)
{
    struct gate_filter *g = calloc(1, sizeof *g);
    if (!g)
        return explain(-ENOMEM, "out of memory");
    libbpf_set_print(NULL); /* the caller says it */
    int rc = load(g, settings);
    g->cpus = libbpf_num_possible_cpus();
    g->bytes = (settings->machines + UINT64_C(1)) * sizeof *g->seals;
    if (!rc) {
        int seals = bpf_object__find_map_fd_by_name(g->object, "seals");
        void *at = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, seals, 0);
        g->seals = at == MAP_FAILED ? NULL : at;
        rc = g->seals && g->cpus > 0 ? 0 : -ENOMEM;
    }
    if (rc) {
        gate_close(g);
        return rc == -EPERM ? explain(rc, "loading a filter into the kernel needs root, or CAP_BPF")
                            : explain(rc, "the kernel refuses the filter of packets: %s", strerror(-rc));
    }
    *out = g;
    return 0;
}

volatile struct plane_seal *gate_seals(struct gate_filter *g)
{
    return g->seals;
}

int gate_attach(struct gate_filter *g, int fd)
{
    int program = bpf_program__fd(bpf_object__find_program_by_name(g->object, "gate"));
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) ? -errno : 0;
}

int gate_detach(struct gate_filter *g, int fd)
{
    int none = 0;
    return setsockopt(fd, SOL_SOCKET, SO_DETACH_BPF, &none, sizeof none) ? -errno : 0;
}

uint64_t gate_refused(const struct gate_filter *g)
{
    uint32_t zero = 0;
    uint64_t sum = 0, *each = calloc((size_t)g->cpus, sizeof *each);
    if (each && !bpf_map__lookup_elem(g->refused, &zero, sizeof zero, each, (size_t)g->cpus * sizeof *each, 0))
        for (int i = 0; i < g->cpus; i++)
            sum += each[i];
    free(each);
    return sum;
}

void gate_close(struct gate_filter *g)
{
    if (g->seals)
        munmap((void *)(uintptr_t)g->seals, g->bytes);
    bpf_object__close(g->object);
    free(g);
}
