/* SPDX-License-Identifier: Apache-2.0 */
#include "world/faults.h"
#include "lib/text.h"

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
    [FAULT_REPLAY] = "replay",
    [FAULT_FORGE] = "forge",
};

const char *fault_name(unsigned kind)
{
    return kind < FAULT_KINDS ? names[kind] : NULL;
}

bool faults_parse(const char *list, uint32_t *faults)
{
    if (strcmp(list, "all") && strcmp(list, "rack") && strcmp(list, "none"))
        return bits_parse(list, fault_name, faults);
    *faults = (*list == 'n' ? 0 : FAULTS_ALL) | (*list == 'r' ? FAULTS_COORDINATOR : 0);
    return true;
}
