/* SPDX-License-Identifier: Apache-2.0 */
/* A real etcd cluster (world/etcd.h), version 3.4 or later, through its JSON gateway. Apart from the rest, so that the library
 * needs neither libcurl nor a parser of JSON: the command links it. */
#ifndef PAWL_NODE_ETCD_H
#define PAWL_NODE_ETCD_H

#include "world/etcd.h"

#define ETCD_SCHEME "etcd://"
#define ETCD_ENDPOINTS_MAX 9u /* members of a cluster: nine survive four failures, and more make each write slower */

/* `where`: etcd://ADDRESS:PORT[,ADDRESS:PORT]...[/PREFIX]. *prefix points into a copy that lives as long as *out. Nothing is sent.
 * 0, or a negative code, explained: -EINVAL; -ENOTSUP: this build has no etcd. */
int etcd_open(const char *where, struct etcd **out, const char **prefix);
void etcd_close(struct etcd *e);

#endif
