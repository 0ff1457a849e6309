/* SPDX-License-Identifier: Apache-2.0 */
#include "client/net_where.h"
#include "lib/explain.h"
#include "wire/key_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PLACE_TEXT (COORD_LIST_MAX * 280) /* a host name has up to 253 bytes; a port */

/* host=IP or wire=WIRE. */
static int parse_option(const char *option, size_t len, struct net_where *w)
{
    char text[NET_ADDR_TEXT], address[NET_ADDR_TEXT + 8];
    if (len >= sizeof text)
        return -EINVAL;
    snprintf(text, sizeof text, "%.*s", (int)len, option);
    if (!strncmp(text, "host=", 5)) {
        snprintf(address, sizeof address, strchr(text, ':') ? "[%s]:0" : "%s:0", text + 5);
        return net_addr_parse(address, &w->self);
    }
    w->through_node |= !strcmp(text, "memory=verbs");
    if (!strncmp(text, "memory=", 7))
        return w->through_node ? 0 : -EINVAL;
    w->afxdp = !strcmp(text, "wire=afxdp");
    return w->afxdp || !strcmp(text, "wire=udp") ? 0 : -EINVAL;
}

static int parse_addresses(const char *place, const char *slash, struct coord_list *out)
{
    char address[PLACE_TEXT];
    snprintf(address, sizeof address, "%.*s", (int)(slash - place), place);
    int rc = coord_list_parse(place, (size_t)(slash - place), out);
    if (rc == -ENOENT)
        return explain(rc, "pawl://%s: there is no host of the name in '%s'", place, address);
    if (rc == -EAGAIN)
        return explain(rc, "pawl://%s: the resolver does not answer for the name in '%s'", place, address);
    if (rc == -E2BIG)
        return explain(-EINVAL, "pawl://%s: there are more than %u coordinators", place, COORD_LIST_MAX);
    if (rc)
        return explain(-EINVAL,
                       "pawl://%s is not pawl://ADDRESS:PORT/SPACE, with an IPv4 address, an IPv6 address in brackets or a name; "
                       "several with commas between them",
                       place);
    return 0;
}

int net_where_key(struct net_where *w, const char *path)
{
    int rc = key_file_find(path, &w->ring);
    if (!rc)
        w->coordinators.asker = seal_asker(&w->ring);
    return rc;
}

ONCE int net_where_parse(const char *place, struct net_where *w)
{
    const char *slash = strchr(place, '/'), *query = strchr(place, '?');
    memset(w, 0, sizeof *w);
    if (!slash || (query && query < slash) || (size_t)(slash - place) >= PLACE_TEXT)
        return explain(-EINVAL, "pawl://%s is not pawl://ADDRESS:PORT/SPACE", place);
    size_t len = query ? (size_t)(query - slash - 1) : strlen(slash + 1);
    if (!len || len >= sizeof w->space)
        return explain(-EINVAL, "pawl://%s is not pawl://ADDRESS:PORT/SPACE, with a name of the space of 1 to %d bytes", place,
                       COORD_NAME_LEN - 1);
    int rc = parse_addresses(place, slash, &w->coordinators);
    if (rc)
        return rc;
    rc = net_where_key(w, NULL);
    if (rc)
        return rc;
    memcpy(w->space, slash + 1, len);
    if (strchr(w->space, '/'))
        return explain(-EINVAL, "the name of the space in pawl://%s has a slash", place);
    while (query) { /* with & between them */
        const char *option = query + 1;
        query = strchr(option, '&');
        if (parse_option(option, query ? (size_t)(query - option) : strlen(option), w))
            return explain(
                -EINVAL,
                "pawl://%s: after the space only ?host=IP-ADDRESS, wire=udp or wire=afxdp, and memory=verbs, with & between them",
                place);
    }
    return 0;
}

int net_where_no_space(const char *space, const char *address)
{
    return explain(-ENOENT,
                   "there is no space '%s' at %s: the coordinator there has another one; 'pawl space list pawl://%s' lists it",
                   space, address, address);
}
