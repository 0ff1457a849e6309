/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. Each takes its own words, argv[0] being its name, and returns the exit status. */
#ifndef PAWL_CLI_COMMANDS_H
#define PAWL_CLI_COMMANDS_H

int cmd_bench(int argc, char **argv);
int cmd_break(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_hunt(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_lock(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_rules(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_space(int argc, char **argv);
int cmd_switch(int argc, char **argv);
int cmd_tune(int argc, char **argv);

#endif
