/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election: of all processes that run this, one leads, until it ends or loses its session; then another does. The token is
 * the term of the leader, and rises. The loss of the session is an event at pawl_fd.
 * Usage: leader NAME [PLACE]; ends on SIGINT or SIGTERM. */
#include <errno.h>
#include <inttypes.h>
#include <pawl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define STEP_MS 20                      /* of the leader's work */
#define CAMPAIGN_NS UINT64_C(200000000) /* a candidate looks so often whether it was told to end */

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* Work that only the leader may do, in short steps: each begins with a look whether the grant is still held. What leaves the
 * process, such as a write to a store, carries the token: the process can be stopped after the look. */
static void lead(pawl *p, const pawl_grant *g)
{
    printf("%d leads in term %" PRIu64 "\n", (int)getpid(), g->token);
    fflush(stdout);
    struct pollfd event = {.fd = pawl_fd(p), .events = POLLIN}; /* nothing else is to be reaped here: the session is lost */
    while (!stop && !pawl_check(p, g) && poll(&event, 1, STEP_MS) <= 0)
        ;
    int why = pawl_why(p, g);
    printf("%d leads no more%s%s\n", (int)getpid(), why ? ": " : "", why ? pawl_strwhy(why) : "");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: leader NAME [PLACE]\n");
        return 2;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    int rc = 0;
    while (!stop && !rc) {
        pawl *p;
        pawl_grant g;
        rc = pawl_open(argc > 2 ? argv[2] : "local:", NULL, &p);
        if (rc)
            break;
        do
            rc = pawl_timedlock(p, pawl_name(argv[1]), PAWL_EXCLUSIVE, pawl_in(CAMPAIGN_NS), &g);
        while (rc == -ETIMEDOUT && !stop);
        if (!rc)
            lead(p, &g);
        pawl_close(p); /* releases the lock; a lost session is opened anew */
        rc = rc == -PAWL_ELOST || rc == -ETIMEDOUT ? 0 : rc;
    }
    if (rc)
        fprintf(stderr, "leader: %s (%s)\n", pawl_strerror(rc), pawl_explain());
    return rc != 0;
}
