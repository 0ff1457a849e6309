/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks at once: money moves between accounts, each a file with a number. pawl_lock_all takes both locks or none, so that
 * transfers in opposite directions do not deadlock, and the sum of all accounts stays.
 * Usage: transfer FOLDER ACCOUNTS TIMES [PLACE] */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int balance(const char *path, long long change)
{
    long long there = 0;
    FILE *f = fopen(path, "r+");
    if (!f || fscanf(f, "%lld", &there) != 1)
        return -1;
    rewind(f);
    fprintf(f, "%-20lld\n", there + change);
    return fclose(f);
}

int main(int argc, char **argv)
{
    pawl *p = NULL;
    if (argc < 4 || atoi(argv[2]) < 2) {
        fprintf(stderr, "usage: transfer FOLDER ACCOUNTS TIMES [PLACE]\n");
        return 2;
    }
    int accounts = atoi(argv[2]), rc = pawl_open(argc > 4 ? argv[4] : "local:", NULL, &p);
    unsigned seed = (unsigned)getpid();
    for (int i = 0; i < atoi(argv[3]) && !rc; i++) {
        char path[2][256];
        pawl_want wants[2];
        pawl_grant g[2];
        int from = rand_r(&seed) % accounts, to = (from + 1 + rand_r(&seed) % (accounts - 1)) % accounts;
        snprintf(path[0], sizeof path[0], "%s/%d", argv[1], from);
        snprintf(path[1], sizeof path[1], "%s/%d", argv[1], to);
        for (int k = 0; k < 2; k++)
            wants[k] = (pawl_want){.key = pawl_name(path[k]), .mode = PAWL_EXCLUSIVE};
        rc = pawl_lock_all(p, wants, 2, UINT64_MAX, g);
        if (!rc && (balance(path[0], -1) || balance(path[1], 1))) {
            perror(path[0]);
            return 1;
        }
        if (!rc)
            rc = pawl_unlock_all(p, g, 2);
    }
    if (rc)
        fprintf(stderr, "transfer: %s (%s)\n", pawl_strerror(rc), pawl_explain());
    pawl_close(p);
    return rc != 0;
}
