/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/lab/ip.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH_BYTES 32768u /* commands for ip(8): about 250 bytes for each of 60 hosts */

struct batch {
    char text[BATCH_BYTES];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void add(struct batch *b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(b->text + b->len, sizeof b->text - b->len, format, list);
    va_end(list);
    b->len += (size_t)n;
    assert(b->len < sizeof b->text);
}

/* The name by which ip(8) knows a namespace. */
static const char *ns_name(const struct lab *lab, unsigned rack, unsigned member, char out[LAB_PATH])
{
    lab_namespace(lab, rack, member, out);
    return strrchr(out, '/') + 1;
}

static int feed(int to, const struct batch *b)
{
    for (size_t done = 0; done < b->len;) {
        ssize_t n = write(to, b->text + done, b->len - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* ip [-n NS] -batch -, with the commands on its standard input; its complaints go to the caller's standard error. */
static int run_ip(const char *ns, struct batch *b)
{
    char ip[] = "ip", n[] = "-n", batch[] = "-batch", dash[] = "-", name[LAB_PATH];
    char *with[] = {ip, n, name, batch, dash, NULL}, *without[] = {ip, batch, dash, NULL};
    int status = 0;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    snprintf(name, sizeof name, "%s", ns ? ns : "");
    FILE *file = tmpfile(); /* and no pipe: ip may end before it has read everything */
    if (!file)
        return explain(-errno, "no temporary file: %s", strerror(errno));
    int input = fileno(file);
    int rc = feed(input, b);
    lseek(input, 0, SEEK_SET);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    if (!rc)
        rc = -posix_spawnp(&pid, "ip", &actions, NULL, ns ? with : without, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (!rc && waitpid(pid, &status, 0) != pid)
        rc = -errno;
    fclose(file);
    b->len = 0;
    if (rc)
        return explain(rc, "ip(8) cannot be run (Debian package iproute2): %s", strerror(-rc));
    return status ? explain(-EIO, "ip(8) failed in %s", ns ? ns : "the machine's own namespace") : 0;
}

/* ---- the parts ---- */

static int add_namespaces(const struct lab *lab, struct batch *b)
{
    char name[LAB_PATH];
    for (unsigned r = 1; r <= lab->racks; r++) {
        for (unsigned h = LAB_SWITCH; h <= lab->hosts; h++)
            add(b, "netns add %s\n", ns_name(lab, r, h, name));
        if (!lab->in_path)
            add(b, "netns add %s\n", ns_name(lab, r, LAB_CORE, name));
    }
    if (lab->racks > 1)
        add(b, "netns add %s\n", ns_name(lab, 0, 0, name));
    return run_ip(NULL, b);
}

static int add_cables(const struct lab *lab, unsigned rack, struct batch *b)
{
    char a[LAB_PATH], z[LAB_PATH];
    unsigned hub = lab->in_path ? LAB_SWITCH : LAB_CORE; /* where the hosts' cables end */
    uint8_t mac[6];
    const char *hub_name = ns_name(lab, rack, hub, z);
    for (unsigned h = 1; h <= lab->hosts; h++) {
        lab_mac(rack, h, mac);
        add(b, "link add " LAB_DEVICE " address %02x:%02x:%02x:%02x:%02x:%02x netns %s type veth peer name p%u netns %s\n", mac[0],
            mac[1], mac[2], mac[3], mac[4], mac[5], ns_name(lab, rack, h, a), h, hub_name);
    }
    lab_mac(rack, LAB_SWITCH, mac);
    if (!lab->in_path)
        add(b, "link add " LAB_UPLINK " address %02x:%02x:%02x:%02x:%02x:%02x netns %s type veth peer name psw netns %s\n", mac[0],
            mac[1], mac[2], mac[3], mac[4], mac[5], ns_name(lab, rack, LAB_SWITCH, a), hub_name);
    else
        add(b, "link add " LAB_LOOP_OUT " netns %s type veth peer name " LAB_LOOP_IN " netns %s\n", hub_name, hub_name);
    if (lab->racks > 1)
        add(b, "link add " LAB_SPINE " netns %s type veth peer name r%u netns %s\n", hub_name, rack, ns_name(lab, 0, 0, a));
    return run_ip(NULL, b);
}

static void add_addresses(struct batch *b, unsigned rack, unsigned member, const char *device)
{
    uint32_t a = lab_address(rack, member);
    add(b, "link set lo up\nlink set %s up\naddr add %u.%u.%u.%u/16 dev %s\n", device, a >> 24, a >> 16 & 0xff, a >> 8 & 0xff,
        a & 0xff, device);
    add(b, "addr add fd77::%u:%u/64 dev %s nodad\n", rack, a & 0xff, device);
}

/* The bridge that the hosts' cables end in: in the core, or in an in-path switch, which has its address on it. */
static int set_up_hub(const struct lab *lab, unsigned rack, struct batch *b)
{
    char name[LAB_PATH];
    uint8_t mac[6];
    lab_mac(rack, LAB_SWITCH, mac);
    if (lab->in_path)
        add(b, "link add br0 address %02x:%02x:%02x:%02x:%02x:%02x type bridge\n", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    else
        add(b, "link add br0 type bridge\n");
    for (unsigned h = 1; h <= lab->hosts; h++)
        add(b, "link set p%u master br0\nlink set p%u up\n", h, h);
    if (lab->racks > 1)
        add(b, "link set " LAB_SPINE " master br0\nlink set " LAB_SPINE " up\n");
    if (lab->in_path) {
        add_addresses(b, rack, LAB_SWITCH, "br0");
        add(b, "link set " LAB_LOOP_OUT " up\nlink set " LAB_LOOP_IN " up\n");
    } else {
        add(b, "link set psw master br0\nlink set psw up\nlink set br0 up\n");
    }
    return run_ip(ns_name(lab, rack, lab->in_path ? LAB_SWITCH : LAB_CORE, name), b);
}

static int set_up_spine(const struct lab *lab, struct batch *b)
{
    char name[LAB_PATH];
    add(b, "link add br0 type bridge\nlink set br0 up\n");
    for (unsigned r = 1; r <= lab->racks; r++)
        add(b, "link set r%u master br0\nlink set r%u up\n", r, r);
    return run_ip(ns_name(lab, 0, 0, name), b);
}

static int build(const struct lab *lab, struct batch *b)
{
    char name[LAB_PATH];
    int rc = add_namespaces(lab, b);
    for (unsigned r = 1; r <= lab->racks && !rc; r++) {
        rc = add_cables(lab, r, b);
        for (unsigned h = lab->in_path ? 1 : LAB_SWITCH; h <= lab->hosts && !rc; h++) {
            add_addresses(b, r, h, h == LAB_SWITCH ? LAB_UPLINK : LAB_DEVICE);
            rc = run_ip(ns_name(lab, r, h, name), b);
        }
        rc = rc ? rc : set_up_hub(lab, r, b);
    }
    return rc || lab->racks == 1 ? rc : set_up_spine(lab, b);
}

int lab_build(const struct lab *lab)
{
    struct batch *b = calloc(1, sizeof *b);
    int rc = b ? build(lab, b) : explain(-ENOMEM, "no memory");
    free(b);
    return rc;
}

int lab_plug(const struct lab *lab, unsigned rack, unsigned host, bool in)
{
    char name[LAB_PATH];
    struct batch *b = calloc(1, sizeof *b);
    if (!b)
        return explain(-ENOMEM, "no memory");
    add(b, "link set " LAB_DEVICE " %s\n", in ? "up" : "down");
    int rc = run_ip(ns_name(lab, rack, host, name), b);
    free(b);
    return rc;
}
