/* SPDX-License-Identifier: Apache-2.0 */
#include "client/net_where.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* host=IP or wire=WIRE. */
static int parse_option(const char *option, size_t len, struct net_where *w)
{
    char text[NET_ADDR_TEXT + 8];
    snprintf(text, sizeof text, "%.*s:0", (int)(len < NET_ADDR_TEXT ? len : NET_ADDR_TEXT), option);
    if (!strncmp(text, "host=", 5))
        return net_addr_parse(text + 5, &w->self);
    w->afxdp = !strcmp(text, "wire=afxdp:0");
    return w->afxdp || !strcmp(text, "wire=udp:0") ? 0 : -EINVAL;
}

int net_where_parse(const char *place, struct net_where *w)
{
    char address[NET_ADDR_TEXT];
    const char *slash = strchr(place, '/'), *query = strchr(place, '?');
    memset(w, 0, sizeof *w);
    if (!slash || (query && query < slash) || (size_t)(slash - place) >= sizeof address)
        return explain(-EINVAL, "pawl://%s is not pawl://ADDRESS:PORT/SPACE", place);
    snprintf(address, sizeof address, "%.*s", (int)(slash - place), place);
    size_t len = query ? (size_t)(query - slash - 1) : strlen(slash + 1);
    if (!len || len >= sizeof w->space || net_addr_parse(address, &w->coordinator) || !w->coordinator.port)
        return explain(-EINVAL, "pawl://%s is not pawl://ADDRESS:PORT/SPACE, with an IPv4 address and a name of 1 to %d bytes",
                       place, COORD_NAME_LEN - 1);
    memcpy(w->space, slash + 1, len);
    if (strchr(w->space, '/'))
        return explain(-EINVAL, "the name of the space in pawl://%s has a slash", place);
    while (query) { /* with & between them */
        const char *option = query + 1;
        query = strchr(option, '&');
        if (parse_option(option, query ? (size_t)(query - option) : strlen(option), w))
            return explain(-EINVAL,
                           "pawl://%s: after the space only ?host=IPV4-ADDRESS and wire=udp or wire=afxdp, with & between them",
                           place);
    }
    return 0;
}
