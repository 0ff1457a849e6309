/* In place of libbpf's, for programs of the kernel that are compiled to run here: maps are whatever kernel_map says. */
#ifndef PAWL_TESTS_FUZZ_KERNEL_HELPERS_H
#define PAWL_TESTS_FUZZ_KERNEL_HELPERS_H

#include <stdint.h>

#define SEC(name) __attribute__((unused))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name

void *kernel_map(const void *map, const void *key);
static uint64_t kernel_ticks = 1;

#define bpf_map_lookup_elem(map, key) kernel_map((map), (key))
#define bpf_redirect_map(map, key, flags) ((void)(map), (void)(key), (long)XDP_REDIRECT)
#define bpf_jiffies64() (kernel_ticks)

#endif
