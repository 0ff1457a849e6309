/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon.h"
#include "cli/notify.h"
#include "node/http.h"
#include "wire/key_file.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS (30 * NS_PER_S)
#define KEEPER_NS (3600 * NS_PER_S) /* it has nothing to do but to wait for a signal */
#define HTTP_PLACE 512              /* of a host's name and a port */

static struct http *http;

static int complain(const struct args *usage, const char *option, const char *text, int rc)
{
    if (rc == -ENOENT)
        return args_complain(usage, "--%s: there is no host of the name in '%s'", option, text);
    if (rc == -EAGAIN)
        return args_complain(usage, "--%s: the resolver does not answer for the name in '%s'", option, text);
    if (rc == -E2BIG)
        return args_complain(usage, "--%s: there are more than %u addresses in '%s'", option, COORD_LIST_MAX, text);
    if (rc == -EAFNOSUPPORT)
        return args_complain(usage, "--%s: IPv4 and IPv6 addresses are mixed in '%s'", option, text);
    return rc ? args_complain(usage, "--%s: '%s' is not ADDRESS:PORT, with an IPv4 address, an IPv6 address in brackets or a name",
                              option, text)
              : 0;
}

/* "9100" is a port on loopback. */
static int parse_http(const struct args *usage, const char *text, struct net_addr *at)
{
    char place[HTTP_PLACE];
    snprintf(place, sizeof place, "%s%s", strchr(text, ':') ? "" : "127.0.0.1:", text);
    return complain(usage, "http", text, net_addr_resolve(place, at));
}

static int listen_for_http(struct net_addr at)
{
    char text[NET_ADDR_TEXT];
    int rc = http_open(&at, &http);
    if (rc)
        return rc;
    net_addr_print(at, text);
    log_event(LOG_LEVEL_INFO, "http runs", LOG_TEXT("at", text), LOG_TEXT("why", "--http"));
    return 0;
}

/* ---- signals and the service manager ---- */

static struct {
    const struct args *usage;
    pthread_t thread;
    bool runs;
    int stop; /* atomic */
} keeper;

static void change_http(const char *value)
{
    struct net_addr at;
    http_close(http);
    http = NULL;
    if (value && (parse_http(keeper.usage, value, &at) || listen_for_http(at)))
        log_event(LOG_LEVEL_ERROR, "http ended", LOG_TEXT("why", explained()));
}

static void on_change(const struct arg *arg, const char *value)
{
    bool json;
    if (!strcmp(arg->name, "log") && log_parse(value ? value : "text", &json)) {
        log_open(json);
        log_event(LOG_LEVEL_NOTICE, "option changed", LOG_TEXT("option", arg->name),
                  LOG_TEXT("why", "the configuration was read again"));
    } else if (!strcmp(arg->name, "http")) {
        change_http(value);
    } else {
        log_event(LOG_LEVEL_WARNING, "option not changed", LOG_TEXT("option", arg->name),
                  LOG_TEXT("why", "it counts from the next start on: the daemon cannot change it while it runs"));
    }
}

static void reload(void)
{
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, world_now(&world_real) / NS_PER_US);
    notify(text);
    bool fine = !args_reload(keeper.usage, on_change);
    log_event(fine ? LOG_LEVEL_NOTICE : LOG_LEVEL_ERROR, fine ? "configuration read again" : "configuration not read",
              LOG_TEXT("why", fine ? "SIGHUP" : "it has an error, and all stays as it was"));
    notify("READY=1");
}

/* A thread of its own: it waits for SIGHUP, and tells the service manager that the parts of the daemon live. */
static void *keep(void *arg)
{
    uint64_t watchdog_ns = notify_watchdog_ns(), pause_ns = watchdog_ns ? watchdog_ns / 3 : KEEPER_NS;
    sigset_t hangup;
    (void)arg;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    while (!__atomic_load_n(&keeper.stop, __ATOMIC_ACQUIRE)) {
        const struct timespec pause = {.tv_sec = (time_t)(pause_ns / NS_PER_S), .tv_nsec = (long)(pause_ns % NS_PER_S)};
        int got = sigtimedwait(&hangup, NULL, &pause);
        if (__atomic_load_n(&keeper.stop, __ATOMIC_ACQUIRE))
            break;
        if (got == SIGHUP)
            reload();
        if (watchdog_ns && figures_live(watchdog_ns))
            notify("WATCHDOG=1");
    }
    return NULL;
}

