/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ofi*.c where the headers of libfabric were missing when pawl was built. */
#include "fabric/ofi.h"
#include "lib/explain.h"

#include <errno.h>

static int not_built(void)
{
    return explain(-ENOTSUP, "this build has no libfabric: its headers were missing when it was made (Debian: libfabric-dev)");
}

int ofi_providers(int (*see)(void *ctx, const struct ofi_provider *p), void *ctx)
{
    (void)see, (void)ctx;
    return not_built();
}

const char *ofi_version(void)
{
    not_built();
    return NULL;
}

int fab_ofi_open(const struct verbs_way *way, uint64_t size, const struct fab_ofi_io *io, uint64_t deadline, struct fab_ofi **out)
{
    (void)way, (void)size, (void)io, (void)deadline, (void)out;
    return not_built();
}

struct fab_ep *fab_ofi_ep(struct fab_ofi *o)
{
    (void)o;
    return NULL;
}

void fab_ofi_close(struct fab_ofi *o)
{
    (void)o;
}

uint32_t fab_ofi_renewals(const struct fab_ofi *o)
{
    (void)o;
    return 0;
}

void fab_ofi_on_pending(struct fab_ofi *o, void (*pending)(void *ctx), void *ctx)
{
    (void)o, (void)pending, (void)ctx;
}

bool fab_ofi_flush(struct fab_ofi *o)
{
    (void)o;
    return false;
}

bool fab_ofi_gathers(struct fab_ofi *o)
{
    (void)o;
    return false;
}

int fab_ofi_set_own(struct fab_ofi *o, fab_addr base, uint64_t bytes)
{
    (void)o, (void)base, (void)bytes;
    return not_built();
}

int ofi_target_open(const struct ofi_target_params *p, struct ofi_target **out)
{
    (void)p, (void)out;
    return not_built();
}

void ofi_target_close(struct ofi_target *t)
{
    (void)t;
}

void ofi_target_memory(struct ofi_target *t, void *memory, uint64_t bytes)
{
    (void)t, (void)memory, (void)bytes;
}

uint32_t ofi_target_caps(const struct ofi_target *t)
{
    (void)t;
    return 0;
}

int ofi_target_admit(struct ofi_target *t, uint32_t client, uint32_t life, uint32_t number, struct verbs_way *out)
{
    (void)t, (void)client, (void)life, (void)number, (void)out;
    return not_built();
}

void ofi_target_shut(struct ofi_target *t, uint32_t client)
{
    (void)t, (void)client;
}
