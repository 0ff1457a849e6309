/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the service manager that the daemon is ready, ends or lives: sd_notify(3), which is one datagram. */
#ifndef PAWL_CLI_NOTIFY_H
#define PAWL_CLI_NOTIFY_H

#include "lib/base.h"

/* Lines such as "READY=1". Without a service manager nothing happens. */
void notify(const char *state);

/* How often the service manager wants to hear that the daemon lives; 0: it does not. */
uint64_t notify_watchdog_ns(void);

#endif
