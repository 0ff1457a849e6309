/* SPDX-License-Identifier: Apache-2.0 */
/* In place of libbpf's, for programs of the kernel that are compiled to run here. */
#ifndef PAWL_TESTS_FUZZ_KERNEL_ENDIAN_H
#define PAWL_TESTS_FUZZ_KERNEL_ENDIAN_H

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)

#endif
