/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the form NAME=NUMBER[,NAME=NUMBER...]: knobs of designs, fields of models. */
#ifndef PAWL_CLI_SETTINGS_H
#define PAWL_CLI_SETTINGS_H

#include "designs/core/design.h"
#include "lib/args.h"

/* Takes one setting: 0, or the exit status after a complaint. */
typedef int (*setting_fn)(void *ctx, const char *name, uint64_t value);

/* Calls `set` for each of them; of null: for none. 0 or the exit status. */
int settings_each(const struct args *usage, const char *option, const char *text, setting_fn set, void *ctx);

/* --tune: each setting is for those of the designs that have the knob; one of them must. */
#define SETTINGS_TUNE_OPTION(to)                                                                                                   \
    {                                                                                                                              \
        "tune", 0, ARG_STRING, "KNOB=N[,...]", "override parameters of the design", (to), NULL                                     \
    }
int settings_tune(const struct args *usage, const char *text, const struct design *const *designs, unsigned count,
                  struct knobs *out);

#endif
