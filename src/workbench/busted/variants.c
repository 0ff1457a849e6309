/* SPDX-License-Identifier: Apache-2.0 */
/* Designs with one mistake each, as bits that their code asks for (dataplane/mistake.h): the table of the sound design, under
 * another name. The suite shows that the oracle catches every one of them. */
#include "cluster/mistakes.h"
#include "designs/alock/mistakes.h"
#include "designs/citron/mistakes.h"
#include "designs/core/value.h"
#include "designs/fisslock/mistakes.h"
#include "designs/fisslock/options.h"
#include "designs/netlock/mistakes.h"
#include "designs/netlock/netlock.h"
#include "designs/packet/parts.h"
#include "designs/shiftlock/mistakes.h"
#include "designs/srvlock/mistakes.h"
#include "designs/word/mistakes.h"
#include "workbench/baselines/baselines.h"
#include "workbench/busted/busted.h"
#include "workbench/trial/cluster.h"
#include "workbench/trial/rack.h"

extern const struct design design_alock, design_citron, design_fisslock, design_fisslock_racks, design_shiftlock, design_srvlock,
    design_word;

/* The faults that make a step late: a client that stops, and one that cannot be fenced at once. */
#define LATE (FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DRIFT))

/* Where nothing but a retransmission moves the lock on. */
#define UNORDERED (FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER))

/* A coordinator that restarts with other settings while some hosts do not hear of it. */
#define RESTARTED (FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_CRASH_COORDINATOR) | FAULT_BIT(FAULT_OPERATOR))

/* A lock server elsewhere asks for a place while the server that has it, and some hosts, do not reach the coordinator. */
#define REPLACED (FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_OPERATOR))

/* Several coordinators on etcd. */
#define FAULTS_LEADER (FAULT_BIT(FAULT_CRASH_COORDINATOR) | FAULT_BIT(FAULT_ETCD))

#define FIXED (UINT64_C(1) << 63) /* campaigns draw no policies */

/* Rows of a design: the name after its own, the mistake without its prefix. */
#define SHIFTLOCK(name, mistake, faults, says) "busted-shiftlock-" name, &design_shiftlock, SHIFT_##mistake, faults, 0, says
#define SRVLOCK(name, mistake, says) "busted-srvlock-" name, &design_srvlock, SRV_MISTAKE_##mistake, FAULTS_ALL, 0, says
#define NETLOCK(name, mistake, says) "busted-netlock-" name, &design_netlock, NETLOCK_MISTAKE_##mistake, FAULTS_ALL, 0, says
#define CITRON(name, mistake, faults, says) "busted-citron-" name, &design_citron, CITRON_##mistake, faults, 0, says
#define WORD(name, mistake, says) "busted-word-" name, &design_word, WORD_MISTAKE_##mistake, FAULTS_ALL, 0, says
#define FABRIC(name, design, mistake, says)                                                                                        \
    "busted-fabric-" name, &design_##design, CLUSTER_FABRIC_MISTAKE(SIM_FABRIC_##mistake), FAULTS_ALL, 0, says
#define FISSLOCK_ROW(name, mistake, options, says)                                                                                 \
    "busted-fisslock-" name, &design_fisslock, mistake, FAULTS_ALL, FIXED | (options), says
#define FISSLOCK(name, mistake, options, says) FISSLOCK_ROW(name, FISSLOCK_MISTAKE_##mistake, options, says)
#define COORDINATOR(name, mistake, says)                                                                                           \
    "busted-coordinator-" name, &design_srvlock, COORD_MISTAKE_##mistake, FAULTS_ALL | FAULTS_COORDINATOR, 0, says
#define LEADER(name, mistake, says)                                                                                                \
    "busted-leader-" name, &design_srvlock, COORD_MISTAKE_##mistake, FAULTS_ALL | FAULTS_LEADER, 0, says
#define FISSION(name, mistake, says) FISSLOCK_ROW(name, FISSION_MISTAKE_##mistake, 0, says)

