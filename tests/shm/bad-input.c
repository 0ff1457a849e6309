/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong input is refused with a code and a sentence of its own; nothing is lost, nothing crashes: options, places, files that are
 * no segments or damaged ones, a full disk, fork and exec while holding, a segment that is removed. */
#include "client/segment.h"
#include "tests/shm/space.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void refused(const char *where, const pawl_options *o, int want)
{
    pawl *p;
    int rc = pawl_open(where, o, &p);
    if (rc != want)
        CHECK_FAIL("pawl_open(\"%s\") is %d (%s), not %d", where ? where : "(null)", rc, pawl_explain(), want);
    if (!strlen(pawl_explain()))
        CHECK_FAIL("pawl_open(\"%s\") does not explain %d", where ? where : "(null)", rc);
}

/* ---- places and options ---- */

static void places(void)
{
    char long_name[200];
    pawl *p;
    memset(long_name, 'x', sizeof long_name - 1);
    memcpy(long_name, "local:", 6);
    long_name[sizeof long_name - 1] = 0;
    refused(NULL, NULL, -EINVAL);
    refused("", NULL, -EINVAL);
    refused("local", NULL, -EINVAL);
    refused("remote:", NULL, -EINVAL);
    refused("pawl://[::1/x", NULL, -EINVAL);
    refused("local:a/b", NULL, -EINVAL);
    refused("local:a b", NULL, -EINVAL);
    refused("local:\n", NULL, -EINVAL);
    refused(long_name, NULL, -ENAMETOOLONG);
    refused("local:/nonexistent/folder/space", NULL, -ENOENT);
    CHECK_RC(pawl_open(space_where(), NULL, NULL), -EINVAL);
    const pawl_options no_create = {.flags = PAWL_NO_CREATE};
    refused(space_where(), &no_create, -ENOENT);
    CHECK(access(space_path(), F_OK)); /* none of this has made one */
    (void)p;
}

static void bad_options(void)
{
    static const pawl_options wrong[] = {
        {.design = "no such design"},
        {.design = ""},
        {.keys = (enum pawl_keys)4},
        {.lease_ns = 1},
        {.lease_ns = UINT64_MAX - 1},
        {.flags = 4},
        {.flags = PAWL_NO_CREATE | PAWL_MUST_CREATE},
        {.permissions = 01777},
        {.capacity = UINT64_MAX},
        {.sessions = UINT32_MAX},
        {.sessions = 4097},
        {.holds = UINT32_MAX},
        {.holds = 4097},
    };
    for (unsigned i = 0; i < countof(wrong); i++)
        refused(space_where(), &wrong[i], -EINVAL);
    CHECK(access(space_path(), F_OK));
}

static void contradictions(void)
{
    const pawl_options made = {.keys = PAWL_KEYS_SPARSE, .capacity = 100, .sessions = 10, .holds = 20};
    static const pawl_options wrong[] = {{.keys = PAWL_KEYS_NAMED}, {.capacity = 101}, {.sessions = 11}, {.holds = 21}};
    static const pawl_options right[] = {
        {0}, {.keys = PAWL_KEYS_SPARSE}, {.capacity = 100}, {.sessions = 10, .holds = 20}, {.flags = PAWL_NO_CREATE}};
    const pawl_options must_create = {.flags = PAWL_MUST_CREATE};
    pawl *p = space_open(&made);
    for (unsigned i = 0; i < countof(wrong); i++)
        refused(space_where(), &wrong[i], -EINVAL);
    refused(space_where(), &must_create, -EEXIST);
    for (unsigned i = 0; i < countof(right); i++)
        CHECK_OK(pawl_close(space_open(&right[i])));
    CHECK_OK(pawl_close(p));
    space_reset();
    CHECK_OK(pawl_close(space_open(&must_create)));
}

static void permissions(void)
{
    struct stat st;
    const pawl_options group = {.permissions = 0660};
    mode_t before = umask(0);
    for (int masked = 0; masked < 2; masked++) {
        umask(masked ? 077 : 0);
        space_reset();
        CHECK_OK(pawl_close(space_open(NULL)));
        CHECK_EQ(stat(space_path(), &st), 0);
        CHECK_EQ(st.st_mode & 07777, 0600);
        space_reset();
        CHECK_OK(pawl_close(space_open(&group)));
        CHECK_EQ(stat(space_path(), &st), 0);
        CHECK_EQ(st.st_mode & 07777, 0660);
    }
    umask(before);
    space_reset();
}

/* ---- what lies at the path ---- */

static void overwrite(size_t at, const void *bytes, size_t len)
{
    int fd = open(space_path(), O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, bytes, len, (off_t)at), len);
    close(fd);
}

