/* SPDX-License-Identifier: Apache-2.0 */
/* Two leases, on real processes: clients outlast their coordinator, which is killed for longer than a lock lease; a longer outage
 * ends holds; 'pawl serve' restarts with its own lock server, and holds stay; a lock server is replaced by one elsewhere; the
 * coordinator restarts with other settings; its disk is full. Lock leases are longer than a busy machine stops a process. */
#include "client/handle.h"
#include "tests/shm/space.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

#define LEASE_S 5
#define OUTAGE_NS ((LEASE_S + 2) * NS_PER_S)
#define WORDS_MAX 32
#define CROWD 100 /* hosts, on loopback: 127.0.1.1 and up */
#define CROWD_TEXT "100"
#define TRIES 30 /* of a lock server that finds no place yet: one a second */

static char folder[] = "/tmp/pawl-leases-XXXXXX", space[32];

/* ---- daemons ---- */

/* The address behind " at " in the first line that the daemon prints. False: it prints none. */
static bool read_address(int fd, char at[64])
{
    char line[256];
    size_t len = 0;
    for (ssize_t n; len < sizeof line - 1 && (n = read(fd, line + len, 1)) > 0 && line[len] != '\n';)
        len += (size_t)n;
    line[len] = 0;
    const char *found = strstr(line, " at ");
    if (found)
        snprintf(at, 64, "%s", found + strlen(" at "));
    return found;
}

/* A daemon with these words, when it is ready; `at` gets its address. 0: it did not start. */
static pid_t try_to_start(char *at, const char *const *words)
{
    const char *build = getenv("PAWL_BUILD");
    char path[PATH_MAX], *argv[WORDS_MAX + 2] = {path};
    int pipes[2];
    unsigned n = 0;
    for (; words[n]; n++) {
        CHECK(n < WORDS_MAX);
        argv[n + 1] = (char *)(uintptr_t)words[n];
    }
    snprintf(path, sizeof path, "%s/pawl", build ? build : "build");
    CHECK_EQ(pipe(pipes), 0);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        dup2(pipes[1], 1);
        close(pipes[0]);
        execv(path, argv);
        _exit(127);
    }
    close(pipes[1]);
    bool started = read_address(pipes[0], at);
    close(pipes[0]);
    if (!started)
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
    return started ? pid : 0;
}

static pid_t start(char *at, const char *const *words)
{
    pid_t pid = try_to_start(at, words);
    CHECK(pid);
    return pid;
}

