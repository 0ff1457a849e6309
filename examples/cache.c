/* SPDX-License-Identifier: Apache-2.0 */
/* A read-mostly cache in a file: readers share the lock; one of those that find it stale becomes a writer by converting its lock,
 * and the others find it fresh afterwards.
 * Usage: cache FILE MAX-AGE-SECONDS COMMAND [PLACE]: prints what COMMAND printed at most that long ago. */
#include <errno.h>
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

static int is_fresh(const char *path, long seconds)
{
    struct stat s;
    return !stat(path, &s) && s.st_size && time(NULL) - s.st_mtime <= seconds;
}

static int copy(FILE *from, const char *path)
{
    int c;
    FILE *to = path ? fopen(path, "w") : stdout;
    while (from && to && (c = fgetc(from)) != EOF)
        fputc(c, to);
    return !from || !to || (to == stdout ? fflush(to) : fclose(to)) ? -EIO : 0;
}

static int refresh(const char *path, const char *command)
{
    FILE *f = popen(command, "r");
    int rc = copy(f, path);
    return f && pclose(f) ? -EIO : rc;
}

int main(int argc, char **argv)
{
    pawl *p = NULL;
    pawl_grant g;
    if (argc < 4) {
        fprintf(stderr, "usage: cache FILE MAX-AGE-SECONDS COMMAND [PLACE]\n");
        return 2;
    }
    int rc = pawl_open(argc > 4 ? argv[4] : "local:", NULL, &p);
    for (int done = 0; !rc && !done;) {
        rc = pawl_lock(p, pawl_name(argv[1]), PAWL_SHARED, &g);
        if (rc)
            break;
        done = is_fresh(argv[1], atol(argv[2]));
        if (!done) {
            rc = pawl_convert(p, &g, PAWL_EXCLUSIVE, UINT64_MAX);
            if (!rc && !is_fresh(argv[1], atol(argv[2])))
                rc = refresh(argv[1], argv[3]);
            rc = rc == -EDEADLK ? 0 : rc; /* another reader converts: it writes, and this one looks again */
        } else {
            FILE *f = fopen(argv[1], "r");
            rc = copy(f, NULL);
            if (f)
                fclose(f);
        }
        pawl_unlock(p, &g);
    }
    if (rc)
        fprintf(stderr, "cache: %s (%s)\n", pawl_strerror(rc), pawl_explain());
    pawl_close(p);
    return rc != 0;
}
