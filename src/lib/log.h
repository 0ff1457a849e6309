/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a daemon: one line an event on standard error, as text or JSON. Nothing is written before log_open: programs that link
 * libpawl have logs of their own. */
#ifndef PAWL_LIB_LOG_H
#define PAWL_LIB_LOG_H

#include "lib/base.h"

/* The numbers are those of syslog, which the journal takes as a prefix. */
enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_NOTICE = 5, LOG_LEVEL_INFO = 6 };

struct log_field {
    const char *name;
    const char *text; /* null: it is a number */
    uint64_t number;
};
#define LOG_TEXT(name_, value)                                                                                                     \
    {                                                                                                                              \
        .name = (name_), .text = (value)                                                                                           \
    }
#define LOG_NUMBER(name_, value)                                                                                                   \
    {                                                                                                                              \
        .name = (name_), .number = (value)                                                                                         \
    }

/* From now on events are written. True: as JSON. Whether standard error is the journal is found out here. */
void log_open(bool json);

/* "json" or "text"; anything else is false. */
bool log_parse(const char *text, bool *json);

/* An event: the thing, what happened to it ("host joined"), and fields: which one, where, why. A line that cannot be written, to a
 * full disk or a pipe that no process reads, is counted and lost: the daemon goes on. */
void log_write(enum log_level level, const char *event, const struct log_field *fields);
#define log_event(level, event, ...) log_write(level, event, (const struct log_field[]){__VA_ARGS__, {.name = NULL}})

/* How many lines were lost since log_open. */
uint64_t log_lost(void);

/* Events that the network can cause at will are written at most LOG_LIMIT_LINES times in LOG_LIMIT_NS, and counted. A limit belongs
 * to one thread. */
#define LOG_LIMIT_LINES 5u
#define LOG_LIMIT_NS (10 * NS_PER_S)
struct log_limit {
    uint64_t since_ns;
    uint32_t lines;
    uint64_t withheld;
};
/* Whether the event may be written now. Then *withheld is how many were not since the one before. */
bool log_may(struct log_limit *l, uint64_t now, uint64_t *withheld);

#endif
