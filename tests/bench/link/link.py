#!/usr/bin/env python3
"""Measures uploads over thin, lossy links, resumes where it stopped, prints the tables of README.md.

    link.py BUILD OUT matrix            the whole table with a simulated clock (bench_pace)
    link.py BUILD OUT sockets [LIBCOAP] six named cells over sockets: ours over UDP and TCP with cubic and bbr, and
                                        libcoap's Block1 and Q-Block
    link.py BUILD OUT fair              beside itself and beside a cubic TCP flow
    link.py BUILD OUT print

BUILD is build/release. OUT is a file with one result a line; what is in it is not measured again. "sockets" and
"fair" need root: two network namespaces, and between them tests/support/relay carrying IP packets (the kernel may
lack netem), or a veth pair with tbf. LIBCOAP is a folder with libcoap's example programs coap-client and coap-server
built with Q-Block:

    cmake -S libcoap-4.3.5 -B LIBCOAP -DENABLE_Q_BLOCK=ON -DENABLE_DTLS=OFF -DENABLE_DOCS=OFF -DBUILD_SHARED_LIBS=OFF
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

MB = 1 << 20
CELLS = {  # Mbit/s, round trip in ms, loss in % each way
    "lan": (100, 20, 0), "dsl": (20, 40, 0), "wifi": (20, 40, 1),
    "far": (20, 200, 1), "edge": (2, 200, 5), "satellite": (20, 600, 1)}
BLOCK_S = 60
FAIR_S = 40
FAIR_QUEUES_MS = (40, 50, 70, 100, 200, 300, 500)
NEAR, FAR = "10.77.0.1", "10.77.0.2"


class Results:
    def __init__(self, path):
        self.path, self.lines = path, {}
        if os.path.exists(path):
            for line in open(path):
                entry = json.loads(line)
                self.lines[entry["key"]] = entry

    def has(self, key):
        return key in self.lines

    def add(self, key, **values):
        entry = {"key": key, **values}
        self.lines[key] = entry
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")
        print(key, values, flush=True)


# ---- the simulated matrix

def matrix(build, results):
    program = os.path.join(build, "tests/bench/bench_pace")
    for size, rates in ((64 << 10, (2, 20, 100)), (5 * MB, (2, 20, 100)), (50 * MB, (100,))):
        for rate in rates:
            for rtt in (20, 40, 200, 600):
                for loss in (0, 1, 5, 10):
                    key = f"pace {size} {rate} {rtt} {loss}"
                    if results.has(key):
                        continue
                    words = subprocess.run([program, str(size), str(rate), str(rtt), str(loss)],
                                           capture_output=True, text=True, check=True).stdout.split()
                    results.add(key, bdps=float(words[4]), share=float(words[5].rstrip("%")))


# ---- two namespaces and a link

def run(*command):
    subprocess.run(command, check=True)


class Link:
    """A link between two namespaces: the relay's model, or a veth pair with tbf when there is no delay."""

    def __init__(self, build, rate, rtt, loss, queue_ms, tbf=False, extra=()):
        self.near, self.far = f"cairn-near-{os.getpid()}", f"cairn-far-{os.getpid()}"
        self.build, self.relay, self.children = build, None, []
        for name in (self.near, self.far):
            run("ip", "netns", "add", name)
        if tbf:
            run("ip", "link", "add", "cnear", "type", "veth", "peer", "name", "cfar")
        else:
            self.relay = subprocess.Popen(
                [os.path.join(build, "tests/support/relay"), "cnear", "cfar", f"rate={rate * 1e6}", f"delay={rtt / 2}",
                 f"queue={queue_ms}", f"loss={loss / 100}", "seed=11", *extra], stdout=subprocess.PIPE, text=True)
            self.relay.stdout.readline()
        for name, device, own in ((self.near, "cnear", NEAR), (self.far, "cfar", FAR)):
            run("ip", "link", "set", device, "netns", name)
            run("ip", "-n", name, "address", "add", f"{own}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "route", "replace", "10.77.0.0/24", "dev", device)
            if tbf:
                run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                    f"{rate}mbit", "burst", "15k", "latency", f"{queue_ms}ms")

    def congestion(self, name):
        for where, device in ((self.near, "cnear"), (self.far, "cfar")):
            run("ip", "-n", where, "route", "replace", "10.77.0.0/24", "dev", device, "congctl", name)

    def start(self, where, *command, **options):
        child = subprocess.Popen(["ip", "netns", "exec", where, *command], text=True, **options)
        self.children.append(child)
        return child

    def serve(self, *command):
        child = self.start(self.far, *command, stdout=subprocess.PIPE)
        child.stdout.readline()
        return child

    def ours(self, port, transport, size, seconds=0):
        program = os.path.join(self.build, "tests/bench/bench_link")
        self.serve(program, "serve", f"{FAR}:{port}")
        return self.start(self.near, program, "send", f"{FAR}:{port}", transport, str(size), str(seconds),
                          stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children + ([self.relay] if self.relay else []):
            child.kill()
            child.wait()
        for name in (self.near, self.far):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def bits(child):
    out = child.communicate()[0]
    found = re.search(r"(\d+) bit/s", out)
    return float(found.group(1)) if found else 0.0


def queue_of(rtt):
    return max(rtt, 50)


def tcp_flow(role, port, seconds, congestion):
    """A plain TCP flow: 'receive' prints what came in a second on the average of the time that the sender sends."""
    if role == "receive":
        with socket.create_server(("0.0.0.0", port)) as server:
            print("ready", flush=True)
            peer, _ = server.accept()
            begin, count = time.monotonic(), 0
            while time.monotonic() < begin + seconds:
                data = peer.recv(1 << 16)
                if not data:
                    break
                count += len(data)
            print(f"{8 * count / (time.monotonic() - begin):.0f} bit/s", flush=True)
        return
    with socket.socket() as flow:
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        flow.connect((FAR, port))
        end = time.monotonic() + seconds + 1
        try:
            while time.monotonic() < end:
                flow.send(bytes(1 << 14))
        except OSError:
            pass


# ---- ours beside others, one after the other

def upload(build, cell, transport, congestion, size):
    rate, rtt, loss = CELLS[cell]
    with Link(build, rate, rtt, loss, queue_of(rtt)) as link:
        link.congestion(congestion)
        return bits(link.ours(5684, transport, size)) / 1e6


def block(build, cell, libcoap, option, size):
    """A PUT of libcoap's own client for a minute at most; what came in that time is extrapolated."""
    rate, rtt, loss = CELLS[cell]
    with Link(build, rate, rtt, loss, queue_of(rtt)) as link, tempfile.TemporaryDirectory() as folder:
        body = os.path.join(folder, "body")
        with open(body, "wb") as file:
            file.write(os.urandom(size))
        link.start(link.far, os.path.join(libcoap, "coap-server"), "-A", FAR, "-d", "10", "-L", option,
                   stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        begin = time.monotonic()
        before = received(link)
        client = link.start(link.near, os.path.join(libcoap, "coap-client"), "-m", "put", *(["-N"] if option == "7" else []),
                            "-b", "1024", "-L", option, "-B", str(BLOCK_S), "-f", body, f"coap://{FAR}/upload",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            client.wait(BLOCK_S + 10)
        except subprocess.TimeoutExpired:
            client.kill()
        elapsed = time.monotonic() - begin
        count = received(link) - before
        whole = count >= size
        return 8e-6 * (size if whole else count / 1.07) / elapsed, whole


def received(link):
    out = subprocess.run(["ip", "-n", link.far, "-j", "-s", "link", "show", "cfar"], capture_output=True, text=True,
                         check=True).stdout
    return json.loads(out)[0]["stats64"]["rx"]["bytes"]


def sockets(build, results, libcoap=None):
    for cell in CELLS:
        size = 5 * MB if CELLS[cell][0] > 2 else MB
        for name, transport, congestion in (("ours over UDP", "udp", "cubic"), ("ours over TCP, cubic", "tcp", "cubic"),
                                            ("ours over TCP, bbr", "tcp", "bbr")):
            key = f"sockets {cell} {name}"
            if not results.has(key):
                results.add(key, mbit=round(upload(build, cell, transport, congestion, size), 3), size=size)
        for name, option in (("Block1", "1"), ("Q-Block", "7")):
            key = f"sockets {cell} {name}"
            if libcoap and not results.has(key):
                mbit, whole = block(build, cell, libcoap, option, size)
                results.add(key, mbit=round(mbit, 3), size=size, extrapolated=not whole)


# ---- together on one link

def fair(build, results):
    me = [sys.executable, os.path.abspath(__file__), "flow"]
    cells = [("20 Mbit/s, 40 ms, queue 50 ms", 20, 40, 50, False), ("20 Mbit/s, 40 ms, queue 200 ms", 20, 40, 200, False),
             ("20 Mbit/s, tbf, queue 50 ms", 20, 0, 50, True), ("5 Mbit/s, 100 ms, queue 100 ms", 5, 100, 100, False)]
    cells += [(f"10 Mbit/s, 40 ms, queue {queue} ms", 10, 40, queue, False) for queue in FAIR_QUEUES_MS]
    for name, rate, rtt, queue, tbf in cells:
        for other in ("ours", "cubic") if rate != 10 else ("cubic",):
            key = f"fair {name} beside {other}"
            if results.has(key):
                continue
            with Link(build, rate, rtt, 0, queue, tbf) as link:
                if other == "cubic":
                    flow = link.serve(*me, "receive", "6000", str(FAIR_S), other)
                    link.start(link.near, *me, "send", "6000", str(FAIR_S), other)
                else:
                    flow = link.ours(5685, "udp", 5 * MB, FAIR_S)
                time.sleep(2 if other == "cubic" else 0)
                one = link.ours(5684, "udp", 5 * MB, FAIR_S - 4 if other == "cubic" else FAIR_S)
                ours, theirs = bits(one), bits(flow)
            results.add(key, ours=round(ours / 1e6, 2), other=round(theirs / 1e6, 2), link=rate)


# ---- tables

def show(results):
    rows = {}
    for key, entry in results.lines.items():
        words = key.split()
        if words[0] == "pace":
            rows.setdefault(tuple(int(word) for word in words[1:4]), {})[int(words[4])] = entry
    print("| size, rate, round trip (BDPs) | 0 % | 1 % | 5 % | 10 % loss |\n|---|---|---|---|---|")
    for (size, rate, rtt), cells in sorted(rows.items()):
        text = "64 KB" if size < MB else f"{size // MB} MB"
        shares = " | ".join(f"{cells[loss]['share']:.1f}" for loss in sorted(cells))
        print(f"| {text}, {rate} Mbit/s, {rtt} ms ({cells[0]['bdps']}) | {shares} |")
    names = ("ours over UDP", "ours over TCP, cubic", "ours over TCP, bbr", "Block1", "Q-Block")
    print("\n| cell |", " | ".join(names), "|\n|---" + "|---" * len(names) + "|")
    for cell, (rate, rtt, loss) in CELLS.items():
        found = [results.lines.get(f"sockets {cell} {name}") for name in names]
        texts = [f"{entry['mbit']:.2f}{' *' if entry.get('extrapolated') else ''}" if entry else "–" for entry in found]
        print(f"| {cell}: {rate} Mbit/s, {rtt} ms, {loss} % |", " | ".join(texts), "|")
    print("\n| link | beside | ours | the other |\n|---|---|---|---|")
    for key, entry in results.lines.items():
        if key.startswith("fair "):
            link, other = key[5:].split(" beside ")
            print(f"| {link} | {other} | {entry['ours']:.2f} | {entry['other']:.2f} |")


def main(arguments):
    if arguments and arguments[0] == "flow":
        tcp_flow(arguments[1], int(arguments[2]), float(arguments[3]), arguments[4])
        return
    if len(arguments) < 3 or arguments[2] not in ("matrix", "sockets", "fair", "print"):
        sys.exit(__doc__)
    build, results = os.path.abspath(arguments[0]), Results(arguments[1])
    {"matrix": matrix, "sockets": sockets, "fair": fair, "print": lambda _, found: show(found)}[arguments[2]](
        build, results, *arguments[3:])


if __name__ == "__main__":
    main(sys.argv[1:])
