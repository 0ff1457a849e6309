/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program: locks with queues in register arrays (SIGCOMM'20, 4.2).
 *
 * A pass runs one operation, a function of what travels with the packet (struct netlock_pass) and of registers. It visits each
 * register array at most once, in the order of enum netlock_array. What does not fit into a pass is left to another one: the packet
 * is resubmitted with the operation `next`. Any other packet may pass between two passes of a packet. The simulation, a process
 * over UDP, the kernel and a model of the hardware (rmt.h) run the same operations.
 *
 * The shared queue is pooled over arrays of queue slots. A lock owns slots [left, left + size) as a circular queue: `ends` has its
 * head and tail as tickets, (lap, position). A slot is known by ticket and nonce: a release names what it releases, a second
 * release of it finds nothing, and the mode is the slot's and not the one that the packet says. */
/* clang-format off */
/*
 *   operation   does                                               then                     paper
 *   netlock_grant.h
 *   ACQUIRE     enters the queue, or goes to the server            WAIT UNSEE ENDED         Alg. 1, 2-8; Alg. 2, 1-5
 *   RELEASE     marks its slot as ended                            ENDED SOLE               Alg. 1, 10; Alg. 2, 7-12
 *   CANCEL      the same of a waiter that gave up                  ENDED PULL
 *   ENDED       a slot was marked: the head moves, and the         POP WALK PULL SOLE       Alg. 2, 13-21 (flag 1)
 *               slot behind it is granted
 *   POP         the head is a marked slot: it moves on             as ENDED
 *   WALK        grants readers behind readers                      WALK                     Alg. 2, 22-27 (flag 2)
 *   netlock_overflow.h
 *   PUSH        a request of q2 enters                             WAIT ENDED               4.3
 *   LAST        q2 is empty                                        CALL                     4.3
 *   UNSEE       the request went to q2: its nonce is forgotten
 *   netlock_priority.h
 *   WAIT        enters the waiting queue of its priority           PULL UNSEE CALL          4.4
 *   PULL        finds the highest priority that has a waiter       PEEK CALL                4.4
 *   PEEK        finds the first waiter there                       MOVE DROP
 *   MOVE        moves it into the queue                            PULL
 *   DROP        the waiter has given up                            PULL
 *   CALL        no holder, no waiter: the server may push low ones
 *   netlock_convert.h (beyond the paper)
 *   CONVERT     changes the mode of a hold                         WEAKENED UPGRADE SOLE
 *   STAY        the conversion was given up                        WEAKENED
 *   UPGRADE     a reader that wants to write counts as a writer    SOLE WEAKENED
 *   SOLE        looks whether it is the only reader                SOLE STRENGTHEN
 *   STRENGTHEN  it is: it writes
 *   WEAKENED    a writer less is in the queue                      as ENDED
 */
/* clang-format on */
#ifndef PAWL_DATAPLANE_NETLOCK_H
#define PAWL_DATAPLANE_NETLOCK_H

#include "dataplane/netlock_convert.h"
#include "dataplane/netlock_grant.h"
#include "dataplane/netlock_overflow.h"
#include "dataplane/netlock_priority.h"

#define NETLOCK_OPERATION(op, function)                                                                                            \
    case NETLOCK_OP_##op:                                                                                                          \
        function(p, r);                                                                                                            \
        break

/* One pass: the operation `op`. It is to be resubmitted while `next` is not NETLOCK_OP_NONE. */
static inline __attribute__((always_inline)) void netlock_run(struct netlock_pass *p, const struct netlock_registers *r)
{
    netlock_begin(p, r);
    switch (p->op) {
        NETLOCK_OPERATION(ACQUIRE, netlock_op_acquire);
        NETLOCK_OPERATION(RELEASE, netlock_op_release);
        NETLOCK_OPERATION(CANCEL, netlock_op_cancel);
    case NETLOCK_OP_POP:
        NETLOCK_OPERATION(ENDED, netlock_op_ended);
        NETLOCK_OPERATION(WALK, netlock_op_walk);
        NETLOCK_OPERATION(PUSH, netlock_op_push);
        NETLOCK_OPERATION(LAST, netlock_op_last);
        NETLOCK_OPERATION(UNSEE, netlock_forget_nonce);
        NETLOCK_OPERATION(WAIT, netlock_op_wait);
        NETLOCK_OPERATION(PULL, netlock_op_pull);
        NETLOCK_OPERATION(PEEK, netlock_op_peek);
    case NETLOCK_OP_DROP:
        NETLOCK_OPERATION(MOVE, netlock_op_move);
        NETLOCK_OPERATION(CALL, netlock_op_call);
    case NETLOCK_OP_STAY:
    case NETLOCK_OP_STRENGTHEN:
        NETLOCK_OPERATION(CONVERT, netlock_op_convert);
        NETLOCK_OPERATION(UPGRADE, netlock_op_upgrade);
        NETLOCK_OPERATION(SOLE, netlock_op_sole);
        NETLOCK_OPERATION(WEAKENED, netlock_op_weakened);
    default:
        break;
    }
}

/* The next pass begins with the packet as it is, and with what the passes before have found out. */
static inline void netlock_resubmit(struct netlock_pass *p)
{
    p->op = p->next;
    p->next = NETLOCK_OP_NONE;
    p->out = 0;
    p->over = false;
}

#endif
