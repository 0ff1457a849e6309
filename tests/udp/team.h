/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share a handle and take turns at one lock: one of them is inside at a time. */
#ifndef PAWL_TESTS_UDP_TEAM_H
#define PAWL_TESTS_UDP_TEAM_H

#include "tests/udp/rack.h"

#define TEAM_MAX 16

static struct {
    pawl *p;
    int rounds;
    struct turns turns;
} team;

static void *team_member(void *arg)
{
    (void)arg;
    for (int i = 0; i < team.rounds; i++)
        take_turn(&team.turns, team.p, pawl_id(50), UINT64_MAX);
    return NULL;
}

static void team_takes_turns(pawl *p, int members, int rounds)
{
    pthread_t t[TEAM_MAX];
    CHECK(members <= TEAM_MAX);
    team.p = p;
    team.rounds = rounds;
    for (int i = 0; i < members; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, team_member, NULL), 0);
    for (int i = 0; i < members; i++)
        CHECK_EQ(pthread_join(t[i], NULL), 0);
    CHECK_EQ(team.turns.sum, (uint64_t)members * (uint64_t)rounds);
}

#endif
