/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAWL_LIB_THREAD_MEMORY_H
#define PAWL_LIB_THREAD_MEMORY_H

#include "lib/base.h"

/* Memory of the calling thread, zeroed, which is freed when the thread ends; null: out of memory. A caller keeps the pointer in a
 * thread-local variable. Large thread-local objects are not an option in a library: their sum is taken from the stack of every
 * thread of the program, and a program that loads the library at run time has room for little. */
void *thread_memory(size_t bytes);

#endif
