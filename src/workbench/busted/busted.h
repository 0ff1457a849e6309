/* SPDX-License-Identifier: Apache-2.0 */
/* Designs that are wrong on purpose. */
#ifndef PAWL_WORKBENCH_BUSTED_BUSTED_H
#define PAWL_WORKBENCH_BUSTED_BUSTED_H

#include "designs/core/design.h"

/* The i-th variant of a sound design, or null. */
const struct design *busted_variant(size_t i);

#endif
