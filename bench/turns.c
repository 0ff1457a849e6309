/* SPDX-License-Identifier: Apache-2.0 */
/* Two spaces with the same load, or one space with and without something beside it, in short blocks that take turns: pairs per
 * second with many in flight, pairs per second and the median of one client that does one after the other. scripts/operate-cost
 * starts what is compared here, and says what the figures are about.
 *
 *   turns [--check] [--scale F] FIRST SECOND [PID]     a place, or KEYFILE@PLACE, or KEYFILE@PLACE@NETNS
 *
 * SECOND may be "same". PID: this process runs during the turns of SECOND only. Bounds are in the environment: GOODPUT_LEAST of
 * SECOND against FIRST, MEDIAN_MOST. */
#include "bench/pairs.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 21
#define TURN_NS (100 * NS_PER_MS)
#define SETTLE_NS (10 * NS_PER_MS) /* after the change of turns: what the other one left behind */
#define SAMPLES 100000u
#define LOCKS 10000u

static pid_t beside; /* 0: none */

struct figures {
    double many;        /* pairs a second with many in flight */
    double one, median; /* of one after the other: pairs a second, nanoseconds */
};

static pawl *open_place(const char *words)
{
    char copy[512], *at;
    pawl_options options = {0};
    pawl *p;
    snprintf(copy, sizeof copy, "%s", words);
    char *place = copy;
    if ((at = strstr(copy, "@pawl://"))) {
        *at = 0;
        options.key = *copy ? copy : NULL;
        place = at + 1;
    }
    if ((at = strchr(place, '@'))) {
        *at = 0;
        int fd = open(at + 1, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, CLONE_NEWNET))
            kit_die("cannot enter %s", at + 1);
        close(fd);
    }
    if (pawl_open(place, &options, &p))
        kit_die("cannot open %s: %s", place, pawl_explain());
    return p;
}

static void one_by_one(pawl *p, struct figures *out)
{
    static double took[SAMPLES];
    static uint64_t key;
    unsigned n = 0;
    uint64_t begin = kit_now(), now = begin;
    while (now < begin + TURN_NS && n < SAMPLES) {
        pawl_grant g;
        uint64_t before = now;
        if (pawl_lock(p, pawl_id(++key * 7919 % LOCKS), PAWL_EXCLUSIVE, &g) || pawl_unlock(p, &g))
            kit_die("cannot lock: %s", pawl_explain());
        now = kit_now();
        took[n++] = (double)(now - before);
    }
    out->one = (double)n * 1e9 / (double)(now - begin);
    out->median = kit_percentile(took, n, 0.5);
}

static struct figures turn(pawl *p, bool second)
{
    struct figures f;
    if (beside && kill(beside, second ? SIGCONT : SIGSTOP))
        kit_die("process %d is gone", (int)beside);
    kit_sleep(SETTLE_NS);
    f.many = pairs_in_flight(p, LOCKS, TURN_NS);
    one_by_one(p, &f);
    return f;
}

static double bound(const char *name, double usual)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : usual;
}

static void compare(struct kit *k, pawl *first, pawl *second)
{
    static double many_[3][ROUNDS], one[3][ROUNDS], median[3][ROUNDS]; /* the third: ratios */
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    for (unsigned i = 0; i < rounds; i++) {
        struct figures f[2];
        for (unsigned t = 0; t < 2; t++) { /* who is first changes */
            unsigned which = t ^ (i & 1);
            f[which] = turn(which ? second : first, which);
            many_[which][i] = f[which].many;
            one[which][i] = f[which].one;
            median[which][i] = f[which].median;
        }
        many_[2][i] = f[1].many / f[0].many;
        one[2][i] = f[1].one / f[0].one;
        median[2][i] = f[1].median / f[0].median;
    }
    if (beside)
        kill(beside, SIGCONT);
    char what[128];
    double least = bound("GOODPUT_LEAST", 0), most = bound("MEDIAN_MOST", 1e9);
    snprintf(what, sizeof what, "%u in flight: %.0f and %.0f K pairs/s, ratio", (unsigned)PAWL_INFLIGHT_MAX,
             kit_percentile(many_[0], rounds, 0.5) / 1e3, kit_percentile(many_[1], rounds, 0.5) / 1e3);
    kit_judge_least(k, what, kit_percentile(many_[2], rounds, 0.5), "x", getenv("ONE_ONLY") ? 0 : least);
    snprintf(what, sizeof what, "one client: %.1f and %.1f K pairs/s, ratio", kit_percentile(one[0], rounds, 0.5) / 1e3,
             kit_percentile(one[1], rounds, 0.5) / 1e3);
    kit_judge_least(k, what, kit_percentile(one[2], rounds, 0.5), "x", least);
    snprintf(what, sizeof what, "one client: medians of a pair %.2f and %.2f us, ratio",
             kit_percentile(median[0], rounds, 0.5) / 1e3, kit_percentile(median[1], rounds, 0.5) / 1e3);
    kit_judge(k, what, kit_percentile(median[2], rounds, 0.5), "x", most);
}

int main(int argc, char **argv)
{
    struct kit k;
    const char *words[3] = {0};
    char *rest[8];
    int count = 0, kept = 1;
    rest[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-' || !strcmp(argv[i - 1], "--scale");
        if (option && kept < 7)
            rest[kept++] = argv[i];
        else if (!option && count < 3)
            words[count++] = argv[i];
    }
    rest[kept] = NULL;
    if (count < 2)
        kit_die("it is: turns [--check] [--scale F] FIRST SECOND [PID]");
    kit_begin(&k, kept, rest, "two spaces, or one with and without something beside it, in turns of 100 ms");
    if (words[2])
        beside = (pid_t)atoi(words[2]);
    pawl *first = open_place(words[0]);
    pawl *second = strcmp(words[1], "same") ? open_place(words[1]) : first;
    for (unsigned i = 0; i < 2; i++) { /* until everything has been touched once */
        turn(first, false);
        turn(second, true);
    }
    compare(&k, first, second);
    if (second != first)
        pawl_close(second);
    pawl_close(first);
    return kit_end(&k);
}
