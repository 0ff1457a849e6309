/* SPDX-License-Identifier: Apache-2.0 */
#include "world/world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct world world_real = {.ops = NULL};

uint64_t world_random(struct world *w)
{
    uint64_t value;
    if (w->ops)
        return w->ops->random(w);
    if (getrandom(&value, sizeof value, 0) != sizeof value)
        abort(); /* cannot fail for 8 bytes once the pool is up; there is no way to go on without */
    return value;
}

uint64_t world_birth(struct world *w)
{
    if (w->ops)
        return w->ops->birth(w);
    uint64_t now = world_clock(CLOCK_REALTIME), epoch = WORLD_BIRTH_EPOCH_S * NS_PER_S;
    uint64_t since = now > epoch ? now - epoch : 0;
    return (since / NS_PER_S & INT32_MAX) << 32 | (since % NS_PER_S << 32) / NS_PER_S;
}

void world_process_name(char out[WORLD_NAME_LEN])
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, out, WORLD_NAME_LEN - 1);
    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = 0;
    out[strcspn(out, "\n")] = 0;
}
