/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int folder_make(struct folder *f, const char *file)
{
    f->made = 0;
    snprintf(f->path, sizeof f->path, "%s", file);
    for (char *slash = strchr(f->path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (!mkdir(f->path, 0700)) {
            f->made = f->made ? f->made : (size_t)(slash - f->path);
        } else if (errno != EEXIST) {
            int rc = -errno;
            struct folder above = {.made = f->made};
            snprintf(above.path, sizeof above.path, "%s", f->path);
            folder_remove(&above);
            return rc;
        }
        *slash = '/';
    }
    return 0;
}

void folder_remove(struct folder *f)
{
    char *slash;
    while (f->made && (slash = strrchr(f->path, '/')) && (size_t)(slash - f->path) >= f->made) {
        *slash = 0;
        if (rmdir(f->path))
            return;
    }
}
