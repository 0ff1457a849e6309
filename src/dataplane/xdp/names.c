/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/xdp/names.h"
#include "lib/base.h"

const char *plane_verdict_name(unsigned verdict)
{
    static const char *const names[] = {"passed", "dropped", "absorbed", "answered", "sent", "doubled"};
    static_assert(countof(names) == PLANE_VERDICTS, "a name for each");
    return verdict < countof(names) ? names[verdict] : "";
}

const char *plane_reason_name(unsigned reason)
{
    static const char *const names[] = {"not-ipv4", "ipv6",    "vlan",      "options", "fragment", "other",     "short",
                                        "checksum", "version", "family",    "alien",   "epoch",    "index",     "type",
                                        "control",  "unknown", "contended", "closed",  "refused",  "lost-twin", "foreign",
                                        "outdated", "many",    "forged",    "untagged"};
    static_assert(countof(names) == PLANE_REASONS, "a name for each");
    return reason < countof(names) ? names[reason] : "";
}

const char *plane_family_name(unsigned family)
{
    static const char *const names[] = {"", "echo", "coordinator", "server", "fission", "netlock"};
    return family < countof(names) ? names[family] : "";
}
