/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A filter in the kernel of a socket that takes tagged packets only (gate.bpf.c): datagrams with a wrong tag end there. */
#ifndef PAWL_DATAPLANE_XDP_GATE_H
#define PAWL_DATAPLANE_XDP_GATE_H

#include "dataplane/xdp/plane.h"

#define GATE_MEMBER UINT64_C(1) /* SEAL_MEMBER of wire/seal.c */

struct gate_settings {
    uint64_t key[2][2]; /* the cluster's */
    uint32_t machines;  /* hosts have numbers up to this */
    uint32_t pad;
};

#ifndef __bpf__
#include <stdbool.h>

struct gate_filter;

/* Loads the filter. 0, or a negative code, explained: -EPERM, -ENOTSUP and others. */
int gate_open(const struct gate_settings *settings, struct gate_filter **out);

/* The keys by number, from 0 to settings.machines: the caller fills them in. */
volatile struct plane_seal *gate_seals(struct gate_filter *g);

/* Puts the filter before a socket, or takes it away. */
int gate_attach(struct gate_filter *g, int fd);
int gate_detach(struct gate_filter *g, int fd);
uint64_t gate_refused(const struct gate_filter *g); /* datagrams, since it was opened */
void gate_close(struct gate_filter *g);
#endif

#endif
