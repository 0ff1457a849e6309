/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges of a file: processes change different records of one file at the same time, and the same record one after the other.
 * Usage: records FILE RECORD TIMES [PLACE]: adds 1 to the number in that record, TIMES times. */
#include <fcntl.h>
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RECORD_BYTES 4096u /* a unit of the space: ranges are locked in whole units */

static int add_one(int fd, off_t at)
{
    char text[32] = "";
    if (pread(fd, text, sizeof text - 1, at) < 0)
        return -1;
    int len = snprintf(text, sizeof text, "%lld\n", atoll(text) + 1);
    return pwrite(fd, text, (size_t)len, at) == len ? 0 : -1;
}

int main(int argc, char **argv)
{
    const pawl_options o = {.design = "citron", .unit_bytes = RECORD_BYTES};
    pawl *p = NULL;
    pawl_grant g;
    if (argc < 4) {
        fprintf(stderr, "usage: records FILE RECORD TIMES [PLACE]\n");
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    uint64_t start = strtoull(argv[2], NULL, 10) * RECORD_BYTES;
    int rc = pawl_open(argc > 4 ? argv[4] : "local:records", &o, &p);
    for (int i = 0; i < atoi(argv[3]) && !rc; i++) {
        rc = pawl_lock_range(p, pawl_name(argv[1]), start, start + RECORD_BYTES, PAWL_EXCLUSIVE, UINT64_MAX, &g);
        if (!rc && add_one(fd, (off_t)start)) {
            perror(argv[1]);
            return 1;
        }
        if (!rc)
            rc = pawl_unlock(p, &g);
    }
    if (rc)
        fprintf(stderr, "records: %s (%s)\n", pawl_strerror(rc), pawl_explain());
    pawl_close(p);
    return rc != 0;
}
