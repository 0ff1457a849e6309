"""ALock's distributed lock table (6): locks in parts on all nodes, threads on all nodes. Its spinlock repeats its compare-and-swap at
once, which is `cas` here; `spin`, which looks before it tries again, is shown beside it."""
DESIGNS = ["alock", "mcs", "cas", "spin"]


def run(figure, design, nodes, threads, locks, local, **more):
    label = " ".join([f"{design} {nodes}n {threads}t {locks}l {local}", *more.values()])
    return figure.run(design, label, lock_nodes=nodes, clients=nodes * threads, locks=locks, local=local,
                      warmup="1ms", seconds="2ms", **more)
