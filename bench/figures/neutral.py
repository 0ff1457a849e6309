"""One neutral cluster for all designs: the model `default`, no paper's testbed, with eight hosts of clients. Lock memory, lock server or switch as the design has it."""
MODEL = "default"
NODES = 8
OURS = ["fisslock", "netlock", "shiftlock", "alock", "citron"]
OTHERS = ["word", "srvlock", "dslr", "mcs"]
DESIGNS = OURS + OTHERS
PACKETS = ["fisslock", "netlock", "srvlock"]
MANY = 500  # clients, of whom each has a turn in a longer window only


def window(design, clients, hold_ns):
    """Some thousand operations, and several times the time that a lock is held or waited for."""
    if hold_ns > 10000:
        return {"warmup": f"{5 * hold_ns // 1000}us", "seconds": f"{15 * hold_ns // 1000}us"}
    if clients > MANY and design != "fisslock":  # which has as many operations in the short window
        return {"warmup": "1ms", "seconds": "1ms"}
    return {"warmup": "200us", "seconds": "500us"}


def run(f, design, label, locks, clients, **more):
    """citron's locks are units of one range."""
    of = {"range": 1, "units": locks} if design == "citron" else {"locks": locks}
    if "lock_nodes" not in more:
        more = {"nodes": NODES, **more}
    return f.run(design, label, clients=clients, **of, **{**window(design, clients, more.get("hold", 0)), **more})
