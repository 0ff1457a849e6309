/* SPDX-License-Identifier: Apache-2.0 */
/* Branches of the program that were reached, if the compiler counts them: clang's -fprofile-instr-generate has a counter for each.
 * `make coverage` builds so. */
#ifndef PAWL_WORKBENCH_TRIAL_REACHED_H
#define PAWL_WORKBENCH_TRIAL_REACHED_H

#include <stdint.h>

/* How many there are; 0: they are not counted. */
uint64_t reached_all(void);

/* Marks those that this process has reached; `marks` has a byte for each, and processes may share it. */
void reached_mark(uint8_t *marks);
uint64_t reached_count(const uint8_t *marks);

#endif
