/* SPDX-License-Identifier: Apache-2.0 */
/* The spaces of a service at pawl://ADDRESS:PORT, which 'pawl serve' runs. */
#ifndef PAWL_CLI_SPACE_SERVICE_H
#define PAWL_CLI_SPACE_SERVICE_H

#include "cluster/spaces.h"
#include "lib/args.h"

/* Sends the question, for the space that the place names, and prints the answer. The exit status. */
int space_service(const struct args *usage, const char *place, struct spaces_ask *ask, bool json);

#define SPACE_ON_NODE (-1)

/* Describes the space that the place names. The exit status; or SPACE_ON_NODE: a memory node has it. */
int space_show(const struct args *usage, const char *place, struct spaces_ask *ask, bool json);

#endif
