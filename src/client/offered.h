/* SPDX-License-Identifier: Apache-2.0 */
/* Designs that are asked for by name and that this program does not have. */
#ifndef PAWL_CLIENT_OFFERED_H
#define PAWL_CLIENT_OFFERED_H

#include "lib/base.h"

/* Whether libpawl offers the design, be it linked into this program or not. */
bool design_is_offered(const char *name);

/* Explains why a design that design_find does not find is refused: libpawl does not offer it (-EINVAL), or the program, a static
 * one, was linked without it (-PAWL_ENOTSUP). */
int refuse_design(const char *name);

#endif
