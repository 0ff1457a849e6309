/* SPDX-License-Identifier: Apache-2.0 */
/* Designs with one mistake each, as bits that their code asks for (dataplane/mistake.h): the table of the sound design, under
 * another name. The suite shows that the oracle catches every one of them. */
#include "designs/alock/mistakes.h"
#include "designs/citron/mistakes.h"
#include "designs/fisslock/mistakes.h"
#include "designs/fisslock/options.h"
#include "designs/netlock/mistakes.h"
#include "designs/netlock/netlock.h"
#include "designs/packet/parts.h"
#include "designs/shiftlock/mistakes.h"
#include "designs/srvlock/mistakes.h"
#include "workbench/baselines/baselines.h"
#include "workbench/busted/busted.h"
#include "workbench/trial/rack.h"

extern const struct design design_alock, design_citron, design_fisslock, design_fisslock_racks, design_netlock,
    design_netlock_switches, design_shiftlock, design_srvlock;

/* What it takes to come late: a client that stops, and one that cannot be shut out at once. */
#define LATE (FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DRIFT))

/* Where nothing but a retransmission moves the lock on. */
#define UNORDERED (FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER))

#define FIXED (UINT64_C(1) << 63) /* campaigns draw no policies */

static const struct variant {
    const char *name;
    const struct design *of;
    uint64_t mistakes;
    uint32_t faults; /* of its campaigns */
    uint64_t policy; /* options that it always has, or FIXED */
    const char *summary;
} variants[] = {
    {"busted-shiftlock-late", &design_shiftlock, SHIFT_LATE_RELEASE, LATE, 0, "releases are not bound to the lock's era"},
    {"busted-shiftlock-nameless", &design_shiftlock, SHIFT_NAMELESS, FAULTS_ALL, 0,
     "messages do not say for which lock and era they are"},
    {"busted-shiftlock-markless", &design_shiftlock, SHIFT_MARKLESS, FAULTS_ALL, 0,
     "a waiting reader looks at the epoch before the recovery mark"},
    {"busted-shiftlock-greedy", &design_shiftlock, SHIFT_GREEDY, 0, 0, "writers hand over to writers, however long readers wait"},
    {"busted-alock-nofence", &design_alock, ALOCK_UNFENCED, FAULTS_ALL, 0,
     "the local leader looks across before the others see that it is the victim"},
    {"busted-alock-greedy", &design_alock, ALOCK_GREEDY, 0, 0, "budgets do not end"},
    {"busted-dslr-late", &design_dslr, DSLR_LATE, LATE, 0, "releases of lost sessions count for others"},
    {"busted-srvlock-nonce", &design_srvlock, SRV_MISTAKE_NO_NONCE, FAULTS_ALL, 0, "any grant for the slot is taken for an answer"},
    {"busted-srvlock-memory", &design_srvlock, SRV_MISTAKE_NO_MEMORY, FAULTS_ALL, 0, "a duplicate ACQUIRE is taken for a new one"},
    {"busted-srvlock-blind", &design_srvlock, SRV_MISTAKE_BLIND_RELEASE, FAULTS_ALL, 0,
     "a late RELEASE ends what the slot has now"},
    {"busted-srvlock-lapse", &design_srvlock, SRV_MISTAKE_NO_LAPSE, FAULTS_ALL, 0, "the host believes in its leases for ever"},
    {"busted-srvlock-hasty", &design_srvlock, SRV_MISTAKE_HASTY_SERVER, FAULTS_ALL, 0,
     "a server that lost its memory grants at once"},
    {"busted-netlock-blind", &design_netlock, NETLOCK_MISTAKE_BLIND_RELEASE, FAULTS_ALL, 0,
     "a release removes the head, whoever sent it"},
    {"busted-netlock-mode", &design_netlock, NETLOCK_MISTAKE_TRUST_MODE, FAULTS_ALL, 0,
     "the client that releases says which mode it held"},
    {"busted-netlock-end", &design_netlock, NETLOCK_MISTAKE_NO_END, FAULTS_ALL, 0, "the end of the queue is not tested for"},
    {"busted-netlock-grant", &design_netlock, NETLOCK_MISTAKE_ANY_GRANT, FAULTS_ALL, 0, "a late grant is taken for an answer"},
    {"busted-netlock-lapse", &design_netlock, NETLOCK_MISTAKE_NO_LAPSE, FAULTS_ALL, 0, "the host believes in its leases for ever"},
    {"busted-netlock-hasty", &design_netlock, NETLOCK_MISTAKE_HASTY_SERVER, FAULTS_ALL, 0,
     "a server that lost its memory grants at once"},
    {"busted-netlock-revert", &design_netlock, NETLOCK_MISTAKE_HASTY_REVERT, FAULTS_ALL, 0,
     "a server does not wait for the leases of a switch that died"},
    {"busted-netlock-drain", &design_netlock, NETLOCK_MISTAKE_NO_DRAIN, FAULTS_ALL, 0, "a lock moves while it is held"},
    {"busted-netlock-deaf", &design_netlock, NETLOCK_MISTAKE_DEAF_SERVER, FAULTS_ALL, 0,
     "a server grants what it was asked to buffer only"},
    {"busted-netlock-heir", &design_netlock, NETLOCK_MISTAKE_HASTY_HEIR, FAULTS_ALL, NETLOCK_SERVERS_ONLY,
     "a server that takes over grants at once"},
    {"busted-netlock-rebel", &design_netlock, NETLOCK_MISTAKE_NO_STEWARD, FAULTS_ALL, 0,
     "a server grants without a lease of its own"},
    {"busted-netlock-superseded", &design_netlock, NETLOCK_MISTAKE_SUPERSEDED, FAULTS_ALL, 0,
     "a switch grants without a lease of its own"},
    {"busted-netlock-return", &design_netlock, NETLOCK_MISTAKE_HASTY_RETURN, FAULTS_ALL, 0,
     "the original grants before the backup has drained"},
    {"busted-netlock-loud", &design_netlock, NETLOCK_MISTAKE_LOUD, FAULTS_ALL, 0,
     "a server gives leases for locks that are another's now"},
    {"busted-netlock-crowd", &design_netlock, NETLOCK_MISTAKE_CROWD, FAULTS_ALL, 0,
     "deadlocks: a session waits if any thread of it does"},
    {"busted-netlock-stale", &design_netlock, NETLOCK_MISTAKE_STALE, FAULTS_ALL, 0,
     "deadlocks: a client that held once is taken to hold"},
    {"busted-netlock-twice", &design_netlock, NETLOCK_MISTAKE_TWICE, FAULTS_ALL, 0, "a data server executes what it is sent twice"},
    {"busted-netlock-upgrade", &design_netlock, NETLOCK_MISTAKE_UPGRADE, FAULTS_ALL, 0,
     "a reader becomes a writer while others read"},
    {"busted-netlock-called", &design_netlock, NETLOCK_MISTAKE_LOW, FAULTS_ALL, 0,
     "a client that was called from the server is granted unseen"},
    {"busted-netlock-eager", &design_netlock, NETLOCK_MISTAKE_EAGER_DATA, FAULTS_ALL, 0,
     "bytes go to the data server though the lock is not free"},
    {"busted-netlock-table", &design_netlock_switches, PARTS_MISTAKE_TABLE, FAULTS_ALL, 0,
     "hosts do not agree which lock belongs to which switch"},
    {"busted-netlock-silent", &design_netlock, NETLOCK_MISTAKE_SILENT_EMPTY, UNORDERED, 0, "NOTIFY is not retransmitted"},
    {"busted-fisslock-keep", &design_fisslock, FISSLOCK_MISTAKE_KEEP, FAULTS_ALL, FIXED | FISSLOCK_KEEP | FISSLOCK_PLACED,
     "agents that stay outlast the lease of their host"},
    {"busted-fisslock-term", &design_fisslock, FISSION_MISTAKE_TERM, FAULTS_ALL, FIXED, "duplicates and stragglers end tenures"},
    {"busted-fisslock-inca", &design_fisslock, FISSION_MISTAKE_INCA, FAULTS_ALL, FIXED, "no incarnation check (Fig. 10)"},
    {"busted-fisslock-frees", &design_fisslock, FISSION_MISTAKE_FREES, FAULTS_ALL, FIXED,
     "the RELEASE of a client that timed out frees (4.2)"},
    {"busted-fisslock-nonce", &design_fisslock, FISSLOCK_MISTAKE_NONCE, FAULTS_ALL, FIXED, "any GRANT for the task is the answer"},
    {"busted-fisslock-adopt", &design_fisslock, FISSLOCK_MISTAKE_ADOPT, FAULTS_ALL, FIXED,
     "an old packet proves that the agent is here"},
    {"busted-fisslock-census", &design_fisslock, FISSLOCK_MISTAKE_CENSUS, FAULTS_ALL, FIXED,
     "a holder that the agent does not know is taken for gone"},
    {"busted-fisslock-lease", &design_fisslock, FISSLOCK_MISTAKE_LEASE, FAULTS_ALL, FIXED, "a host believes in its lease for ever"},
    {"busted-fisslock-doubt", &design_fisslock, FISSLOCK_MISTAKE_DOUBT, FAULTS_ALL, FIXED,
     "an agent that takes over does not ask for holds"},
    {"busted-fisslock-stale", &design_fisslock, FISSLOCK_MISTAKE_STALE, FAULTS_ALL, FIXED,
     "deadlocks: a client that held once is taken to hold"},
    {"busted-fisslock-crowd", &design_fisslock, FISSLOCK_MISTAKE_CROWD, FAULTS_ALL, FIXED,
     "deadlocks: a session waits if any thread of it does"},
    {"busted-fisslock-hasty", &design_fisslock, FISSION_MISTAKE_HASTY, FAULTS_ALL, FIXED,
     "a decider that lost its state does not wait for silent hosts"},
    {"busted-fisslock-early", &design_fisslock, FISSION_MISTAKE_EARLY, FAULTS_ALL, FIXED,
     "a decider that lost its state does not wait for complete reports"},
    {"busted-fisslock-token", &design_fisslock, FISSION_MISTAKE_TOKEN, FAULTS_ALL, FIXED,
     "a decider that lost its state begins with the first token again"},
    {"busted-fisslock-silent", &design_fisslock, FISSLOCK_MISTAKE_SILENT, FAULTS_ALL, FIXED, "shared holds are not reported"},
    {"busted-fisslock-reuse", &design_fisslock, FISSLOCK_MISTAKE_REUSE, FAULTS_ALL, FIXED,
     "a machine number that is reused goes on with earlier tenures"},
    {"busted-fisslock-order", &design_fisslock_racks, RACK_BUSTED_ORDER, FAULTS_ALL, FIXED,
     "a switch gets locks before their former switch has lost them"},
    {"busted-fisslock-unpaused", &design_fisslock, FISSLOCK_MISTAKE_UNPAUSED, FAULTS_ALL, FIXED | FISSLOCK_RESTLESS,
     "a lock that moves is decided at both places"},
    {"busted-fisslock-blank", &design_fisslock, FISSLOCK_MISTAKE_BLANK, FAULTS_ALL, FIXED | FISSLOCK_RESTLESS,
     "a free lock moves without its token"},
    {"busted-fisslock-amnesia", &design_fisslock, FISSLOCK_MISTAKE_AMNESIA, FAULTS_ALL, FIXED | FISSLOCK_RESTLESS,
     "a server that lost its memory decides at once"},
    {"busted-citron-no-abort", &design_citron, CITRON_NO_ABORT, FAULTS_ALL, 0, "a client that made itself known too late goes on"},
    {"busted-citron-no-wait", &design_citron, CITRON_NO_WAIT, FAULTS_ALL, 0, "T_wait is not waited out"},
    {"busted-citron-no-fence", &design_citron, CITRON_NO_FENCE, LATE, 0, "a census does not shut out lost sessions"},
    {"busted-citron-blind-release", &design_citron, CITRON_BLIND_RELEASE, FAULTS_ALL, 0,
     "releases add, whatever has happened since"},
    {"busted-citron-blind-reader", &design_citron, CITRON_BLIND_READER, FAULTS_ALL, 0,
     "a reader does not look for writers after it took its place"},
    {"busted-citron-blind-split", &design_citron, CITRON_BLIND_SPLIT, FAULTS_ALL, 0,
     "the first half that is released takes the node of both with it"},
};

static struct design tables[countof(variants)];
static struct packet_design packets[countof(variants)];

/* Before main: a table of designs is constant for everybody else. */
__attribute__((constructor)) static void make_tables(void)
{
    for (size_t i = 0; i < countof(variants); i++) {
        const struct variant *v = &variants[i];
        tables[i] = *v->of;
        tables[i].name = v->name;
        tables[i].summary = v->summary;
        tables[i].kind = DESIGN_BUSTED;
        tables[i].substrates &= ~(uint32_t)DESIGN_ON_UDP;
        tables[i].tolerates = v->faults;
        tables[i].mistakes = v->mistakes;
        if (!v->of->packet)
            continue;
        packets[i] = *v->of->packet;
        packets[i].options |= v->policy & ~FIXED;
        if (v->policy & FIXED)
            packets[i].draws = 0;
        tables[i].packet = &packets[i];
    }
}

const struct design *busted_variant(size_t i)
{
    return i < countof(variants) ? &tables[i] : NULL;
}
