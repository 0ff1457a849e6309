/* SPDX-License-Identifier: Apache-2.0 */
#include "world/faults.h"

#include <string.h>

static const char *const names[FAULT_KINDS] = {
    [FAULT_LOSS] = "loss",
    [FAULT_DUPLICATE] = "duplicate",
    [FAULT_REORDER] = "reorder",
    [FAULT_DELAY] = "delay",
    [FAULT_PARTITION] = "partition",
    [FAULT_PAUSE] = "pause",
    [FAULT_CRASH_CLIENT] = "crash-client",
    [FAULT_CRASH_SERVER] = "crash-server",
    [FAULT_CRASH_SWITCH] = "crash-switch",
    [FAULT_UNKNOWN] = "unknown",
    [FAULT_DRIFT] = "drift",
    [FAULT_CRASH_COORDINATOR] = "crash-coordinator",
    [FAULT_DISK] = "disk",
    [FAULT_OPERATOR] = "operator",
    [FAULT_ETCD] = "etcd",
};

const char *fault_name(enum fault kind)
{
    assert(kind < FAULT_KINDS);
    return names[kind];
}

static bool parse_one(const char *word, size_t len, uint32_t *faults)
{
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        if (strlen(names[kind]) == len && !memcmp(names[kind], word, len)) {
            *faults |= FAULT_BIT(kind);
            return true;
        }
    return false;
}

bool faults_parse(const char *list, uint32_t *faults)
{
    if (!strcmp(list, "all") || !strcmp(list, "rack")) {
        *faults = FAULTS_ALL | (*list == 'r' ? FAULTS_COORDINATOR : 0);
        return true;
    }
    uint32_t found = 0;
    if (strcmp(list, "none"))
        for (const char *word = list;;) {
            size_t len = strcspn(word, ",");
            if (!parse_one(word, len, &found))
                return false;
            if (!word[len])
                break;
            word += len + 1;
        }
    *faults = found;
    return true;
}