static void damaged(void)
{
    static const struct {
        size_t at;
        uint32_t value;
    } wounds[] = {
        {offsetof(struct layout_header, magic), 1},       {offsetof(struct layout_header, version), LAYOUT_VERSION + 1},
        {offsetof(struct layout_header, features), 1},    {offsetof(struct layout_header, byte_order), 0x04030201},
        {offsetof(struct layout_header, boot_id), 1},     {offsetof(struct layout_header, design), 0x41414141},
        {offsetof(struct layout_header, keys), 9},        {offsetof(struct layout_header, slots), 1u << 30},
        {offsetof(struct layout_header, checksum), 1},    {offsetof(struct layout_header, cell_bytes), 0},
        {offsetof(struct layout_header, total_bytes), 1}, {offsetof(struct layout_header, slot_count), UINT32_MAX},
    };
    for (unsigned i = 0; i < countof(wounds); i++) {
        space_reset();
        CHECK_OK(pawl_close(space_open(NULL)));
        overwrite(wounds[i].at, &wounds[i].value, sizeof wounds[i].value);
        refused(space_where(), NULL, -PAWL_ESEGMENT);
        CHECK(strstr(pawl_explain(), space_path())); /* says which file */
    }
    struct stat st;
    static const int cuts[] = {-1, -4096, 1, 4096};
    for (unsigned i = 0; i < countof(cuts); i++) {
        space_reset();
        CHECK_OK(pawl_close(space_open(NULL)));
        CHECK_EQ(stat(space_path(), &st), 0);
        CHECK_EQ(truncate(space_path(), st.st_size + cuts[i]), 0);
        refused(space_where(), NULL, -PAWL_ESEGMENT);
    }
    static const off_t sizes[] = {0, 1, 4095, 4096, 1 << 20};
    for (unsigned i = 0; i < countof(sizes); i++) {
        CHECK_EQ(truncate(space_path(), 0), 0);
        CHECK_EQ(truncate(space_path(), sizes[i]), 0);
        refused(space_where(), NULL, -PAWL_ESEGMENT);
    }
    space_reset();
}

static void strange_files(void)
{
    CHECK_EQ(mkdir(space_path(), 0700), 0);
    refused(space_where(), NULL, -EISDIR);
    CHECK_EQ(rmdir(space_path()), 0);
    CHECK_EQ(symlink("/dev/shm/elsewhere", space_path()), 0);
    refused(space_where(), NULL, -ELOOP);
    CHECK_EQ(unlink(space_path()), 0);
    CHECK_EQ(mkfifo(space_path(), 0600), 0);
    refused(space_where(), NULL, -PAWL_ESEGMENT);
    CHECK_EQ(unlink(space_path()), 0);
}

/* ---- as another user ---- */

static void as_nobody(void *arg)
{
    CHECK_EQ(setgid(65534), 0);
    CHECK_EQ(setuid(65534), 0);
    refused(space_where(), NULL, -EACCES);
    refused("local:/root/space", NULL, -EACCES);
}

/* A segment in the default place that another user has put there, open to all, is not to be trusted. */
static void planted(void *arg)
{
    refused("local:pawl-test-planted", NULL, -EACCES);
}

static void other_users(void)
{
    if (geteuid()) {
        printf("note: not root, so other users were not tried\n");
        return;
    }
    CHECK_OK(pawl_close(space_open(NULL)));
    child_join(child_start(as_nobody, NULL));
    space_reset();
    const char *path = "/dev/shm/pawl.0.pawl-test-planted";
    const pawl_options all = {.permissions = 0666};
    pawl *p;
    unlink(path);
    CHECK_OK(pawl_open("local:pawl-test-planted", &all, &p));
    CHECK_OK(pawl_close(p));
    CHECK_EQ(chown(path, 65534, 65534), 0);
    child_join(child_start(planted, NULL));
    CHECK_EQ(unlink(path), 0);
}

/* ---- no room ---- */

#define SMALL_BYTES "256k"

static void on_small_disk(void *arg)
{
    const pawl_options small = {.capacity = 16, .sessions = 2, .holds = 4};
    pawl *p;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=" SMALL_BYTES)) {
        printf("note: no mount namespace here, so a full disk was not tried\n");
        return;
    }
    refused(space_where(), NULL, -ENOSPC);
    CHECK(access(space_path(), F_OK));              /* nothing is left of it */
    CHECK_OK(pawl_open(space_where(), &small, &p)); /* and the room is free again */
    CHECK_OK(pawl_close(p));
}

/* ---- fork and exec ---- */

/* An explanation is of the latest call, and names what was wrong there. */
static void explanations(void)
{
    pawl *p = space_open(NULL);
    pawl_grant g[2];
    const pawl_want twice[] = {{.key = pawl_name("a"), .mode = PAWL_SHARED}, {.key = pawl_name("a"), .mode = PAWL_SHARED}};
    const pawl_request r = {.op = PAWL_OP_UNLOCK};
    uint64_t id;
    CHECK_RC(pawl_lock(p, pawl_name(""), PAWL_SHARED, g), -EINVAL);
    CHECK(strstr(pawl_explain(), "1 to 255 bytes"));
    CHECK_RC(pawl_cancel(p, 77), -ENOENT);
    CHECK(strstr(pawl_explain(), "no operation 77"));
    CHECK_RC(pawl_lock_all(p, twice, 2, UINT64_MAX, g), -EINVAL);
    CHECK(strstr(pawl_explain(), "twice"));
    CHECK_OK(pawl_lock(p, pawl_name("a"), PAWL_SHARED, &g[0]));
    CHECK_OK(pawl_unlock(p, &g[0]));
    CHECK_OK(pawl_submit(p, &r, &id));
    CHECK_EQ(*pawl_explain(), 0);
    CHECK_OK(pawl_close(p));
}

