"""What the scripts of this folder share: running `pawl bench` in the simulated cluster, and writing a figure down.

A figure is docs/figures/NAME.tsv (every row with the command that made it), NAME.svg (by gnuplot), NAME.json (what the picture shows,
for scripts/report) and a section of docs/figures/README.md with the paper's numbers beside ours. Verdicts are computed, never typed: *reproduced* means that
the ordering is the paper's and the ratio within 25 %. Reductions by a percentage are compared as factors. A claim that a number of
the model was derived from is an input, and gets no verdict.
"""
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAWL = os.environ.get("PAWL", os.path.join(ROOT, "build", "pawl"))
FOLDER = os.environ.get("PAWL_FIGURES", os.path.join(ROOT, "docs", "figures"))
WITHIN = 0.25
AGAIN = "PAWL_FIGURES_AGAIN" in os.environ  # pages and pictures from the data of earlier runs; nothing is run
SET = os.environ.get("PAWL_FIGURES_SET", "")  # more values of the model, for `Figure.beside`
QUICK = int(os.environ.get("PAWL_FIGURES_QUICK", "1"))  # windows and warm-ups are shorter by so much
WIDTH = 132  # of the lines of a page
COLUMNS = ["design", "clients", "locks", "ops", "goodput", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "fairness", "acquire_round_trips"]
VERBS = ["atomics", "reads", "writes", "sends"]
STEPS = ["acquire_exclusive", "acquire_shared", "release"]


