/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex between processes: each run adds to the number in a file, and no addition is lost.
 * Usage: counter FILE TIMES [PLACE] */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    pawl *p = NULL;
    pawl_grant g;
    if (argc < 3) {
        fprintf(stderr, "usage: counter FILE TIMES [PLACE]\n");
        return 2;
    }
    int rc = pawl_open(argc > 3 ? argv[3] : "local:", NULL, &p);
    for (int i = 0; i < atoi(argv[2]) && !rc; i++) {
        rc = pawl_lock(p, pawl_name(argv[1]), PAWL_EXCLUSIVE, &g);
        if (rc)
            break;
        long long number = 0;
        FILE *f = fopen(argv[1], "r+");
        if (!f)
            f = fopen(argv[1], "w+");
        if (!f || (fscanf(f, "%lld", &number) == EOF && ferror(f))) {
            perror(argv[1]);
            return 1; /* the end of the process releases the lock */
        }
        rewind(f);
        fprintf(f, "%lld\n", number + 1);
        fclose(f);
        rc = pawl_unlock(p, &g);
    }
    if (rc)
        fprintf(stderr, "counter: %s (%s)\n", pawl_strerror(rc), pawl_explain());
    pawl_close(p);
    return rc != 0;
}