struct family {
    pawl *p;
    pawl_grant grant;
};

static void forked_child(void *arg)
{
    struct family *f = arg;
    pawl *p = f->p;
    pawl_grant g = f->grant;
    pawl_state s;
    pawl_completion c;
    uint64_t id;
    const pawl_want want = {.key = pawl_name("b"), .mode = PAWL_SHARED};
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_SHARED, .key = pawl_name("b"), .deadline_ns = PAWL_TRY};
    CHECK_RC(pawl_lock(p, pawl_name("b"), PAWL_SHARED, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_trylock(p, pawl_name("a"), PAWL_SHARED, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_timedlock(p, pawl_name("b"), PAWL_SHARED, 1, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_unlock(p, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_lock_range(p, pawl_name("b"), 0, 1, PAWL_SHARED, 1, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_lock_all(p, &want, 1, 1, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_convert(p, &g, PAWL_SHARED, 1), -PAWL_EFORKED);
    CHECK_RC(pawl_extend(p, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_check(p, &g), -PAWL_EFORKED);
    CHECK_RC(pawl_query(p, pawl_name("a"), &s), -PAWL_EFORKED);
    CHECK_RC(pawl_submit(p, &r, &id), -PAWL_EFORKED);
    CHECK_RC(pawl_reap(p, &c, 1, 1), -PAWL_EFORKED);
    CHECK_RC(pawl_cancel(p, 1), -PAWL_EFORKED);
    CHECK_RC(pawl_fd(p), -PAWL_EFORKED);
    pawl *mine = space_open(NULL); /* before and after the inherited one is closed */
    CHECK_RC(pawl_trylock(mine, pawl_name("a"), PAWL_SHARED, &g), -PAWL_EHELD);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_lock(mine, pawl_name("b"), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_close(mine));
    mine = space_open(NULL);
    CHECK_OK(pawl_trylock(mine, pawl_name("b"), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_close(mine));
}

static void fork_while_holding(void)
{
    struct family f = {.p = space_open(NULL)};
    CHECK_OK(pawl_lock(f.p, pawl_name("a"), PAWL_EXCLUSIVE, &f.grant));
    child_join(child_start(forked_child, &f));
    CHECK_OK(pawl_check(f.p, &f.grant)); /* the parent has noticed nothing */
    CHECK_OK(pawl_unlock(f.p, &f.grant));
    CHECK_OK(pawl_close(f.p));
}

static void exec_child(void *arg)
{
    const pawl_options o = {.lease_ns = 150 * NS_PER_MS};
    pawl_grant g;
    CHECK_OK(pawl_lock(space_open(&o), pawl_name("a"), PAWL_EXCLUSIVE, &g));
    CHECK_EQ(write(*(int *)arg, "x", 1), 1);
    execlp("sleep", "sleep", "60", NULL);
}

/* The program that held the lock is gone, though its process lives on. */
static void exec_while_holding(void)
{
    int fds[2];
    char byte;
    pawl_grant g;
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = child_start(exec_child, &fds[1]);
    CHECK_EQ(read(fds[0], &byte, 1), 1);
    pawl *p = space_open(NULL);
    CHECK_OK(pawl_timedlock(p, pawl_name("a"), PAWL_EXCLUSIVE, pawl_in(5 * NS_PER_S), &g));
    CHECK_OK(pawl_close(p));
    child_kill(pid);
    close(fds[0]);
    close(fds[1]);
}

/* ---- removed while in use ---- */

static void removed(void)
{
    const pawl_options o = {.lease_ns = 300 * NS_PER_MS};
    pawl_grant g, other;
    pawl *p = space_open(&o);
    CHECK_OK(pawl_lock(p, pawl_name("a"), PAWL_EXCLUSIVE, &g));
    uint64_t start = pawl_now();
    space_reset();
    pawl *q = space_open(&o); /* does not see the other's locks, so the other must stop believing in them */
    WAIT_FOR(pawl_check(p, &g) == -PAWL_ELOST);
    if (pawl_now() - start > o.lease_ns + 100 * NS_PER_MS)
        printf("note: losing a removed space took %" PRIu64 " ms\n", (pawl_now() - start) / NS_PER_MS);
    CHECK_RC(pawl_lock(p, pawl_name("b"), PAWL_SHARED, &other), -PAWL_ELOST);
    CHECK_OK(pawl_lock(q, pawl_name("a"), PAWL_EXCLUSIVE, &other));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_check(q, &other));
    CHECK_OK(pawl_close(q));
}

int main(void)
{
    space_where();
    places();
    bad_options();
    contradictions();
    permissions();
    damaged();
    strange_files();
    other_users();
    child_join(child_start(on_small_disk, NULL));
    explanations();
    fork_while_holding();
    exec_while_holding();
    removed();
    return 0;
}
