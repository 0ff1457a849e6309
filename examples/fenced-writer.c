/* SPDX-License-Identifier: Apache-2.0 */
/* A store that recognises late writers by their fencing tokens. A writer may be stopped for longer than its lease and go on
 * afterwards, when another has the lock; its token is lower by then, and the store refuses its write. Usage: fenced-writer FILE
 * TEXT [PAUSE-SECONDS [LEASE-SECONDS [PLACE]]] The pause, between the grant and the write, is one in which the program is stopped:
 * try it with kill -STOP. */
#include <errno.h>
#include <inttypes.h>
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* The store: a file whose first line is the highest token that it saw. Its own lock makes one write of a check and a change; a
 * server would do that by itself. */
static int store_write(const char *path, uint64_t token, const char *text)
{
    uint64_t highest = 0;
    FILE *f = fopen(path, "a+");
    if (!f || flock(fileno(f), LOCK_EX))
        return -errno;
    rewind(f);
    int rc = fscanf(f, "%" SCNu64, &highest) == 1 && token < highest ? -ESTALE : 0;
    if (!rc) {
        rc = ftruncate(fileno(f), 0) ? -errno : 0;
        fprintf(f, "%" PRIu64 "\n%s\n", token, text);
    }
    fclose(f);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: fenced-writer FILE TEXT [LEASE-SECONDS [PLACE]]\n");
        return 2;
    }
    const pawl_options o = {.lease_ns = argc > 3 ? strtoull(argv[3], NULL, 10) * UINT64_C(1000000000) : 0};
    pawl *p;
    pawl_grant g;
    int rc = pawl_open(argc > 4 ? argv[4] : "local:", &o, &p);
    if (!rc)
        rc = pawl_lock(p, pawl_name(argv[1]), PAWL_EXCLUSIVE, &g);
    if (rc) {
        fprintf(stderr, "fenced-writer: %s (%s)\n", pawl_strerror(rc), pawl_explain());
        return 1;
    }
    printf("token %" PRIu64 "\n", g.token);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin))
        ;
    rc = store_write(argv[1], g.token, argv[2]);
    printf("%s\n", rc == -ESTALE ? "refused: the lock was granted again after this writer's grant"
                   : rc          ? "not written"
                                 : "written");
    pawl_unlock(p, &g); /* -PAWL_ELOST, if it was too late */
    pawl_close(p);
    return rc == -ESTALE ? 75 : rc ? 1 : 0;
}
