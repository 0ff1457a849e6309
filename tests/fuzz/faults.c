/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of faults: nothing crashes, and what is accepted names known faults only. */
#include "world/faults.h"
#include "tests/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    uint32_t faults = 0;
    CHECK(text);
    if (faults_parse(text, &faults))
        CHECK(!(faults & ~(FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_REPLAY) | FAULT_BIT(FAULT_FORGE))));
    free(text);
    return 0;
}
