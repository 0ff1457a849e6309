/* SPDX-License-Identifier: Apache-2.0 */
/* pawl: finds the subcommand and hands over. */
#include "cli/commands.h"
#include "cli/common.h"

#include <stdio.h>
#include <string.h>

static const struct row {
    const char *name;
    const struct command *command;
    const char *summary;
} commands[] = {
    {"lock", &cmd_lock, "run a command while holding a lock, like flock(1)"},
    {"ls", &cmd_ls, "list the locks that are held or waited for"},
    {"top", &cmd_top, "show the locks that are waited for longest, and grants per second, live"},
    {"show", &cmd_show, "show a lock with its holders and waiters, or a space with its sessions"},
    {"break", &cmd_break, "declare the holders of a lock lost"},
    {"space", &cmd_space, "create, list, show or drop spaces"},
    {"tune", &cmd_tune, "show and change the layout of a lock with ranges, while it is used"},
    {"serve", &cmd_serve, "run the coordinator and the lock servers of a rack"},
    {"switch", &cmd_switch, "run the switch of a rack, in the kernel or in software"},
    {"rules", &cmd_rules, "show how locks are divided among racks, and move some while clients run"},
    {"policy", &cmd_policy, "show counters of NetLock's switch, and set its policies while it runs"},
    {"key", &cmd_key, "make the keys by which packets of a rack are authenticated"},
    {"sim", &cmd_sim, "test designs in simulated clusters with faults"},
    {"hunt", &cmd_hunt, "run random seeds of all designs until one fails, and shrink that failure"},
    {"bench", &cmd_bench, "measure designs on this machine or in the simulated cluster"},
    {"lab", &cmd_lab, "set up racks on this machine: network namespaces as hosts, and a switch"},
    {"doctor", &cmd_doctor, "check this machine, and list what each design offers"},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < countof(commands); i++)
        if (!strcmp(commands[i].name, name))
            return commands[i].command;
    return NULL;
}

static void print_help(FILE *out)
{
    fprintf(out, "Usage: pawl COMMAND [OPTION]...\n\n"
                 "Locks that survive kill -9 of their holders, between the processes of one machine or of several.\n\n"
                 "Commands:\n");
    for (size_t i = 0; i < countof(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-10s %s\n\n", "help", "'pawl help COMMAND' says more about one, as does 'pawl COMMAND --help'");
    fprintf(out,
            "Options:\n"
            "  -h, --help     print this and exit\n"
            "      --version  print the version and exit\n\n"
            "Numbers: K, M, G and T are powers of 1000, Ki, Mi, Gi and Ti of 1024: 64K is 64,000, 64Ki is 65,536.\n"
            "Durations are seconds, or end in ns, us, ms, s, min or h.\n\n"
            "Exit status: 0 done, 1 the answer is no, %d wrong usage, %d the space cannot be used,\n"
            "%d the lock was lost while the command ran. 'pawl lock' passes on its command's.\n",
            EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_LOST);
}

static int unknown(const char *name)
{
    fprintf(stderr, "pawl: there is no command '%s'; 'pawl --help' lists the commands\n", name);
    return EXIT_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return 0;
    }
    const struct command *c = find_command(argv[1]);
    char option[] = "--help";
    char *words[] = {argv[1], option, NULL};
    return c ? command_run(c, 2, words) : unknown(argv[1]);
}

int main(int argc, char **argv)
{
    int status;
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const struct command *c = find_command(argv[1]);
    if (c) {
        status = command_run(c, argc - 1, argv + 1);
    } else if (!strcmp(argv[1], "help")) {
        status = help(argc - 1, argv + 1);
    } else if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(stdout);
        status = 0;
    } else if (!strcmp(argv[1], "--version")) {
        printf("pawl %s\n", PAWL_VERSION);
        status = 0;
    } else {
        return unknown(argv[1]);
    }
    return cli_flush(status);
}
