/* SPDX-License-Identifier: Apache-2.0 */
/* A space that an earlier release of pawl has left, in an earlier layout: a program that opens it gets a new one, unless a process
 * still uses the old one; one of a later layout is never removed. Several programs that begin at the same time all get the same
 * one. */
#include "client/segment.h"
#include "tests/shm/space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OPENERS 8

static char where[64], path[128];

static void write_version(uint32_t version)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, &version, sizeof version, offsetof(struct layout_header, version)), (ssize_t)sizeof version);
    close(fd);
}

static ino_t inode(void)
{
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return st.st_ino;
}

static void use(const pawl_options *o)
{
    pawl *p;
    pawl_grant g;
    CHECK_OK(pawl_open(where, o, &p));
    CHECK_OK(pawl_timedlock(p, pawl_name("a"), PAWL_EXCLUSIVE, pawl_in(10 * NS_PER_S), &g));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

static void refused(const pawl_options *o)
{
    pawl *p;
    ino_t before = inode();
    CHECK_RC(pawl_open(where, o, &p), -PAWL_ESEGMENT);
    CHECK(strstr(pawl_explain(), "another layout version") && strstr(pawl_explain(), "pawl space drop --force"));
    CHECK_EQ(inode(), before);
}

static void replaced(void)
{
    use(NULL);
    write_version(LAYOUT_VERSION - 1);
    ino_t before = inode();
    CHECK_EQ(link(path, "/dev/shm/pawl-test-older"), 0); /* so that the number is not used again */
    refused(&(const pawl_options){.flags = PAWL_NO_CREATE});
    use(NULL);
    CHECK(inode() != before);
    CHECK_EQ(unlink("/dev/shm/pawl-test-older"), 0);
    write_version(LAYOUT_VERSION + 1);
    refused(NULL);
}

/* A process that has it mapped, as the library has, and one that holds it open. */
static void in_use(void)
{
    write_version(LAYOUT_VERSION - 1);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    refused(NULL);
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    close(fd);
    refused(NULL);
    munmap(at, 4096);
    use(NULL);
}

/* A program was refused the old segment, and another replaced it before the first asks whether it may be removed. */
static void replaced_meanwhile(void)
{
    use(NULL);
    CHECK_EQ(segment_remove_older(path), -ESTALE);
    write_version(LAYOUT_VERSION - 1);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_EQ(segment_remove_older(path), -EBUSY);
    close(fd);
    CHECK_EQ(segment_remove_older(path), 0);
    CHECK_EQ(segment_remove_older(path), -ESTALE);
    use(NULL);
}

/* All at once: one of them replaces it. */
static void together(void)
{
    int go[2];
    write_version(LAYOUT_VERSION - 1);
    CHECK_EQ(pipe2(go, O_CLOEXEC), 0);
    for (unsigned i = 0; i < OPENERS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child)
            continue;
        char byte;
        close(go[1]);
        CHECK_EQ(read(go[0], &byte, 1), 0);
        use(NULL);
        _exit(0);
    }
    close(go[0]);
    close(go[1]);
    for (unsigned i = 0; i < OPENERS; i++) {
        int status;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
    }
}

int main(void)
{
    snprintf(where, sizeof where, "local:older-%d", (int)getpid());
    CHECK_EQ(segment_place(where, path, sizeof path), 0);
    replaced();
    in_use();
    replaced_meanwhile();
    for (unsigned i = 0; i < 10; i++)
        together();
    CHECK_EQ(unlink(path), 0);
    return 0;
}
