/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/xdp/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>

const char *plane_mode_name(enum plane_mode mode)
{
    static const char *const names[] = {"any", "native", "generic"};
    return mode < countof(names) ? names[mode] : "";
}

static int ask_device(const char *device, unsigned long request, struct ifreq *r)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    snprintf(r->ifr_name, sizeof r->ifr_name, "%s", device);
    int rc = ioctl(fd, request, r) ? -errno : 0;
    close(fd);
    return rc;
}

int plane_device(const char *device, uint32_t *ifindex, uint8_t mac[6])
{
    struct ifreq r = {0};
    uint32_t found = if_nametoindex(device);
    int rc = strlen(device) >= IFNAMSIZ || !found ? -ENODEV : ask_device(device, SIOCGIFHWADDR, &r);
    if (rc)
        return explain(rc, "there is no interface '%s'", device);
    *ifindex = found;
    memcpy(mac, r.ifr_hwaddr.sa_data, 6);
    return 0;
}

bool plane_is_bare(const char *device)
{
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
    unsigned ifindex = if_nametoindex(device);
    return ifindex && !bpf_xdp_query((int)ifindex, 0, &query) && query.attach_mode == XDP_ATTACHED_NONE;
}

bool plane_is_veth(const char *device)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq r = {.ifr_data = (void *)&info};
    return !ask_device(device, SIOCETHTOOL, &r) && !strcmp(info.driver, "veth");
}

int plane_tags(const char *device, uint32_t which, bool on)
{
    struct ethtool_value value = {.cmd = ETHTOOL_GFLAGS};
    struct ifreq r = {.ifr_data = (void *)&value};
    int rc = ask_device(device, SIOCETHTOOL, &r);
    if (rc || !(value.data & which) == !on)
        return rc ? rc : -EALREADY;
    value.cmd = ETHTOOL_SFLAGS;
    value.data ^= which;
    return ask_device(device, SIOCETHTOOL, &r);
}

/* An attachment that an earlier process left pinned: its program is exchanged, so that no packet passes without one. */
static int take_over(const char *path, uint32_t ifindex, int program, enum plane_mode *got)
{
    int link = bpf_obj_get(path);
    if (link < 0)
        return -ENOENT;
    struct bpf_link_info info = {0};
    uint32_t len = sizeof info;
    int rc = bpf_obj_get_info_by_fd(link, &info, &len) ? -errno : 0;
    if (!rc && (info.type != BPF_LINK_TYPE_XDP || info.xdp.ifindex != ifindex))
        rc = -ESTALE; /* of an interface that is gone */
    if (!rc && bpf_link_update(link, program, NULL))
        rc = -errno;
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
    if (!rc)
        rc = bpf_xdp_query((int)ifindex, 0, &query);
    if (rc) {
        close(link);
        return rc;
    }
    *got = query.attach_mode == XDP_ATTACHED_SKB ? PLANE_GENERIC : PLANE_NATIVE;
    return link;
}

static int attach_in(uint32_t ifindex, int program, enum plane_mode mode)
{
    LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = mode == PLANE_NATIVE ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
    int link = bpf_link_create(program, (int)ifindex, BPF_XDP, &opts);
    return link < 0 ? -errno : link;
}

static int attach_new(const char *device, uint32_t ifindex, int program, enum plane_mode want, enum plane_mode *got)
{
    *got = want == PLANE_ANY ? plane_is_veth(device) ? PLANE_GENERIC : PLANE_NATIVE : want;
    int link = attach_in(ifindex, program, *got);
    if (link < 0 && link != -EBUSY && want == PLANE_ANY && *got == PLANE_NATIVE) {
        *got = PLANE_GENERIC;
        link = attach_in(ifindex, program, *got);
    }
    return link;
}

int plane_port(struct plane *p, const char *device)
{
    uint8_t mac[6];
    struct bpf_devmap_val value = {0};
    int fd = plane_map_fd(p, "ports"), rc = plane_device(device, &value.ifindex, mac);
    if (!rc && fd >= 0 && bpf_map_update_elem(fd, &value.ifindex, &value, BPF_ANY))
        rc = explain(-errno, "%s: cannot be sent to: %s", device, strerror(errno));
    return rc;
}

