/* SPDX-License-Identifier: Apache-2.0 */
/* Between args.c and args_file.c. */
#ifndef PAWL_LIB_ARGS_INTERNAL_H
#define PAWL_LIB_ARGS_INTERNAL_H

#include "lib/args.h"

#define ARGS_MAX 64u /* options of a command that has a configuration file */

int args_store(const struct arg *arg, const char *value); /* 0, or a negative code: it is not of its kind */
const char *args_expectation(enum arg_kind kind);

/* Reads the file. 0, or the exit status after a complaint with line and column. */
int args_file(const struct args *a, const char *path);

/* Where the file sets the first option that a message names ("--lease must ..."). False: the file does not. */
bool args_place(const struct args *a, const char *message, unsigned *line, unsigned *column);
const char *args_file_path(void);

#endif
