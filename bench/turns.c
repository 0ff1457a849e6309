/* SPDX-License-Identifier: Apache-2.0 */
/* Two spaces with the same load, or one space with and without something beside it, in short blocks that take turns: pairs per
 * second with many in flight, pairs per second and the median of one client that does one after the other. scripts/operate-cost
 * starts what is compared here, and says what the figures are about.
 *
 *   turns [--check] [--scale F] FIRST SECOND [PID [OTHER-PID]]     a place, or KEYFILE@PLACE, or KEYFILE@PLACE@NETNS
 *
 * SECOND may be "same". PID: this process runs during the turns of SECOND only. OTHER-PID: runs during further turns of SECOND, of
 * which the figures are printed and not judged. Bounds are in the environment: GOODPUT_LEAST of SECOND against FIRST, MEDIAN_MOST.
 */
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
#define LEGS 3u /* without, with, and with something else */

static pid_t beside[LEGS]; /* what runs during these turns only; 0: nothing */

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

static void let(pid_t pid, bool run)
{
    if (pid && kill(pid, run ? SIGCONT : SIGSTOP))
        kit_die("process %d is gone", (int)pid);
}

static struct figures turn(pawl *p, unsigned leg)
{
    struct figures f;
    for (unsigned i = 1; i < LEGS; i++)
        let(beside[i], i == leg);
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

/* A leg's figures of all rounds, and their ratios to those of the first leg in the same round. */
struct leg {
    double many[ROUNDS], one[ROUNDS], median[ROUNDS], many_ratio[ROUNDS], one_ratio[ROUNDS], median_ratio[ROUNDS];
};

static void judge(struct kit *k, struct leg *first, struct leg *l, unsigned rounds, bool judged)
{
    char what[128];
    const char *other = judged ? "" : "the other: ";
    double least = judged ? bound("GOODPUT_LEAST", 0) : 0, most = judged ? bound("MEDIAN_MOST", 1e9) : 1e9;
    snprintf(what, sizeof what, "%s%u in flight: %.0f and %.0f K pairs/s, ratio", other, (unsigned)PAWL_INFLIGHT_MAX,
             kit_percentile(first->many, rounds, 0.5) / 1e3, kit_percentile(l->many, rounds, 0.5) / 1e3);
    kit_judge_least(k, what, kit_percentile(l->many_ratio, rounds, 0.5), "x", getenv("ONE_ONLY") ? 0 : least);
    snprintf(what, sizeof what, "%sone client: %.1f and %.1f K pairs/s, ratio", other,
             kit_percentile(first->one, rounds, 0.5) / 1e3, kit_percentile(l->one, rounds, 0.5) / 1e3);
    kit_judge_least(k, what, kit_percentile(l->one_ratio, rounds, 0.5), "x", least);
    snprintf(what, sizeof what, "%sone client: medians of a pair %.2f and %.2f us, ratio", other,
             kit_percentile(first->median, rounds, 0.5) / 1e3, kit_percentile(l->median, rounds, 0.5) / 1e3);
    kit_judge(k, what, kit_percentile(l->median_ratio, rounds, 0.5), "x", most);
}

static void compare(struct kit *k, pawl *first, pawl *second)
{
    static struct leg legs[LEGS];
    unsigned count = beside[2] ? LEGS : 2, rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned t = 0; t < count; t++) { /* who is first changes */
            unsigned which = (t + i) % count;
            struct figures f = turn(which ? second : first, which);
            legs[which].many[i] = f.many;
            legs[which].one[i] = f.one;
            legs[which].median[i] = f.median;
        }
        for (unsigned t = 0; t < count; t++) {
            legs[t].many_ratio[i] = legs[t].many[i] / legs[0].many[i];
            legs[t].one_ratio[i] = legs[t].one[i] / legs[0].one[i];
            legs[t].median_ratio[i] = legs[t].median[i] / legs[0].median[i];
        }
    }
    for (unsigned i = 1; i < LEGS; i++)
        let(beside[i], true);
    for (unsigned i = 1; i < count; i++)
        judge(k, &legs[0], &legs[i], rounds, i == 1);
}

int main(int argc, char **argv)
{
    struct kit k;
    const char *words[4] = {0};
    char *rest[8];
    int count = 0, kept = 1;
    rest[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-' || !strcmp(argv[i - 1], "--scale");
        if (option && kept < 7)
            rest[kept++] = argv[i];
        else if (!option && count < 4)
            words[count++] = argv[i];
    }
    rest[kept] = NULL;
    if (count < 2)
        kit_die("it is: turns [--check] [--scale F] FIRST SECOND [PID [OTHER-PID]]");
    kit_begin(&k, kept, rest, "two spaces, or one with and without something beside it, in turns of 100 ms");
    for (unsigned i = 2; i < countof(words) && words[i]; i++)
        beside[i - 1] = (pid_t)atoi(words[i]);
    pawl *first = open_place(words[0]);
    pawl *second = strcmp(words[1], "same") ? open_place(words[1]) : first;
    for (unsigned i = 0; i < 2; i++) { /* until everything has been touched once */
        turn(first, 0);
        turn(second, 1);
    }
    compare(&k, first, second);
    if (second != first)
        pawl_close(second);
    pawl_close(first);
    return kit_end(&k);
}