int plane_attach_program(struct plane *p, const char *device, const char *name, enum plane_mode want, enum plane_mode *got)
{
    char path[PIN_PATH];
    uint8_t mac[6];
    uint32_t ifindex = 0;
    enum plane_mode mode = want;
    int program = plane_program(p, name);
    int rc = plane_device(device, &ifindex, mac);
    if (rc)
        return rc;
    if (p->devices == PLANE_DEVICES_MAX || program < 0)
        return explain(-ENOSPC, "a switch has at most %d ports", PLANE_DEVICES_MAX);
    snprintf(path, sizeof path, "%s/link-%" PRIu32, p->pins, ifindex);
    int link = p->pins[0] ? take_over(path, ifindex, program, &mode) : -ENOENT;
    if (link == -ESTALE)
        unlink(path);
    if (link < 0) {
        link = attach_new(device, ifindex, program, want, &mode);
        if (link == -EBUSY)
            return explain(link, "%s already has another XDP program ('ip link show %s' names it)", device, device);
        if (link < 0)
            return explain(link, "%s takes no XDP program in %s mode: %s%s", device, plane_mode_name(mode), strerror(-link),
                           mode == PLANE_GENERIC ? "" : " (choose --mode generic)");
        if (p->pins[0] && bpf_obj_pin(link, path)) {
            rc = explain(-errno, "%s: %s", path, strerror(errno));
            close(link);
            return rc;
        }
    }
    p->device[p->devices].ifindex = ifindex;
    p->device[p->devices].link = link;
    /* A tag that the card takes off would be hidden from a generic program, which would decide the frame as if it had none. */
    p->device[p->devices++].keeps_tags = mode == PLANE_GENERIC && !plane_tags(device, ETH_FLAG_RXVLAN, false);
    *got = mode;
    return 0;
}

int plane_attach(struct plane *p, const char *device, enum plane_mode want, enum plane_mode *got)
{
    return plane_attach_program(p, device, "plane", want, got);
}

int plane_filter(struct plane *p, const char *device, const char *in, const char *out)
{
    uint8_t mac[6];
    uint32_t ifindex = 0;
    int rc = plane_device(device, &ifindex, mac);
    for (int way = 0; way < 2 && !rc; way++) {
        LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = way ? BPF_TC_EGRESS : BPF_TC_INGRESS);
        LIBBPF_OPTS(bpf_tc_opts, opts, .handle = 1, .priority = 1, .prog_fd = plane_program(p, way ? out : in),
                    .flags = BPF_TC_F_REPLACE);
        rc = bpf_tc_hook_create(&hook);
        if (!rc || rc == -EEXIST)
            rc = bpf_tc_attach(&hook, &opts);
        if (rc)
            explain(rc, "%s takes no filter: %s", device, strerror(-rc));
        else
            p->filtered = ifindex;
    }
    return rc;
}

void plane_unfilter(struct plane *p)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)p->filtered, .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);
    if (p->filtered)
        bpf_tc_hook_destroy(&hook);
    p->filtered = 0;
}

/* Maps that duplicate packets, two times or more: every entry is the same interface. */
static const struct {
    const char *map;
    uint32_t entries;
    const char *leaves, *comes; /* programs */
} copiers[] = {
    {"twins", 2, "twin_out", "twin_in"}, {"fan2", 2, "fan_out", "fan_in"}, {"fan4", 4, "fan_out", NULL},
    {"fan8", 8, "fan_out", NULL},        {"fan16", 16, "fan_out", NULL},   {"fan32", 32, "fan_out", NULL},
};

int plane_double_by(struct plane *p, const char *out, const char *in, enum plane_mode want)
{
    uint8_t mac[6];
    uint32_t ifindex = 0;
    enum plane_mode mode;
    int rc = 0;
    for (size_t c = 0; c < countof(copiers) && !rc; c++) {
        int map = plane_map_fd(p, copiers[c].map), program = plane_program(p, copiers[c].leaves);
        if (map < 0 || program < 0)
            continue;
        rc = plane_device(out, &ifindex, mac);
        for (uint32_t i = 0; i < copiers[c].entries && !rc; i++) {
            struct bpf_devmap_val value = {.ifindex = ifindex, .bpf_prog.fd = program};
            if (bpf_map_update_elem(map, &i, &value, BPF_ANY))
                rc = explain(-errno, "%s: packets cannot be doubled there: %s", out, strerror(errno));
        }
        if (!rc && in && copiers[c].comes)
            rc = plane_attach_program(p, in, copiers[c].comes, want, &mode);
    }
    return rc;
}
