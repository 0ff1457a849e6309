/* SPDX-License-Identifier: Apache-2.0 */
/* UDP packets past the network stack: an AF_XDP socket on each receive queue of an interface, beside the ordinary socket that owns
 * the port. A program on the interface hands over what comes to that address and port, and passes everything else on. Frames leave
 * by the first of them to machines that frames have come from lately; to others the ordinary socket sends.
 *
 * Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and an interface without another XDP program. One process of a machine at a time.
 */
#ifndef PAWL_WIRE_AFXDP_H
#define PAWL_WIRE_AFXDP_H

#include "wire/udp.h"

struct afxdp;

#define AFXDP_WHY 160

/* For packets to `at`. Zero-copy and native where the driver can. Else a negative errno, and a sentence. */
int afxdp_open(struct net_addr at, struct afxdp **out, char why[AFXDP_WHY]);
void afxdp_close(struct afxdp *a); /* may be null */

/* "zero-copy" or "copy", and "native" or "generic" */
const char *afxdp_copies(const struct afxdp *a);
const char *afxdp_why_copies(const struct afxdp *a); /* what the driver said to zero-copy; "" if it does that */
const char *afxdp_mode(const struct afxdp *a);
const char *afxdp_device(const struct afxdp *a);
unsigned afxdp_queues(const struct afxdp *a); /* of the interface, that it receives from */

int afxdp_fd(const struct afxdp *a); /* readable when packets are there */

/* Receives without waiting. One thread at a time. */
unsigned afxdp_receive(struct afxdp *a, struct udp_batch *batch);

/* How many of them were sent; the ordinary socket has to send the others. Any thread. */
unsigned afxdp_send(struct afxdp *a, const struct udp_out *packets, unsigned count);

/* The functions above, for a socket whose program may lack them. */
struct afxdp_driver {
    int (*open)(struct net_addr at, struct afxdp **out, char why[AFXDP_WHY]);
    void (*close)(struct afxdp *a);
    int (*fd)(const struct afxdp *a);
    unsigned (*receive)(struct afxdp *a, struct udp_batch *batch);
    unsigned (*send)(struct afxdp *a, const struct udp_out *packets, unsigned count);
};
extern const struct afxdp_driver driver_afxdp;

/* Made by meson with the list of designs. Null in a static program that does not name driver_afxdp to the linker. */
extern const struct afxdp_driver *const wire_afxdp;

#endif
