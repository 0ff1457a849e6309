#include "designs/design.h"
#include "designs/all.h"
#include "designs/citron/citron.h"
#include "designs/rpc.h"
#include "designs/shiftlock/shiftlock.h"

#include <errno.h>
#include <string.h>

const struct design *const designs[] = {
    &design_word,
    &design_shiftlock.design,
    &design_shiftlock64.design,
    &design_alock,
    &design_netlock,
    &design_netlock_switches,
    &design_fisslock,
    &design_fisslock_stay,
    &design_fisslock_racks,
    &design_citron.design,
    &design_cas,
    &design_cas_backoff,
    &design_spin,
    &design_mcs,
    &design_dslr,
    &design_drtm,
    &design_rmarw,
    &design_rpc.design,
    &design_rpc_retry.design,
    &design_srvlock,
    &design_parlock,
    &design_fisslock_local,
    &design_netchain,
    &design_mutex,
    &design_itree.design,
    &design_maple.design,
    &design_list_server.design,
    &design_list_onesided,
    &design_segments_exact,
    &design_segments_over,
    &design_segments_under,
    &design_pthread,
    &design_pthread_rw,
    &design_ofd,
    &design_busted_control,
    &design_busted_no_recheck,
    &design_busted_unlock_by_name,
    &design_busted_token_reused,
    &design_busted_early_steal,
    &design_busted_unknown_is_success,
    &design_busted_no_intent,
    &design_busted_no_fence,
    &design_busted_mixed_cas,
    &design_busted_shiftlock_late.design,
    &design_busted_shiftlock_nameless.design,
    &design_busted_shiftlock_markless.design,
    &design_busted_shiftlock_greedy.design,
    &design_busted_alock_nofence,
    &design_busted_alock_greedy,
    &design_busted_dslr_late,
    &design_busted_ranges_control,
    &design_busted_ranges_off_by_one,
    &design_busted_ranges_early_token,
    &design_busted_ranges_release_more,
    &design_busted_ranges_grow_blind,
    &design_busted_ranges_split_loses,
    &design_busted_srvlock_nonce,
    &design_busted_srvlock_memory,
    &design_busted_srvlock_blind,
    &design_busted_srvlock_lapse,
    &design_busted_srvlock_hasty,
    &design_busted_netlock_blind,
    &design_busted_netlock_mode,
    &design_busted_netlock_end,
    &design_busted_netlock_grant,
    &design_busted_netlock_lapse,
    &design_busted_netlock_hasty,
    &design_busted_netlock_revert,
    &design_busted_netlock_drain,
    &design_busted_netlock_deaf,
    &design_busted_netlock_heir,
    &design_busted_netlock_rebel,
    &design_busted_netlock_usurper,
    &design_busted_netlock_return,
    &design_busted_netlock_loud,
    &design_busted_netlock_table,
    &design_busted_netlock_crowd,
    &design_busted_netlock_stale,
    &design_busted_netlock_twice,
    &design_busted_netlock_upgrade,
    &design_busted_netlock_eager,
    &design_busted_netlock_called,
    &design_busted_netlock_silent,
    &design_busted_fisslock_keep,
    &design_busted_fisslock_term,
    &design_busted_fisslock_inca,
    &design_busted_fisslock_frees,
    &design_busted_fisslock_nonce,
    &design_busted_fisslock_adopt,
    &design_busted_fisslock_census,
    &design_busted_fisslock_lease,
    &design_busted_fisslock_doubt,
    &design_busted_fisslock_hasty,
    &design_busted_fisslock_early,
    &design_busted_fisslock_token,
    &design_busted_fisslock_silent,
    &design_busted_fisslock_reuse,
    &design_busted_fisslock_stale,
    &design_busted_fisslock_crowd,
    &design_busted_fisslock_order,
    &design_busted_fisslock_unpaused,
    &design_busted_fisslock_blank,
    &design_busted_fisslock_amnesia,
    &design_busted_citron_no_abort.design,
    &design_busted_citron_no_wait.design,
    &design_busted_citron_no_fence.design,
    &design_busted_citron_blind_release.design,
    &design_busted_citron_blind_reader.design,
    &design_busted_citron_blind_split.design,
    NULL,
};

const struct design *design_find(const char *name)
{
    for (const struct design *const *d = designs; *d; d++)
        if (!strcmp((*d)->name, name))
            return *d;
    return NULL;
}

int design_tune(const struct design *d, const char *knob, uint64_t value)
{
    for (const struct design_knob *k = d->knobs; k && k->name; k++)
        if (!strcmp(k->name, knob)) {
            if (value < k->min || value > k->max)
                return -ERANGE;
            *k->value = (unsigned)value;
            return 0;
        }
    return -ENOENT;
}

const char *design_feature_name(unsigned bit)
{
    static const char *const names[DESIGN_FEATURES] = {"exclusive", "shared", "tokens", "recovery", "timeout",
                                                       "convert",   "ranges", "async",  "deadlock", "calls"};
    return bit < DESIGN_FEATURES ? names[bit] : NULL;
}

const char *design_substrate_name(unsigned bit)
{
    static const char *const names[DESIGN_SUBSTRATES] = {"shm", "sim", "udp"};
    return bit < DESIGN_SUBSTRATES ? names[bit] : NULL;
}
