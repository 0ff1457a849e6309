/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Loads a data plane into the kernel, attaches it to interfaces, and talks to it while it runs.
 *
 * With `pins`, a folder of a BPF file system, maps and attachments outlive the process: one that opens the same folder again finds
 * the locks as they are, and plane_attach exchanges the program of an interface between two packets. Without, the kernel takes
 * everything down when the process ends, however it ends.
 *
 * Functions return 0 or a negative errno; explained() (lib/explain.h) says in words what failed last in this thread. */
#ifndef PAWL_DATAPLANE_XDP_LOADER_H
#define PAWL_DATAPLANE_XDP_LOADER_H

#include "dataplane/xdp/plane.h"
#include "lib/base.h"
#include "lib/explain.h"

struct netlock_memory;

enum plane_mode { PLANE_ANY, PLANE_NATIVE, PLANE_GENERIC };

struct plane_options {
    const char *program;                  /* "relay", "fission", "netlock", "memory" */
    struct plane_settings settings;       /* `port` big-endian */
    const char *pins;                     /* null: nothing outlives the process */
    bool fresh;                           /* begin anew, whatever is pinned */
    uint32_t life, epoch;                 /* of new state */
    bool closed;                          /* new state is */
    bool probe;                           /* with what tests need beside the program */
    uint32_t locks_max;                   /* entries of the map of locks, or pages of a memory node; 0 if the program has none */
    uint32_t hosts_max;                   /* the highest number in the map of hosts; 0: settings.machines */
    const struct netlock_memory *netlock; /* the program "netlock": where everything is in its memory */
};

#define PLANE_DEVICES_MAX 64 /* as the map of ports in frame.bpf.h */

struct plane;

/* Null if this build can load programs; else why not. */
const char *plane_missing(void);
const char *plane_mode_name(enum plane_mode mode);

/* -ENOTSUP: plane_missing; -EPERM: no right; -EEXIST: the pinned state belongs to another rack; -ENOMEM: the locks do not fit. */
int plane_open(const struct plane_options *options, struct plane **out);

/* Whether this kernel takes the program only with one try of a decision (plane_settings.simple). */
bool plane_simple(const struct plane *p);

/* Whether plane_open found state of an earlier process. */
bool plane_found(const struct plane *p);

/* Packets may leave by this interface. Call this for all interfaces before the first is attached, or packets would be lost. */
int plane_port(struct plane *p, const char *device);

/* In mode `want`, or PLANE_ANY: native where the driver can, else generic; on veth generic, which is faster there for sockets at
 * the other end and needs nothing of the peer. Replaces the program that this process had attached there. */
int plane_attach(struct plane *p, const char *device, enum plane_mode want, enum plane_mode *got);

/* The same for a program other than "plane". */
int plane_attach_program(struct plane *p, const char *device, const char *name, enum plane_mode want, enum plane_mode *got);

/* Tries an interface that is attached in this mode: the program must answer an echo, and natively the answer must
 * leave. -EOPNOTSUPP: it does not. *note is null, or says why that could not be seen. Echoes are counted as such. */
int plane_self_test(struct plane *p, const char *device, enum plane_mode mode, const char **note);

/* Whether a card handles VLAN tags for the network stack: ETH_FLAG_RXVLAN, of frames that come, or ETH_FLAG_TXVLAN, of those that
 * leave. -EALREADY: it is like that; other errors: the driver cannot. */
int plane_tags(const char *device, uint32_t which, bool on);

/* Both copies of a packet that is doubled leave by `out`. That is the only interface of the switch (`in` is null), or one whose
 * other end `in` is on the switch, too, from where each copy goes to its port. `want` is the ports' mode: natively, veth carries
 * nothing to an end without a native program. */
int plane_double_by(struct plane *p, const char *out, const char *in, enum plane_mode want);

/* Attaches programs as filters of the packets that arrive at an interface and that leave it (traffic control), until the plane is
 * closed. */
int plane_filter(struct plane *p, const char *device, const char *in, const char *out);

enum plane_end {
    PLANE_LEAVE,  /* pinned maps and attachments stay: packets are handled as before */
    PLANE_DETACH, /* attachments go, the locks stay if they are pinned */
    PLANE_REMOVE, /* all of it goes */
};
void plane_close(struct plane *p, enum plane_end how);

/* Whether a plane was left pinned there; if so, its settings and counters. Nothing is changed. */
int plane_peek(const char *pins, struct plane_live *live, struct plane_counters *sum);

/* For tests: frees all of FissLock's locks that are pinned there, without a notice to their holders. */
int plane_forget(const char *pins);

/* ---- while it runs ---- */

int plane_set_host(struct plane *p, uint16_t machine, const struct plane_host *host);
volatile struct plane_live *plane_live(struct plane *p);
int plane_count(const struct plane *p, struct plane_counters *sum);

/* Has the program "order" carry out an order, by BPF_PROG_TEST_RUN; the result is in the same place. */
int plane_order(struct plane *p, void *order, uint32_t len);

/* Packets that the program left for the control process to send on (the map `mail`): waits for so long, and calls fn for each. */
typedef void (*plane_mail_fn)(void *ctx, const void *data, uint32_t len);
int plane_mail(struct plane *p, plane_mail_fn fn, void *ctx, int ms);

/* A map's memory, all of it: `locks` and the like. Unmapped by plane_close. -ENOENT: there is no such map. */
int plane_map(struct plane *p, const char *name, void **at, uint64_t *bytes);

/* Bytes of kernel memory that the locks of a program take; to be known before it is taken. */
uint64_t plane_lock_bytes(const char *program, uint64_t locks);

/* ---- for tests and measurements ---- */

int plane_program(const struct plane *p, const char *name); /* its file descriptor, or -ENOENT */
uint32_t plane_verified(const struct plane *p);             /* instructions that the verifier went through */

struct plane_run {
    const void *in;
    uint32_t in_len;
    void *out;        /* may be null */
    uint32_t out_len; /* room; then what came */
    uint32_t repeat;  /* 0 is once */
    uint32_t verdict; /* XDP_... */
    uint32_t ns;      /* of one, on average */
    uint32_t ifindex; /* it arrives by; 0: the loopback interface */
};
int plane_run(int program, struct plane_run *run);
int plane_set_case(struct plane *p, const struct cost_case *c); /* for the programs cost_run and cost_restore */

/* Whether the interface is there, and no XDP program is attached to it, of whichever process. */
bool plane_is_bare(const char *device);

/* The Ethernet address and address of an interface, for plane_host. */
int plane_device(const char *device, uint32_t *ifindex, uint8_t mac[6]);

#endif
