/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: every seed of a folder as it is, then mutations of them, for a bounded time.
 * Usage: fuzz_X FOLDER. PAWL_FUZZ_INPUTS sets the number of mutations, PAWL_FUZZ_SEED the randomness. */
#include "lib/rng.h"
#include "tests/check.h"

#include <dirent.h>
#include <time.h>

#define INPUT_MAX 4096 /* more than the parsers accept */
#define SEEDS_MAX 256
#define INPUTS_DEFAULT 20000
#define SECONDS_MAX 10 /* whatever the number of inputs: the suite has others to run */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct seed {
    uint8_t data[INPUT_MAX];
    size_t size;
} seeds[SEEDS_MAX];
static unsigned seed_count;

/* A copy of exactly the input's size, so that the address sanitizer sees a read beyond it. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    CHECK(exact);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not alphasort: the order must not depend on the locale */
}

static void load_seeds(const char *folder)
{
    struct dirent **names = NULL;
    int count = scandir(folder, &names, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        FILE *in = names[i]->d_name[0] == '.' || seed_count == SEEDS_MAX ? NULL : fopen(path, "r");
        if (in) {
            struct seed *s = &seeds[seed_count++];
            s->size = fread(s->data, 1, sizeof s->data, in);
            fclose(in);
        }
        free(names[i]);
    }
    free(names);
    if (!seed_count)
        CHECK_FAIL("no seeds in %s", folder);
}

/* One change: a bit, a byte, a cut, a repetition, or a piece of another seed. */
static void mutate(struct seed *s, struct rng *r)
{
    static const uint8_t interesting[] = {0x00, 0xff, 0x7f, 0x80, '0', '9', ':', ',', '-', '.', '%', '"', '\\', '\n'};
    size_t at = s->size ? rng_below(r, s->size) : 0;
    const struct seed *other = &seeds[rng_below(r, seed_count)];
    size_t from = rng_below(r, other->size + 1);
    size_t len = rng_below(r, other->size - from + 1);
    switch (rng_below(r, 5)) {
    case 0:
        s->data[at] ^= (uint8_t)(1u << rng_below(r, 8));
        break;
    case 1:
        s->data[at] = interesting[rng_below(r, sizeof interesting)];
        break;
    case 2:
        s->size = at;
        return;
    case 3:
        len = min_u64(s->size - at, INPUT_MAX - s->size);
        memmove(s->data + at + len, s->data + at, s->size - at);
        s->size += len;
        return;
    default:
        len = min_u64(len, INPUT_MAX - at);
        memcpy(s->data + at, other->data + from, len);
        s->size = max_u64(s->size, at + len);
        return;
    }
    s->size = max_u64(s->size, at + 1);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        CHECK_FAIL("usage: %s FOLDER", argv[0]);
    load_seeds(argv[1]);
    for (unsigned i = 0; i < seed_count; i++)
        feed(seeds[i].data, seeds[i].size);

    static struct seed input;
    struct rng r;
    uint64_t inputs = setting("PAWL_FUZZ_INPUTS", INPUTS_DEFAULT), fed = 0;
    rng_seed(&r, setting("PAWL_FUZZ_SEED", 1));
    for (time_t end = time(NULL) + SECONDS_MAX; fed < inputs && time(NULL) < end; fed++) {
        input = seeds[rng_below(&r, seed_count)];
        for (uint64_t changes = rng_between(&r, 1, 8); changes; changes--)
            mutate(&input, &r);
        feed(input.data, input.size);
    }
    printf("%u seeds, %llu mutations\n", seed_count, (unsigned long long)fed);
    return 0;
}
