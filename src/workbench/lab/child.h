/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that do not outlive their parent. */
#ifndef PAWL_WORKBENCH_LAB_CHILD_H
#define PAWL_WORKBENCH_LAB_CHILD_H

#include <sys/types.h>

/* As fork(). The child is killed when its parent ends, however that ends. */
pid_t child_fork(void);

/* Signals the child (0: does not), waits for its end and sets *pid to 0, which means none. */
void child_end(pid_t *pid, int signal);

#endif