/* SIGHUP ends a daemon without a configuration file, as it ends any program of a terminal. */
static int start_keeper(const struct args *usage, const struct daemon_options *o)
{
    sigset_t hangup;
    if (!o->config && !notify_watchdog_ns())
        return 0;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &hangup, NULL); /* all threads that follow inherit it */
    keeper.usage = usage;
    keeper.runs = !pthread_create(&keeper.thread, NULL, keep, NULL);
    return keeper.runs ? 0 : cli_say(usage->command + strlen("pawl "), EXIT_UNAVAILABLE, "cannot start a thread");
}

int daemon_begin(const struct args *usage, const struct daemon_options *o)
{
    bool json = false;
    struct net_addr at;
    if (o->log && !log_parse(o->log, &json))
        return args_complain(usage, "--log is text or json, not '%s'", o->log);
    int status = o->http ? parse_http(usage, o->http, &at) : 0;
    if (status || o->check)
        return status;
    cli_catch(SIGINT, 0);
    cli_catch(SIGTERM, 0);
    signal(SIGPIPE, SIG_IGN); /* the reader of the log may end */
    log_open(json);
    status = start_keeper(usage, o);
    if (!status && o->http && listen_for_http(at))
        status = cli_say(usage->command + strlen("pawl "), EXIT_UNAVAILABLE, "%s", explained());
    return status;
}

int daemon_keys(const struct args *usage, const struct seal_ring **out)
{
    static struct seal_ring ring;
    if (key_file_find(NULL, &ring))
        return cli_say(usage->command + strlen("pawl "), EXIT_UNAVAILABLE, "%s", explained());
    if (ring.count && ring.number)
        return cli_say(usage->command + strlen("pawl "), EXIT_UNAVAILABLE,
                       "the key file has the key of host %u, and a daemon needs the cluster's", ring.number);
    *out = &ring;
    return 0;
}

int daemon_host_packets(const struct args *usage, uint64_t packets)
{
    if (packets && (packets < ROSTER_PACKETS_LEAST || packets > NS_PER_S))
        return args_complain(usage, "--host-packets must be 0 or between %u and 1G", ROSTER_PACKETS_LEAST);
    return 0;
}

int daemon_checked(const struct daemon_options *o)
{
    if (!o->check)
        return DAEMON_RUN;
    printf("%s: all options are fine\n", o->check);
    return cli_flush(0);
}

void daemon_runs(void)
{
    figures_set_ready();
    notify("READY=1\nSTATUS=serves");
}

void daemon_end(void)
{
    notify("STOPPING=1");
    __atomic_store_n(&keeper.stop, 1, __ATOMIC_RELEASE);
    if (keeper.runs) {
        pthread_kill(keeper.thread, SIGHUP); /* it wakes up, and sees that it is to end */
        pthread_join(keeper.thread, NULL);
    }
    http_close(http);
}

uint64_t daemon_deadline(void)
{
    return world_now(&world_real) + JOIN_NS;
}

/* Multicast, broadcast or reserved: packets can be received there, and come back from other addresses. */
static bool is_of_many(const struct net_addr *a)
{
    return net_addr_is_v4(a) ? a->ip[NET_V4_PREFIX] >= 224 : a->ip[0] == 0xff;
}

int daemon_address(const struct args *usage, const char *option, const char *text, struct net_addr *out)
{
    int status = complain(usage, option, text, net_addr_resolve(text, out));
    if (!status && is_of_many(out))
        return args_complain(usage, "--%s: '%s' is not the address of one machine", option, text);
    return status;
}

int daemon_addresses(const struct args *usage, const char *option, const char *text, struct coord_list *out)
{
    return complain(usage, option, text, coord_list_parse(text, strlen(text), out));
}

void daemon_ready(const char *role, const char *space, struct net_addr at, bool json)
{
    char text[NET_ADDR_TEXT];
    net_addr_print(at, text);
    daemon_runs();
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

int daemon_status(const char *command, int rc)
{
    bool stopped = rc == -EINTR && cli_signal;
    return rc && !stopped ? cli_say(command, EXIT_UNAVAILABLE, "%s", explained()) : 0;
}

int daemon_run_station(const char *command, const struct station_params *p, bool json)
{
    struct station *s = calloc(1, sizeof *s);
    if (!s)
        return cli_say(command, EXIT_UNAVAILABLE, "out of memory");
    int rc = station_open(s, p);
    if (!rc) {
        daemon_ready(p->member.is_switch ? "switch" : "lock server", p->member.space, member_udp(&s->member)->at, json);
        station_run(s);
        station_close(s);
    }
    free(s);
    return daemon_status(command, rc);
}
