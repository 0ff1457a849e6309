/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Shared by loader.c, attach.c and selftest.c. */
#ifndef PAWL_DATAPLANE_XDP_INTERNAL_H
#define PAWL_DATAPLANE_XDP_INTERNAL_H

#include "dataplane/xdp/loader.h"

#include <bpf/libbpf.h>

#define PIN_PATH 512          /* of a pinned map or attachment */
#define PLANE_MAPS_MAX 8      /* that are mapped at once */
#define LIVE_PIN "_data_live" /* as it is called where maps are pinned: no dots there */

struct plane {
    struct bpf_object *object;
    char pins[PIN_PATH / 2]; /* empty: none */
    bool found;
    bool simple; /* plane_simple */
    volatile struct plane_live *live;
    struct {
        void *at;
        uint64_t bytes;
    } map[PLANE_MAPS_MAX];
    unsigned maps;
    struct {
        uint32_t ifindex;
        int link;
        bool keeps_tags; /* since it was attached */
    } device[PLANE_DEVICES_MAX];
    unsigned devices;
    uint32_t filtered; /* interface with a filter of ours; 0: none */
    struct ring_buffer *mail;
    struct {
        plane_mail_fn fn;
        void *ctx;
    } mail_to;
};

struct plane_image {
    const char *name;
    const void *(*bytes)(size_t *len);
    uint32_t lock_bytes; /* of one entry of the map `locks` */
};
extern const struct plane_image plane_images[];
extern const size_t plane_image_count;

bool plane_is_veth(const char *device);
void plane_unfilter(struct plane *p);
int plane_map_fd(const struct plane *p, const char *name); /* or -ENOENT */

#endif
