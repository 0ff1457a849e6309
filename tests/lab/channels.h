/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of an interface, in the namespace that the process is in. */
#ifndef PAWL_TESTS_LAB_CHANNELS_H
#define PAWL_TESTS_LAB_CHANNELS_H

#include "tests/lab/rack.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static inline int channels_ask(const char *device, void *question)
{
    struct ifreq r = {.ifr_data = question};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = ioctl(fd, SIOCETHTOOL, &r) ? -errno : 0;
    close(fd);
    return rc;
}

/* So many receive queues, and as many to send from, at that member's interface. */
static inline void channels_set(unsigned member, const char *device, uint32_t count)
{
    struct ethtool_channels c = {.cmd = ETHTOOL_SCHANNELS, .rx_count = count, .tx_count = count};
    CHECK_EQ(lab_enter(&rack, 1, member), 0);
    int rc = channels_ask(device, &c);
    if (rc)
        SKIP("%s cannot have %u queues: %s", device, count, strerror(-rc));
}

/* Frames that a native program has seen on each of the first two receive queues. */
static inline void channels_count(unsigned member, const char *device, uint64_t out[2])
{
    static const char *const wanted[] = {"rx_queue_0_xdp_packets", "rx_queue_1_xdp_packets"};
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    CHECK_EQ(lab_enter(&rack, 1, member), 0);
    CHECK_EQ(channels_ask(device, &info), 0);
    struct ethtool_gstrings *names = calloc(1, sizeof *names + (size_t)info.n_stats * ETH_GSTRING_LEN);
    struct ethtool_stats *values = calloc(1, sizeof *values + info.n_stats * sizeof(uint64_t));
    CHECK(names && values);
    *names = (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = info.n_stats};
    *values = (struct ethtool_stats){.cmd = ETHTOOL_GSTATS, .n_stats = info.n_stats};
    CHECK_EQ(channels_ask(device, names), 0);
    CHECK_EQ(channels_ask(device, values), 0);
    for (unsigned i = 0; i < 2; i++) {
        bool found = false;
        for (uint32_t k = 0; k < info.n_stats; k++)
            if (!strncmp((const char *)names->data + (size_t)k * ETH_GSTRING_LEN, wanted[i], ETH_GSTRING_LEN)) {
                out[i] = values->data[k];
                found = true;
            }
        CHECK(found);
    }
    free(names);
    free(values);
}

#endif
