#include "designs/all.h"
#include "designs/requests.h"
#include "designs/srvlock/srv.h"

#define SRV_HOST                                                                                                                   \
    .family = PACKET_SERVER, .host_bytes = srv_host_bytes, .host_init = srv_host_init, .acquire = srv_acquire,                     \
    .convert = srv_convert, .give_up = srv_give_up, .release = srv_release, .outcome = requests_outcome, .idle = requests_idle,    \
    .holds = requests_hold, .claim = requests_claim, .packet = srv_packet, .tick = srv_tick, .expiry = srv_expiry,                 \
    .session_dead = srv_session_dead, .host_drops = requests_drops

#define SRV_SERVER                                                                                                                 \
    .server_bytes = srv_server_bytes, .server_init = srv_server_init, .server_packet = srv_server_packet,                          \
    .server_tick = srv_server_tick, .server_drops = srv_server_drops

#define SRV_FEATURES                                                                                                               \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC)

static const struct packet_design srvlock = {SRV_HOST, SRV_SERVER};
static const struct packet_design parlock = {SRV_HOST, SRV_SERVER, .on_hosts = true, .options = SRV_BY_RANGE};

const struct design design_srvlock = {
    .name = "srvlock",
    .summary = "lock servers on machines of their own, asked by packets",
    .kind = DESIGN_BASELINE,
    .features = SRV_FEATURES,
    .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,
    .tolerates = FAULTS_ALL,
    .packet = &srvlock,
};

const struct design design_parlock = {
    .name = "parlock",
    .summary = "lock servers on the clients' machines, asked by packets",
    .kind = DESIGN_BASELINE,
    .features = SRV_FEATURES,
    .substrates = DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .packet = &parlock,
};

#define BUSTED(id, what, option)                                                                                                   \
    static const struct packet_design id##_packet = {SRV_HOST, SRV_SERVER, .options = (option)};                                   \
    const struct design design_busted_##id = {                                                                                     \
        .name = "busted-" what,                                                                                                    \
        .summary = "wrong on purpose: srvlock",                                                                                    \
        .kind = DESIGN_BUSTED,                                                                                                     \
        .features = SRV_FEATURES,                                                                                                  \
        .substrates = DESIGN_ON_SIM | DESIGN_ON_UDP,                                                                               \
        .tolerates = FAULTS_ALL,                                                                                                   \
        .packet = &id##_packet,                                                                                                    \
    }

BUSTED(srvlock_nonce, "srvlock-nonce", SRV_NO_NONCE);      /* any grant for the slot is taken for an answer */
BUSTED(srvlock_memory, "srvlock-memory", SRV_NO_MEMORY);   /* a doubled ACQUIRE is taken for a new one */
BUSTED(srvlock_blind, "srvlock-blind", SRV_BLIND_RELEASE); /* a late RELEASE ends what the slot has now */
BUSTED(srvlock_lapse, "srvlock-lapse", SRV_NO_LAPSE);      /* the host believes in leases for ever */
BUSTED(srvlock_hasty, "srvlock-hasty", SRV_HASTY_SERVER);  /* a server that lost its memory does not wait */
