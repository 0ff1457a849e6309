/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to etcd's JSON gateway, and its answers. Answers come from outside: every length and number is checked. Free of I/O. */
#ifndef PAWL_NODE_ETCD_JSON_H
#define PAWL_NODE_ETCD_JSON_H

#include "world/etcd.h"

#define ETCD_MESSAGE_LEN 200u

/* The text, which the caller frees; null: out of memory. */
char *etcd_text_commit(const struct etcd_transaction *t);
char *etcd_text_read(const char *key, const char *end, unsigned limit);
char *etcd_text_compact(uint64_t revision);

/* Fields of every answer. */
struct etcd_said {
    uint64_t cluster, revision;
    bool succeeded; /* of a transaction */
};

/* -EPROTO: it is not such an answer. */
int etcd_parse_answer(const char *text, size_t len, struct etcd_said *out);
/* Hands out the pairs. An error of `take` ends it. */
int etcd_parse_read(const char *text, size_t len, struct etcd_said *out, etcd_take take, void *ctx);
/* "3.4.23" of /version. */
int etcd_parse_version(const char *text, size_t len, unsigned *major, unsigned *minor);
/* Why etcd refuses; an empty text if it does not say. */
void etcd_parse_error(const char *text, size_t len, char out[ETCD_MESSAGE_LEN]);

#endif
