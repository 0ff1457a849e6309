/* SPDX-License-Identifier: Apache-2.0 */
/* Names by the million: how long a coordinator with a million names takes from its start to its first answer, and how much memory
 * it has then; and what it costs to pass 10 M names through a rack for 10,000. The churn locks and unlocks nothing: it shows the
 * coordinator's work, with a host that has joined and answers every round. --scale 0.1 does a tenth of the churn. */
#include "bench/rack-ask.h"

#include <sys/stat.h>

#define MANY_NAMES 1000000u
#define CHURN_LOCKS 10000u
#define CHURN_NAMES 10000000u
#define START_S 0.5
#define START_MB 150.0

static uint64_t memory_kb(pid_t pid)
{
    char path[64], line[256];
    uint64_t kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kb = strtoull(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

/* ---- a start with many ---- */

static void many(struct kit *k)
{
    static struct asker a;
    pid_t pid = start("benchmany", MANY_NAMES, NULL, true);
    asker_open(&a, "benchmany");
    double rate = ask_all(&a, MANY_NAMES, NULL);
    printf("%u names were made at %.1f K/s\n", MANY_NAMES, rate / 1000);
    asker_close(&a);
    end(pid);
    uint64_t begin = kit_now();
    pid = start("benchmany", MANY_NAMES, NULL, false);
    asker_open(&a, "benchmany");
    ask_all(&a, AT_ONCE, NULL); /* names that it knows */
    double seconds = (double)(kit_now() - begin) / NS_PER_S;
    if (a.refused)
        kit_die("%" PRIu64 " names were refused", a.refused);
    kit_judge(k, "a coordinator with 1 M names: to its first answers", seconds, "s", START_S);
    kit_judge(k, "and its memory then", (double)memory_kb(pid) / 1024, "MB", START_MB);
    asker_close(&a);
    end(pid);
}

/* ---- many more than there are locks ---- */

static pid_t served;
static uint64_t most_kb, most_bytes, shown;

static void watch_churn(const struct asker *a)
{
    char path[128];
    struct stat st;
    if (a->done - shown < 10000)
        return;
    shown = a->done;
    snprintf(path, sizeof path, "%s/benchchurn.state", folder);
    uint64_t kb = memory_kb(served);
    most_kb = max_u64(most_kb, kb);
    most_bytes = max_u64(most_bytes, stat(path, &st) ? 0 : (uint64_t)st.st_size);
    if (shown % 500000 < 10000)
        fprintf(stderr, "%" PRIu64 " names, %" PRIu64 " MB, log of %" PRIu64 " KB\n", shown, kb >> 10, (uint64_t)st.st_size >> 10);
}

static void churn(struct kit *k)
{
    static struct asker a;
    uint64_t names = (uint64_t)(CHURN_NAMES * k->scale);
    served = start("benchchurn", CHURN_LOCKS, NULL, true);
    pawl *p = open_rack("benchchurn");
    asker_open(&a, "benchchurn");
    double rate = ask_all(&a, max_u64(names, CHURN_LOCKS), watch_churn);
    printf("%" PRIu64 " names through a rack for %u: %.1f K/s, %" PRIu64 " refused, %" PRIu64
           " asked again; the coordinator had at most "
           "%" PRIu64 " MB, its log %" PRIu64 " KB\n",
           a.done, CHURN_LOCKS, rate / 1000, a.refused, a.retried, most_kb >> 10, most_bytes >> 10);
    kit_judge(k, "names refused", (double)a.refused, "", 0);
    pawl_close(p);
    asker_close(&a);
    end(served);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "names by the million");
    board = kit_shared(sizeof *board);
    make_folder();
    many(&k);
    churn(&k);
    return kit_end(&k);
}
