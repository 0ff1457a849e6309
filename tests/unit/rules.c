/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of racks: changes, and the file that keeps them. */
#include "cluster/rules.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RACKS 3

static char folder[] = "/tmp/pawl-rules-XXXXXX", path[64];

static bool same(const struct rules *a, const struct rules *b)
{
    return !memcmp(a, b, sizeof *a);
}

static void changes(void)
{
    struct rules r, next = {0};
    rules_init(&r, RACKS);
    CHECK_EQ(rules_move(&r, RACKS, 0, 1, 0, &next), -EALREADY);
    CHECK_EQ(rules_move(&r, RACKS, 2, 2, 0, &next), -EINVAL);
    CHECK_EQ(rules_move(&r, RACKS, 0, RACK_SHARDS + 1, 0, &next), -EINVAL);
    CHECK_EQ(rules_move(&r, RACKS, 0, 1, RACKS, &next), -EINVAL);
    CHECK_EQ(next.now.version, 0);
    CHECK_EQ(rules_move(&r, RACKS, 0, 2, 2, &next), 0); /* slots 0 and 1, of racks 0 and 1 */
    CHECK_EQ(next.now.version, 1);
    CHECK(rules_loses(&next, 0) && rules_loses(&next, 1) && !rules_loses(&next, 2));
    CHECK(!rules_gains(&next, 0) && !rules_gains(&next, 1) && rules_gains(&next, 2));
    CHECK(rules_concern(&next.before, &next.now, 0) && rules_concern(&next.before, &next.now, 2));
    struct rules third;
    CHECK_EQ(rules_move(&next, RACKS, 0, 1, 0, &third), 0);
    CHECK(!rules_concern(&third.before, &third.now, 1) && !rules_loses(&third, 1));
}

/* Every shard has an owner that exists. */
static void owners(void)
{
    struct rules r;
    rules_init(&r, RACKS);
    CHECK(rack_rules_fine(&r.now, RACKS) && !rack_rules_fine(&r.now, RACKS - 1));
    for (unsigned s = 0; s < RACK_SHARDS; s++) {
        uint8_t owner = r.now.owner[s];
        r.now.owner[s] = RACKS;
        CHECK(!rack_rules_fine(&r.now, RACKS) && rack_rules_fine(&r.now, RACKS + 1));
        r.now.owner[s] = owner;
    }
}

/* One byte of the file is another; or it ends there. */
static int damaged(long at, bool cut)
{
    struct rules r;
    int fd = open(path, O_RDWR);
    char byte;
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    char other = (char)~byte;
    CHECK(cut ? !ftruncate(fd, at) : pwrite(fd, &other, 1, at) == 1);
    int rc = rules_load(path, "test", RACKS, &r);
    CHECK(cut || pwrite(fd, &byte, 1, at) == 1);
    close(fd);
    return rc;
}

static void keeping(void)
{
    struct rules r, next, read;
    rules_init(&r, RACKS);
    read = r;
    CHECK_EQ(rules_load(path, "test", RACKS, &read), 0); /* makes it */
    CHECK(same(&read, &r));
    CHECK_EQ(rules_move(&r, RACKS, 5, 20, 1, &next), 0);
    CHECK_EQ(rules_save(path, "test", RACKS, &next), 0);
    CHECK_EQ(rules_load(path, "test", RACKS, &read), 0);
    CHECK(same(&read, &next));
    CHECK_EQ(rules_load(path, "other", RACKS, &read), -EINVAL);
    CHECK_EQ(rules_load(path, "test", RACKS + 1, &read), -EINVAL);
    CHECK_EQ(rules_load(path, "test", RACKS - 1, &read), -EINVAL);
    int fd = open(path, O_RDONLY);
    long size = lseek(fd, 0, SEEK_END);
    close(fd);
    CHECK(size > 0);
    for (long at = 0; at < size; at++)
        CHECK_EQ(damaged(at, false), -EINVAL);
    CHECK(same(&read, &next)); /* nothing was read from them */
    CHECK_EQ(rules_load(path, "test", RACKS, &read), 0);
    CHECK_EQ(damaged(size - 1, true), -EINVAL);
    CHECK_EQ(damaged(0, true), -EINVAL);
    unlink(path);
    CHECK_EQ(rules_save("/nonexistent/rules", "test", RACKS, &next), -ENOENT);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/test.rules", folder);
    changes();
    owners();
    keeping();
    rmdir(folder);
    return 0;
}
