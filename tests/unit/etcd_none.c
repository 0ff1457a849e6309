/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for etcd in builds without libcurl or jansson (node/etcd_none.c): it is compiled here whatever this build has, and
 * says what is missing. */
#include "lib/explain.h"
#include "node/etcd.h"
#include "tests/check.h"

#include <errno.h>
#include <string.h>

int main(void)
{
    struct etcd *etcd = NULL;
    const char *prefix = NULL;
    CHECK_EQ(etcd_open("etcd://127.0.0.1:2379/pawl", &etcd, &prefix), -ENOTSUP);
    CHECK(!etcd && !prefix);
    CHECK(strstr(explained(), "etcd://127.0.0.1:2379/pawl") && strstr(explained(), "libcurl"));
    etcd_close(NULL);
    return 0;
}
