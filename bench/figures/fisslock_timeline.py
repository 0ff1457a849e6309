"""Runs of build/bench/fisslock-timeline, which simulates the rack and prints numbers by lines."""
import os

import kit

PROGRAM = kit.program("fisslock-timeline")


class Timeline(kit.Figure):
    columns = ()  # of the program's lines

    def series(self, *words):
        if kit.AGAIN:
            rows = kit.earlier_series(self.name, f"fisslock-timeline {' '.join(words)}")
        else:
            done = kit.cached([PROGRAM, *words])
            if done.returncode:
                raise SystemExit(f"{self.name}: fisslock-timeline {' '.join(words)}: {done.stderr.strip()}")
            rows = [tuple(map(float, line.split("\t"))) for line in done.stdout.splitlines()]
        self.rows.append((" ".join(words), rows))
        return rows

    def _tsv(self):
        with open(os.path.join(kit.FOLDER, self.name + ".tsv"), "w", encoding="utf-8") as out:
            print(f"# {self.title}. Simulated, model {self.model}; made by fisslock-timeline.", file=out)
            print("\t".join(("command", *self.columns)), file=out)
            for command, rows in self.rows:
                for row in rows:
                    print("\t".join((f"fisslock-timeline {command}", *(f"{v:g}" for v in row))), file=out)
