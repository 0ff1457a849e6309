/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds that once failed, kept. A seed repeats its run only as long as the harness draws the same numbers, so by now it may stand
 * for another run. The seeds stay as regression runs, because they cost little. */
#include "tests/sim/runs.h"

static const struct {
    const char *design;
    uint64_t seed;
    uint32_t faults;
    const char *why;
} kept[] = {
    {"word", 6, FAULTS_ALL, "an early version"},
    {"word", 12, FAULTS_ALL, "a conversion whose answer came after the lease had run out"},
    {"word", 21, FAULTS_ALL, "an early version"},
    {"word", 22, FAULTS_ALL, "an early version"},
    {"word", 33, FAULTS_ALL, "an early version"},
    {"word", 41, FAULTS_ALL, "tokens of forgotten locks were read too early"},
    {"word", 45, FAULTS_ALL, "an early version"},
    {"word", 56, FAULTS_ALL, "an endpoint of a session from before the node's restart"},
    {"word", 95, FAULTS_ALL, "a reader that said \"waits\" before the lock was to be counted anew"},
    {"word", 133, FAULTS_ALL, "an early version"},
    {"word", 182, FAULTS_ALL, "a downgrade whose connection broke while the session was lost"},
    {"word", 219, FAULTS_ALL, "an early version"},
    {"word", 581, FAULTS_ALL, "a conversion whose answer came after the lease had run out"},
    {"word", 911, FAULTS_ALL, "a reader that said \"waits\" before the lock was to be counted anew"},
    {"word", 1221, FAULTS_ALL, "a reader that said \"waits\" before the lock was to be counted anew"},
    {"word", 4005, FAULTS_ALL, "a reader that said \"waits\" before the lock was to be counted anew"},
    {"word", 10775, FAULTS_ALL, "a renewal that found another task's in its place gave the session up"},
    {"word", 27058, FAULTS_ALL, "a cell that was condemned while its name was read was taken for another key's"},
    {"word", 17149, FAULTS_ALL, "a session that was lost while it took a lock was told that it does not own it"},
    {"alock", 10418, FAULT_BIT(FAULT_CRASH_CLIENT), "a link meant for the session that had the memory before"},
    {"alock", 13703, FAULTS_ALL, "a grant meant for the session that had the memory before"},
    {"alock", 776, FAULTS_ALL, "links of two locks mixed: the wrong one was told"},
    {"alock", 1983, FAULTS_ALL, "the budget of a hint that was not believed"},
    {"alock", 7436, FAULTS_ALL, "queued up again at a place that had been given to another key"},
    {"alock", 18830, FAULTS_ALL, "a slot claimed without knowing, by a process that never ended"},
    {"alock", 7710367, FAULTS_ALL,
     "gave up by a step whose outcome was unknown, taken for done by what the step before it had found; handed the baton later"},
    {"alock", 7724469, FAULTS_ALL, "the same, by one whose session went on"},
    {"shiftlock", 18, FAULTS_ALL, "converted while the lock was counted anew and RelCnt lagged behind the token"},
    {"citron", 39, FAULTS_ALL, "m was to change, by one that was gone: T_wait, too short, could not be made longer"},
    {"citron", 62, FAULTS_ALL, "the same"},
    {"citron", 544, FAULTS_ALL, "the same"},
    {"citron", 2253, FAULTS_ALL, "bits of a leaf that were another's were cleared with an attempt at all of four leaves"},
    {"citron", 16320, FAULTS_ALL, "a reader's place from the session that had the slot before was taken for its own"},
    {"citron", 135, FAULTS_ALL, "a writer that waited for bits did not look for readers that had come meanwhile"},
    {"citron", 372, FAULTS_ALL, "a block of tokens that was not put into its part: the connection had broken"},
    {"citron", 754, FAULTS_ALL, "the simulated NIC let a READ pass the atomic before it, at the very nanosecond of its write"},
    {"citron", 5791, FAULTS_ALL, "drew a token, and saw much later that no claim on a tall node was left"},
    {"citron", 5954, FAULTS_ALL,
     "announced its ticket in a batch that was lost, and not again: no client could pass the ownerless tickets before it"},
    {"citron", 11705, FAULTS_ALL, "a hold was split and one half released during a count: the other half's record had been free"},
    {"citron", 5242, FAULTS_ALL, "the next in line looked again and again, and no client could clear ownerless bits in its leaf"},
    {"citron", 7725432, FAULTS_ALL,
     "took its ticket back again after an unknown outcome, and so took the ticket of the client that had drawn the number"},
    {"citron", 20050669, FAULTS_ALL,
     "bits without an owner stayed: whenever a client had their parent to clear them, the next client had just begun to look"},
    {"citron", 20055390, FAULTS_ALL,
     "three clients with ranges of several groups of nodes had the first ones again and again, which counted as progress each "
     "time"},
    {"srvlock", 1785, FAULTS_ALL, "asked for through the socket of a process that then ended, and answered there for ever"},
    {"srvlock", 20020925, FAULTS_ALL,
     "the judge waited for a lease; a server had begun again, and its client's next packet came just after: its pauses had grown"},
    {"srvlock", 20075561, FAULTS_ALL,
     "a server that had lost its memory let a reader convert before the other reader's host had reported its hold"},
    {"srvlock", 101753, FAULTS_ALL | FAULTS_COORDINATOR,
     "all keys had been in use for a lease, and were released: the next client was told that there is no room"},
    {"fisslock", 1616, FAULTS_ALL,
     "an agent found by a copy that was no news looked at nothing any more, and the reader in its queue waited"},
    {"fisslock", 21521, (FAULTS_ALL | FAULTS_COORDINATOR) & ~FAULT_BIT(FAULT_ETCD),
     "a writer of a lost host was first in the queue and kept readers out, among them the holder, for ever"},
    {"fisslock", 20041020, FAULTS_ALL,
     "agents that were taken over together were always due together: each time one of them got its census, and the others did not"},
    {"fisslock", 3004658, FAULTS_ALL | FAULTS_COORDINATOR,
     "a late request of a lost host was granted by an agent: while no request waited the agent did not ask, and the index was "
     "lost"},
    {"fisslock", 3007896, FAULTS_ALL | FAULTS_COORDINATOR, "the same"},
    {"fisslock", 3096801, FAULTS_ALL | FAULTS_COORDINATOR,
     "an agent that moved to a host which was lost then was sent for ever, so that its index was not retired"},
    {"netlock", 3010442, FAULTS_ALL | FAULTS_COORDINATOR,
     "the judge waited for ten of the first leases, while the rack waited for one that an operator had made eight times as long"},
    {"netlock", 3056303, FAULTS_ALL | FAULTS_COORDINATOR,
     "a steward waited for a membership lease, though switch and server had said that they have none"},
    {"netlock", 100155, FAULTS_ALL | FAULTS_COORDINATOR, "a server pushed the request of a host that was lost for good"},
    {"netlock", 102070, FAULTS_ALL | FAULTS_COORDINATOR, "the same"},
    {"netlock", 100841, FAULTS_ALL | FAULTS_COORDINATOR,
     "a lost host's hold was ended, and its waiter, not yet looked at, got the place: no part of the rack ended that"},
    {"netlock", 101782, FAULTS_ALL | FAULTS_COORDINATOR, "the same"},
    {"fisslock-stay", 119, FAULTS_ALL | FAULTS_COORDINATOR,
     "a shared holder's host was lost and joined under another number: the agent asked the old number for ever"},
    {"fisslock-stay", 179, FAULTS_ALL | FAULTS_COORDINATOR, "the same"},
    {"netlock", 20025305, FAULTS_ALL,
     "gave up a call while its lease lapsed: the answer of the former lease was taken for a hold under the next one"},
    {"netlock", 542, FAULTS_ALL, "a hold was to be converted beside one whose host had just died: told of a deadlock, and judged"},
    {"netlock", 624, FAULTS_ALL | FAULTS_COORDINATOR,
     "a data server took the calls of a host for late ones of the host that had its number before"},
    {"netlock-switches", 8, FAULTS_ALL, "a deadlock through a request that waited under a name that its host had abandoned"},
    {"netlock-switches", 1448, FAULTS_ALL, "the same"},
    {"srvlock", 166, FAULT_BIT(FAULT_CRASH_SERVER) | FAULT_BIT(FAULT_REPLAY),
     "a lock server that had lost its memory took a recorded request of its former life: nobody held the lock that it granted"},
    {"srvlock", 95, FAULT_BIT(FAULT_CRASH_SERVER) | FAULT_BIT(FAULT_REPLAY), "the same"},
    {"rpc", 10865, FAULTS_ALL & ~(FAULT_BIT(FAULT_CRASH_CLIENT) | FAULT_BIT(FAULT_CRASH_SERVER)),
     "the only cell that was left had just been taken from a session that was gone, and was not looked at again"},
};

