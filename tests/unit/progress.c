/* SPDX-License-Identifier: Apache-2.0 */
/* Silent for two seconds, then a line that is wiped at the end; silent for ever if the output is not a terminal. */
#include "lib/progress.h"
#include "tests/check.h"

#include <unistd.h>

static void on_a_terminal(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct progress p;
    CHECK(out);
    progress_start_at(&p, out, "seeds", 100, 10 * NS_PER_S);
    progress_update_at(&p, 1, 11 * NS_PER_S);
    fflush(out);
    CHECK_EQ(size, 0);
    progress_update_at(&p, 25, 20 * NS_PER_S);
    fflush(out);
    CHECK(strstr(text, "25 of 100 seeds, 10 s, about 31 s left"));
    size_t shown = size;
    progress_update_at(&p, 26, 20 * NS_PER_S + NS_PER_MS); /* too soon */
    fflush(out);
    CHECK_EQ(size, shown);
    progress_end(&p);
    CHECK_STR(text + shown, "\r\033[K");
    progress_update(&p, 50); /* after the end: nothing */
    fflush(out);
    CHECK_EQ(size, shown + 4);
    fclose(out);
    free(text);
}

static void short_work_shows_nothing(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct progress p;
    CHECK(out);
    progress_start_at(&p, out, "seeds", 0, 0);
    progress_update_at(&p, 5, NS_PER_S);
    progress_end(&p);
    fclose(out);
    CHECK_EQ(size, 0);
    free(text);
}

static void a_pipe_shows_nothing(void)
{
    int ends[2];
    struct progress p;
    CHECK_EQ(pipe(ends), 0);
    int kept = dup(STDERR_FILENO);
    CHECK(kept >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    progress_start(&p, "seeds", 0);
    CHECK(dup2(kept, STDERR_FILENO) >= 0);
    CHECK(!p.out);
    progress_update(&p, 1);
    progress_end(&p);
}

int main(void)
{
    on_a_terminal();
    short_work_shows_nothing();
    a_pipe_shows_nothing();
    return 0;
}
