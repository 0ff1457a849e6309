/* SPDX-License-Identifier: Apache-2.0 */
/* The values that a coordinator keeps beside the locks of a rack (I26): as many as there are locks, generations of an index,
 * packets of holders, records of the log, and the snapshot. */
#include "cluster/service.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MANY 1000u /* far more than the first table has room for */

static uint64_t now = NS_PER_S;

/* ---- the table ---- */

static void set(struct values *v, uint64_t index, uint32_t generation, uint64_t token, uint64_t step, uint64_t bytes)
{
    struct value *value = values_of(v, index, generation);
    CHECK(value);
    CHECK_EQ(values_set(v, value, token, step, &bytes, sizeof bytes), 0);
}

static uint64_t bytes_of(struct values *v, uint64_t index, uint32_t generation)
{
    uint64_t bytes;
    struct value *value = values_of(v, index, generation);
    CHECK(value && value->len == sizeof bytes);
    memcpy(&bytes, value->bytes, sizeof bytes);
    return bytes;
}

static void table_grows(void)
{
    struct values v = {0};
    CHECK(!values_has(&v, 3, 1));
    for (uint64_t i = 0; i < MANY; i++)
        set(&v, 7 * i, 1, i + 1, 1, 3 * i);
    CHECK(v.count == MANY && v.changed_count == MANY && v.room >= MANY && v.room < 4 * MANY);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(values_has(&v, 7 * i, 1) && bytes_of(&v, 7 * i, 1) == 3 * i);
    CHECK(!values_has(&v, 1, 1) && !values_has(&v, 0, 2));
    values_free(&v);
}

/* A value that is set again before the log has it is in the list once. */
static void changes_once(void)
{
    struct values v = {0};
    set(&v, 1, 1, 5, 1, 10);
    set(&v, 2, 1, 5, 1, 20);
    set(&v, 1, 1, 5, 2, 11);
    CHECK(v.changed_count == 2 && bytes_of(&v, 1, 1) == 11);
    set(&v, 1, 1, 5, 1, 12); /* late: the same holder has set it again since */
    CHECK_EQ(bytes_of(&v, 1, 1), 11);
    CHECK_EQ(values_set(&v, values_of(&v, 1, 1), 4, 9, "late", 4), -PAWL_ENOTOWNER);
    values_wrote(&v, 0);
    CHECK_EQ(v.changed_count, 2);
    values_wrote(&v, 1);
    CHECK(v.changed_count == 1 && !values_of(&v, 1, 1)->unwritten && values_of(&v, 2, 1)->unwritten);
    set(&v, 1, 1, 6, 1, 13);
    CHECK_EQ(v.changed_count, 2);
    values_free(&v);
}

/* The index is another key's now: what belonged to the former one is neither read nor put back. */
static void former_generation(void)
{
    struct values v = {0};
    set(&v, 1, 7, 5, 1, 70);
    CHECK(values_of(&v, 1, 8) && !values_has(&v, 1, 8) && !values_has(&v, 1, 7));
    set(&v, 1, 8, 2, 1, 80);
    CHECK(!values_of(&v, 1, 7));
    const struct value former = {.index = 1, .generation = 7, .token = 99, .len = 1};
    CHECK_EQ(values_put(&v, &former), 0);
    CHECK(bytes_of(&v, 1, 8) == 80 && v.count == 1 && v.changed_count == 1);
    const struct value logged = {.index = 1, .generation = 9, .token = 3, .len = 1, .unwritten = true, .bytes = "x"};
    CHECK_EQ(values_put(&v, &logged), 0);
    struct value *value = values_of(&v, 1, 9);
    CHECK(value->floor == 3 && value->bytes[0] == 'x' && !value->unwritten);
    values_free(&v);
}

/* ---- packets ---- */

static struct coordinator c;
static struct coord_member members[3];
static _Alignas(8) uint8_t answer[PACKET_MAX];
static const struct coord_value *const a = (const void *)answer;

