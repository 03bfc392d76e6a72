"""What it gains that gradients travel while the backward pass goes on: step times on a thin link.

    overlap.py BUILD [RATE [HIDDEN STEPS]]       RATE of each board's link, 100mbit by default

Two boards in network namespaces train a perceptron with three hidden layers; links are token buckets (tbf).
Variants in turn, three times each: all gradients in one piece after the backward pass, fixed buckets, buckets
from measurement. Medians over the steps of board-1's timeline; ratios to the first row.
"""

import json
import os
import statistics
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import lan  # noqa: E402
import wide_model  # noqa: E402
from scenarios import usage  # noqa: E402

VARIANTS = {"in one piece": "1 TiB", "64 KiB": "64 KiB", "256 KiB": "256 KiB", "1 MiB": "1 MiB", "measured": "auto"}
REPEATS = 3
WARM = 24  # steps: the first window of measurements is over
BATCH = 1024  # samples: computing takes about as long as the wire


class Thin(lan.Lan):
    def __init__(self, build, rate, boards=2, burst="32kb", **job):
        self.rate, self.burst = rate, burst
        super().__init__(build, {"lab": [f"board-{i + 1}" for i in range(boards)]}, **job)

    def wire(self):
        super().wire()
        for name in self.names:
            if name == "gateway" or not self.rate:
                continue
            shape = ["root", "tbf", "rate", self.rate, "burst", self.burst, "latency", "50ms"]
            self.tc(self.switch, self.port_of(name), shape)
            self.tc(self.space(name), "lan", shape)

    @staticmethod
    def tc(space, device, shape):
        subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, *shape], check=True)


def steps_of(path):
    """Spans of each step of a timeline, by (member, step): {row name: [(begin, end)]}."""
    steps = {}
    with open(path) as file:
        for event in json.load(file):
            if event["ph"] == "X":
                spans = steps.setdefault((event["pid"], event["args"]["number"]), {})
                spans.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    return steps


def times_of(path):
    """Milliseconds of each step of the first member: whole, compute, bytes on the wire."""
    whole, compute, wire = [], [], []
    for (member, number), spans in steps_of(path).items():
        if member != 0 or "apply" not in spans or number <= WARM:
            continue
        begun, computed = spans["compute"][0]
        whole.append((spans["apply"][0][1] - begun) / 1000)
        compute.append((computed - begun) / 1000)
        wire.append(sum(end - begin for begin, end in spans["bucket"]) / 1000)
    return whole, compute, wire


def run(build, rate, bucket, hidden, steps, batch=BATCH):
    with Thin(build, rate, rounds=1, local_steps=steps, batch=batch, quorum=1, 
              group=f", bucket: {bucket}") as cluster:
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", hidden, hidden, hidden, 10)
        cluster.set_model("wide.onnx")
        cluster.start("gateway")
        cluster.start("board-1", "--timeline", "timeline.json")
        cluster.start("board-2")
        cluster.wait_for_end(300)
        return times_of(cluster.path("timeline.json"))


def main(build, rate="100mbit", hidden="512", steps="80"):
    if not lan.allowed():
        print("skipped: network namespaces are not allowed here")
        return 77
    found = {name: ([], [], []) for name in VARIANTS}
    for _ in range(REPEATS):
        for name, bucket in VARIANTS.items():
            for into, values in zip(found[name], run(build, rate, bucket, int(hidden), int(steps))):
                into.extend(values)
    load = os.getloadavg()[0]
    print(f"two boards, links of {rate}, perceptron 64-{hidden}-{hidden}-{hidden}-10, {REPEATS} runs of {steps} "
          f"steps each; {os.cpu_count()} processors for all, load {load:.1f}")
    print("| buckets | step ms, median | compute | on the wire | ratio |\n|---|---|---|---|---|")
    first = statistics.median(found["in one piece"][0])
    for name, values in found.items():
        step, compute, wire = (statistics.median(v) for v in values)
        print(f"| {name} | {step:.1f} | {compute:.1f} | {wire:.1f} | {first / step:.2f} |")
    return 0


if __name__ == "__main__":
    usage(__doc__)
    sys.exit(main(*sys.argv[1:]))
