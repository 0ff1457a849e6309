"""The workloads of ShiftLock 4.2 that several figures share.

Baselines are as ShiftLock's artifact has them (github.com/thustorage/shiftlock, cas.rs, dslr.rs, drtm.rs, rma_rw.rs, mcs.rs, rpc.rs);
shiftlock-printed has them with no more than the paper prints. Their waits are multiples of 4,096 cycles at 2.2 GHz."""
WORKLOADS = {"WI": 0.5, "RI": 0.95, "RO": 1}
BASELINES = ["mcs", "dslr", "cas-backoff", "cas", "drtm", "rmarw", "rpc-retry"]
DESIGNS = ["shiftlock", "shiftlock64", *BASELINES]
WINDOW = {"warmup": "3ms", "seconds": "6ms"}
UNIT_NS = 1862

# shiftlock as in Algorithm 3: a release changes RelCnt before it turns to the successor.
PAPER_SHIFTLOCK = "shiftlock, RelCnt first"
VARIANTS = {PAPER_SHIFTLOCK: ("shiftlock", {"tune": "at-once=0"})}
AS_THERE = {
    "mcs": {"tune": "early-next=1"},
    "dslr": {"tune": f"wait-ns={UNIT_NS},wait-max-ns=1000000000"},
    "drtm": {"tune": "read-us=1000,use-us=500,spin=1"},
    "rmarw": {"tune": "reads=1", "set": "poll_ns=0"},
    "cas-backoff": {"tune": f"moving-max=1,backoff-min-ns={UNIT_NS},backoff-max-ns={UNIT_NS << 10}"},
    "rpc-retry": {"tune": "pause-ns=0"},
}
# The 33 ns of 8-byte atomics were derived from a sentence of 4.2 after results with 20 ns had been seen: each figure says what rests on them.
QUICKER = "inbound_atomic_ns=20"
RESTS = "`inbound_atomic_ns` is derived from 4.2 (locks drawn alike), after results with 20 ns, an older NIC's, had been seen."
SETTLED = "400ms"  # by then the moving bound of cas-backoff has settled where locks are hot


def run(figure, name, label, **options):
    """One run of a design or of one of the variants above."""
    design, more = VARIANTS.get(name, (name, AS_THERE.get(name, {})))
    if name == "cas-backoff" and options.get("zipf"):
        options = {**options, "warmup": SETTLED}
    if "set" in options and "set" in more:
        options, more = {**options, "set": more["set"] + "," + options["set"]}, {k: v for k, v in more.items() if k != "set"}
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
