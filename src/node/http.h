/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of a daemon, for its operator: metrics, health, and the live page. It has a thread of its own and reads copies of
 * figures (node/figures.h): no client of it can stop the service. */
#ifndef PAWL_NODE_HTTP_H
#define PAWL_NODE_HTTP_H

#include "wire/udp.h"

struct http;

/* Listens at *at, which has its port then. 0, or a negative code, explained. */
int http_open(struct net_addr *at, struct http **out);
void http_close(struct http *h); /* may be null */

#endif
