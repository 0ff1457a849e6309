/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The names of the counters of plane.h. */
#ifndef PAWL_DATAPLANE_XDP_NAMES_H
#define PAWL_DATAPLANE_XDP_NAMES_H

#include "dataplane/xdp/plane.h"

const char *plane_verdict_name(unsigned verdict);
const char *plane_reason_name(unsigned reason);
const char *plane_family_name(unsigned family); /* empty: there is none */

#endif
