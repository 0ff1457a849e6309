/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of a lab whose network loses, doubles and reorders packets, in both directions. */
#ifndef PAWL_TESTS_LAB_NOISE_H
#define PAWL_TESTS_LAB_NOISE_H

#include "tests/lab/rack.h"

#define NOISE (100u | 100u << 10 | 100u << 20) /* thousandths: lost, doubled, overtaken */
#define NOISE_HOSTS_MAX 8

static struct plane *noise[NOISE_HOSTS_MAX + 1];

/* At the first so many hosts. */
static inline void noise_begin(unsigned hosts)
{
    const struct plane_options o = {.program = "noise", .settings = {.options = NOISE}};
    CHECK(hosts <= NOISE_HOSTS_MAX);
    for (unsigned h = 1; h <= hosts; h++) {
        CHECK_EQ(lab_enter(&rack, 1, h), 0);
        if (plane_open(&o, &noise[h]) || plane_filter(noise[h], LAB_DEVICE, "noise_in", "noise_out"))
            CHECK_FAIL("%s", explained());
    }
}

static inline void noise_end(unsigned hosts)
{
    struct plane_counters c;
    for (unsigned h = 1; h <= hosts; h++) {
        CHECK_EQ(lab_enter(&rack, 1, h), 0);
        CHECK_EQ(plane_count(noise[h], &c), 0);
        CHECK(c.verdict[PLANE_DROPPED] && c.verdict[PLANE_DOUBLED] && c.verdict[PLANE_SENT]);
        plane_close(noise[h], PLANE_REMOVE);
    }
}

#endif
