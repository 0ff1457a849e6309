/* SPDX-License-Identifier: Apache-2.0 */
/* Locks in an event loop: a program that serves its standard input and waits for locks at the same time, with one thread and epoll.
 * Each line is "lock NAME" or "unlock NAME"; each answer is "locked NAME TOKEN" or "unlocked NAME".
 * Usage: event-loop [PLACE] */
#include <inttypes.h>
#include <pawl.h>
#include <stdio.h>
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
    struct entry *e = sscanf(line, "%7s %63s", verb, name) == 2 ? find(name) : NULL;
    if (e && e->state == FREE && !strcmp(verb, "lock")) {
        const pawl_request r = {PAWL_OP_LOCK, PAWL_EXCLUSIVE, pawl_name(e->name), .deadline_ns = UINT64_MAX, .user = e};
        e->state = pawl_submit(p, &r, &(uint64_t){0}) ? FREE : WAITS;
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
    for (int i = 0, n = pawl_reap(p, c, 8, PAWL_TRY); i < n; i++) { /* those that are there: the loop does not wait here */
        struct entry *e = c[i].user;
        if (c[i].op == PAWL_OP_LOST) { /* of no request: all grants are void, and all requests end */
            printf("lost: %s\n", pawl_strwhy((int)c[i].why));
            continue;
        }
        e->state = c[i].result ? FREE : HOLDS;
        e->grant = c[i].grant;
        printf(c[i].result ? "failed %s\n" : "locked %s %" PRIu64 "\n", e->name, e->grant.token);
    }
}

int main(int argc, char **argv)
{
    pawl *p;
    char line[128];
    int rc = pawl_open(argc > 1 ? argv[1] : "local:", NULL, &p), loop = epoll_create1(EPOLL_CLOEXEC);
    if (rc || epoll_ctl(loop, EPOLL_CTL_ADD, 0, &(struct epoll_event){.events = EPOLLIN, .data.fd = 0})) {
        fprintf(stderr, "event-loop: %s\n", rc ? pawl_explain() : "standard input must be a pipe, a socket or a terminal");
        return rc ? 1 : 2;
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* epoll sees what is in the pipe, and not what stdio has read ahead */
    setvbuf(stdout, NULL, _IOLBF, 0);
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
