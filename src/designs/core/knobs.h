/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs: numbers that can be set about a design (`--tune NAME=VALUE`).
 *
 * Their values belong to a space. They are chosen when it is made and never change. A one-sided design finds them in `struct
 * space`, which takes them from the header in lock memory (cluster/layout.h): all processes of a segment go by the same values,
 * whichever of them made it. A packet design puts what they say into the options of its rack_config, which all machines of a rack
 * share (packet_design.tune). */
#ifndef PAWL_DESIGNS_CORE_KNOBS_H
#define PAWL_DESIGNS_CORE_KNOBS_H

#include "lib/base.h"

#define KNOBS_MAX 9 /* of one design: as many as citron has */

struct design_knob {
    const char *name; /* lower-case words with dashes; null ends a list */
    uint32_t min, max;
    uint32_t usual; /* unless tuned. 0 although `min` is more: the design's own choice, which may vary */
};

/* Values in the order of the design's list; 0 behind its end. */
struct knobs {
    uint32_t value[KNOBS_MAX];
};

#endif
