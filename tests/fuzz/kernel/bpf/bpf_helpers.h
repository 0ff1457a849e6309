/* SPDX-License-Identifier: Apache-2.0 */
/* In place of libbpf's, for programs of the kernel that are compiled to run here: maps are whatever kernel_map says. */
#ifndef PAWL_TESTS_FUZZ_KERNEL_HELPERS_H
#define PAWL_TESTS_FUZZ_KERNEL_HELPERS_H

#include <stdint.h>

#define SEC(name) __attribute__((unused))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value) *name

void *kernel_map(const void *map, const void *key);
static uint64_t kernel_ticks __attribute__((unused)) = 1;

#define bpf_map_lookup_elem(map, key) kernel_map((map), (key))
#define bpf_redirect_map(map, key, flags) ((void)(map), (void)(key), (long)XDP_REDIRECT)
#define bpf_jiffies64() (kernel_ticks)

/* There is room before a frame; an Ethernet head of it stays. */
#define bpf_xdp_adjust_head(ctx, delta)                                                                                            \
    ((int)((ctx)->data_end - (ctx)->data) - (delta) < 14 ? -1 : ((ctx)->data = (uint32_t)((int64_t)(ctx)->data + (delta)), 0))

/* NetLock's needs more. There is one thread, so the latch does nothing. */
void kernel_map_set(const void *map, const void *key, const void *value); /* null: deletes */
static uint64_t kernel_boot_ns __attribute__((unused)) = 1;

#define bpf_map_update_elem(map, key, value, flags) (kernel_map_set((map), (key), (value)), 0)
#define bpf_map_delete_elem(map, key) (kernel_map_set((map), (key), (void *)0))
#define bpf_ktime_get_boot_ns() (kernel_boot_ns)
#define bpf_get_smp_processor_id() 0u
#define bpf_spin_lock(lock) ((void)(lock))
#define bpf_spin_unlock(lock) ((void)(lock))
#define bpf_ringbuf_output(map, data, size, flags) ((void)(map), (void)(data))
#define bpf_loop(count, fn, ctx, flags)                                                                                            \
    do {                                                                                                                           \
        for (uint32_t turn_ = 0; turn_ < (count) && !(fn)(turn_, (ctx)); turn_++)                                                  \
            ;                                                                                                                      \
    } while (0)

#endif
