/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"
#include "node/etcd.h"

#include <errno.h>

int etcd_open(const char *where, struct etcd **out, const char **prefix)
{
    (void)out, (void)prefix;
    return explain(
        -ENOTSUP,
        "%s: this build has no etcd: it was made without libcurl or jansson (Debian: libcurl4-openssl-dev, libjansson-dev)", where);
}

void etcd_close(struct etcd *e)
{
    (void)e;
}
