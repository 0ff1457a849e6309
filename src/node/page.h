/* SPDX-License-Identifier: Apache-2.0 */
/* The live page of a daemon: one HTML file, which asks for /status.json every two seconds. While a page asks, a thread looks at the
 * spaces of the coordinators in this process, as 'pawl ls' does; otherwise it only keeps the rates of the last minutes. */
#ifndef PAWL_NODE_PAGE_H
#define PAWL_NODE_PAGE_H

#include <stddef.h>
#include <stdio.h>

int page_start(void); /* 0, or a negative code, explained */
void page_stop(void);

/* The page itself. */
extern const char page_html[];
extern const size_t page_html_len;

/* Its data. */
void page_write_status(FILE *out);

#endif
