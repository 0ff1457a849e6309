/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process that died in the middle of a change would leave the host's memory as it was before: every line must be in the
 * undo log before its first change. A copy of the memory follows, by the lines in the log alone. So the log must have each line as
 * the copy has it, and copy and memory are the same as long as no change was left out. All of the memory is compared now and then:
 * a change that was left out stays visible until then, also if a later one that is in the log meets its line. */
#include "workbench/trial/rack.h"

#include <stdlib.h>
#include <string.h>

#define COMPARED_EVERY 16 /* changes */

uint64_t rack_memory_bytes(const struct rack *r)
{
    return round_up(r->design->host_bytes(&r->config), UNDO_LINE);
}

void rack_host_compare(struct rack_host *h)
{
    h->changes = 0;
    if (h->undo && !h->alone && !h->undo->count && memcmp(h->before, h->memory, rack_memory_bytes(h->rack)) != 0)
        abort(); /* a byte of the host's memory was changed without outbox_touch */
}

void rack_host_changes_alone(struct rack_host *h)
{
    rack_host_compare(h);
    h->alone = true;
}

struct outbox *rack_host_outbox(struct rack_host *h)
{
    struct outbox *o = &h->rack->outbox;
    if (!h->undo)
        return o;
    if (h->alone)
        memcpy(h->before, h->memory, rack_memory_bytes(h->rack));
    h->alone = false;
    o->undo = h->undo;
    o->memory = h->memory;
    return o;
}

void rack_host_commit(struct rack_host *h)
{
    if (!h->undo || !h->rack->outbox.undo)
        return;
    for (uint64_t i = 0; i < h->undo->count; i++) {
        const struct undo_entry *e = undo_entry(h->undo, i);
        char *copy = h->before + e->line * UNDO_LINE;
        if (memcmp(copy, e->old, UNDO_LINE) != 0)
            abort(); /* the line was changed before outbox_touch */
        memcpy(copy, h->memory + e->line * UNDO_LINE, UNDO_LINE);
    }
    undo_commit(h->undo);
    h->rack->outbox.undo = NULL;
    if (++h->changes >= COMPARED_EVERY)
        rack_host_compare(h);
}
