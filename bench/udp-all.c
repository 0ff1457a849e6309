/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks over UDP on this machine, against one and against one by one (all.h). */
#include "bench/all.h"
#include "workbench/lab/loopback.h"

#define LOCKS 100000

static void measure(struct kit *k, const char *name)
{
    const struct loopback_params lp = {
        .design = design_find(name), .machines = 4, .sessions = 4, .requests = 256, .servers = 1, .locks = LOCKS};
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN];
    pawl *p;
    if (!lp.design || loopback_start(&l, &lp))
        kit_die("cannot start a rack of %s on loopback", name);
    loopback_place(&l, 0, place);
    must(pawl_open(place, NULL, &p), "open");
    all_measure(k, name, p, LOCKS);
    pawl_close(p);
    loopback_stop(&l);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "ten locks over UDP on loopback at once, against one and against one by one");
    printf("medians of rounds of %d turns each; the client spins, then sleeps\n", ALL_TURNS);
    measure(&k, "srvlock");
    measure(&k, "fisslock");
    measure(&k, "netlock");
    return kit_end(&k);
}
