"""All-reduces of 4 KB to 100 MB, the product's (encrypted, and plain for comparison) and Gloo's, in turn.

    allreduce.py BENCHES [LINK [RANKS...]]       LINK: loopback (default) or a rate for tbf, 1gbit; RANKS: 2 4 8

BENCHES is the folder of the bench_group_* programs. With a rate each rank has a network namespace, and the table
shows what the wire alone would take: 2 (n - 1) / n of the bytes at 95.6 % of the rate (headers of TCP/IP and
Ethernet, 1500 bytes MTU). Each cell is the median of REPEATS processes' medians. CAIRN_BENCH_PREFIX is put before
each rank's command: "chrt -f 10" where other work shares the machine; CAIRN_BENCH_LARGEST leaves out larger sizes.
"""

import os
import statistics
import subprocess
import sys
import tempfile

KINDS = ["tls", "plain", "gloo"]
REPEATS = int(os.environ.get("CAIRN_BENCH_REPEATS", "3"))
GOODPUT = 1448 / 1514  # tbf counts frames without preamble and checksum
UNITS = {"gbit": 1e9, "mbit": 1e6}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def rate_of(link):
    return float(link[:-4]) * UNITS[link[-4:]]


class Wires:
    """A namespace for each rank, all on one bridge; each link is a token bucket in both directions."""

    def __init__(self, link, ranks):
        self.link, self.ranks = link, ranks
        self.name = f"cb{os.getpid()}"
        self.addresses = [f"10.78.0.{rank + 1}" for rank in range(ranks)]

    def __enter__(self):
        if self.link == "loopback":
            self.addresses = [f"127.91.{os.getpid() & 255}.{rank + 1}" for rank in range(self.ranks)]
            return self
        switch = f"{self.name}s"
        # Enough for a tick of the scheduler; tbf cannot hold a rate with less.
        shape = ["tbf", "rate", self.link, "burst", str(max(32768, int(rate_of(self.link) / 8 / 250))), "latency", "20ms"]
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        ip("-n", switch, "link", "set", "bridge", "up")
        for rank, address in enumerate(self.addresses):
            space = f"{self.name}r{rank}"
            ip("netns", "add", space)
            ip("-n", switch, "link", "add", f"p{rank}", "type", "veth", "peer", "name", "lan", "netns", space)
            ip("-n", switch, "link", "set", f"p{rank}", "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "lan")
            ip("-n", space, "link", "set", "lan", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("netns", "exec", switch, "tc", "qdisc", "add", "dev", f"p{rank}", "root", *shape)
            ip("netns", "exec", space, "tc", "qdisc", "add", "dev", "lan", "root", *shape)
        return self

    def __exit__(self, *_):
        if self.link != "loopback":
            for name in [f"{self.name}s", *(f"{self.name}r{rank}" for rank in range(self.ranks))]:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def enter(self, rank):
        return [] if self.link == "loopback" else ["ip", "netns", "exec", f"{self.name}r{rank}"]


def run(program, wires, largest):
    """{bytes: (us, share of a core)}"""
    with tempfile.TemporaryDirectory() as store:
        prefix = os.environ.get("CAIRN_BENCH_PREFIX", "").split()
        processes = [subprocess.Popen([*wires.enter(rank), *prefix, program, str(rank), store, str(largest), *wires.addresses],
                                      stdout=subprocess.PIPE, text=True) for rank in range(wires.ranks)]
        output = processes[0].communicate()[0]
        codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"{program}: {codes}")
    return {int(size): (float(us), float(share)) for _, size, us, share in map(str.split, output.splitlines())}


def row(size, found, kinds, link, ranks):
    cells = []
    for kind in kinds:
        us = statistics.median(run[size][0] for run in found[kind])
        share = statistics.median(run[size][1] for run in found[kind])
        cells.append(f"{us / 1000:.3g} ({share:.2f})")
    if link == "loopback":
        return f"| {size} | {' | '.join(cells)} |"
    wire = 2 * (ranks - 1) / ranks * size * 8 / (rate_of(link) * GOODPUT)
    encrypted = statistics.median(run[size][0] for run in found["tls"])
    return f"| {size} | {' | '.join(cells)} | {1000 * wire:.3g} | {100 * wire * 1e6 / encrypted:.0f} % |"


def main(benches, link="loopback", *ranks):
    kinds = [kind for kind in KINDS if os.path.exists(os.path.join(benches, f"bench_group_{kind}"))]
    largest = int(os.environ.get("CAIRN_BENCH_LARGEST", "100000000"))
    for count in [int(count) for count in ranks] or [2, 4, 8]:
        found = {kind: [] for kind in kinds}
        with Wires(link, count) as wires:
            for _ in range(REPEATS):
                for kind in kinds:
                    found[kind].append(run(os.path.join(benches, f"bench_group_{kind}"), wires, largest))
        print(f"\n{count} ranks, {link}; ms (share of a core of rank 0); {os.cpu_count()} processors for all, "
              f"load {os.getloadavg()[0]:.1f}\n")
        wire = "" if link == "loopback" else " wire | tls reaches |"
        print(f"| bytes | {' | '.join(kinds)} |{wire}\n|---|{'---|' * (len(kinds) + wire.count('|'))}")
        for size in sorted(found["tls"][0]):
            print(row(size, found, kinds, link, count), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