def program(name):
    """The path of a program of bench/, which is built if need be: `make` alone does not."""
    build = os.path.dirname(PAWL)
    if AGAIN:
        return None
    subprocess.run(["ninja", "-C", build, "bench/" + name], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(build, "bench", name)


def wrapped(text):
    """Paragraphs of at most WIDTH columns; lines of tables stay as they are."""
    return "\n".join(line if line.startswith("|") else textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
                     for line in text.split("\n"))


@functools.lru_cache
def digest(program_path):
    with open(program_path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def cached(words):
    """Runs a command. If PAWL_FIGURES_CACHE names a folder, what the same program was asked before is not run again: results do not
    depend on when. So an interrupted run goes on where it was, and several figures share runs."""
    folder = os.environ.get("PAWL_FIGURES_CACHE")
    path = folder and os.path.join(folder, hashlib.sha256("\0".join([digest(words[0]), *words[1:]]).encode()).hexdigest())
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as old:
            return subprocess.CompletedProcess(words, **json.load(old))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if path and done.returncode >= 0:  # not ended by a signal
        os.makedirs(folder, exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as new:
            json.dump({"returncode": done.returncode, "stdout": done.stdout, "stderr": done.stderr}, new)
        os.replace(path + ".new", path)
    return done


@functools.lru_cache
def models():
    return json.loads(subprocess.check_output([PAWL, "sim", "--models", "--json"]))


def model_value(model, name):
    """A number of a model, as 'pawl sim --models' prints it."""
    values = next(m["values"] for m in models() if m["model"] == model)
    return next(v["value"] for v in values if v["name"] == name)


def zipf_share(first, items, exponent):
    """The share of the first so many of all items, by Zipf's law."""

    def weight(n):
        head = min(n, 10000)  # these one by one, the others as an integral
        tail = ((n + 0.5) ** (1 - exponent) - (head + 0.5) ** (1 - exponent)) / (1 - exponent)
        return sum(rank ** -exponent for rank in range(1, head + 1)) + tail

    return weight(first) / weight(items)


def lines_of(name):
    """The cells of NAME.tsv; the first line has their names."""
    with open(os.path.join(FOLDER, name + ".tsv"), encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]


def earlier_series(name, command):
    """What a program printed that NAME.tsv has by its command, in lines of numbers."""
    return [tuple(map(json.loads, cells[1:])) for cells in lines_of(name)[1:] if cells[0] == command]


@functools.lru_cache
def earlier(name):
    """The rows of NAME.tsv by their commands, as results of runs."""
    rows = {}
    head, *lines = lines_of(name)
    if not {"command", *COLUMNS} <= set(head):
        sys.exit(f"{name}.tsv is of an earlier form: run the figure")
    for line in lines:
        row = dict(zip(head, line))
        value = {name: text if name in ("label", "design", "model", "command") else None if text == "-" else json.loads(text)
                 for name, text in row.items()}
        rows[row["command"]] = {**{c: value[c] for c in COLUMNS}, "per_cycle": {v: value[v] for v in VERBS},
                                "mean_ns": {s: value[s + "_ns"] for s in STEPS}, "model": {"name": row["model"]}, **value.get("more", {})}
    return rows


def shorter(time):
    """A time with its unit, divided for a quick look."""
    count, unit = re.fullmatch(r"([0-9.]+)([a-z]*)", str(time)).groups()
    return f"{float(count) / QUICK:g}{unit}"


class Figure:
    def __init__(self, name, title, model, keeps=()):
        """keeps: members of a run's result that the figure needs beside the columns of its table."""
        self.name, self.title, self.model, self.keeps = name, title, model, keeps
        self.rows, self.missing, self.claims, self.causes, self.notes = [], set(), [], [], []

    # ---- running ----

    def run(self, design, label=None, **options):
        """One run; None if this build lacks the design. Readers of a lock without shared mode take it exclusively, as in the papers."""
        if SET:
            options["set"] = ",".join(filter(None, [options.get("set"), SET]))
        words = ["bench", "--on", "sim", "--model", self.model, "--design", design]
        for option, value in options.items():
            if QUICK > 1 and option in ("seconds", "warmup"):
                value = shorter(value)
            words += ["--" + option.replace("_", "-")] + ([] if value is True else [str(value)])
        if AGAIN:
            return self._again(design, label, words, options)
        done = cached([PAWL, *words, "--json"])
        if done.returncode == 2 and "no design" in done.stderr:
            self.missing.add(design)
            return None
        if done.returncode == 2 and "has no shared locks" in done.stderr:
            return self.run(design, label, **{k: v for k, v in options.items() if k != "reads"})
        if done.returncode:
            sys.exit(f"{self.name}: pawl {' '.join(words)}: {done.stderr.strip()}")
        result = json.loads(done.stdout)
        if result["violations"]:
            sys.exit(f"{self.name}: {result['violations']} violations of pawl {' '.join(words)}")
        result["label"], result["command"] = label or design, "pawl " + " ".join(words)
        self.rows.append(result)
        return result

    def _again(self, design, label, words, options):
        result = earlier(self.name).get("pawl " + " ".join(words))
        if not result and "reads" in options:
            return self.run(design, label, **{k: v for k, v in options.items() if k != "reads"})
        if result and not set(self.keeps) <= set(result):
            sys.exit(f"{self.name}.tsv is of an earlier form, without {', '.join(self.keeps)}: run the figure")
        if not result:
            sys.exit(f"{self.name}.tsv has no run of pawl {' '.join(words)}: run the figure")
        self.rows.append({**result, "label": label or design, "command": "pawl " + " ".join(words)})
        return self.rows[-1]

    # ---- claims ----

    def claim(self, what, paper, ours, ordered=True, within=WITHIN):
        """A number of the paper's text, and ours: None if it could not be had."""
        ratio = None if ours is None or not paper else ours / paper
        self.claims.append((what, paper, ours, ratio, verdict(paper, ours, ordered, within)))

    def cause(self, text, *parts):
        """Why claims that contain one of these parts are missed; without parts: all that have no cause yet."""
        self.causes.append((text, parts))

    def cause_of(self, what, judged):
        """The cause in a line of a claim that is not reproduced; nothing of the others. scripts/evaluation refuses misses without one."""
        fitting = [text for text, parts in self.causes if not parts or any(part in what for part in parts)]
        return fitting[0] if fitting and judged.startswith("not reproduced") else ""

    def reduction(self, what, paper, ours):
        """Below something else by so many per cent; 90 % for 80 % is a factor of 10 for 5."""
        ratio = None if ours is None or ours >= 100 else (100 - paper) / (100 - ours)
        self.claims.append((what + ", %", paper, ours, ratio, verdict(1, ratio, ratio is None or ours > 0, WITHIN)))

    def sentence(self, what, paper, ours, holds):
        """What the paper says without a ratio, such as a bound or an order of magnitude, and whether it holds here."""
        self.claims.append((what, paper, ours, None, "reproduced" if holds else "not reproduced"))

    def given(self, what, paper, ours, field):
        """A number of the paper that a field of the model was derived from."""
        ratio = None if ours is None or not paper else ours / paper
        self.claims.append((what, paper, ours, ratio, f"input: `{field}` was derived from it"))

    def say(self, text):
        self.notes.append(text)

    def beside(self, change, why):
        """All claims once more with another value of the model, and those whose verdict depends on it."""
        if SET:
            return
        done = subprocess.run([sys.executable, sys.argv[0]], env={**os.environ, "PAWL_FIGURES_SET": change}, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{self.name} with {change}: {done.stderr.strip()}")
        other = json.loads(done.stdout)
        self.rows += other["rows"]
        lines = [f"| {what} | {number(paper)} | {number(ours)}: {judged} | {number(then)}: {then_judged} |"
                 for (what, paper, ours, _, judged), (_, _, then, _, then_judged) in zip(self.claims, other["claims"]) if judged.split(":")[0] != then_judged.split(":")[0]]
        self.say("\n".join([f"{why} Verdicts that rest on it:", "", f"| claim that rests on it | paper | here | with `{change}` |", "|---|---|---|---|", *lines]) if lines else
                 f"{why} No verdict rests on it.")

    # ---- writing ----

    def write(self, plot):
        if SET:
            print(json.dumps({"claims": self.claims, "rows": self.rows}))
            return
        os.makedirs(FOLDER, exist_ok=True)
        self._tsv()
        self._svg(plot)
        with open(os.path.join(FOLDER, self.name + ".json"), "w", encoding="utf-8") as out:
            out.write(json_lines({"title": self.title, "model": self.model, **plot.shown}))
        self._section()
        print(f"{self.name}: {len(self.rows)} runs")
        for what, paper, ours, _, judged in self.claims:
            print(f"  {what}: paper {number(paper)}, here {number(ours)}: {judged}")

    def _tsv(self):
        with open(os.path.join(FOLDER, self.name + ".tsv"), "w", encoding="utf-8") as out:
            print(f"# {self.title}. Simulated, model {self.model}.", file=out)
            print("\t".join(["label", *COLUMNS, *VERBS, *(s + "_ns" for s in STEPS), "model", *(["more"] if self.keeps else []), "command"]), file=out)
            for r in self.rows:
                values = [r["label"]] + [r[c] for c in COLUMNS] + [r["per_cycle"][v] for v in VERBS]
                values += ["-" if r["mean_ns"][s] is None else r["mean_ns"][s] for s in STEPS]
                more = [json.dumps({k: r[k] for k in self.keeps}, separators=(",", ":"))] if self.keeps else []
                print("\t".join(map(str, values + [r["model"]["name"], *more, r["command"]])), file=out)

    def _svg(self, plot):
        svg = os.path.join(FOLDER, self.name + ".svg")
        with tempfile.TemporaryDirectory() as folder:
            script = plot(folder, f"{self.title} (simulated, model {self.model})")
            head = (
                f"set terminal svg size {plot.size[0]},{plot.size[1]} font 'sans,12' noenhanced background '#ffffff'\n"
                f"set output '{svg}'\nset key outside right top\nset grid ytics lc rgb '#dddddd'\n"
                # gnuplot has eight colours; some figures have more curves
                "set linetype 9 lc rgb '#9aa500'\nset linetype 10 lc rgb '#ff9ec4'\nset linetype 11 lc rgb '#8a5a2b'\nset linetype 12 lc rgb '#9e9e9e'\n"
                "set linetype cycle 12\n"
            )
            subprocess.run(["gnuplot"], input=head + script, text=True, check=True)

    def _section(self):
        lines = [f"## {self.name}: {self.title}", "", f"![{self.title}]({self.name}.svg)", ""]
        lines += [f"Simulated, model `{self.model}`; data and commands: [{self.name}.tsv]({self.name}.tsv); made by `bench/figures/{self.name}`.", ""]
        if self.claims:
            lines += ["| claim | paper | here | here / paper | verdict | cause of a miss |", "|---|---|---|---|---|---|"]
            for what, paper, ours, ratio, judged in self.claims:
                lines.append(f"| {what} | {number(paper)} | {number(ours)} | {'' if ratio is None else f'{ratio:.2f}'} | {judged} | {self.cause_of(what, judged)} |")
            lines.append("")
        if self.missing:
            lines += [f"Not in this build: {', '.join(sorted(self.missing))}.", ""]
        for note in self.notes:
            lines += [wrapped(note), ""]
        put_section(self.name, "\n".join(lines))


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def verdict(paper, ours, ordered, within):
    if ours is None:
        return "could not be tried"
    if not ordered:
        return "not reproduced: another order"
    off = ours / paper - 1
    return "reproduced" if abs(off) <= within else f"not reproduced: {off:+.0%}"


INTRO = """# Figures of the papers, in the simulated cluster

Every figure here is simulated: the real lock code runs in virtual time on a model of the paper's testbed. The model's numbers are
in `src/world/model.c`, each *stated* by the paper, *derived* from its numbers, found in its *artifact*, or *assumed*; none was fitted
to a result. `scripts/figures` makes all figures, `bench/figures/NAME` makes one. A claim is *reproduced* when the ordering is the
paper's and the ratio within 25 %; the scripts compute the verdicts. Reductions by a percentage are compared as factors. A claim that
a number of the model was derived from is an *input* and gets no verdict; where results with another value had been seen before, the
figure names the verdicts of other claims that rest on it. Claims without a ratio are judged by their sentence. Papers print most results as pictures only, so the tables
have the numbers of their text.

How it is measured: clients lock and unlock without a pause. After a warm-up, all operations that end within a window count. Verbs
per operation are all verbs of the window divided by these operations. The designs have their default parameters unless a row says
`--tune`.

ShiftLock's bank (4.5, Figure 11) and FissLock's run on a real Redis: `scripts/bank`.
"""


def json_lines(value):
    """JSON in lines of about WIDTH columns."""
    lines = [""]
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|[^",]+|,', json.dumps(value, separators=(",", ":"))):
        lines[-1] += token
        if token == "," and len(lines[-1]) > WIDTH - 20:
            lines.append("")
    return "\n".join(lines) + "\n"


def put_section(name, text):
    """Replaces the section of that name, or puts it at its place in the order of names."""
    path = os.path.join(FOLDER, "README.md")
    sections = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as old:
            sections = {m[1]: m[2] for m in re.finditer(r"<!-- (\S+) -->\n(.*?)<!-- end -->", old.read(), re.S)}
    sections[name] = text
    with open(path, "w", encoding="utf-8") as out:
        out.write(INTRO)
        for key in sorted(sections):
            out.write(f"\n<!-- {key} -->\n{sections[key].rstrip()}\n<!-- end -->\n")


# ---- plots: functions of a scratch folder that return gnuplot commands ----


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def sized(width, height):
    def mark(function):
        function.size = (width, height)
        return function

    return mark


def lines_plot(panels, xlabel, ylabel, log="", columns=2):
    """Panels: {title: {line: [(x, y), ...]}}."""
    rows = (len(panels) + columns - 1) // columns

    @sized(max(720, 460 * min(columns, len(panels))), 330 * rows + 30)
    def plot(folder, title):
        out = [f"set multiplot layout {rows},{min(columns, len(panels))} title {quoted(title)}"]
        out += [f"set xlabel '{xlabel}'", f"set ylabel '{ylabel}'"] + ([f"set logscale {log}"] if log else ["set yrange [0:*]"])
        for p, (panel, series) in enumerate(panels.items()):
            parts = []
            for i, (label, points) in enumerate(series.items()):
                path = os.path.join(folder, f"{p}-{i}")
                with open(path, "w", encoding="utf-8") as data:
                    data.writelines(f"{x} {y}\n" for x, y in points)
                parts.append(f"'{path}' with linespoints lw 2 pt {i + 4} title {quoted(label)}")
            out.append(f"set title {quoted(panel)}")
            out.append("plot " + ", ".join(parts) if parts else "clear")
        return "\n".join(out + ["unset multiplot"]) + "\n"

    plot.shown = {"lines": panels, "x": xlabel, "y": ylabel, "log": log}
    return plot


def bars_plot(groups, ylabel, log=False):
    """Groups: {group: {bar: y}}."""

    @sized(max(640, 100 * len(groups) + 220), 440)
    def plot(folder, title):
        bars = []
        for values in groups.values():
            bars += [b for b in values if b not in bars]
        path = os.path.join(folder, "data")
        with open(path, "w", encoding="utf-8") as data:
            for group, values in groups.items():
                data.write(f'"{group}" ' + " ".join(str(values.get(b, 0) or 0) for b in bars) + "\n")
        out = [f"set title {quoted(title)}", "set xtics rotate by -30", "set style data histogram", "set style histogram clustered gap 1", "set style fill solid 0.8", f"set ylabel '{ylabel}'"]
        out.append("set logscale y" if log else "set yrange [0:*]")
        parts = [f"'{path}' using {i + 2}:xtic(1) title {quoted(b)}" for i, b in enumerate(bars)]
        return "\n".join(out + ["plot " + ", ".join(parts)]) + "\n"

    plot.shown = {"bars": groups, "y": ylabel, "log": "y" if log else ""}
    return plot


def per(a, b, member="goodput"):
    """The ratio of two runs; None if one is missing."""
    return a[member] / b[member] if a and b and b[member] else None
