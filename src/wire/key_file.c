/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/key_file.h"
#include "lib/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 4096u /* four keys and comments */
#define HEX_DIGITS 32u

/* ---- reading ---- */

static int check_owner(const char *path, const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return explain(-EINVAL, "%s: not a file", path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return explain(-EACCES, "%s: the key file belongs to another user (%u)", path, (unsigned)st->st_uid);
    if (st->st_mode & (S_IRWXG | S_IRWXO))
        return explain(-EACCES, "%s: the key file can be read or written by others (mode %03o); use 'chmod 600 %s'", path,
                       st->st_mode & 0777u, path);
    return 0;
}

static int read_text(const char *path, char text[FILE_BYTES])
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return explain(-errno, "%s: cannot read the key file: %s", path, strerror(errno));
    int rc = fstat(fd, &st) ? explain(-errno, "%s: %s", path, strerror(errno)) : check_owner(path, &st);
    ssize_t len = rc ? 0 : read(fd, text, FILE_BYTES - 1);
    if (len < 0)
        rc = explain(-errno, "%s: cannot read the key file: %s", path, strerror(errno));
    close(fd);
    text[len > 0 ? len : 0] = 0;
    return rc;
}

static bool read_hex(const char *text, struct seal_key *out)
{
    char half[HEX_DIGITS / 2 + 1] = "";
    if (strlen(text) != HEX_DIGITS || strspn(text, "0123456789abcdef") != HEX_DIGITS)
        return false;
    for (unsigned i = 0; i < countof(out->k); i++) {
        memcpy(half, text + i * HEX_DIGITS / 2, HEX_DIGITS / 2);
        out->k[i] = strtoull(half, NULL, 16);
    }
    return seal_known(out);
}

/* One line without its comment. Null, or what is wrong. */
static ONCE const char *take_line(char *line, struct seal_ring *r)
{
    char *rest = line, *kind = strtok_r(line, " \t\r", &rest), *number = NULL, *end;
    if (!kind)
        return NULL;
    bool host = !strcmp(kind, "host"), admin = !strcmp(kind, "admin");
    if (!host && !admin && strcmp(kind, "cluster") != 0)
        return "a line begins with 'cluster', 'host' or 'admin'";
    if (host)
        number = strtok_r(NULL, " \t\r", &rest);
    unsigned long n = number ? strtoul(number, &end, 10) : 0;
    if (host && (!number || *end || !n || n > KEY_NUMBER_MAX))
        return "the number of a host's key is between 1 and 65535";
    const char *hex = strtok_r(NULL, " \t\r", &rest);
    uint32_t *count = admin ? &r->admins : &r->count;
    if (*count == SEAL_KEYS)
        return "there are more than two keys of a kind";
    if (admin ? r->number : (r->count && r->number != n) || (r->admins && n))
        return "its keys are of different kinds or numbers";
    if (!hex || strtok_r(NULL, " \t\r", &rest) || !read_hex(hex, admin ? &r->admin[*count] : &r->key[*count]))
        return "a key has 32 digits of 0-9 and a-f, and is not 0";
    if (!admin)
        r->number = (uint32_t)n;
    ++*count;
    return NULL;
}

ONCE int key_file_read(const char *path, struct seal_ring *out)
{
    char text[FILE_BYTES], *rest = text;
    struct seal_ring r = {.count = 0};
    unsigned number = 0;
    int rc = read_text(path, text);
    while (!rc && rest) {
        char *line = strsep(&rest, "\n");
        line[strcspn(line, "#")] = 0;
        number++;
        const char *fault = take_line(line, &r);
        if (fault)
            rc = explain(-EINVAL, "%s:%u: not a key file: %s (see 'pawl key --help')", path, number, fault);
    }
    explicit_bzero(text, sizeof text);
    if (!rc && !r.count)
        rc = explain(-EINVAL, "%s: there is no key of the cluster or a host in the file (make one with 'pawl key new')", path);
    if (!rc)
        *out = r;
    return rc;
}

int key_file_find(const char *path, struct seal_ring *out)
{
    const char *named = path ? path : secure_getenv("PAWL_KEY");
    memset(out, 0, sizeof *out);
    return named && *named ? key_file_read(named, out) : 0;
}

/* ---- writing ---- */

ONCE int key_file_write(const char *path, const struct seal_ring *r)
{
    char text[FILE_BYTES];
    size_t used = (size_t)snprintf(text, sizeof text, "# A key of pawl. Keep it secret: see 'pawl key --help'.\n");
    for (unsigned i = 0; i < r->count + r->admins; i++) {
        bool admin = i >= r->count;
        const struct seal_key *key = admin ? &r->admin[i - r->count] : &r->key[i];
        char kind[32];
        snprintf(kind, sizeof kind, "%s", admin ? "admin" : "cluster");
        if (r->number)
            snprintf(kind, sizeof kind, "host %u", r->number);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %016" PRIx64 "%016" PRIx64 "\n", kind, key->k[0], key->k[1]);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : 0;
    if (!rc && (fchmod(fd, 0600) || write(fd, text, used) != (ssize_t)used || fsync(fd)))
        rc = errno ? -errno : -EIO;
    if (fd >= 0)
        close(fd);
    explicit_bzero(text, sizeof text);
    if (rc && fd >= 0)
        unlink(path);
    return rc ? explain(rc, "%s: cannot write the key file: %s", path, strerror(-rc)) : 0;
}
