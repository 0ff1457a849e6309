/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"
#include "node/http.h"

#include <errno.h>

int http_open(struct net_addr *at, struct http **out)
{
    (void)at;
    (void)out;
    return explain(-ENOTSUP, "this build has no HTTP: libmicrohttpd was missing when it was made");
}

void http_close(struct http *h)
{
    (void)h;
}