static void end(pid_t pid, int how)
{
    CHECK_EQ(kill(pid, how), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

struct rack {
    const char *design, *own, *membership, *tune; /* tune may be null */
    const char *servers;                          /* null: as many as the design needs */
    const char *locks, *lease, *hosts, *keys;     /* null: 1000, LEASE_S, the default */
    char at[64];                                  /* of the coordinator */
    pid_t coordinator;
};

static void coordinate(struct rack *r, bool fresh)
{
    char lease[16];
    snprintf(lease, sizeof lease, "%d", LEASE_S);
    const char *words[WORDS_MAX] = {"serve",      "--space", space,  "--listen", r->at,  "--design",
                                    r->design,    "--state", folder, "--own",    r->own, "--membership-lease",
                                    r->membership};
    const struct {
        const char *option, *value;
    } others[] = {{"--locks", r->locks ? r->locks : "1000"},
                  {"--lease", r->lease ? r->lease : lease},
                  {"--tune", r->tune},
                  {"--servers", r->servers},
                  {"--hosts", r->hosts},
                  {"--keys", r->keys}};
    unsigned n = 0;
    while (words[n])
        n++;
    for (size_t i = 0; i < countof(others); i++)
        if (others[i].value) {
            words[n++] = others[i].option;
            words[n++] = others[i].value;
        }
    if (fresh)
        words[n] = "--fresh";
    r->coordinator = start(r->at, words);
}

/* Starts when there is a place for it. */
static pid_t start_in_place(char at[64], const char *const *words)
{
    pid_t pid = 0;
    for (unsigned i = 0; !pid && i < TRIES; i++) {
        if (i)
            pause_ns(NS_PER_S);
        pid = try_to_start(at, words);
    }
    CHECK(pid);
    return pid;
}

static pid_t server(const struct rack *r, char at[64])
{
    char listen[64];
    snprintf(listen, sizeof listen, "%s", at);
    const char *const words[] = {"serve", "--join", r->at, "--space", space, "--listen", listen, NULL};
    return start_in_place(at, words);
}

/* `room`: for so many locks; null: for all. */
static pid_t switcher_with(const struct rack *r, const char *room)
{
    char at[64];
    const char *const words[] = {
        "switch", "--soft", "--join", r->at, "--space", space, "--listen", "127.0.0.1:0", room ? "--room" : NULL, room, NULL};
    return start_in_place(at, words);
}

static pid_t switcher(const struct rack *r)
{
    return switcher_with(r, NULL);
}

static struct rack begin_tuned(const char *design, const char *own, const char *membership, const char *tune)
{
    static unsigned racks;
    struct rack r = {.design = design, .own = own, .membership = membership, .tune = tune, .at = "127.0.0.1:0"};
    snprintf(space, sizeof space, "leases%d-%u", (int)getpid(), racks++);
    coordinate(&r, true);
    return r;
}

static struct rack begin(const char *design, const char *own, const char *membership)
{
    return begin_tuned(design, own, membership, NULL);
}

/* The granters of the design's racks, each in a process of its own. */
struct granters {
    pid_t server, switcher; /* 0: there is none */
};

static struct granters start_granters(const struct rack *r)
{
    char at[64] = "127.0.0.1:0";
    struct granters g = {0};
    if (strcmp(r->design, "fisslock"))
        g.server = server(r, at);
    if (strcmp(r->design, "srvlock"))
        g.switcher = switcher(r);
    return g;
}

static void end_granters(const struct granters *g)
{
    if (g->server)
        end(g->server, SIGKILL);
    if (g->switcher)
        end(g->switcher, SIGKILL);
}

/* ---- clients ---- */

static pawl *client(const struct rack *r, unsigned host)
{
    char where[160];
    pawl *p;
    const pawl_options o = {.open_ns = LIMIT_NS};
    snprintf(where, sizeof where, "pawl://%s/%s?host=127.0.0.%u", r->at, space, host);
    CHECK_EQ(pawl_open(where, &o, &p), 0);
    return p;
}

static pawl_grant lock(pawl *p, const char *name)
{
    pawl_grant g;
    CHECK_EQ(pawl_timedlock(p, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(4 * LIMIT_NS), &g), 0);
    return g;
}

static void lock_and_unlock(pawl *p, const char *name)
{
    pawl_grant g = lock(p, name);
    CHECK_EQ(pawl_unlock(p, &g), 0);
}

/* The hold stays, and a known lock is granted again and again, for longer than a lock lease. */
static void outlast(pawl *p, const pawl_grant *held, const char *other)
{
    unsigned times = 0;
    for (uint64_t until = pawl_in(OUTAGE_NS); pawl_now() < until; times++) {
        CHECK_EQ(pawl_check(p, held), 0);
        if (other)
            lock_and_unlock(p, other);
        pause_ns(10 * NS_PER_MS);
    }
    printf("held throughout; looked %u times\n", times);
}

/* ---- scenes ---- */

/* The coordinator is gone for longer than a lock lease: joined hosts do not notice. Then it knows for which to wait: another host
 * joins at once, though the membership lease is a minute. */
static void outage(const char *design)
{
    struct rack r = begin(design, "0", "60");
    struct granters g = start_granters(&r);
    pawl *p = client(&r, 2);
    lock_and_unlock(p, "known");
    pawl_grant held = lock(p, "held");
    end(r.coordinator, SIGKILL);
    outlast(p, &held, "known");
    coordinate(&r, false);
    lock_and_unlock(p, "new");
    pawl *q = client(&r, 3);
    pawl_grant other;
    CHECK_EQ(pawl_trylock(q, pawl_name("held"), PAWL_EXCLUSIVE, &other), -PAWL_EHELD);
    CHECK_EQ(pawl_check(p, &held), 0);
    CHECK_EQ(pawl_unlock(p, &held), 0);
    lock_and_unlock(q, "held");
    pawl_close(q);
    pawl_close(p);
    end_granters(&g);
    end(r.coordinator, SIGKILL);
    printf("%s: the coordinator was away\n", design);
}

/* 'pawl serve' is killed with its lock server or switch, and starts again: hosts report what they hold. */
static void restart(const char *design)
{
    struct rack r = begin(design, "1", "60");
    pawl *p = client(&r, 2), *q = client(&r, 3);
    pawl_grant held = lock(p, "held"), none;
    end(r.coordinator, SIGKILL);
    coordinate(&r, false);
    outlast(p, &held, NULL);
    CHECK_EQ(pawl_trylock(q, pawl_name("held"), PAWL_EXCLUSIVE, &none), -PAWL_EHELD);
    CHECK_EQ(pawl_unlock(p, &held), 0);
    pawl_grant next = lock(q, "held");
    CHECK(next.token > held.token);
    pawl_close(q);
    pawl_close(p);
    end(r.coordinator, SIGKILL);
    printf("%s: 'pawl serve' has restarted\n", design);
}

/* More hosts than a word has bits: each holds a lock of its own and shares another one, all at once. There is no room for one more.
 */
static void crowd(const char *design)
{
    static pawl *p[CROWD + 1];
    static pawl_grant own[CROWD], shared[CROWD];
    char at[64] = "127.0.0.1:0", place[160], name[32];
    snprintf(space, sizeof space, "crowd%d-%s", (int)getpid(), design);
    const char *const words[] = {"serve",   "--space", space,     "--listen", at,        "--design", design,
                                 "--locks", "1000",    "--state", folder,     "--hosts", CROWD_TEXT, "--sessions",
                                 "2",       "--holds", "4",       "--lease",  "10",      "--fresh",  NULL};
    pid_t serve = start(at, words);
    for (unsigned i = 0; i <= CROWD; i++) {
        const pawl_options o = {.open_ns = i == CROWD ? NS_PER_S : 60 * NS_PER_S};
        snprintf(place, sizeof place, "pawl://%s/%s?host=127.0.1.%u", at, space, i + 1);
        int rc = pawl_open(place, &o, &p[i]);
        CHECK_EQ(rc, i == CROWD ? -ENOSPC : 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(name, sizeof name, "own %u", i);
        own[i] = lock(p[i], name);
        CHECK_EQ(pawl_timedlock(p[i], pawl_name("all"), PAWL_SHARED, pawl_in(60 * NS_PER_S), &shared[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        CHECK_EQ(pawl_check(p[i], &own[i]), 0);
        CHECK_EQ(pawl_unlock(p[i], &shared[i]), 0);
        CHECK_EQ(pawl_unlock(p[i], &own[i]), 0);
        pawl_close(p[i]);
    }
    end(serve, SIGTERM);
    printf("%s: %d hosts at once\n", design, CROWD);
}

/* The coordinator is gone for longer than the membership lease: holds end, and clients are told. */
static void too_long(void)
{
    char lease[16], at[64] = "127.0.0.1:0";
    snprintf(lease, sizeof lease, "%d", LEASE_S + 1);
    struct rack r = begin("srvlock", "0", lease);
    pid_t granter = server(&r, at);
    pawl *p = client(&r, 2);
    pawl_grant held = lock(p, "held");
    end(r.coordinator, SIGKILL);
    int rc = 0;
    for (uint64_t until = pawl_in(LIMIT_NS); !rc && pawl_now() < until;) {
        rc = pawl_check(p, &held);
        pause_ns(10 * NS_PER_MS);
    }
    CHECK_EQ(rc, -PAWL_ELOST);
    CHECK_EQ(pawl_unlock(p, &held), -PAWL_ELOST);
    pawl_close(p);
    coordinate(&r, false);
    pawl *q = client(&r, 3);
    pawl_grant next = lock(q, "held");
    CHECK(next.token > held.token);
    pawl_close(q);
    end(granter, SIGKILL);
    end(r.coordinator, SIGKILL);
    printf("the coordinator was away for too long\n");
}

/* A lock server, or the switch of a design without them, is stopped, and takes no part any more; another one gets its place, and
 * hosts that have joined find it. The first goes on, and grants nothing. `orderly`: the first one ends by itself, and holds stay.
 */
static void replace(const char *design, const char *tune, bool orderly)
{
    struct rack r = begin_tuned(design, "0", "60", tune);
    bool is_switch = !strcmp(design, "fisslock");
    char first_at[64] = "127.0.0.1:0", second_at[64] = "127.0.0.1:0";
    pid_t first = is_switch ? switcher(&r) : server(&r, first_at), between = strcmp(design, "netlock") ? 0 : switcher(&r);
    pawl *p = client(&r, 2), *q = client(&r, 3);
    lock_and_unlock(q, "held");
    pawl_grant held = {0}, none;
    if (orderly) {
        held = lock(p, "held");
        end(first, SIGTERM);
    } else {
        CHECK_EQ(kill(first, SIGSTOP), 0);
    }
    pid_t second = is_switch ? switcher(&r) : server(&r, second_at);
    CHECK(is_switch || strcmp(first_at, second_at) != 0);
    if (orderly)
        outlast(p, &held, NULL);
    else
        held = lock(p, "held");
    if (!orderly)
        CHECK_EQ(kill(first, SIGCONT), 0);
    for (unsigned i = 0; i < 20; i++)
        CHECK_EQ(pawl_trylock(q, pawl_name("held"), PAWL_EXCLUSIVE, &none), -PAWL_EHELD);
    CHECK_EQ(pawl_check(p, &held), 0);
    CHECK_EQ(pawl_unlock(p, &held), 0);
    pawl_grant next = lock(q, "held");
    CHECK(next.token > held.token);
    pawl_close(q);
    pawl_close(p);
    if (!orderly)
        end(first, SIGKILL);
    end(second, SIGKILL);
    if (between)
        end(between, SIGKILL);
    end(r.coordinator, SIGKILL);
    printf("%s: a %s was replaced%s\n", design, is_switch ? "switch" : "lock server", orderly ? ", orderly" : "");
}

#define BEHIND 8 /* locks: at most ROOM of them are in the switch */
#define ROOM "2"

/* A lock server of FissLock, which has the locks for which the switch has no room, takes no part any more: it is killed, or stopped
 * and goes on later. Another one gets its place, though hosts use the space. Every hold stays: hosts report it. */
static void replace_behind(const char *design, bool killed)
{
    struct rack r = {.design = design, .own = "0", .membership = "60", .servers = "1", .at = "127.0.0.1:0"};
    char first_at[64] = "127.0.0.1:0", second_at[64] = "127.0.0.1:0", name[BEHIND][16];
    snprintf(space, sizeof space, "behind%d", (int)getpid());
    coordinate(&r, true);
    pid_t first = server(&r, first_at), between = switcher_with(&r, ROOM);
    pawl *p = client(&r, 2), *q = client(&r, 3);
    pawl_grant held[BEHIND], none;
    for (unsigned i = 0; i < BEHIND; i++) {
        snprintf(name[i], sizeof name[i], "lock %u", i);
        lock_and_unlock(q, name[i]);
        held[i] = lock(p, name[i]);
    }
    if (killed)
        end(first, SIGKILL);
    else
        CHECK_EQ(kill(first, SIGSTOP), 0);
    pid_t second = server(&r, second_at);
    CHECK(strcmp(first_at, second_at) != 0);
    if (!killed)
        CHECK_EQ(kill(first, SIGCONT), 0);
    lock_and_unlock(q, "new"); /* the switch has begun anew, with the successor */
    outlast(p, &held[0], NULL);
    for (unsigned i = 0; i < BEHIND; i++) {
        CHECK_EQ(pawl_trylock(q, pawl_name(name[i]), PAWL_EXCLUSIVE, &none), -PAWL_EHELD);
        CHECK_EQ(pawl_check(p, &held[i]), 0);
        CHECK_EQ(pawl_unlock(p, &held[i]), 0);
        pawl_grant next = lock(q, name[i]);
        CHECK(next.token > held[i].token);
        CHECK_EQ(pawl_unlock(q, &next), 0);
    }
    pawl_close(q);
    pawl_close(p);
    if (!killed)
        end(first, SIGKILL);
    end(second, SIGKILL);
    end(between, SIGKILL);
    end(r.coordinator, SIGKILL);
    printf("%s: a lock server behind the switch was replaced; the old one was %s\n", design, killed ? "killed" : "stopped");
}

/* A lock server or switch is killed and starts again in its place, and as soon as it is ready the coordinator is killed: hosts that
 * have joined go on, since the new process knows them. */
static void left_alone(const char *design)
{
    struct rack r = begin(design, "0", "60");
    char at[64] = "127.0.0.1:0";
    bool serves = !strcmp(design, "srvlock");
    const char *const words[] = {"switch", "--soft", "--join", r.at, "--space", space, "--listen", at, NULL};
    pid_t granter = serves ? server(&r, at) : start(at, words);
    pawl *p = client(&r, 2);
    lock_and_unlock(p, "known");
    pawl_grant held = lock(p, "held");
    end(granter, SIGKILL);
    granter = serves ? server(&r, at) : start(at, words);
    end(r.coordinator, SIGKILL);
    outlast(p, &held, "known");
    CHECK_EQ(pawl_unlock(p, &held), 0);
    pawl_close(p);
    end(granter, SIGKILL);
    printf("%s: a granter that has just started was left alone\n", design);
}

#define FEW "20"
#define MORE "40"
#define MANY 30 /* between the two */

static pawl_key key_number(const struct rack *r, unsigned i, char text[16])
{
    snprintf(text, 16, "name %u", i);
    return r->keys ? pawl_id(i) : pawl_name(text);
}

/* The coordinator restarts with more locks, which the design cannot take while hosts use the space, or with another lease and
 * another number of hosts. `behind`: lock servers behind FissLock's switch, which has room for a few locks. Lock servers and
 * switches in processes of their own join anew, by themselves. The client is told that its hold is lost, and others use all locks
 * that there are now. */
static void resettle(const char *design, const char *keys, const char *behind, bool grows)
{
    bool divided = strstr(design, "-racks") || strstr(design, "-switches"), fission = !strncmp(design, "fisslock", 8);
    unsigned servers = fission ? (behind ? 1 : 0) : divided ? 2 : 1, switches = !strcmp(design, "srvlock") ? 0 : divided ? 2 : 1;
    struct rack r = {
        .design = design, .own = "0", .membership = "6", .locks = FEW, .keys = keys, .servers = behind, .at = "127.0.0.1:0"};
    pid_t granter[4];
    char text[16];
    pawl_grant held, some[MANY];
    snprintf(space, sizeof space, "settle%d", (int)getpid());
    coordinate(&r, true);
    for (unsigned i = 0; i < servers + switches; i++) {
        char at[64] = "127.0.0.1:0";
        granter[i] = i < servers ? server(&r, at) : switcher_with(&r, behind ? ROOM : NULL);
    }
    pawl *p = client(&r, 2);
    CHECK_EQ(pawl_timedlock(p, key_number(&r, 1, text), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &held), 0);
    end(r.coordinator, SIGKILL);
    r.locks = MORE;
    if (!grows) {
        r.lease = "3";
        r.hosts = "100";
    }
    coordinate(&r, false);
    pawl *q = client(&r, 3);
    for (unsigned i = 0; i < MANY; i++)
        CHECK_EQ(pawl_timedlock(q, key_number(&r, i, text), PAWL_EXCLUSIVE, pawl_in(2 * LIMIT_NS), &some[i]), 0);
    CHECK_EQ(pawl_check(p, &held), -PAWL_ELOST);
    CHECK(some[1].token > held.token);
    CHECK_EQ(pawl_unlock(p, &held), -PAWL_ELOST);
    pawl_close(p);
    pawl_close(q);
    for (unsigned i = 0; i < servers + switches; i++)
        end(granter[i], SIGKILL);
    end(r.coordinator, SIGKILL);
    printf("%s, %s keys, %s: the space has %s, and its granters go on\n", design, keys ? keys : "named",
           behind ? "a lock server behind the switch" : "as it is", grows ? "more locks" : "other settings");
}

/* At once, each in a process of its own: they wait for leases most of the time. */
static void resettle_all(void)
{
    static const struct {
        const char *design, *keys, *behind;
        bool grows;
    } scenes[] = {
        {"srvlock", NULL, NULL, false},      {"fisslock", NULL, NULL, false},      {"netlock", NULL, NULL, false},
        {"fisslock", "dense", NULL, true},   {"srvlock", "dense", NULL, true},     {"fisslock", NULL, "1", true},
        {"fisslock-stay", NULL, NULL, true}, {"fisslock-racks", NULL, NULL, true}, {"netlock-switches", NULL, NULL, true}};
    pid_t child[countof(scenes)];
    for (size_t i = 0; i < countof(scenes); i++) {
        CHECK((child[i] = fork()) >= 0);
        if (!child[i]) {
            resettle(scenes[i].design, scenes[i].keys, scenes[i].behind, scenes[i].grows);
            exit(0);
        }
    }
    for (size_t i = 0; i < countof(scenes); i++) {
        int status;
        CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
        CHECK_EQ(status, 0);
    }
}

/* At once, each in a process of its own: they wait for leases most of the time. The locks of `netlock` are all at the server. */
static void replace_all(void)
{
    enum { PLACE, BEHIND_SWITCH, ALONE };
    static const struct {
        const char *design, *tune;
        bool orderly;
        int what;
    } scenes[] = {{"srvlock", NULL, true, PLACE},
                  {"srvlock", NULL, false, PLACE},
                  {"netlock", "servers-only=1", false, PLACE},
                  {"fisslock", NULL, true, PLACE},
                  {"fisslock", NULL, false, PLACE},
                  {"fisslock", NULL, true, BEHIND_SWITCH},
                  {"fisslock", NULL, false, BEHIND_SWITCH},
                  {"fisslock-stay", NULL, false, BEHIND_SWITCH},
                  {"srvlock", NULL, false, ALONE},
                  {"fisslock", NULL, false, ALONE}};
    pid_t child[countof(scenes)];
    for (size_t i = 0; i < countof(scenes); i++) {
        CHECK((child[i] = fork()) >= 0);
        if (!child[i]) {
            if (scenes[i].what == ALONE)
                left_alone(scenes[i].design);
            else if (scenes[i].what == PLACE)
                replace(scenes[i].design, scenes[i].tune, scenes[i].orderly);
            else
                replace_behind(scenes[i].design, scenes[i].orderly);
            exit(0);
        }
    }
    for (size_t i = 0; i < countof(scenes); i++) {
        int status;
        CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
        CHECK_EQ(status, 0);
    }
}

/* ---- a full disk ---- */

#define DISK "size=3m"
#define NAMES_MAX 20000u /* much more than the log has room for, which grows by 256 KB at a time */

/* Fills the disk of the coordinator's log. */
static void fill(const char *path)
{
    static const char bytes[4096];
    FILE *f = fopen(path, "w");
    CHECK(f);
    setvbuf(f, NULL, _IONBF, 0);
    while (fwrite(bytes, 1, sizeof bytes, f) == sizeof bytes)
        ;
    CHECK_EQ(errno, ENOSPC);
    fclose(f);
}

/* Adds names until the log has no room for another one. The code of the call that found none. */
static int name_until_full(pawl *p)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < NAMES_MAX; i++) {
        char name[224];
        pawl_grant g;
        snprintf(name, sizeof name, "%0200u", i);
        rc = pawl_timedlock(p, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(3 * NS_PER_S), &g);
        if (!rc)
            CHECK_EQ(pawl_unlock(p, &g), 0);
    }
    return rc;
}

/* There is no room for another name. Known ones are found and locked, also by a host that asks for the first time, and holds stay.
 * When there is room, new names go on by themselves, and nothing is lost. */
static void full_disk(void *arg)
{
    char path[64];
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", folder, "tmpfs", 0, DISK)) {
        printf("left out: no right to mount a small disk\n");
        return;
    }
    struct rack r = begin("srvlock", "1", "60");
    pawl *p = client(&r, 2), *q = client(&r, 3);
    pawl_grant held = lock(p, "held"), known, g; /* in use, so that their locks are not given to other names */
    CHECK_EQ(pawl_timedlock(p, pawl_name("known"), PAWL_SHARED, pawl_in(LIMIT_NS), &known), 0);
    snprintf(path, sizeof path, "%s/fill", folder);
    fill(path);
    CHECK_EQ(name_until_full(p), -EIO);
    CHECK(strstr(pawl_explain(), "its disk is full"));
    CHECK_EQ(pawl_timedlock(q, pawl_name("known"), PAWL_SHARED, pawl_in(LIMIT_NS), &g), 0);
    CHECK_EQ(pawl_unlock(q, &g), 0);
    CHECK_EQ(pawl_trylock(q, pawl_name("held"), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    CHECK_EQ(unlink(path), 0);
    lock_and_unlock(q, "a new one");
    CHECK_EQ(pawl_check(p, &held), 0);
    end(r.coordinator, SIGKILL);
    coordinate(&r, false);
    g = lock(q, "a new one");
    CHECK_EQ(pawl_check(p, &held), 0);
    pawl_close(p);
    pawl_close(q);
    end(r.coordinator, SIGKILL);
    printf("the disk was full\n");
}

/* ---- goodput ---- */

#define WORKERS 4

struct worker {
    pthread_t thread;
    pawl *p;
    char name[16];
    uint64_t locked; /* how often */
    const uint32_t *stop;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    while (!__atomic_load_n(w->stop, __ATOMIC_ACQUIRE)) {
        lock_and_unlock(w->p, w->name);
        __atomic_add_fetch(&w->locked, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static uint64_t locked_in(struct worker workers[WORKERS], uint64_t ns)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        sum -= __atomic_load_n(&workers[i].locked, __ATOMIC_RELAXED);
    pause_ns(ns);
    for (unsigned i = 0; i < WORKERS; i++)
        sum += __atomic_load_n(&workers[i].locked, __ATOMIC_RELAXED);
    return sum;
}

/* Clients on several hosts lock names that they know, with the coordinator for so long, and then without it. */
static void goodput(const char *design, uint64_t seconds)
{
    struct rack r = begin(design, "0", "60");
    struct granters g = start_granters(&r);
    struct worker workers[WORKERS];
    uint32_t stop = 0;
    pawl *p = client(&r, 9);
    pawl_grant held = lock(p, "held");
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.p = client(&r, 2 + i), .stop = &stop};
        snprintf(workers[i].name, sizeof workers[i].name, "name %u", i);
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    locked_in(workers, NS_PER_S); /* all names are known */
    uint64_t with = locked_in(workers, seconds * NS_PER_S);
    end(r.coordinator, SIGKILL);
    uint64_t without = locked_in(workers, seconds * NS_PER_S);
    CHECK_EQ(pawl_check(p, &held), 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
    coordinate(&r, false);
    for (unsigned i = 0; i < WORKERS; i++)
        pawl_close(workers[i].p);
    pawl_close(p);
    end_granters(&g);
    end(r.coordinator, SIGKILL);
    printf("%s, %d hosts, %" PRIu64 " s each: %" PRIu64 " locks per second with a coordinator, %" PRIu64
           " without (%.3f); no hold was lost\n",
           design, WORKERS, seconds, with / seconds, without / seconds, (double)without / (double)with);
}

static void remove_folder(void)
{
    char line[64];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    if (system(line))
        perror(folder);
}

int main(void)
{
    CHECK(mkdtemp(folder));
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("PAWL_OUTAGE_S")) { /* measures, and does nothing else: PAWL_OUTAGE_S=45 build/tests/cli_leases */
        static const char *const designs[] = {"srvlock", "fisslock", "netlock"};
        for (size_t i = 0; i < countof(designs); i++)
            goodput(designs[i], strtoull(getenv("PAWL_OUTAGE_S"), NULL, 10));
        remove_folder();
        return 0;
    }
    outage("srvlock");
    outage("fisslock");
    outage("netlock");
    restart("srvlock");
    restart("fisslock");
    crowd("srvlock");
    crowd("fisslock");
    too_long();
    replace_all();
    resettle_all();
    child_join(child_start(full_disk, NULL));
    remove_folder();
    return 0;
}
