/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/netlock_memory.h"
#include "dataplane/xdp/internal.h"

#include "dataplane/xdp/echo.skel.h"
#include "dataplane/xdp/fission.skel.h"
#include "dataplane/xdp/memory.skel.h"
#include "dataplane/xdp/netlock.skel.h"
#include "dataplane/xdp/noise.skel.h"
#include "dataplane/xdp/relay.skel.h"

const struct plane_image plane_images[] = {
    {"echo", echo__elf_bytes, 0},       {"fission", fission__elf_bytes, 24}, {"memory", memory__elf_bytes, 4096},
    {"netlock", netlock__elf_bytes, 0}, {"noise", noise__elf_bytes, 0},      {"relay", relay__elf_bytes, 0},
};
const size_t plane_image_count = countof(plane_images);
