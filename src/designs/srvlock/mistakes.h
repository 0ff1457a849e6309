/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of variants of srvlock, on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_SRVLOCK_MISTAKES_H
#define PAWL_DESIGNS_SRVLOCK_MISTAKES_H

#include "dataplane/mistake.h"

enum srv_mistakes {
    SRV_MISTAKE_NO_NONCE = 1 << 0,      /* the host takes any grant for the slot */
    SRV_MISTAKE_NO_MEMORY = 1 << 1,     /* the server takes every ACQUIRE for a new one */
    SRV_MISTAKE_BLIND_RELEASE = 1 << 2, /* the server releases whatever the slot has now */
    SRV_MISTAKE_NO_LAPSE = 1 << 3,      /* the host does not look whether its lease runs */
    SRV_MISTAKE_HASTY_SERVER = 1 << 4,  /* a server that lost its memory grants at once */
    SRV_MISTAKE_SILENT = 1 << 5,        /* the host keeps its shared holds without reporting them to a server that restarted */
    SRV_MISTAKE_CREDULOUS = 1 << 6,     /* the host takes grants of a server that was replaced */
    SRV_MISTAKE_FLOOR = 1 << 7,         /* the tokens of a new generation begin where those of the index ended */
    SRV_MISTAKE_GENERATION = 1 << 8,    /* the server takes packets of all generations of an index */
    SRV_MISTAKE_RUMOUR = 1 << 9,        /* the server answers WATCH whether a request waits or not */
    SRV_MISTAKE_MUTE = 1 << 10,         /* the server does not answer WATCH */
};

#endif
