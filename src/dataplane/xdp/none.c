/* SPDX-License-Identifier: Apache-2.0 */
/* In place of loader.c and attach.c where the build found no libbpf, clang or bpftool. */
#include "dataplane/xdp/gate.h"
#include "dataplane/xdp/loader.h"

#include <errno.h>

const char *plane_missing(void)
{
    return "this build has no XDP: it was made without libbpf, clang or bpftool (scripts/deps xdp installs them)";
}
const char *plane_mode_name(enum plane_mode mode)
{
    return "";
}
int plane_open(const struct plane_options *options, struct plane **out)
{
    return explain(-ENOTSUP, "%s", plane_missing());
}
bool plane_simple(const struct plane *p)
{
    return false;
}

bool plane_found(const struct plane *p)
{
    return false;
}
int plane_port(struct plane *p, const char *device)
{
    return -ENOTSUP;
}
int plane_attach(struct plane *p, const char *device, enum plane_mode want, enum plane_mode *got)
{
    return -ENOTSUP;
}
int plane_attach_program(struct plane *p, const char *device, const char *name, enum plane_mode want, enum plane_mode *got)
{
    return -ENOTSUP;
}
int plane_self_test(struct plane *p, const char *device, enum plane_mode mode, const char **note)
{
    return -ENOTSUP;
}
int plane_tags(const char *device, uint32_t which, bool on)
{
    return -ENOTSUP;
}
int plane_double_by(struct plane *p, const char *out, const char *in, enum plane_mode want)
{
    return -ENOTSUP;
}
int plane_filter(struct plane *p, const char *device, const char *in, const char *out)
{
    return -ENOTSUP;
}
void plane_close(struct plane *p, enum plane_end how) {}
int plane_peek(const char *pins, struct plane_live *live, struct plane_counters *sum)
{
    return -ENOTSUP;
}
int plane_forget(const char *pins)
{
    return -ENOTSUP;
}
int plane_set_host(struct plane *p, uint16_t machine, const struct plane_host *host)
{
    return -ENOTSUP;
}
volatile struct plane_live *plane_live(struct plane *p)
{
    return NULL;
}
int plane_count(const struct plane *p, struct plane_counters *sum)
{
    return -ENOTSUP;
}
int plane_order(struct plane *p, void *order, uint32_t len)
{
    return -ENOTSUP;
}
int plane_mail(struct plane *p, plane_mail_fn fn, void *ctx, int ms)
{
    return -ENOTSUP;
}
int plane_map(struct plane *p, const char *name, void **at, uint64_t *bytes)
{
    return -ENOTSUP;
}
uint64_t plane_lock_bytes(const char *program, uint64_t locks)
{
    return 0;
}
int plane_program(const struct plane *p, const char *name)
{
    return -ENOTSUP;
}
uint32_t plane_verified(const struct plane *p)
{
    return 0;
}
int plane_run(int program, struct plane_run *run)
{
    return -ENOTSUP;
}
int plane_set_case(struct plane *p, const struct cost_case *c)
{
    return -ENOTSUP;
}
bool plane_is_bare(const char *device)
{
    (void)device;
    return true;
}

int plane_device(const char *device, uint32_t *ifindex, uint8_t mac[6])
{
    return -ENOTSUP;
}

int gate_open(const struct gate_settings *settings, struct gate_filter **out)
{
    return explain(-ENOTSUP, "%s", plane_missing());
}
volatile struct plane_seal *gate_seals(struct gate_filter *g)
{
    return NULL;
}
int gate_attach(struct gate_filter *g, int fd)
{
    return -ENOTSUP;
}
int gate_detach(struct gate_filter *g, int fd)
{
    return -ENOTSUP;
}
uint64_t gate_refused(const struct gate_filter *g)
{
    return 0;
}
void gate_close(struct gate_filter *g) {}
