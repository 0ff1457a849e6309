/* SPDX-License-Identifier: Apache-2.0 */
/* Locks in an event loop: a program that serves its standard input and waits for locks at the same time, with one thread and epoll.
 * Each line is "lock NAME" or "unlock NAME"; each answer is "locked NAME TOKEN" or "unlocked NAME".
 * Usage: event-loop [PLACE] */
#include <inttypes.h>
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define NAMES_MAX 32

static struct entry {
    char name[64];
    pawl_grant grant;
    enum { FREE, WAITS, HOLDS } state;
} entries[NAMES_MAX];

static struct entry *find(const char *name)
{
    struct entry *e = entries, *unused = NULL;
    for (; e < entries + NAMES_MAX && (e->state == FREE || strcmp(e->name, name)); e++)
        unused = e->state == FREE ? e : unused;
    if (e == entries + NAMES_MAX && unused)
        snprintf(unused->name, sizeof unused->name, "%s", name);
    return e < entries + NAMES_MAX ? e : unused;
}

static void on_line(pawl *p, const char *line)
{
    char verb[8], name[64];
    uint64_t id;
    struct entry *e = sscanf(line, "%7s %63s", verb, name) == 2 ? find(name) : NULL;
    if (e && e->state == FREE && !strcmp(verb, "lock")) {
        const pawl_request r = {
            .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_name(e->name), .deadline_ns = UINT64_MAX, .user = e};
        e->state = pawl_submit(p, &r, &id) ? FREE : WAITS;
    } else if (e && e->state == HOLDS && !strcmp(verb, "unlock")) {
        printf("%s %s\n", pawl_unlock(p, &e->grant) ? "lost" : "unlocked", e->name);
        e->state = FREE;
    } else {
        printf("what? %s", line);
    }
}

static void on_completions(pawl *p)
{
    pawl_completion c[8];
    int n = pawl_reap(p, c, 8, PAWL_TRY); /* those that are there: the loop does not wait here */
    for (int i = 0; i < n; i++) {
        struct entry *e = c[i].user;
        if (c[i].op == PAWL_OP_LOST) { /* of no request: all grants are void, and all requests end */
            printf("lost: %s\n", pawl_strwhy((int)c[i].why));
            continue;
        }
        e->state = c[i].result ? FREE : HOLDS;
        e->grant = c[i].grant;
        if (c[i].result)
            printf("failed %s: %s\n", e->name, pawl_strerror(c[i].result));
        else
            printf("locked %s %" PRIu64 "\n", e->name, e->grant.token);
    }
}

int main(int argc, char **argv)
{
    pawl *p;
    char line[128];
    int rc = pawl_open(argc > 1 ? argv[1] : "local:", NULL, &p), loop = epoll_create1(EPOLL_CLOEXEC);
    if (rc || loop < 0) {
        fprintf(stderr, "event-loop: %s (%s)\n", pawl_strerror(rc), pawl_explain());
        return 1;
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* epoll sees what is in the pipe, and not what stdio has read ahead */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (epoll_ctl(loop, EPOLL_CTL_ADD, 0, &(struct epoll_event){.events = EPOLLIN, .data.fd = 0})) {
        fprintf(stderr, "event-loop: standard input must be a pipe, a socket or a terminal\n");
        return 2;
    }
    epoll_ctl(loop, EPOLL_CTL_ADD, pawl_fd(p), &(struct epoll_event){.events = EPOLLIN, .data.fd = pawl_fd(p)});
    for (struct epoll_event event; epoll_wait(loop, &event, 1, -1) >= 0;) {
        if (event.data.fd == pawl_fd(p))
            on_completions(p);
        else if (fgets(line, sizeof line, stdin))
            on_line(p, line);
        else
            break;
    }
    return -pawl_close(p);
}