static void start(struct values *v, struct directory *d)
{
    struct coord_params p = coordinator_rack("srvlock", 2);
    const char *why;
    p.values = v;
    p.directory = d;
    p.keys = d ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE;
    CHECK_EQ(coordinator_init(&c, &p, members, now, &why), 0);
}

/* The code of the answer. */
static int ask(uint64_t index, uint32_t generation, uint64_t token, uint64_t step, const char *text)
{
    struct coord_value p = {.token = token, .step = step, .sets = text != NULL, .len = text ? (uint32_t)strlen(text) : 0};
    coord_make(&p.packet, COORD_VALUE, "test", &c.config.identity, 5);
    p.packet.head.index = index;
    p.packet.head.generation = generation;
    p.packet.term = c.term;
    memcpy(p.bytes, text ? text : "", p.len);
    CHECK_EQ(coordinator_packet(&c, &p, sizeof p, net_v4(1, 9), now, answer), sizeof *a);
    CHECK(a->packet.head.type == COORD_VALUED && a->packet.head.index == index && a->packet.head.generation == generation);
    return a->packet.code;
}

static void of_numbers(void)
{
    struct values v = {0};
    start(&v, NULL);
    CHECK_EQ(ask(9, 0, 3, 1, NULL), -PAWL_ENOVALUE);
    CHECK_EQ(ask(9, 0, 3, 1, "nine"), 0);
    CHECK(!ask(9, 0, 3, 1, NULL) && a->len == 4 && !memcmp(a->bytes, "nine", 4));
    CHECK_EQ(ask(9, 0, 2, 1, "late"), -PAWL_ENOTOWNER);
    CHECK_EQ(ask(10, 0, 3, 1, "there is no such lock"), -PAWL_ENOTOWNER);
    CHECK_EQ(ask(9, 1, 3, 1, "nor such a generation"), -PAWL_ENOTOWNER);
    CHECK_EQ(v.count, 1);
    start(NULL, NULL); /* a space without values */
    CHECK_EQ(ask(9, 0, 3, 1, "nine"), -PAWL_ENOTOWNER);
    values_free(&v);
}

static void of_names(void)
{
    struct values v = {0};
    struct directory d = {0};
    uint64_t cell;
    directory_init(&d, PAWL_KEYS_NAMED, 10);
    start(&v, &d);
    CHECK_EQ(directory_add(&d, "a", 1, 7, &cell), 0);
    uint64_t index = directory_index(&d, cell);
    CHECK_EQ(ask(index, 7, 3, 1, "of a"), 0);
    CHECK_EQ(ask(index, 8, 3, 1, "of no generation"), -PAWL_ENOTOWNER);
    CHECK_EQ(ask(index + 1, 7, 3, 1, "of no key"), -PAWL_ENOTOWNER);
    CHECK(!ask(index, 7, 3, 1, NULL) && a->len == 4 && !memcmp(a->bytes, "of a", 4));
    d.key[cell].state = DIRECTORY_LEAVING; /* no host uses it */
    CHECK_EQ(ask(index, 7, 3, 2, "too late"), -PAWL_ENOTOWNER);
    values_free(&v);
    directory_free(&d);
}

/* Packets whose length is not that of their type, or whose value is too long. */
static void lengths(void)
{
    struct coord_value p = {.len = PAWL_VALUE_MAX};
    const struct rack_identity identity = coord_identity_of_name("test");
    uint32_t space = rack_short_id(&identity);
    for (unsigned type = COORD_VALUE; type <= COORD_VALUED; type++) {
        coord_make(&p.packet, (enum coord_type)type, "test", &identity, 1);
        p.len = PAWL_VALUE_MAX;
        CHECK(coord_check(&p, sizeof p, space) && !coord_check(&p, sizeof p - 1, space));
        p.len++;
        CHECK(!coord_check(&p, sizeof p, space));
    }
}

/* ---- the log ---- */

static struct rack_state state;

static int take(enum state_record type, const void *data, size_t len)
{
    const struct store_record r = {.type = (uint8_t)type, .len = (uint16_t)len, .data = data};
    return state_take(&state, &r);
}

