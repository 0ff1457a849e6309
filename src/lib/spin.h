/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a thread that waits for an answer looks again and again before it sleeps. That is faster while the answer comes sooner
 * than a sleeper would wake, and a loss for all where more threads run than processors: the thread that is to answer has none
 * meanwhile. So after a spin in vain the next waits do without, twice as many each time; fewer, if those waits were so short that a
 * spin would have been enough. A spin that was not in vain ends that. */
#ifndef PAWL_LIB_SPIN_H
#define PAWL_LIB_SPIN_H

#include "lib/base.h"

#define SPIN_REST_FIRST 4u  /* waits without a spin after the first one in vain */
#define SPIN_REST_MAX 1024u /* and at most: what a spin costs is then below a thousandth for each wait */
#define SPIN_REST_SHARE 8u  /* of the waits that are left: so many fewer after a short wait */

struct spin {
    uint64_t most_ns; /* how long a spin takes at most */
    uint32_t rest;    /* waits without a spin after the latest one in vain, */
    uint32_t left;    /* and how many of those are to come */
};

/* For how long to spin in this wait: most_ns, or 0. */
static inline uint64_t spin_for(const struct spin *s)
{
    return s->left ? 0 : s->most_ns;
}

/* The wait is over, after so long. `spin`: what spin_for said. */
static inline void spin_ended(struct spin *s, uint64_t spin, uint64_t took)
{
    if (took < spin)
        s->rest = 0;
    else if (spin)
        s->left = s->rest = s->rest ? (uint32_t)min_u64(2 * s->rest, SPIN_REST_MAX) : SPIN_REST_FIRST;
    else if (s->left)
        s->left -= 1 + (took < s->most_ns ? (s->left - 1) / SPIN_REST_SHARE : 0);
}

#endif
