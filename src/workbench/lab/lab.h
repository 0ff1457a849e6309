/* SPDX-License-Identifier: Apache-2.0 */
/* A lab: racks on one machine. Hosts are network namespaces, cables are pairs of veth, and every rack has a namespace for its
 * switch.
 *
 *   one-armed   hosts and switch hang on a plain bridge (namespace "core"); lock packets go to the switch and come back
 *   in-path     hosts hang on the switch itself, which bridges what is not a lock packet
 *
 * Several racks are joined by one more bridge (namespace "spine"). Host h of rack r is 10.77.r.h, the switch 10.77.r.254.
 *
 * Nothing stays behind: everything is written down before it is made (in LAB_DIR), under an id of its own. So lab_down finds all of
 * it after a crash at any point, and touches nothing else. Needs root and ip(8). */
#ifndef PAWL_WORKBENCH_LAB_LAB_H
#define PAWL_WORKBENCH_LAB_LAB_H

#include "lib/base.h"
#include "lib/explain.h"
#include "wire/packet.h"

#define LAB_DIR "/run/pawl-lab"
#define LAB_NAME_MAX 31
#define LAB_RACKS_MAX 8
#define LAB_HOSTS_MAX 60 /* of one rack: as many ports as a switch can have, less those to itself */
#define LAB_PATH 96
#define LAB_SPACE "lab-%s" /* of its id: hosts of other labs have the same addresses */
#define LAB_SPACE_MAX 16
#define LAB_DEVICE "lan0"    /* every host's interface */
#define LAB_UPLINK "wire0"   /* a one-armed switch's only interface */
#define LAB_LOOP_OUT "loop0" /* an in-path switch's way to itself, for packets that are doubled */
#define LAB_LOOP_IN "loop1"
#define LAB_SPINE "up0"   /* an in-path switch's way to other racks */
#define LAB_STATE "state" /* in the lab's folder, with the number of the rack: what its coordinator keeps */

struct lab {
    char name[LAB_NAME_MAX + 1];
    char id[9]; /* in the names of all namespaces */
    unsigned racks, hosts;
    bool in_path;
    bool complete; /* lab_up came to its end */
};

/* Members of a rack: hosts are 1 .. hosts. */
#define LAB_SWITCH 0u
#define LAB_CORE 0xfffeu

/* -EEXIST: there is one of that name; -EPERM: not root; -EINVAL: the name or a number is not valid. The remains of a crashed lab_up
 * are removed first. The caller sets name, racks, hosts and in_path; the rest is filled in. */
int lab_up(struct lab *lab);

/* -ENOENT: there is none. */
int lab_find(const char *name, struct lab *out);

/* Ends the processes in its namespaces, then removes them and everything else of the lab. 0 also if there was none. */
int lab_down(const char *name);

/* Processes in its namespaces. */
unsigned lab_processes(const struct lab *lab);

/* Removes the memories of its hosts, which no process uses. A client that is killed leaves one, and so does one that ends before
 * its releases were acknowledged: the next process of that host would go on with it, as a member of a space that is gone. */
void lab_forget_hosts(const struct lab *lab);

/* ---- inside ---- */

void lab_namespace(const struct lab *lab, unsigned rack, unsigned member, char out[LAB_PATH]); /* its path */
int lab_enter(const struct lab *lab, unsigned rack, unsigned member); /* this process: sockets and interfaces from now on */
uint32_t lab_address(unsigned rack, unsigned member);                 /* IPv4, in the order of this machine */
void lab_mac(unsigned rack, unsigned member, uint8_t out[6]);
void lab_port(const struct lab *lab, unsigned host, char out[16]); /* the switch's interface towards a host */
void lab_bpf(const struct lab *lab, char out[LAB_PATH]);           /* a BPF file system that ends with the lab */

/* Pulls the host's cable, or puts it back. */
int lab_plug(const struct lab *lab, unsigned rack, unsigned host, bool in);

#endif