/* The same of the swarm (pawl sim --campaign 2) with the default model and all faults; and the most events that it may take. */
static const struct {
    const char *design;
    unsigned campaign;
    uint64_t seed, events_max;
    const char *why;
} kept_of_swarm[] = {
    {"netlock-switches", CAMPAIGN_SWARM, 533, 2000000,
     "NOTIFY and LAST without end: the switch asked again faster than the server could answer"},
    {"netlock-switches", CAMPAIGN_SWARM, 290, 2000000,
     "a deadlock through a request whose forerunner was pushed to a switch that took no more pushes"},
    {"fisslock", CAMPAIGN_SWARM, 20001332, 10000000,
     "the promise of one census was forgotten in the next, and a GRANT of the first tenure came late: two clients held"},
    {"fisslock", CAMPAIGN_SWARM, 968330417898, 2000000,
     "no probe for deadlocks came back: a new one made it void before it had gone round"},
    {"fisslock", CAMPAIGN_SWARM, 3002551, 3000000,
     "a deadlock of nine threads: a probe of so many steps was taken for one that was bounced too often"},
    {"fisslock-racks", CAMPAIGN_SWARM, 818180361499, 2000000,
     "a switch without room for the table of locks gave a lease all the same"},
    {"shiftlock", CAMPAIGN_SWARM, 457919076494, 2000000,
     "a slot that was assigned in a former life of the node's memory was taken, and another session's home overwritten"},
    {"shiftlock", CAMPAIGN_SWARM, 20000897, 2000000,
     "locks of two nodes: the lease at the first ended while that at the second was renewed"},
    {"shiftlock", CAMPAIGN_SWARM, 20004327, 2000000, "failed in a state of the sources that was not kept: the cause is not known"},
    {"srvlock", CAMPAIGN_SWARM, 406, 2000000,
     "the grant to a request of a host's former life came late, and was taken for one of the request that had its number now"},
    {"fisslock-racks", CAMPAIGN_SWARM, 1382, 3000000,
     "a host with a later table than the switch reported a hold that it had carried over: tokens of the switch's life were lower"},
    {"fisslock", CAMPAIGN_SWARM, 20012348, 3000000,
     "moves of locks were sent again without pauses: a server that was busy had no time for anything else"},
    {"netlock", CAMPAIGN_SWARM, 20033676, 1000000, "the same between the switch and the servers of netlock"},
    {"netlock", CAMPAIGN_SWARM, 20085347, 1000000,
     "a wait whose patience had doubled was told of a circle that had just ended: later than the judge allowed for the first "
     "patience"},
    {"netlock-switches", CAMPAIGN_BESIDE, 930358095087, 2000000,
     "of two that converted, one gave up while the switch was down: the other was told of a deadlock later than the judge allowed"},
};

