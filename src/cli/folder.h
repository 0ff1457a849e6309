/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that a command makes for a file, and removes again if it fails. */
#ifndef PAWL_CLI_FOLDER_H
#define PAWL_CLI_FOLDER_H

#include "cluster/store_file.h"

struct folder {
    char path[STORE_PATH_LEN]; /* of the file; of the folder that could not be made */
    size_t made;               /* length of the first folder that was made; 0: none */
};

/* All folders above the file. 0 or -errno. */
int folder_make(struct folder *f, const char *file);

/* Those that were made, if nothing is in them. */
void folder_remove(struct folder *f);

#endif
