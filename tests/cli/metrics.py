# SPDX-License-Identifier: Apache-2.0
"""Reads metrics as Prometheus does, and speaks bad HTTP. Usage:
metrics.py check URL...       the exposition format; prints the names of all metrics
metrics.py dashboard FILE     checks the dashboard against names on standard input
metrics.py value URL SERIES   the value of one series: a name and some of its labels
metrics.py abuse URL          bad requests, long heads, slow clients; then the page must come within a second"""
import json
import random
import re
import socket
import sys
import time
import urllib.request

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(r"(%s)(?:\{(%s(?:,%s)*)\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$" % (NAME, LABEL, LABEL))


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as page:
        kind = page.headers["Content-Type"]
        assert kind.startswith("text/plain; version=0.0.4"), kind
        return page.read().decode()


def parse(text):
    """The samples by name and labels. Each family is announced once, before its samples, which follow each other."""
    types, helped, done, current, samples = {}, set(), set(), None, {}
    assert text.endswith("\n"), "the last line does not end"
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped, "two HELP lines of " + name
            assert len(line.split(" ", 3)) == 4 and line.split(" ", 3)[3], "no help: " + line
            helped.add(name)
            continue
        if line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert kind in ("counter", "gauge") and name not in types, line
            types[name] = kind
            continue
        match = SAMPLE.match(line)
        assert match, "not a sample: " + line
        name, labels = match.group(1), match.group(2) or ""
        assert name in types and name in helped, "not announced: " + line
        assert name == current or name not in done, "samples of %s do not follow each other" % name
        done.add(name)
        current = name
        key = (name, tuple(sorted(re.findall(LABEL, labels))))
        assert key not in samples, "twice: " + line
        assert (types[name] == "counter") == name.endswith("_total"), "counters end in _total: " + line
        samples[key] = float(match.group(3))
    return samples


def value(url, series):
    name, _, labels = series.partition("{")
    wanted = set(re.findall(LABEL, labels))
    found = [v for (n, have), v in parse(fetch(url)).items() if n == name and wanted <= set(have)]
    return sum(found) if found else None


def dashboard(path):
    known = set(sys.stdin.read().split())
    board = json.load(open(path))
    used = set()
    for panel in board["panels"]:
        assert panel["title"] and panel["targets"], panel
        for target in panel["targets"]:
            used |= set(re.findall(r"pawl_\w+", target["expr"]))
    for variable in board["templating"]["list"]:
        used |= set(re.findall(r"pawl_\w+", str(variable["query"])))
    assert used, "the dashboard shows nothing"
    missing = used - known
    assert not missing, "the dashboard names metrics that do not exist: %s" % sorted(missing)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(places) == len(set(places)), "two panels in one place"


def connect(url):
    host, port = re.match(r"http://([^:/]+):(\d+)", url).groups()
    return socket.create_connection((host, int(port)), timeout=10)


def send(url, data, wait=10):
    """The answer's first line, if there is one in time."""
    with connect(url) as s:
        try:
            s.settimeout(wait)
            s.sendall(data)
            return s.recv(4096).split(b"\r\n")[0].decode("latin-1")
        except OSError:
            return ""


def abuse(url):
    chance = random.Random(19)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        line = send(url, b"%s /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % method.encode())
        assert " 405 " in line, (method, line)
    for path in ("/", "/..", "/metrics/", "//metrics", "/%00", "/healthz?x", "/" + "a" * 8000):
        line = send(url, b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
        wanted = "200" if path in ("/", "/healthz?x") else "404"
        assert line == "" or wanted in line or " 4" in line, (path, line)
    assert "200" not in send(url, b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n")
    for _ in range(300):
        send(url, bytes(chance.randrange(256) for _ in range(chance.randrange(200))), 0.001)
        send(url, b"GET /metrics HTTP/1.1\r\n" + bytes(chance.randrange(32, 127) for _ in range(100)) + b"\r\n\r\n", 0.001)
    # Clients that are slow do not stop others: fewer of them than connections are possible.
    slow = [connect(url) for _ in range(20)]
    for s in slow:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHo")
    begin = time.monotonic()
    assert parse(fetch(url))
    took = time.monotonic() - begin
    for s in slow:
        s.close()
    print("a page beside 20 slow clients: %.0f ms" % (took * 1000))


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "check":
        for url in arguments:
            samples = parse(fetch(url))
            assert samples
            print("\n".join(sorted({name for name, _ in samples})))
    elif what == "dashboard":
        dashboard(arguments[0])
    elif what == "value":
        found = value(*arguments)
        print("none" if found is None else "%g" % found)
    elif what == "abuse":
        abuse(arguments[0])
    else:
        sys.exit("metrics.py: unknown: " + what)


if __name__ == "__main__":
    main()
