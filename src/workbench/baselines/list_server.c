/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in a list, behind messages: the list-based lock of Kogan et al. (EuroSys'20) in a server, "LLC" in Citron's comparison.
 * Holders stand in a list in the order in which they begin; a request walks from the head to its place. The list is lock-free, so
 * all cores of the server work in it at once. */
#include "workbench/baselines/rpc.h"

/* Numbers of entries and 1; 0: none. */
struct links {
    uint32_t next, prev;
};

struct list {
    uint32_t head;
};

static uint64_t bytes(const struct space *space, uint64_t entries)
{
    return space->lock_count * sizeof(struct list) + (entries + 1) * sizeof(struct links);
}

static struct list *list_of(const struct rpc_desk *desk, uint64_t index)
{
    return (struct list *)desk->memory + index;
}

static struct links *links_of(const struct rpc_desk *desk, uint32_t link)
{
    return (struct links *)((struct list *)desk->memory + desk->space->lock_count) + link;
}

static bool admits(struct rpc_desk *desk, const struct rpc_entry *e)
{
    for (uint32_t at = list_of(desk, e->index)->head; at; at = links_of(desk, at)->next) {
        const struct rpc_entry *other = rpc_entry_at(desk, at);
        desk->visits++;
        if (other->start >= e->end)
            break;
        if (other->end > e->start && (e->mode == PAWL_EXCLUSIVE || other->mode == PAWL_EXCLUSIVE))
            return false;
    }
    return true;
}

/* Its place was found when it was admitted: walking there again is not counted. */
static void enter(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct list *l = list_of(desk, e->index);
    uint32_t me = rpc_link(desk, e), before = 0, at = l->head;
    for (; at && rpc_entry_at(desk, at)->start < e->start; at = links_of(desk, at)->next)
        before = at;
    *links_of(desk, me) = (struct links){.next = at, .prev = before};
    *(before ? &links_of(desk, before)->next : &l->head) = me;
    if (at)
        links_of(desk, at)->prev = me;
    desk->visits++;
}

static void leave(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct list *l = list_of(desk, e->index);
    struct links *my = links_of(desk, rpc_link(desk, e));
    *(my->prev ? &links_of(desk, my->prev)->next : &l->head) = my->next;
    if (my->next)
        links_of(desk, my->next)->prev = my->prev;
    desk->visits++;
}

static const struct rpc_store store = {.bytes = bytes, .admits = admits, .enter = enter, .leave = leave, .visits = true};

const struct design design_list_server = {
    .name = "list-server",
    .summary = "ranges in a list, kept by a server's cores",
    RPC_COMMON(DESIGN_RANGES, rpc_acquire, store),
};
