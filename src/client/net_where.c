#include "client/net_where.h"
#include "client/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int net_where_parse(const char *place, struct net_where *w)
{
    char address[NET_ADDR_TEXT], self[NET_ADDR_TEXT];
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
    if (!query)
        return 0;
    if (strncmp(query, "?host=", 6) || strlen(query + 6) > sizeof self - 4)
        return explain(-EINVAL, "pawl://%s: only ?host=ADDRESS may follow the space", place);
    snprintf(self, sizeof self, "%.*s:0", NET_ADDR_TEXT - 4, query + 6);
    if (net_addr_parse(self, &w->self))
        return explain(-EINVAL, "pawl://%s: '%s' is no IPv4 address", place, query + 6);
    return 0;
}
