#include "designs/all.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"
#include "designs/fisslock/racks.h"
#include "designs/fisslock/spill.h"

#define FISSLOCK_FEATURES                                                                                                          \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC |         \
     DESIGN_DEADLOCK)

const struct design design_fisslock = {
    .name = "fisslock",
    .summary = "the switch decides, an agent at the holder's host keeps the queue (OSDI'24)",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &fisslock_packets,
};

const struct design design_fisslock_racks = {
    .name = "fisslock-racks",
    .summary = "fisslock with the locks divided among several switches",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &fisslock_racks_packets,
};

static const struct packet_design stay = {FISSLOCK_PACKETS, .options = FISSLOCK_KEEP, .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};
static const struct packet_design placed = {FISSLOCK_PACKETS, .options = FISSLOCK_KEEP | FISSLOCK_PLACED,
                                            .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};

const struct design design_fisslock_stay = {
    .name = "fisslock-stay",
    .summary = "fisslock with agents that stay where they are wanted again",
    .kind = DESIGN_MAIN,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &stay,
};

const struct design design_fisslock_local = {
    .name = "fisslock-local",
    .summary = "fisslock with agents that stay where their locks are placed, by ranges (7.4)",
    .kind = DESIGN_BASELINE,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &placed,
};

/* Each is right but for one thing. */
#define BUSTED(id, what, option)                                                                                                   \
    static const struct packet_design id##_packet = {FISSLOCK_PACKETS, .options = (option)};                                       \
    const struct design design_busted_##id = {                                                                                     \
        .name = "busted-" what,                                                                                                    \
        .summary = "wrong on purpose: fisslock",                                                                                   \
        .kind = DESIGN_BUSTED,                                                                                                     \
        .features = FISSLOCK_FEATURES,                                                                                             \
        .substrates = DESIGN_ON_SIM,                                                                                               \
        .tolerates = FAULTS_ALL,                                                                                                   \
        .packet = &id##_packet,                                                                                                    \
    }

/* Whoever gets locks hears of it before whoever loses them: the harness does that (trial/rack.h). */
static const struct packet_design racks_order_packet = {FISSLOCK_RACKS_PACKETS, .options = UINT64_C(1) << 40};
const struct design design_busted_fisslock_order = {
    .name = "busted-fisslock-order",
    .summary = "wrong on purpose: fisslock-racks",
    .kind = DESIGN_BUSTED,
    .features = FISSLOCK_FEATURES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &racks_order_packet,
};

BUSTED(fisslock_keep, "fisslock-keep", FISSLOCK_KEEP | FISSLOCK_PLACED | FISSLOCK_BUSTED_KEEP); /* what stays outlasts the lease */
BUSTED(fisslock_term, "fisslock-term", FISSION_BUSTED_TERM);        /* duplicates and stragglers end tenures */
BUSTED(fisslock_inca, "fisslock-inca", FISSION_BUSTED_INCA);        /* no incarnation check (Fig. 10) */
BUSTED(fisslock_frees, "fisslock-frees", FISSION_BUSTED_FREES);     /* a timeout RELEASE frees (4.2) */
BUSTED(fisslock_nonce, "fisslock-nonce", FISSLOCK_BUSTED_NONCE);    /* any GRANT for the task is the answer */
BUSTED(fisslock_adopt, "fisslock-adopt", FISSLOCK_BUSTED_ADOPT);    /* an old packet proves that the agent is here */
BUSTED(fisslock_census, "fisslock-census", FISSLOCK_BUSTED_CENSUS); /* whom the agent does not know does not hold */
BUSTED(fisslock_lease, "fisslock-lease", FISSLOCK_BUSTED_LEASE);    /* a host believes in its lease for ever */
BUSTED(fisslock_doubt, "fisslock-doubt", FISSLOCK_BUSTED_DOUBT);    /* who takes over asks nobody who holds */
BUSTED(fisslock_stale, "fisslock-stale", FISSLOCK_BUSTED_STALE);    /* who held once is part of a deadlock */
BUSTED(fisslock_crowd, "fisslock-crowd", FISSLOCK_BUSTED_CROWD);    /* a session waits if any thread of it does */
BUSTED(fisslock_hasty, "fisslock-hasty", FISSION_BUSTED_HASTY);     /* a decider that lost its state does not wait for the silent */
BUSTED(fisslock_early, "fisslock-early", FISSION_BUSTED_EARLY);     /* nor until those who live have told it all */
BUSTED(fisslock_token, "fisslock-token", FISSION_BUSTED_TOKEN);     /* and begins with the first token again */
BUSTED(fisslock_silent, "fisslock-silent", FISSLOCK_BUSTED_SILENT); /* shared holds are not told */
BUSTED(fisslock_reuse, "fisslock-reuse", FISSLOCK_BUSTED_REUSE);    /* a number used again goes on with what it had */
/* Locks that move: */
BUSTED(fisslock_unpaused, "fisslock-unpaused", FISSLOCK_BUSTED_UNPAUSED | FISSLOCK_RESTLESS); /* decided at both places */
BUSTED(fisslock_blank, "fisslock-blank", FISSLOCK_BUSTED_BLANK | FISSLOCK_RESTLESS);          /* without their tokens */
BUSTED(fisslock_amnesia, "fisslock-amnesia",
       FISSLOCK_BUSTED_AMNESIA | FISSLOCK_RESTLESS); /* a server that forgot decides at once */
