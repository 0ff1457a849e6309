/* pawl switch: a rack's switch on this machine. */
#include "cli/switch.h"
#include "cli/commands.h"
#include "dataplane/xdp/loader.h"

static struct switch_options opts = {.design = "fisslock", .locks = 1000000, .space = 1, .port = 4747};

static const struct arg table[] = {
    {"dev", 0, ARG_STRING, "IF[,IF...]", "the interfaces it serves; one is a one-armed switch, several an in-path one",
     &opts.devices, NULL},
    {"design", 0, ARG_STRING, "D", "fisslock (the default), or srvlock: packets go to their servers", &opts.design, NULL},
    {"locks", 0, ARG_U64, "N", "default 1M", &opts.locks, NULL},
    {"space", 0, ARG_U64, "N", "the space's number in packets; default 1", &opts.space, NULL},
    {"port", 0, ARG_U64, "PORT", "UDP port of lock packets; default 4747", &opts.port, NULL},
    {"machines", 0, ARG_STRING, "LIST", "IPv4 addresses of machines 1, 2, ... with commas; in-path ADDRESS@IF", &opts.machines,
     NULL},
    {"mode", 0, ARG_STRING, "MODE", "native or generic; default native where the driver can, but generic on veth", &opts.mode,
     NULL},
    {"pin", 0, ARG_STRING, "DIR", "in a BPF file system: locks outlive this process, and a kill -9 does not stop the switch",
     &opts.pins, NULL},
    {"fresh", 0, ARG_FLAG, NULL, "with --pin: begin anew with all locks free, in a new life", &opts.fresh, NULL},
    {"life", 0, ARG_U64, "N", "higher than every time before, if locks were lost; default one more than what is pinned", &opts.life,
     NULL},
    {"loop", 0, ARG_STRING, "OUT,IN", "in-path: two ends of a veth by which packets that are doubled come back", &opts.loop, NULL},
    {"show", 0, ARG_FLAG, NULL, "with --pin: print what the switch has counted, and end", &opts.show, NULL},
    {"remove", 0, ARG_FLAG, NULL, "when it ends, forget the locks, too", &opts.remove, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl switch",
    .usage = "--dev IF[,IF...] [OPTION]... | --show --pin DIR [--json]",
    .about =
        "Runs the rack's switch in this machine's kernel, as an XDP program: lock packets (UDP, one port) are decided before the\n"
        "network stack sees them; everything else passes untouched. It says what it takes and how it is attached, and runs\n"
        "until SIGTERM or SIGINT, which detach it.",
    .after = "With --pin, locks stay as they are between one end and the next start; after kill -9 the program goes on by itself,\n"
             "and the next start takes over without losing a packet. Needs root, or CAP_BPF and CAP_NET_ADMIN.\n\n"
             "Exit status: 0 ended as asked, 1 (show) there is none, 2 wrong usage, 69 not possible here.",
    .table = table,
    .count = countof(table),
};

int cmd_switch(int argc, char **argv)
{
    struct args_rest rest;
    int status = args_parse(&usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (rest.count)
        return args_complain(&usage, "'%s' is one word too many", rest.words[0]);
    if (plane_missing())
        return cli_say("switch", EXIT_UNAVAILABLE, "%s", plane_missing());
    if (opts.show)
        return opts.pins ? switch_show(&opts) : args_complain(&usage, "--show needs --pin: what is not pinned cannot be looked at");
    if (!opts.devices)
        return args_complain(&usage, "which interface? --dev names it");
    if (!opts.locks || opts.locks > UINT32_MAX || opts.space > UINT32_MAX || !opts.port || opts.port > UINT16_MAX)
        return args_complain(&usage, "a switch has 1 to 2^32-1 locks, a port up to 65535, and a space's number has 32 bits");
    return switch_xdp(&opts);
}
