/* SPDX-License-Identifier: Apache-2.0 */
/* The client of a walk. Usage: client SPACE DESIGN FILE. It locks one key, or a range of it, again and again, and opens the gate of
 * note.c for each acquire but the first. */
#include "walk/walk.h"

#include <fcntl.h>
#include <pawl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAUSE_US 20000 /* until heartbeats and packets of the former round have passed */

static int acquire(pawl *p, const char *design, pawl_grant *g)
{
    if (!strcmp(design, "citron"))
        return pawl_lock_range(p, pawl_id(7), 4096, 4160, PAWL_EXCLUSIVE, UINT64_MAX, g);
    return pawl_lock(p, pawl_id(7), PAWL_EXCLUSIVE, g);
}

int main(int argc, char **argv)
{
    const pawl_options options = {.design = argc > 2 ? argv[2] : NULL, .keys = PAWL_KEYS_DENSE};
    int fd = argc > 3 ? open(argv[3], O_RDWR | O_CLOEXEC) : -1;
    struct walk *walk = fd >= 0 ? mmap(NULL, sizeof *walk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    pawl_grant g;
    pawl *p;
    if (walk == MAP_FAILED) {
        fprintf(stderr, "usage: client SPACE DESIGN FILE\n");
        return 2;
    }
    int rc = pawl_open(argv[1], strncmp(argv[1], "pawl:", 5) ? &options : NULL, &p);
    for (uint32_t i = 0; i <= WALK_ROUNDS && !rc; i++) {
        usleep(PAUSE_US);
        walk->round = i;
        __atomic_store_n(&walk->open, i > 0, __ATOMIC_RELEASE);
        rc = acquire(p, argv[2], &g);
        __atomic_store_n(&walk->open, 0, __ATOMIC_RELEASE);
        if (!rc)
            rc = pawl_unlock(p, &g);
    }
    if (rc) {
        fprintf(stderr, "%s: %s\n", pawl_strerror(rc), pawl_explain());
        return 1;
    }
    pawl_close(p);
    return 0;
}