int main(void)
{
    struct run_sum sum = {0};
    for (size_t i = 0; i < countof(kept); i++) {
        printf("%s seed %" PRIu64 ": %s\n", kept[i].design, kept[i].seed, kept[i].why);
        fflush(stdout);
        run_clean(&sum, design_named(kept[i].design), kept[i].faults, kept[i].seed);
    }
    run_model = model_find("default");
    for (size_t i = 0; i < countof(kept_of_swarm); i++) {
        printf("%s seed %" PRIu64 " of the swarm: %s\n", kept_of_swarm[i].design, kept_of_swarm[i].seed, kept_of_swarm[i].why);
        fflush(stdout);
        uint64_t before = sum.total.events;
        run_campaign = kept_of_swarm[i].campaign;
        run_clean(&sum, design_named(kept_of_swarm[i].design), FAULTS_ALL, kept_of_swarm[i].seed);
        CHECK(sum.total.events - before <= kept_of_swarm[i].events_max);
    }
    printf("fisslock seed 1349 of the swarm in a rack: a host took over a tenure that was on its way to it\n");
    run_campaign = CAMPAIGN_SWARM;
    run_clean(&sum, design_named("fisslock"), FAULTS_ALL | FAULTS_COORDINATOR, 1349);
    printf("netlock seed 20001898 of the swarm in a rack: a host gave back a grant of its former life, whose number then was the "
           "latest\n");
    run_clean(&sum, design_named("netlock"), FAULTS_ALL | FAULTS_COORDINATOR, 20001898);
    printf("netlock seed 20003987 of the swarm in a rack: a switch that has not grown passes a late request on, and was judged for "
           "it\n");
    run_clean(&sum, design_named("netlock"), FAULTS_ALL | FAULTS_COORDINATOR, 20003987);
    run_campaign = 0;
    run_model = NULL;
    printf(
        "netlock seed 3156264 in a rack: a late request made the switch notice that the host's lease had ended, and was judged for "
        "the end of an earlier request\n");
    run_clean(&sum, design_named("netlock"), FAULTS_ALL | FAULTS_COORDINATOR, 3156264);
    run_on_nodes = true;
    printf("shiftlock seed 51000292 on a node: a client whose connection broke while it opened a session had two slots\n");
    run_clean(&sum, design_named("shiftlock"), FAULTS_ALL, 51000292);
    run_model = model_find("default");
    run_campaign = CAMPAIGN_SWARM;
    printf("alock seed 234 of the swarm on a node: likewise, when the session had moved into the first\n");
    run_clean(&sum, design_named("alock"), FAULTS_ALL, 234);
    print_sum("kept seeds", &sum);
    return 0;
}
