#!/usr/bin/env python3
"""Stands between a program and a daemon, and records what the program sends. On SIGUSR1 it sends the whole recording again.

recordings.py ADDRESS:PORT    prints its own port; then, after each signal, how many datagrams it has sent
"""
import select
import signal
import socket
import sys

host, port = sys.argv[1].rsplit(":", 1)
daemon = (host, int(port))
front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
front.bind(("127.0.0.1", 0))
backs = {}  # by the program's address: the socket in its name
recording = []
wanted = []
signal.signal(signal.SIGUSR1, lambda *_: wanted.append(1))
print(f"listens at 127.0.0.1:{front.getsockname()[1]}", flush=True)
while True:
    try:
        readable, _, _ = select.select([front, *backs.values()], [], [], 0.05)
    except InterruptedError:
        continue
    if wanted:
        wanted.clear()
        for data in list(recording):
            next(iter(backs.values())).sendto(data, daemon)
        print(f"again {len(recording)}", flush=True)
    for ready in readable:
        data, sender = ready.recvfrom(65536)
        if ready is front:
            recording.append(data)
            if sender not in backs:
                backs[sender] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            backs[sender].sendto(data, daemon)
        else:
            front.sendto(data, next(a for a, s in backs.items() if s is ready))
