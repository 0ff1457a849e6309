/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: text, with a key a line, up to two of a kind. "cluster HEX": the cluster's, beside which "admin HEX" may stand; "host
 * N HEX": member key N, for a host. '#' begins a comment. Only the owner may read one. */
#ifndef PAWL_WIRE_KEY_FILE_H
#define PAWL_WIRE_KEY_FILE_H

#include "wire/seal.h"

#define KEY_NUMBER_MAX 65535u /* of a host's key: it travels in 16 bits */

/* Errors are explained. -EACCES: others may read the file, or it is another user's; -EINVAL: it is no key file. */
int key_file_read(const char *path, struct seal_ring *out);

/* The same of the file that `path` or, if that is null, $PAWL_KEY names; if there is neither, *out has no keys. */
int key_file_find(const char *path, struct seal_ring *out);

/* Makes a file that only its owner can read; one that exists stays. Explained. */
int key_file_write(const char *path, const struct seal_ring *r);

#endif
