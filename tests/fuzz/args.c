/* SPDX-License-Identifier: Apache-2.0 */
/* Values from the command line: nothing crashes, and what is accepted keeps its promises. */
#include "lib/args.h"
#include "tests/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    uint64_t value = 0;
    struct arg_range range = {0};
    CHECK(text);
    args_u64(text, &value);
    args_duration(text, &value);
    args_thousandths(text, &value);
    if (!args_fraction(text, &value))
        CHECK(value <= 1000);
    if (!args_range(text, &range))
        CHECK(range.from < range.to);
    free(text);
    return 0;
}
