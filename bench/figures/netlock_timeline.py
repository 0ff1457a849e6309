"""Figures over time: runs of build/bench/netlock-timeline, which simulates the rack and prints a line per millisecond."""
import os
import subprocess

import kit

PROGRAM = kit.program("netlock-timeline")


class Timeline(kit.Figure):
    def series(self, *words):
        if kit.AGAIN:
            rows = kit.earlier_series(self.name, f"netlock-timeline {' '.join(words)}")
        else:
            out = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout
            rows = [tuple(map(int, line.split("\t"))) for line in out.splitlines()]
        self.rows.append((" ".join(words), rows))
        return rows

    def _tsv(self):
        with open(os.path.join(kit.FOLDER, self.name + ".tsv"), "w", encoding="utf-8") as out:
            print(f"# {self.title}. Simulated, model {self.model}; made by netlock-timeline.", file=out)
            print("command\tms\tfirst\tsecond", file=out)
            for command, rows in self.rows:
                for row in rows:
                    print("\t".join(map(str, (f"netlock-timeline {command}", *row))), file=out)


def mean(rows, column, first, last):
    values = [r[column] for r in rows if first <= r[0] < last]
    return sum(values) / len(values)
