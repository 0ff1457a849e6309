/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon.h"
#include "node/http.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS (30 * NS_PER_S)
#define HTTP_PLACE 512 /* of a host's name and a port */

static struct http *http;

static int complain(const struct args *usage, const char *option, const char *text, int rc)
{
    if (rc == -ENOENT)
        return args_complain(usage, "--%s: there is no host of the name in '%s'", option, text);
    if (rc == -EAGAIN)
        return args_complain(usage, "--%s: the resolver does not answer for the name in '%s'", option, text);
    if (rc == -E2BIG)
        return args_complain(usage, "--%s: there are more than %u addresses in '%s'", option, COORD_LIST_MAX, text);
    return rc ? args_complain(usage, "--%s: '%s' is not ADDRESS:PORT, with an IPv4 address, an IPv6 address in brackets or a name",
                              option, text)
              : 0;
}

/* "9100" is a port on loopback. */
static int listen_for_http(const struct args *usage, const char *text)
{
    char place[HTTP_PLACE];
    struct net_addr at;
    snprintf(place, sizeof place, "%s%s", strchr(text, ':') ? "" : "127.0.0.1:", text);
    int status = complain(usage, "http", text, net_addr_resolve(place, &at));
    if (status)
        return status;
    if (http_open(&at, &http))
        return cli_say(usage->command + strlen("pawl "), EXIT_UNAVAILABLE, "%s", explained());
    net_addr_print(at, place);
    log_event(LOG_LEVEL_INFO, "http runs", LOG_TEXT("at", place), LOG_TEXT("why", "--http"));
    return 0;
}

int daemon_begin(const struct args *usage, const struct daemon_options *o)
{
    bool json = false;
    if (o->log && !log_parse(o->log, &json))
        return args_complain(usage, "--log is text or json, not '%s'", o->log);
    cli_catch(SIGINT, 0);
    cli_catch(SIGTERM, 0);
    signal(SIGPIPE, SIG_IGN); /* the reader of the log may end */
    log_open(json);
    return o->http ? listen_for_http(usage, o->http) : 0;
}

void daemon_end(void)
{
    http_close(http);
}

uint64_t daemon_deadline(void)
{
    return world_now(&world_real) + JOIN_NS;
}

int daemon_address(const struct args *usage, const char *option, const char *text, struct net_addr *out)
{
    return complain(usage, option, text, net_addr_resolve(text, out));
}

int daemon_addresses(const struct args *usage, const char *option, const char *text, struct coord_list *out)
{
    return complain(usage, option, text, coord_list_parse(text, strlen(text), out));
}

void daemon_ready(const char *role, const char *space, struct net_addr at, bool json)
{
    char text[NET_ADDR_TEXT];
    net_addr_print(at, text);
    figures_set_ready();
    if (json) {
        struct json j;
        json_open(&j, stdout);
        json_string(&j, "role", role);
        json_string(&j, "space", space);
        json_string(&j, "at", text);
        json_finish(&j);
        return;
    }
    printf("%s of space '%s' at %s\n", role, space, text);
    fflush(stdout);
}

int daemon_run_station(const char *command, const struct station_params *p, bool json)
{
    struct station *s = calloc(1, sizeof *s);
    if (!s)
        return cli_say(command, EXIT_UNAVAILABLE, "out of memory");
    int rc = station_open(s, p);
    if (!rc) {
        daemon_ready(p->member.is_switch ? "switch" : "lock server", p->member.space, s->member.udp.at, json);
        station_run(s);
        station_close(s);
    }
    free(s);
    return rc ? cli_say(command, EXIT_UNAVAILABLE, "%s", explained()) : 0;
}
