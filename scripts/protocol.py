"""Which files are protocol code, and which campaigns and tests concern them. For scripts/mutants and scripts/coverage."""
import bisect
import glob
import os
import re
import sys

import ctext

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHIVE = "src/libworkbench.a"
INCLUDES = ["-I" + os.path.join(ROOT, folder) for folder in ("src", "include")]

# A design in a campaign: on memory nodes if "@node" follows its name, with the faults of a rack's coordinator if "@rack" does.
WHERE = {"": [], "node": ["--on", "node"], "rack": ["--faults", "rack"]}
ONE_SIDED = ["word", "shiftlock", "alock", "citron"]
PACKETS = ["srvlock", "netlock", "fisslock", "netlock-switches", "fisslock-racks"]
NETLOCK_TESTS = ["unit/netlock_policy", "unit/netlock_any", "unit/netlock_kernel", "unit/netlock_steward", "unit/netlock_plane", "unit/netlock_order",
                 "unit/netlock_answers", "unit/netlock_try", "unit/netlock_call", "sim/netlock_moves", "fuzz/netlock"]
FISSLOCK_TESTS = ["unit/fisslock", "unit/fisslock_steps", "unit/fisslock_deadlock", "unit/fisslock_forged", "unit/fisslock_holes", "unit/fisslock_moves",
                  "unit/fisslock_keep", "unit/fisslock_rules", "unit/fisslock_rebuild", "sim/fisslock_shuffle", "fuzz/fission", "fuzz/spill"]
BESIDE = ["word", "srvlock", "fisslock", "fisslock-racks", "fisslock-stay"]  # what campaign 3 has
COORDINATED = ["srvlock@rack", "fisslock@rack"]
ON_NODE = ["word@node", "shiftlock@node", "alock@node", "citron@node"]
RACK_TESTS = ["unit/coordinator", "unit/coordinator_any", "unit/coordinator_beats", "unit/coordinator_hosts", "unit/coordinator_input", "unit/names", "unit/directory", "unit/rules",
              "unit/rack_values", "unit/member", "unit/roster", "unit/no_memory", "unit/state_input", "unit/store", "unit/identity", "unit/many_names", "unit/addresses", "unit/etcd",
              "fuzz/coordinator", "sim/coordinator"]
NODE_TESTS = ["unit/memnode", "unit/verbs", "unit/sim_node", "fuzz/verbs", "sim/node"]
# Of the first prefix that fits: the designs whose campaigns, and the tests, that concern a file.
CONCERNS = [
    ("src/designs/word/", ["word"], ["sim/each_request=word", "unit/each_verb", "sim/word_unit", "unit/table", "sim/recover", "shm/contract", "shm/fast", "shm/changes", "sim/word"]),
    ("src/designs/shiftlock/", ["shiftlock", "shiftlock64"], ["sim/each_request=shiftlock", "unit/each_verb", "sim/shiftlock_unit",
                                                               "shm/contract=shiftlock", "shm/contract=shiftlock64", "sim/shiftlock"]),
    ("src/designs/alock/", ["alock"], ["unit/alock", "sim/each_request=alock", "sim/alock"]),
    ("src/designs/citron/", ["citron"], ["unit/citron_tree", "unit/citron_steps", "unit/each_verb", "sim/citron_layout", "sim/citron_tickets", "sim/citron_remains",
                                         "sim/citron_crowd", "sim/citron_cost", "shm/ranges=citron", "sim/ranges",
                                         "sim/each_request=citron", "shm/contract=citron", "sim/inspect", "sim/citron"]),
    ("src/designs/mutex/", ["mutex"], ["shm/ranges", "shm/contract=mutex", "sim/ranges"]),
    ("src/designs/srvlock/", ["srvlock"], ["unit/srvlock", "unit/packet_input", "fuzz/srvlock", "sim/srvlock"]),
    ("src/designs/netlock/deadlock", ["netlock"], NETLOCK_TESTS + ["sim/deadlock"]),
    ("src/designs/netlock/host_deadlock", ["netlock"], NETLOCK_TESTS + ["sim/deadlock"]),
    ("src/designs/fisslock/deadlock", ["fisslock"], FISSLOCK_TESTS + ["sim/deadlock"]),
    ("src/designs/packet/chase", ["netlock", "fisslock"], ["unit/chase"] + NETLOCK_TESTS + FISSLOCK_TESTS + ["sim/deadlock"]),
    ("src/designs/netlock/", ["netlock", "netlock-switches"], NETLOCK_TESTS + ["sim/netlock"]),
    ("src/designs/fisslock/", ["fisslock", "fisslock-racks", "fisslock-stay"], FISSLOCK_TESTS + ["sim/fisslock"]),
    ("src/designs/core/", ONE_SIDED + ["mutex"], ["unit/knobs", "unit/census", "sim/cluster", "sim/recover", "sim/each_request", "sim/word_unit", "unit/alock", "shm/contract",
                                                   "shm/slots", "shm/contract=shiftlock"]),
    ("src/designs/packet/", PACKETS, ["unit/srvlock", "unit/rules", "unit/packet_input"] + NETLOCK_TESTS + FISSLOCK_TESTS),
    ("src/dataplane/fission", ["fisslock", "fisslock-racks"], ["unit/fission_input", "unit/fission_rmt"] + FISSLOCK_TESTS),
    ("src/dataplane/netlock", ["netlock", "netlock-switches"], ["unit/netlock_rmt"] + NETLOCK_TESTS),
    ("src/dataplane/shards", ["netlock-switches", "fisslock-racks"], ["unit/rules"]),
    ("src/dataplane/", ON_NODE, NODE_TESTS),
    ("src/cluster/host", PACKETS, ["unit/host_file"] + RACK_TESTS + ["udp/contract"]),
    ("src/cluster/join", PACKETS, ["unit/join_answers"] + RACK_TESTS + ["udp/contract"]),
    ("src/cluster/leader", [], ["unit/etcd", "unit/addresses"]),
    ("src/cluster/store_etcd", [], ["unit/etcd"]),
    ("src/cluster/addresses", [], ["unit/addresses"]),
    ("src/cluster/life", ["word"], ["shm/slots", "shm/contract", "shm/kill"]),
] + [("src/cluster/" + name, COORDINATED, RACK_TESTS)
     for name in ("coordinator", "directory", "rules", "service", "state", "store")] + [
    ("src/cluster/", ONE_SIDED + ["mutex"], ["sim/cluster", "sim/recover", "sim/each_request", "unit/table", "unit/each_session_verb", "shm/contract", "shm/slots", "shm/names",
                                             "fuzz/layout", "shm/bad-input", "sim/caps"]),
]
MISTAKEN = {"citron_errs", "shift_errs"}  # MISTAKE() by another name
REAL_TIME = ("cli/", "shm/", "udp/")  # tests of processes: each gets shared memory, processes and a network of its own
ALONE = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c",
         "mount -t tmpfs tmpfs /dev/shm && mount -t proc proc /proc && ip link set lo up && exec \"$@\"", "sh"]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def read_table(path, columns):
    """The lines of a table, without comments."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]
    for row in rows:
        if len(row) != columns:
            sys.exit(f"{path}: a line has {len(row)} columns instead of {columns}: {row}")
    return rows


def sources():
    found = glob.glob(ROOT + "/src/designs/**/*.[ch]", recursive=True) + glob.glob(ROOT + "/src/dataplane/*.[ch]") + \
        glob.glob(ROOT + "/src/cluster/*.[ch]")
    paths = sorted(os.path.relpath(p, ROOT) for p in found)
    return [p for p in paths if not re.search(r"rmt|mistake", p)]


def concerns(path):
    """Designs and tests."""
    for prefix, designs, tests in CONCERNS:
        if path.startswith(prefix):
            return designs, tests
    sys.exit(f"scripts/protocol.py: no test concerns {path}; name designs and tests for its folder in CONCERNS")


def campaign_words(design, seeds, campaign):
    """The arguments of `pawl sim`. Several designs, with commas between, run at the same place."""
    where = design.partition("@")[2].partition(",")[0]
    return ["--design", design.replace("@" + where, ""), "--seeds", seeds, "--campaign", str(campaign)] + WHERE[where]


def all_tests():
    return sorted({t for _, _, tests in CONCERNS for t in tests})


def program(test):
    """The file of a test's program: "shm/contract=citron" is shm_contract."""
    return re.sub(r"[/-]", "_", test.split("=")[0])


