/* Every design there is. */
#ifndef PAWL_DESIGNS_ALL_H
#define PAWL_DESIGNS_ALL_H

#include "designs/design.h"

extern const struct design design_word;

extern const struct design design_alock, design_fisslock;

/* Baselines. */
extern const struct design design_cas, design_cas_backoff, design_spin, design_mcs, design_dslr, design_drtm, design_rmarw,
    design_rpc, design_rpc_retry;

/* Baselines with ranges. */
extern const struct design design_mutex;

/* Where dslr's counters end and its word starts anew: half of their 16 bits. Less, to test it. */
#define DSLR_COUNT_MAX 0x8000
extern unsigned dslr_count_max;

/* How many words rmarw counts its readers in. */
#define RMARW_COUNTERS_MAX 7
extern unsigned rmarw_counters;

/* Baselines over packets. */
extern const struct design design_srvlock, design_parlock;

/* NetLock, and wrong on purpose. */
extern const struct design design_netlock, design_netchain, design_busted_netlock_blind, design_busted_netlock_mode,
    design_busted_netlock_end, design_busted_netlock_grant, design_busted_netlock_lapse, design_busted_netlock_hasty,
    design_busted_netlock_revert, design_busted_netlock_drain, design_busted_netlock_deaf, design_busted_netlock_silent;

/* References on one machine. */
extern const struct design design_pthread, design_pthread_rw;

/* Wrong on purpose (busted.c). */
extern const struct design design_busted_control, design_busted_no_recheck, design_busted_unlock_by_name,
    design_busted_token_reused, design_busted_early_steal, design_busted_unknown_is_success, design_busted_no_intent,
    design_busted_no_fence, design_busted_mixed_cas, design_busted_alock_nofence, design_busted_srvlock_nonce,
    design_busted_srvlock_memory, design_busted_srvlock_blind, design_busted_srvlock_lapse, design_busted_srvlock_hasty,
    design_busted_fisslock_term, design_busted_fisslock_inca, design_busted_fisslock_frees, design_busted_fisslock_nonce,
    design_busted_fisslock_adopt, design_busted_fisslock_floor, design_busted_fisslock_census;

#endif
