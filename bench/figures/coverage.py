"""NetLock 6.4's workload: TPC-C's requests one by one. Which locks they ask for follows the artifact's curve (console.py of
github.com/netx-repo/NetLock: the share of TPC-C's requests that the switch serves, by slots), which `unit/txn` compares with this
generator. A closed loop of single requests takes the place of the artifact's senders, which are held to a number of packets."""
import os
import subprocess

import kit

FILE = os.path.join("build", "netlock-requests.csv")
TRANSACTIONS = 400000
MADE_BY = ["bench", "--on", "sim", "--model", "netlock-testbed", "--design", "netlock", "--workload", "tpcc-netlock", "--scale", "10", "--nodes", "10", "--clients", "40",
           "--ops", str(TRANSACTIONS), "--write-trace"]
# Ten hosts, two servers as one that is as fast, and clients enough to reach what two servers serve. 10 numbers of 700,000 locks.
OPTIONS = {"workload": "trace", "file": FILE, "sorted": True, "nodes": 10, "clients": 400, "seconds": "3ms", "warmup": "20ms", "set": "server_cores=16"}
SAID = (f"The requests are those of {TRANSACTIONS:,} transactions of `tpcc-netlock --scale 10` one by one, in 7 M locks: the shares of the hottest 2,000 to 20,000 locks are "
        "those that the artifact has in a table by slots (console.py: 32.9 to 48.1 %) within three points (`unit/txn`); the next 110,000 have more here. "
        "400 clients have one request each; two servers are one with 16 cores.")


def prepare():
    """Writes the requests, each as a transaction of its own. The commands name the file by its place below the repository's root."""
    os.chdir(kit.ROOT)
    if kit.AGAIN:
        return
    subprocess.run([kit.PAWL, *MADE_BY, FILE + ".txns"], check=True, stdout=subprocess.DEVNULL)
    with open(FILE + ".txns", encoding="ascii") as txns, open(FILE, "w", encoding="ascii") as out:
        lines = (line.split(",") for line in txns if line[0] != "#")
        for number, (_, _, lock, mode) in enumerate(lines):
            out.write(f"{number},0,{lock},{mode}")
    os.unlink(FILE + ".txns")
