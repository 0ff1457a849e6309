/* Every design there is. */
#ifndef PAWL_DESIGNS_ALL_H
#define PAWL_DESIGNS_ALL_H

#include "designs/design.h"

extern const struct design design_word;

extern const struct design design_alock, design_fisslock, design_fisslock_stay, design_fisslock_local, design_fisslock_racks;

/* Baselines. */
extern const struct design design_cas, design_cas_backoff, design_spin, design_mcs, design_dslr, design_drtm, design_rmarw;

/* Baselines with ranges. */
extern const struct design design_mutex, design_list_onesided, design_segments_exact, design_segments_over, design_segments_under;

/* Where dslr's counters end and its word starts anew: half of their 16 bits. Less, to test it. */
#define DSLR_COUNT_MAX 0x8000
extern unsigned dslr_count_max;

/* How many words rmarw counts its readers in. */
#define RMARW_COUNTERS_MAX 7
extern unsigned rmarw_counters;

/* Baselines over packets. */
extern const struct design design_srvlock, design_parlock;

/* NetLock, and wrong on purpose. */
extern const struct design design_netlock, design_netlock_switches, design_busted_netlock_table, design_netchain,
    design_busted_netlock_blind, design_busted_netlock_mode, design_busted_netlock_end, design_busted_netlock_grant,
    design_busted_netlock_lapse, design_busted_netlock_hasty, design_busted_netlock_revert, design_busted_netlock_drain,
    design_busted_netlock_deaf, design_busted_netlock_silent, design_busted_netlock_heir, design_busted_netlock_rebel,
    design_busted_netlock_usurper, design_busted_netlock_return, design_busted_netlock_loud, design_busted_netlock_crowd,
    design_busted_netlock_stale, design_busted_netlock_twice, design_busted_netlock_upgrade, design_busted_netlock_eager,
    design_busted_netlock_called;

/* References on one machine. */
extern const struct design design_pthread, design_pthread_rw, design_ofd;

/* ofd, for benchmarks: single units held by one description, more than there could be records or descriptions; they end when *fd is
 * closed. */
int ofd_hold_apart(const struct seat *seat, uint64_t index, uint64_t start, uint64_t stride, uint64_t count, int *fd);

/* Wrong on purpose. */
extern const struct design design_busted_alock_greedy;
extern const struct design design_busted_alock_nofence;
extern const struct design design_busted_control;
extern const struct design design_busted_dslr_late;
extern const struct design design_busted_early_steal;
extern const struct design design_busted_fisslock_adopt;
extern const struct design design_busted_fisslock_keep;
extern const struct design design_busted_fisslock_amnesia;
extern const struct design design_busted_fisslock_blank;
extern const struct design design_busted_fisslock_census;
extern const struct design design_busted_fisslock_doubt;
extern const struct design design_busted_fisslock_frees;
extern const struct design design_busted_fisslock_hasty;
extern const struct design design_busted_fisslock_stale;
extern const struct design design_busted_fisslock_crowd;
extern const struct design design_busted_fisslock_inca;
extern const struct design design_busted_fisslock_lease;
extern const struct design design_busted_fisslock_nonce;
extern const struct design design_busted_fisslock_early;
extern const struct design design_busted_fisslock_order;
extern const struct design design_busted_fisslock_reuse;
extern const struct design design_busted_fisslock_silent;
extern const struct design design_busted_fisslock_token;
extern const struct design design_busted_fisslock_term;
extern const struct design design_busted_fisslock_unpaused;
extern const struct design design_busted_mixed_cas;
extern const struct design design_busted_no_fence;
extern const struct design design_busted_no_intent;
extern const struct design design_busted_no_recheck;
extern const struct design design_busted_ranges_control;
extern const struct design design_busted_ranges_early_token;
extern const struct design design_busted_ranges_grow_blind;
extern const struct design design_busted_ranges_off_by_one;
extern const struct design design_busted_ranges_release_more;
extern const struct design design_busted_ranges_split_loses;
extern const struct design design_busted_srvlock_blind;
extern const struct design design_busted_srvlock_hasty;
extern const struct design design_busted_srvlock_lapse;
extern const struct design design_busted_srvlock_memory;
extern const struct design design_busted_srvlock_nonce;
extern const struct design design_busted_token_reused;
extern const struct design design_busted_unknown_is_success;
extern const struct design design_busted_unlock_by_name;

#endif
