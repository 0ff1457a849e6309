/* SPDX-License-Identifier: Apache-2.0 */
/* Between kernel.c, kernel_fission.c and kernel_netlock.c. Functions return 0 or a negative code, explained. */
#ifndef PAWL_NODE_KERNEL_INTERNAL_H
#define PAWL_NODE_KERNEL_INTERNAL_H

#include "node/kernel.h"

/* NetLock's: the program grants, queues and renews leases, the process moves locks and does what is rare. Until *stop. */
int kernel_netlock_run(const struct kernel_params *p, const struct member *m);

/* FissLock's: the program decides, the process rebuilds state that was lost. Until *stop. */
int kernel_fission_run(const struct kernel_params *p, struct member *m, const char *program);

/* Reports how much kernel memory is needed; -ENOMEM if that is more than is free. */
int kernel_check_memory(kernel_report report, const char *what, uint64_t bytes);
int kernel_open_plane(const struct kernel_params *p, const struct member *m, const char *program, bool fresh,
                      const struct netlock_memory *memory, struct plane **out);
int kernel_attach(const struct kernel_params *p, struct plane *plane);

/* Attaches the program, and tries whether the interface does what is needed; reports both. */
int kernel_attach_one(kernel_report report, struct plane *plane, const char *device, enum plane_mode mode);
void kernel_close_plane(const struct kernel_params *p, struct plane *plane);
void kernel_report_end(const struct kernel_params *p, const struct plane *plane);

/* The program takes packets of hosts as the roster has them: from their addresses, in the lives that they were given. */
void kernel_tell_hosts(volatile struct plane_host *hosts, volatile struct plane_seal *seals, struct roster *r);

/* The map of keys, filled in as far as they are known before the roster is: those of lock servers and switches, and of hosts that
 * the process before knew. */
int kernel_map_seals(struct plane *plane, const volatile struct plane_host *hosts, const struct roster *r,
                     volatile struct plane_seal **out);

/* By which a packet to or from that host is tagged now; none: by the key of the socket. */
struct seal_key kernel_key(const volatile struct plane_seal *seals, const struct roster *r, uint16_t machine);

/* The address of a machine, as the program has it. */
void kernel_set_address(struct plane_host *h, uint32_t machine, struct net_addr at);
struct net_addr kernel_address(const volatile struct plane_host *h, uint32_t machine, uint16_t port);

/* Returns when every packet that was in the program has left it. A packet passes under the kernel's read lock. */
void kernel_grace(void);

#endif
