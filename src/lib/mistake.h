/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Mistakes on purpose. The suite proves its oracle with variants of the designs that have one step left out or done wrongly
 * (workbench/busted). A variant is a set of bits, and the code asks for a bit where the step is.
 *
 * Only the workbench's build contains that: elsewhere, in libpawl, in the daemons and in programs for the kernel, MISTAKE is
 * constant false, and the compiler leaves nothing of it. */
#ifndef PAWL_LIB_MISTAKE_H
#define PAWL_LIB_MISTAKE_H

#ifndef PAWL_WORKBENCH
#define PAWL_WORKBENCH 0
#endif

/* Whether the variant makes one of these mistakes. */
#define MISTAKE(set, bits) (PAWL_WORKBENCH && ((set) & (bits)) != 0)

/* The set itself, to be handed on. */
#define MISTAKES(set) (PAWL_WORKBENCH ? (set) : 0)

#endif
