#!/usr/bin/env python3
"""Measures uploads of 5 MB while the link stands still once: ours over UDP, and a plain TCP flow with bbr.

    spikes.py BUILD OUT [SEEDS]     measures, 3 seeds unless told, and prints the table of README.md

BUILD is build/release. OUT is a file with one result a line; what is in it is not measured again. Needs root and a
kernel with bbr (net.ipv4.tcp_available_congestion_control), as link.py, whose link it uses. A spike begins behind a
packet of the upload: nothing is delivered for so long, then all that waited is. Nothing is lost by it.
"""

import os
import re
import socket
import statistics
import sys
import time

from link import FAR, MB, Link, Results

RATE, RTT, QUEUE_MS = 20, 40, 50
SIZE = 5 * MB
LOSSES = (0, 1, 5)  # %, each way
SPIKES = [(0, 0)] + [(at, ms) for at in (60, 1000) for ms in (50, 150, 300)]  # packets before it, ms
PORT = 6000


def receive():
    """Takes SIZE bytes of one flow, then answers with one."""
    with socket.create_server(("0.0.0.0", PORT)) as server:
        print("ready", flush=True)
        peer, _ = server.accept()
        left = SIZE
        while left and (data := peer.recv(min(left, 1 << 16))):
            left -= len(data)
        peer.sendall(b"!")
        peer.recv(1)


def send():
    """From the first byte to the answer."""
    with socket.socket() as flow:
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        flow.connect((FAR, PORT))
        begin = time.monotonic()
        flow.sendall(bytes(SIZE))
        if flow.recv(1):
            print(f"{8 * SIZE / (time.monotonic() - begin):.0f} bit/s", flush=True)


def mbit(child):
    found = re.search(r"(\d+) bit/s", child.communicate(timeout=120)[0])
    if not found:
        sys.exit("a flow ended without a result")
    return round(int(found.group(1)) / 1e6, 3)


def measure(build, who, loss, at, ms, seed):
    me = [sys.executable, os.path.abspath(__file__)]
    with Link(build, RATE, RTT, loss, QUEUE_MS, extra=[f"spike_at={at}", f"spike={ms}", f"seed={seed}"]) as link:
        if who == "ours":
            return mbit(link.ours(5684, "udp", SIZE))
        link.serve(*me, "receive")
        return mbit(link.start(link.near, *me, "send", stdout=-1))


def show(results, seeds):
    print("| spike | loss | ours | bbr | ours / bbr |\n|---|---|---|---|---|")
    for at, ms in SPIKES:
        for loss in LOSSES:
            ours, bbr = ([results.lines[f"spike {who} {loss} {at} {ms} {seed}"]["mbit"] for seed in seeds]
                         for who in ("ours", "bbr"))
            name = f"{ms} ms after {at} packets" if ms else "none"
            cells = (f"{statistics.median(one):.1f} ({min(one):.1f}–{max(one):.1f})" for one in (ours, bbr))
            print(f"| {name} | {loss} % | {' | '.join(cells)} | {statistics.median(ours) / statistics.median(bbr):.2f} |")


def main(build, out, count="3"):
    results, seeds = Results(out), range(1, int(count) + 1)
    for seed in seeds:
        for at, ms in SPIKES:
            for loss in LOSSES:
                for who in ("ours", "bbr"):
                    key = f"spike {who} {loss} {at} {ms} {seed}"
                    if not results.has(key):
                        results.add(key, mbit=measure(os.path.abspath(build), who, loss, at, ms, 10 * seed))
    show(results, seeds)


if __name__ == "__main__":
    if sys.argv[1:] in (["receive"], ["send"]):
        {"receive": receive, "send": send}[sys.argv[1]]()
    elif len(sys.argv) in (3, 4):
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)
