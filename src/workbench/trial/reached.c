/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/reached.h"

/* Of the compiler's runtime, if the program has it. */
__attribute__((weak)) uint64_t *__llvm_profile_begin_counters(void);
__attribute__((weak)) uint64_t *__llvm_profile_end_counters(void);

uint64_t reached_all(void)
{
    if (!__llvm_profile_begin_counters || !__llvm_profile_end_counters)
        return 0;
    return (uint64_t)(__llvm_profile_end_counters() - __llvm_profile_begin_counters());
}

void reached_mark(uint8_t *marks)
{
    uint64_t all = reached_all();
    for (uint64_t i = 0; i < all; i++)
        if (__llvm_profile_begin_counters()[i])
            __atomic_store_n(&marks[i], 1, __ATOMIC_RELAXED);
}

uint64_t reached_count(const uint8_t *marks)
{
    uint64_t all = reached_all(), count = 0;
    for (uint64_t i = 0; i < all; i++)
        count += __atomic_load_n(&marks[i], __ATOMIC_RELAXED);
    return count;
}
