/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. */
#ifndef PAWL_CLI_COMMANDS_H
#define PAWL_CLI_COMMANDS_H

#include "lib/args.h"

struct command {
    const struct args *usage;
    int (*run)(struct args_rest *rest); /* with the words that are not options; the exit status */
};

extern const struct command cmd_bench;
extern const struct command cmd_break;
extern const struct command cmd_doctor;
extern const struct command cmd_hunt;
extern const struct command cmd_lab;
extern const struct command cmd_lock;
extern const struct command cmd_ls;
extern const struct command cmd_policy;
extern const struct command cmd_rules;
extern const struct command cmd_serve;
extern const struct command cmd_show;
extern const struct command cmd_sim;
extern const struct command cmd_space;
extern const struct command cmd_switch;
extern const struct command cmd_top;
extern const struct command cmd_key;
extern const struct command cmd_tune;

/* Parses the options, argv[0] being the command's name, and runs the command. The exit status. */
int command_run(const struct command *c, int argc, char **argv);

#endif
