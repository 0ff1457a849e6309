"""The workloads of ShiftLock 4.2 that several figures share."""
WORKLOADS = {"WI": 0.5, "RI": 0.95, "RO": 1}
BASELINES = ["mcs", "dslr", "cas-backoff", "cas", "drtm", "rmarw", "rpc-retry"]
DESIGNS = ["shiftlock", "shiftlock64", *BASELINES]
WINDOW = {"warmup": "5ms", "seconds": "10ms"}

# shiftlock as in Algorithm 3: a release changes RelCnt before it turns to the successor.
PAPER_SHIFTLOCK = "shiftlock, RelCnt first"
VARIANTS = {PAPER_SHIFTLOCK: ("shiftlock", {"tune": "at-once=0"})}


def run(figure, name, label, **options):
    """One run of a design or of one of the variants above."""
    design, more = VARIANTS.get(name, (name, {}))
    return figure.run(design, label, **options, **more)


def sweep(figure, workloads=("WI", "RI", "RO"), skews=("uniform", "zipf"), designs=(*DESIGNS, *VARIANTS)):
    """{(workload, skew): {design: run or None}}"""
    runs = {}
    for workload in workloads:
        for skew in skews:
            more = {"zipf": 0.99} if skew == "zipf" else {}
            runs[workload, skew] = {
                design: run(figure, design, f"{design} {workload} {skew}", clients=240, locks="10M", reads=WORKLOADS[workload], **more, **WINDOW)
                for design in designs
            }
    return runs
