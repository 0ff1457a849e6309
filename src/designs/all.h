/* Every design there is. */
#ifndef PAWL_DESIGNS_ALL_H
#define PAWL_DESIGNS_ALL_H

#include "designs/design.h"

extern const struct design design_word;

extern const struct design design_alock;

/* Baselines. */
extern const struct design design_cas, design_cas_backoff, design_spin, design_mcs, design_dslr, design_drtm, design_rmarw,
    design_rpc, design_rpc_retry;

/* Baselines with ranges. */
extern const struct design design_mutex, design_itree, design_maple, design_list_server, design_list_onesided,
    design_segments_exact, design_segments_over, design_segments_under;

/* Where dslr's counters end and its word starts anew: half of their 16 bits. Less, to test it. */
#define DSLR_COUNT_MAX 0x8000
extern unsigned dslr_count_max;

/* How many words rmarw counts its readers in. */
#define RMARW_COUNTERS_MAX 7
extern unsigned rmarw_counters;

/* Baselines over packets. */
extern const struct design design_srvlock, design_parlock;

/* References on one machine. */
extern const struct design design_pthread, design_pthread_rw, design_ofd;

/* ofd, for benchmarks: single units held by one description, more than there could be records or descriptions; they end when *fd is
 * closed. */
int ofd_hold_apart(const struct seat *seat, uint64_t index, uint64_t start, uint64_t stride, uint64_t count, int *fd);

/* Wrong on purpose: ranges (busted_ranges.c), */
extern const struct design design_busted_ranges_control, design_busted_ranges_off_by_one, design_busted_ranges_early_token,
    design_busted_ranges_release_more, design_busted_ranges_grow_blind, design_busted_ranges_split_loses;

/* and the others (busted.c). */
extern const struct design design_busted_control, design_busted_no_recheck, design_busted_unlock_by_name,
    design_busted_token_reused, design_busted_early_steal, design_busted_unknown_is_success, design_busted_no_intent,
    design_busted_no_fence, design_busted_mixed_cas, design_busted_alock_nofence, design_busted_srvlock_nonce,
    design_busted_srvlock_memory, design_busted_srvlock_blind, design_busted_srvlock_lapse, design_busted_srvlock_hasty;

#endif
