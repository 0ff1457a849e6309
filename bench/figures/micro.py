"""The workloads of ShiftLock 4.2 that several figures share."""
WORKLOADS = {"WI": 0.5, "RI": 0.95, "RO": 1}
BASELINES = ["mcs", "dslr", "cas-backoff", "cas", "drtm", "rmarw", "rpc-retry"]
DESIGNS = ["shiftlock", "shiftlock64", *BASELINES]
WINDOW = {"warmup": "5ms", "seconds": "10ms"}

# Variants whose release turns to the lock before it turns to its successor: shiftlock as in Algorithm 3, and mcs to compare with.
PAPER_SHIFTLOCK, ENTRY_MCS = "shiftlock, RelCnt first", "mcs, lock first"
VARIANTS = {PAPER_SHIFTLOCK: ("shiftlock", {"tune": "at-once=0"}), ENTRY_MCS: ("mcs", {"tune": "cas-first=1"})}


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
