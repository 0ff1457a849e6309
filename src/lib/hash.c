/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/hash.h"

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
    return hash_bytes_inline(data, len, seed);
}
