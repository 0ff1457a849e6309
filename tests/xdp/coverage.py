#!/usr/bin/env python3
"""How many branches of the kernel's programs the tests in tests/xdp take, measured in the kernel.

usage: coverage.py [-v] [TEST...]      -v: also each branch that nothing took

Programs are built with clang's source-based coverage. What that needs at run time the kernel does not have: the counters are moved to
a section that becomes a map, everything else is taken out, and a preloaded library (tests/xdp/coverage.c) exchanges the programs and
collects what they counted. Needs root, and the packages clang, llvm and libbpf-dev."""
import glob, json, os, re, shutil, struct, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.join(ROOT, "build", "coverage")
PROGRAMS = ["relay", "fission", "netlock"]
TESTS = ["xdp/frame", "xdp/fission", "xdp/fission_racks", "xdp/fission_rare", "xdp/netlock", "xdp/netlock_rare", "xdp/netlock_same"]
SECTION = ".data.cover"
NO_CODE = ("@__profd_", "@__covrec_", "@__llvm_prf_nm", "@__llvm_coverage_mapping", "$__profc_", "$__covrec_")


def run(*words, **more):
    return subprocess.run(words, check=True, **more)


def flags(program):
    multiarch = run("cc", "-print-multiarch", capture_output=True, text=True).stdout.strip()
    # As src/dataplane/xdp/meson.build has it. Of Linux: else the counters would want to be registered at the start.
    return ["clang", "-target", "bpf-unknown-linux", "-mcpu=v3", "-g", "-O2", "-ffreestanding", "-w", "-I" + ROOT + "/src",
            "-I/usr/include/" + multiarch, "-fprofile-instr-generate", "-fcoverage-mapping", "-mllvm",
            "-enable-name-compression=false", "-Dinline=inline __attribute__((always_inline))",
            os.path.join(ROOT, "src/dataplane/xdp", program + ".bpf.c")]


def elements(text):
    """Of an array in LLVM's language."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += c in "({[<"
        depth -= c in ")}]>"
        if c == "," and not depth:
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()


def keep_used(line):
    """What must not be optimised away: all but what only counts."""
    head, body = re.match(r"(@llvm\.(?:compiler\.)?used = appending global) \[\d+ x i8\*\] \[(.*)\], section", line).groups()
    kept = [e for e in elements(body) if "@__prof" not in e and "@__cov" not in e and "@__llvm" not in e]
    return f'{head} [{len(kept)} x i8*] [{", ".join(kept)}], section "llvm.metadata"\n' if kept else ""


def instrument(program):
    """Leaves the object for the kernel, and one that llvm-cov reads. Returns name, hash and number of counters of each function, and
    where they are; a function that is not there has none."""
    plain, counted = (os.path.join(OUT, program + end) for end in (".ll", ".cover.ll"))
    run(*flags(program), "-S", "-emit-llvm", "-o", plain)
    run(*flags(program), "-c", "-o", os.path.join(OUT, program + ".map.o"))
    hashes, counts, names = {}, [], {}
    with open(plain) as source, open(counted, "w") as out:
        for line in source:
            if m := re.match(r"@__profd_(\S+) = .*? \{ i64 -?\d+, i64 (-?\d+), ", line):
                hashes[m[1]] = int(m[2]) % 2**64
            if m := re.match(r"@__profc_(\S+) = private global \[(\d+) x i64\]", line):
                counts.append((m[1], int(m[2])))
                line = f"@__profc_{m[1]} = internal global [{m[2]} x i64] zeroinitializer, section \"{SECTION}\", align 8\n"
            if m := re.match(r'@__llvm_prf_nm = .*? c"([^"]*)"', line):
                text = re.sub(r"\\([0-9A-F]{2})", lambda h: chr(int(h[1], 16)), m[1])
                for name in text[text.index("\0") + 1:].split("\1"):
                    names[re.sub(r"[^A-Za-z0-9_.]", "_", name)] = name
            if re.match(r"@llvm\.(compiler\.)?used = ", line):
                line = keep_used(line)
            if not line.startswith(NO_CODE):
                out.write(line)
    run("clang", "-target", "bpf", "-mcpu=v3", "-O2", "-Xclang", "-disable-llvm-passes", "-w", "-c", counted, "-o", os.path.join(OUT, program + ".o"))
    table = run("llvm-nm", os.path.join(OUT, program + ".o"), capture_output=True, text=True).stdout
    places = {m[2]: int(m[1], 16) // 8 for m in re.finditer(r"^([0-9a-f]+) \w __profc_(\S+)$", table, re.M)}
    return [(names[symbol], hashes[symbol], n, places.get(symbol)) for symbol, n in counts]


def summarise(program, functions):
    total = {}
    files = glob.glob(os.path.join(OUT, program + ".*.counts"))
    for path in files:
        with open(path, "rb") as f:
            for i, (count,) in enumerate(struct.iter_unpack("<Q", f.read())):
                total[i] = total.get(i, 0) + count
    text = os.path.join(OUT, program + ".proftext")
    with open(text, "w") as f:
        for name, hash_, n, at in functions:
            counts = [total.get(at + i, 0) if at is not None else 0 for i in range(n)]
            f.write("\n".join(map(str, [name, hash_, n] + counts)) + "\n\n")
    run("llvm-profdata", "merge", text, "-o", os.path.join(OUT, program + ".profdata"))
    return len(files)


def branches(program):
    """Of each file: place of a condition, and how often it was true and false, wherever it was compiled to."""
    text = run("llvm-cov", "export", os.path.join(OUT, program + ".map.o"),
               "-instr-profile=" + os.path.join(OUT, program + ".profdata"), capture_output=True, text=True).stdout
    for file in json.loads(text)["data"][0]["files"]:
        for line, column, _, _, true, false, *_ in file["branches"]:
            yield os.path.relpath(file["filename"], ROOT), (line, column), (true, false)


def report(verbose):
    files = {}
    for program in PROGRAMS:
        for name, place, counts in branches(program):
            seen = files.setdefault(name, {}).setdefault(place, [0, 0])
            seen[0], seen[1] = seen[0] + counts[0], seen[1] + counts[1]
    print(f"{'branches':>8} {'taken':>8}")
    for name in sorted(files):
        ways = [c for counts in files[name].values() for c in counts]
        print(f"{len(ways):8} {sum(c > 0 for c in ways):8}  {name}")
        with open(os.path.join(ROOT, name)) as f:
            lines = f.readlines()
        for (line, column), counts in sorted(files[name].items()):
            if verbose and not all(counts):
                never = "never" if not any(counts) else "never true" if not counts[0] else "never false"
                print(f"    {line}:{column} {never}: {lines[line - 1].strip()}")


def main():
    arguments = [a for a in sys.argv[1:] if a != "-v"]
    if any(a.startswith("-") for a in arguments):
        sys.exit(__doc__)
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    functions = {p: instrument(p) for p in PROGRAMS}
    library = os.path.join(ROOT, "build/tests/libpreload_coverage.so")
    run("ninja", "-C", os.path.join(ROOT, "build"), "tests/libpreload_coverage.so", stdout=subprocess.DEVNULL)
    for test in arguments or TESTS:
        binary = os.path.join(ROOT, "build/tests", test.replace("/", "_"))
        run(binary, env={**os.environ, "LD_PRELOAD": library, "PAWL_COVERAGE": OUT}, stdout=subprocess.DEVNULL)
    for p in PROGRAMS:
        if not summarise(p, functions[p]):
            sys.exit(f"{p}: no test has loaded it")
    report("-v" in sys.argv)


main()
