"""The workloads of ShiftLock 4.2 that several figures share."""
WORKLOADS = {"WI": 0.5, "RI": 0.95, "RO": 1}
BASELINES = ["mcs", "dslr", "cas-backoff", "cas", "drtm", "rmarw", "rpc"]
DESIGNS = ["shiftlock", "shiftlock64", *BASELINES]
WINDOW = {"warmup": "5ms", "seconds": "10ms"}


def sweep(figure, workloads=("WI", "RI", "RO"), skews=("uniform", "zipf")):
    """{(workload, skew): {design: run or None}}"""
    runs = {}
    for workload in workloads:
        for skew in skews:
            more = {"zipf": 0.99} if skew == "zipf" else {}
            runs[workload, skew] = {
                design: figure.run(design, f"{design} {workload} {skew}", clients=240, locks="10M", reads=WORKLOADS[workload], **more, **WINDOW)
                for design in DESIGNS
            }
    return runs