static const struct variant {
    const char *name;
    const struct design *of;
    uint64_t mistakes;
    uint32_t faults; /* of its campaigns */
    uint64_t policy; /* options that it always has, or FIXED */
    const char *summary;
} variants[] = {
    {SHIFTLOCK("late", LATE_RELEASE, LATE, "releases are not bound to the lock's era")},
    {SHIFTLOCK("nameless", NAMELESS, FAULTS_ALL, "messages do not say for which lock and era they are")},
    {SHIFTLOCK("markless", MARKLESS, FAULTS_ALL, "a waiting reader looks at the epoch before the recovery mark")},
    {SHIFTLOCK("greedy", GREEDY, 0, "writers hand over to writers, however long readers wait")},
    {SHIFTLOCK("step", STEP, FAULTS_ALL, "one of several locks on a memory node is taken whatever the step into it found")},
    {"busted-alock-nofence", &design_alock, ALOCK_UNFENCED, FAULTS_ALL, 0,
     "the local leader looks across before the others see that it is the victim"},
    {"busted-alock-greedy", &design_alock, ALOCK_GREEDY, 0, 0, "budgets do not end"},
    {"busted-alock-hearsay", &design_alock, ALOCK_HEARSAY, FAULTS_ALL, 0,
     "a client leaves the queue by a step of which it does not know the outcome"},
    {"busted-dslr-late", &design_dslr, DSLR_LATE, LATE, 0, "releases of lost sessions count for others"},
    {SRVLOCK("nonce", NO_NONCE, "any grant for the slot is taken for an answer")},
    {SRVLOCK("memory", NO_MEMORY, "a duplicate ACQUIRE is taken for a new one")},
    {SRVLOCK("blind", BLIND_RELEASE, "a late RELEASE ends what the slot has now")},
    {SRVLOCK("lapse", NO_LAPSE, "the host believes in its leases for ever")},
    {SRVLOCK("hasty", HASTY_SERVER, "a server that lost its memory grants at once")},
    {NETLOCK("blind", BLIND_RELEASE, "a release removes the head, even if another client's")},
    {NETLOCK("mode", TRUST_MODE, "the client that releases says which mode it held")},
    {NETLOCK("end", NO_END, "the end of the queue is not tested for")},
    {NETLOCK("grant", ANY_GRANT, "a late grant is taken for an answer")},
    {NETLOCK("lapse", NO_LAPSE, "the host believes in its leases for ever")},
    {"busted-netlock-hasty", &design_netlock, NETLOCK_MISTAKE_HASTY_SERVER, FAULTS_ALL, NETLOCK_SERVERS_ONLY,
     "a server that lost its memory grants at once"},
    {NETLOCK("revert", HASTY_REVERT, "a server does not wait for the leases of a switch that died")},
    {NETLOCK("hearsay", HEARSAY, "a switch takes the hosts that it has heard of for all that there are")},
    {NETLOCK("long", LONG, "a switch takes a longer lease than its steward counts")},
    {NETLOCK("mumble", MUMBLE, "a host confirms a new term before servers know what it holds")},
    {NETLOCK("rash", RASH, "a server converts a hold while others may hold the lock unheard")},
    {NETLOCK("drain", NO_DRAIN, "a lock moves while it is held")},
    {NETLOCK("deaf", DEAF_SERVER, "a server grants what it was asked to buffer only")},
    {"busted-netlock-heir", &design_netlock, NETLOCK_MISTAKE_HASTY_HEIR, FAULTS_ALL, NETLOCK_SERVERS_ONLY,
     "a server that takes over grants at once"},
    {NETLOCK("rebel", NO_STEWARD, "a server grants without a lease of its own")},
    {NETLOCK("superseded", SUPERSEDED, "a switch grants without a lease of its own")},
    {NETLOCK("return", HASTY_RETURN, "the original grants before the backup has drained")},
    {NETLOCK("loud", LOUD, "a server gives leases for locks that are another's now")},
    {NETLOCK("crowd", CROWD, "deadlocks: a session waits if any thread of it does")},
    {NETLOCK("stale", STALE, "deadlocks: a client that held once is taken to hold")},
    {NETLOCK("twice", TWICE, "a data server executes what it is sent twice")},
    {NETLOCK("upgrade", UPGRADE, "a reader becomes a writer while others read")},
    {NETLOCK("called", LOW, "a client that was called from the server is granted unseen")},
    {NETLOCK("eager", EAGER_DATA, "bytes go to the data server though the lock is not free")},
    {"busted-netlock-table", &design_netlock_switches, PARTS_MISTAKE_TABLE, FAULTS_ALL, 0,
     "hosts do not agree which lock belongs to which switch"},
    {"busted-netlock-silent", &design_netlock, NETLOCK_MISTAKE_SILENT_EMPTY, UNORDERED, 0, "NOTIFY is not retransmitted"},
    {FISSLOCK("keep", KEEP, FISSLOCK_KEEP | FISSLOCK_PLACED, "agents that stay outlast the lease of their host")},
    {FISSION("term", TERM, "duplicates and stragglers end tenures")},
    {FISSION("inca", INCA, "no incarnation check (Fig. 10)")},
    {FISSION("frees", FREES, "the RELEASE of a client that timed out frees (4.2)")},
    {FISSLOCK("nonce", NONCE, 0, "any GRANT for the task is the answer")},
    {FISSLOCK("adopt", ADOPT, 0, "an old packet proves that the agent is here")},
    {FISSLOCK("census", CENSUS, 0, "a holder that the agent does not know is taken for gone")},
    {FISSLOCK("lease", LEASE, 0, "a host believes in its lease for ever")},
    {FISSLOCK("doubt", DOUBT, 0, "an agent that takes over does not ask for holds")},
    {FISSLOCK("stale", STALE, 0, "deadlocks: a client that held once is taken to hold")},
    {FISSLOCK("crowd", CROWD, 0, "deadlocks: a session waits if any thread of it does")},
    {FISSION("hasty", HASTY, "a decider that lost its state does not wait for silent hosts")},
    {FISSION("early", EARLY, "a decider that lost its state does not wait for complete reports")},
    {FISSION("token", TOKEN, "a decider that lost its state begins with the first token again")},
    {FISSLOCK("silent", SILENT, 0, "shared holds are not reported")},
    {FISSLOCK("reuse", REUSE, 0, "a machine number that is reused goes on with earlier tenures")},
    {"busted-fisslock-order", &design_fisslock_racks, RACK_BUSTED_ORDER, FAULTS_ALL, FIXED,
     "a switch gets locks before their former switch has lost them"},
    {FISSLOCK("unpaused", UNPAUSED, FISSLOCK_RESTLESS, "a lock that moves is decided at both places")},
    {FISSLOCK("blank", BLANK, FISSLOCK_RESTLESS, "a free lock moves without its token")},
    {FISSLOCK("amnesia", AMNESIA, FISSLOCK_RESTLESS, "a server that lost its memory decides at once")},
    {SRVLOCK("silent", SILENT, "a host does not report its shared holds to a server that restarted")},
    {COORDINATOR("clock", CLOCK, "lives begin at what the wall clock shows")},
    {COORDINATOR("anonymous", ANONYMOUS, "a state that is missing is taken for a new space, and spaces have no id")},
    {COORDINATOR("early", EARLY, "answers are sent before the log is synced")},
    {"busted-coordinator-lease", &design_srvlock, COORD_MISTAKE_LEASE, RESTARTED, 0,
     "the lease that was given before is not known after a restart"},
    {COORDINATOR("places", PLACES, "a lock server's place is not known after a restart, and a superseded server goes on")},
    {"busted-coordinator-hasty", &design_srvlock, COORD_MISTAKE_HASTY, RESTARTED, 0,
     "a lock server's successor waits for lock leases, and not until hosts that are cut off have ended"},
    {"busted-coordinator-outlives", &design_srvlock, COORD_MISTAKE_OUTLIVES, RESTARTED, 0,
     "a host goes on when its membership lease has ended"},
    {COORDINATOR("unsaved", UNSAVED, "values are not in the log")},
    {COORDINATOR("late", LATE, "a value that is set late replaces a later one")},
    {COORDINATOR("torn", TORN, "damage of the log is taken for an append that was not completed")},
    {"busted-srvlock-any-life", &design_srvlock, RACK_ANY_LIFE, FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_FORGE), 0,
     "a lock server takes packets of hosts in lives that no coordinator has given"},
    {"busted-fisslock-any-life", &design_fisslock, RACK_ANY_LIFE, FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_FORGE), FIXED,
     "a switch takes packets of hosts in lives that no coordinator has given"},
    {"busted-netlock-any-life", &design_netlock, RACK_ANY_LIFE, FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_FORGE), 0,
     "a switch takes packets of hosts in lives that no coordinator has given"},
    {"busted-srvlock-recorded", &design_srvlock, LEASE_MISTAKE_RECORDED, FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_REPLAY),
     0, "a lock server renews leases by heartbeats that it has had before"},
    {"busted-fisslock-recorded", &design_fisslock, LEASE_MISTAKE_RECORDED,
     FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_REPLAY), FIXED,
     "a switch renews leases by heartbeats that it has had before"},
    {"busted-netlock-recorded", &design_netlock, LEASE_MISTAKE_RECORDED, FAULTS_ALL | FAULTS_COORDINATOR | FAULT_BIT(FAULT_REPLAY),
     0, "switch and lock servers renew leases by heartbeats that they have had before"},
    {COORDINATOR("reuse", REUSE, "an index is used again when one host has let go of it")},
    {"busted-coordinator-floor", &design_srvlock, SRV_MISTAKE_FLOOR, FAULTS_ALL | FAULTS_COORDINATOR, 0,
     "the tokens of a name that comes back do not begin above its former ones"},
    {"busted-srvlock-generation", &design_srvlock, SRV_MISTAKE_GENERATION, FAULTS_ALL | FAULTS_COORDINATOR, 0,
     "a lock server takes packets of all generations of an index"},
    {"busted-fisslock-leak", &design_fisslock, FISSLOCK_MISTAKE_LEAK, FAULTS_ALL | FAULTS_COORDINATOR, FIXED,
     "an agent that was not freed at once is never freed, and its index is lost"},
    {"busted-fisslock-generation", &design_fisslock, FISSION_MISTAKE_GENERATION, FAULTS_ALL | FAULTS_COORDINATOR, FIXED,
     "the decider takes packets of all generations of an index"},
    {"busted-fisslock-name-floor", &design_fisslock, FISSION_MISTAKE_FLOOR, FAULTS_ALL | FAULTS_COORDINATOR, FIXED,
     "the tokens of a name that comes back do not begin above its former ones"},
    {"busted-netlock-generation", &design_netlock, NETLOCK_MISTAKE_GENERATION, FAULTS_ALL | FAULTS_COORDINATOR, 0,
     "switch and lock servers take requests of all generations of an index"},
    {"busted-coordinator-join", &design_fisslock, COORD_MISTAKE_JOIN, REPLACED, FIXED,
     "a JOIN that is repeated does not renew the host's lease at the coordinator"},
    {"busted-fisslock-replaced", &design_fisslock, COORD_MISTAKE_HASTY, REPLACED, FIXED,
     "a switch's successor begins when the switch is silent, and not when no host uses the switch any more"},
    {"busted-netlock-replaced", &design_netlock, COORD_MISTAKE_HASTY, REPLACED, FIXED | NETLOCK_SERVERS_ONLY,
     "a NetLock server's successor waits for lock leases, and not until hosts that are cut off have ended"},
    {"busted-netlock-grown", &design_netlock, NETLOCK_MISTAKE_GROW, FAULT_BIT(FAULT_CRASH_COORDINATOR) | FAULT_BIT(FAULT_OPERATOR),
     FIXED | NETLOCK_SERVERS_ONLY, "a lock server that gets more locks forgets which of them are held"},
    {"busted-netlock-name-floor", &design_netlock, NETLOCK_MISTAKE_FLOOR, FAULTS_ALL | FAULTS_COORDINATOR, 0,
     "the tokens of a name that comes back do not begin above its former ones"},
    {LEADER("deposed", DEPOSED, "a deposed leader answers, and members take packets of any term")},
    {LEADER("ahead", AHEAD, "answers are sent before etcd has committed what they tell")},
    {LEADER("guess", GUESS, "a transaction without an answer is taken for one that was not made")},
    {"busted-steward-fresh", &design_netlock, COORD_MISTAKE_STEWARD, FAULTS_LEADER, FIXED,
     "every steward takes itself for the first one of its space"},
    {CITRON("no-abort", NO_ABORT, FAULTS_ALL, "a client that made itself known too late goes on")},
    {CITRON("no-wait", NO_WAIT, FAULTS_ALL, "T_wait is not waited out")},
    {CITRON("no-fence", NO_FENCE, LATE, "a census does not shut out lost sessions")},
    {CITRON("blind-release", BLIND_RELEASE, FAULTS_ALL, "releases add, whatever has happened since")},
    {CITRON("blind-reader", BLIND_READER, FAULTS_ALL, "a reader does not look for writers after it took its place")},
    {FABRIC("order", citron, UNORDERED, "verbs of a batch pass each other although the fabric promises their order")},
    {FABRIC("fence", citron, UNFENCED, "the fence between verbs whose order is not promised is ignored")},
    {"busted-node-hasty", &design_word, CLUSTER_NODE_MISTAKE(CLUSTER_HASTY_NODE), FAULTS_ALL, 0,
     "a node that lost its memory grants at once"},
    {FABRIC("split", shiftlock, SPLIT, "masked verbs are a READ and, later, a WRITE")},
    {CITRON("twice-back", TWICE_BACK, FAULTS_ALL,
            "a ticket of which it is not known whether it was taken back is taken back again")},
    {CITRON("blind-split", BLIND_SPLIT, FAULTS_ALL, "the first half that is released takes the node of both with it")},
    {WORD("rumour", RUMOUR, "the waiters flag is taken for a waiter")},
    {WORD("mute", MUTE, "a holder is told of no waiter")},
    {WORD("crowd", CROWD, "a semaphore has one place more than its limit, and takes any limit")},
    {"busted-word-torn", &design_word, VALUE_MISTAKE_TORN, FAULTS_ALL, 0, "a value is overwritten where it is"},
    {WORD("forget", FORGET, "a semaphore whose holders are counted anew has no limit any more")},
    {SRVLOCK("crowd", CROWD, "a semaphore has one place more than its limit, and takes any limit")},
    {SRVLOCK("blank", BLANK, "holds of a semaphore are reported without its limit to a server that restarted")},
    {SRVLOCK("rumour", RUMOUR, "a server that is asked whether a request waits always says yes")},
    {SRVLOCK("mute", MUTE, "a server that is asked whether a request waits does not answer")},
    {FISSLOCK("rumour", RUMOUR, 0, "a holder takes the agent on its host for a waiter")},
    {FISSLOCK("mute", MUTE, 0, "a holder is told of no waiter at an agent on another host")},
    {FISSLOCK("places", PLACES, 0, "a semaphore has one place more than its limit, and takes any limit")},
    {FISSLOCK("guess", GUESS, 0, "an agent that has taken over a semaphore grants places before it knows the holders")},
    {FISSION("open", OPEN, "the decider lets readers into a semaphore")},
    {"busted-batch-twice", &design_fisslock, RACK_BATCH_TWICE, FAULTS_ALL, FIXED,
     "of several requests in a datagram, the answer to one is that to the next, too"},
    {"busted-batch-forget", &design_fisslock, RACK_BATCH_FORGET, FAULTS_ALL, FIXED,
     "the last of several requests in a datagram is answered, and forgotten"},
    {"busted-batch-order", &design_srvlock, RACK_BATCH_ORDER, 0, 0, "some callers ask for several locks in the opposite order"},
};

static struct design tables[countof(variants)];
static struct packet_design packets[countof(variants)];

/* Before main: afterwards the table of designs is constant. */
__attribute__((constructor)) static void make_tables(void)
{
    for (size_t i = 0; i < countof(variants); i++) {
        const struct variant *v = &variants[i];
        tables[i] = *v->of;
        tables[i].name = v->name;
        tables[i].summary = v->summary;
        tables[i].kind = DESIGN_BUSTED;
        tables[i].substrates &= ~(uint32_t)(DESIGN_ON_UDP | DESIGN_ON_NODES);
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