def test_command(out, test, build):
    """Words and environment that run the program `out` of a test."""
    name, _, design = test.partition("=")
    env = {"PAWL_TEST_SECONDS": "1", "PAWL_SOURCE": ROOT, "PAWL_BUILD": build}
    if design:
        env["PAWL_TEST_DESIGN"] = design
    words = [out]
    if name.startswith("fuzz/"):
        words.append(os.path.join(ROOT, "tests/fuzz/corpus", name[5:]))
    return (ALONE if name.startswith(REAL_TIME) else []) + words, env


def sim_main(build):
    """A program that is `pawl sim` and no more: its source."""
    path = os.path.join(build, "sim_main.c")
    with open(path, "w", encoding="utf-8") as f:
        f.write('#include "cli/commands.h"\nint main(int argc, char **argv)\n{\n    return command_run(&cmd_sim, argc, argv);\n}\n')
    return path


class Text:
    """A source file: what stands where."""

    def __init__(self, path):
        self.text = read(path)
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        found = ctext.name_functions(ctext.tokens(self.text))
        hidden = ctext.no_protocol(found, MISTAKEN)
        hidden |= {i - 1 for i in hidden if found[i - 1].text == "!"}
        self.hidden = sorted((found[i].at, found[i].at + len(found[i].text)) for i in hidden)
        self.functions = {t.line: t.function for t in found if t.function}

    def offset(self, line, column):
        return self.starts[line - 1] + column - 1

    def is_hidden(self, line, column):
        """Whether the place is part of an assertion or another thing that is no protocol."""
        at = self.offset(line, column)
        i = bisect.bisect_right(self.hidden, (at, len(self.text))) - 1
        return i >= 0 and self.hidden[i][0] <= at < self.hidden[i][1]

    def is_of_mistake(self, line, column):
        """Whether a mistake on purpose stands before the place, in the same statement."""
        at = self.offset(line, column)
        begin = max(self.text.rfind(c, 0, at) for c in ";{}")
        return re.search(r"\bMISTAKES?\(", self.text[begin + 1:at]) is not None

    def function(self, line):
        return self.functions.get(line, "(top)")

    def line(self, line):
        return self.text[self.starts[line - 1]:].split("\n", 1)[0].strip()

    def between(self, line, column, to_line, to_column):
        return " ".join(self.text[self.offset(line, column):self.offset(to_line, to_column)].split())
