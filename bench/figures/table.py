"""ALock's distributed lock table (6): locks in parts on all nodes, threads on all nodes. Its spinlock repeats its compare-and-swap at
once, which is `cas` here; `spin`, which looks before it tries again, is shown beside it. `mcs` is as in ALock's artifact
(github.com/sss-lehigh/alock, rdma_mcs_lock.h): no swap but a loop of compare-and-swaps, and the tail first at release."""
DESIGNS = ["alock", "mcs", "cas", "spin"]
TUNE = {"mcs": {"tune": "cas-first=1,swap-loop=1"}}


def run(figure, design, nodes, threads, locks, local, **more):
    label = " ".join([f"{design} {nodes}n {threads}t {locks}l {local}", *map(str, more.values())])
    return figure.run(design, label, lock_nodes=nodes, clients=nodes * threads, locks=locks, local=local,
                      warmup="1ms", seconds="2ms", **TUNE.get(design, {}), **more)