static int take_value(uint64_t index, uint32_t generation, uint64_t token, const char *text)
{
    uint8_t record[STATE_VALUE_MAX];
    const struct state_value k = {.index = index, .token = token, .step = 1, .generation = generation};
    memcpy(record, &k, sizeof k);
    memcpy(record + sizeof k, text, strlen(text));
    return take(STATE_VALUE, record, sizeof k + strlen(text));
}

static void open_state(enum pawl_keys keys)
{
    const struct state_config config = {.design = "srvlock", .config = {.locks = 10, .keys = keys}};
    memset(&state, 0, sizeof state);
    CHECK_EQ(take(STATE_CONFIG, &config, sizeof config), 0);
}

static void records(void)
{
    uint8_t long_one[STATE_VALUE_MAX + 1] = {0};
    open_state(PAWL_KEYS_DENSE);
    CHECK_EQ(take(STATE_VALUE, long_one, sizeof(struct state_value) - 1), -EINVAL);
    CHECK_EQ(take(STATE_VALUE, long_one, sizeof long_one), -EINVAL);
    CHECK_EQ(take(STATE_VALUE, long_one, sizeof long_one - 1), 0);
    CHECK_EQ(take_value(10, 0, 1, "ten"), -EINVAL);
    CHECK_EQ(take_value(9, 0, 5, "nine"), 0);
    CHECK(values_has(&state.values, 9, 0) && values_of(&state.values, 9, 0)->floor == 5);
    state_free(&state);
}

struct copy {
    unsigned names, values, left; /* left: how many values are taken */
    struct state_value last;
};

static int count_record(void *to, const struct store_record *r)
{
    struct copy *copy = to;
    copy->names += r->type == STATE_NAME;
    if (r->type != STATE_VALUE)
        return 0;
    if (copy->values == copy->left)
        return -ENOSPC;
    copy->values++;
    memcpy(&copy->last, r->data, sizeof copy->last);
    return 0;
}

/* The snapshot has the values that the log has, but for those of keys that have gone. */
static void snapshots(void)
{
    struct {
        struct state_key key;
        char bytes[1];
    } name = {.key = {.index = 1, .generation = 7}, .bytes = "a"};
    struct copy all = {.left = 10}, some = {.left = 1};
    open_state(PAWL_KEYS_DENSE);
    CHECK(!take_value(1, 0, 5, "one") && !take_value(2, 0, 6, "two"));
    set(&state.values, 3, 0, 7, 1, 3);     /* not in the log yet */
    CHECK(values_of(&state.values, 4, 0)); /* read, and never set */
    CHECK_EQ(state_each(&state, count_record, &all), 0);
    CHECK(all.values == 2 && all.last.index == 2 && all.last.token == 6);
    CHECK_EQ(state_each(&state, count_record, &some), -ENOSPC);
    state_free(&state);

    open_state(PAWL_KEYS_NAMED);
    CHECK_EQ(take(STATE_NAME, &name, offsetof(typeof(name), bytes) + 1), 0);
    CHECK(!take_value(1, 7, 5, "of a"));
    all = (struct copy){.left = 10};
    CHECK_EQ(state_each(&state, count_record, &all), 0);
    CHECK(all.names == 1 && all.values == 1 && all.last.generation == 7);
    name.key.generation = 8;
    CHECK_EQ(take(STATE_GONE, &(struct state_key){.index = 1, .generation = 7}, sizeof(struct state_key)), 0);
    CHECK_EQ(take(STATE_NAME, &name, offsetof(typeof(name), bytes) + 1), 0);
    all = (struct copy){.left = 10};
    CHECK_EQ(state_each(&state, count_record, &all), 0);
    CHECK(all.names == 1 && all.values == 0); /* what was left belonged to the key of before */
    state_free(&state);
}

int main(void)
{
    table_grows();
    changes_once();
    former_generation();
    of_numbers();
    of_names();
    lengths();
    records();
    snapshots();
    return 0;
}
