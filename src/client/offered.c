/* SPDX-License-Identifier: Apache-2.0 */
#include "client/offered.h"
#include "designs/core/design.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool design_is_offered(const char *name)
{
    unsigned i = 0;
    while (design_offered[i] && strcmp(design_offered[i], name))
        i++;
    return design_offered[i];
}

int refuse_design(const char *name)
{
    char list[256] = "", symbol[64];
    if (design_is_offered(name)) {
        snprintf(symbol, sizeof symbol, "%s", name);
        for (char *dash; (dash = strchr(symbol, '-'));)
            *dash = '_';
        return explain(-PAWL_ENOTSUP,
                       "this program was linked without the design '%s': add -Wl,-u,pawl_design_%s, or link libpawl.so", name,
                       symbol);
    }
    for (unsigned i = 0; design_offered[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", design_offered[i]);
    return explain(-EINVAL, "libpawl offers no design '%s'; it offers %s", name, list);
}
