"""How near `parallel: auto` comes to the best layout: measured against each layout, with boards that compute slowly.

    auto.py BUILD [CASE...]      CASE is MODEL/BOARDS/MEGABITS, such as deep/2/100; all by default

Boards are processes that compute as fast as PACE says (tests/support/paced_port.c), and sleep meanwhile, so that this
machine has enough processors for all. Links are token buckets (tbf). For each case `auto` runs first; then each layout
runs with as many micro-batches a step as `auto` chose, and with buckets of measured size, too. Times are medians over
the steps of board-1's timeline.
"""

import math
import os
import re
import statistics
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import lan  # noqa: E402
import overlap  # noqa: E402
import wide_model  # noqa: E402
from scenarios import usage  # noqa: E402
from sets import share_samples  # noqa: E402
from timeline import spans_of  # noqa: E402

PACE = 1e9  # additions and multiplications a second of a board
STEPS = {10: (12, 9), 100: (24, 12), 1000: (60, 24)}  # by rate: steps, and those before the size of buckets is measured
BURSTS = {10: "2kb", 100: "4kb", 1000: "32kb"}  # what a link sends at once: a quarter of a millisecond, or a packet
LIMIT_S = 60  # longest run of `auto`
SLOWER = 1.5  # a layout whose run, or whose gradients alone, take this many times as long is given up: it is not the best
# Width and number of hidden layers, samples of a micro-batch; None: the CNN of the digits.
MODELS = {"deep": (192, 12, 8), "wide": (512, 3, 8), "narrow": (64, 8, 64), "CNN": (None, None, 16)}
CASES = [f"{model}/{boards}/{rate}" for model in MODELS for boards in (2, 4) for rate in (10, 100, 1000)]
CHOSE = re.compile(r"parallel: auto: (\d+) (?:replicas? of (\d+) shards?(?:, stage (\d))?|chains? of (\d+) parts), "
                   r"(\d+) micro-batch(?:es)? a step: .*; ([\d.e+]+) ms a step predicted")


def layouts_of(boards):
    """By name: the keys of `parallel`."""
    found = {f"{boards} replicas": f"replicate: {boards}"}
    for shards in range(2, boards + 1):
        if boards % shards == 0:
            for stage in (1, 2, 3):
                found[f"{boards // shards} x {shards} shards, stage {stage}"] = f"shard: {shards}, stage: {stage}"
            found[f"{boards // shards} x {shards} parts"] = f"pipeline: {shards}"
    return found


def least_seconds(case, layout):
    """Seconds for which a board sends gradients in a step of a layout, at the least."""
    model, _, rate = case.split("/")
    width, layers, _ = MODELS[model]
    words = 64 * width + (layers - 1) * width * width + 10 * width if width else 37000
    first, second = (int(number) for number in (re.findall(r"\d+", layout.split(",")[0]) + ["1"])[:2])
    shards = second if "shards" in layout else 1
    share = 2 * (shards - 1) / shards + 2 * (first - 1) / first / second
    return share * words * 4 * 8 / (1e6 * int(rate))


def durations(spans):
    """Microseconds of each step, from the time when the first board begins until the last one has applied it.

    Between two steps boards send board-1 their times for the timeline, which is not counted."""
    steps = {}
    for (_, number, name), times in spans.items():
        if name != "epoch":
            steps.setdefault(number, []).extend(times)
    return [max(end for _, end, _ in times) - min(begin for begin, _, _ in times) for _, times in sorted(steps.items())]


def run(build, case, parallel, micro=1, limit_s=LIMIT_S):
    """Seconds of a step, and what the log of board-1 says."""
    model, boards, rate = case.split("/")
    width, layers, batch = MODELS[model]
    steps, warm = STEPS[int(rate)]
    with overlap.Thin(build, f"{rate}mbit", int(boards), BURSTS[int(rate)], rounds=1, local_steps=steps, quorum=1,
                      batch=f"{batch}, accumulate: {micro}", learning_rate=1e-4, held_out="2 %, scope: shared",
                      form="60 s", timeout="120 s", central=False, group=", bucket: auto", up="{mode: topk, density: 1 %, value_bits: 2}",
                      extra=f"parallel: {parallel}") as cluster:
        share_samples(cluster)
        cluster.node = os.path.join(build, "..", "tests", "support", "node_paced")
        if width:
            wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[width] * layers, 10)
            cluster.set_model("wide.onnx")
        cluster.start("gateway")
        for number in range(int(boards), 0, -1):
            timeline = ["--timeline", "timeline.json"] if number == 1 else []
            cluster.start(f"board-{number}", *timeline)
        try:
            cluster.wait_for_end(limit_s)
        except AssertionError:
            return math.inf, cluster.log("board-1")
        spans, _ = spans_of(cluster.path("timeline.json"))
        log = cluster.log("board-1")
    return statistics.median(durations(spans)[warm:]) / 1e6, log


def name_of(chosen):
    first, shards, stage, parts = (int(value or 0) for value in chosen[:4])
    if parts:
        return f"{first} x {parts} parts", first * parts
    if shards > 1:
        return f"{first} x {shards} shards, stage {stage}", first * shards
    return f"{first} replicas", first


def measure(build, case):
    boards = int(case.split("/")[1])
    begun = time.monotonic()
    seconds, log = run(build, case, "auto")
    limit_s = SLOWER * (time.monotonic() - begun)
    chosen = CHOSE.findall(log.split("the run has ended")[0])[-1]  # then boards leave, and the others choose again
    name, members = name_of(chosen)
    micro = int(chosen[4]) // (int(chosen[3]) if chosen[3] else 1)
    rates = {}
    for other, keys in layouts_of(boards).items():
        if least_seconds(case, other) > SLOWER * seconds * boards / members:
            continue
        took, _ = run(build, case, f"{{{keys}}}", micro, limit_s)
        rates[other] = boards * micro / took
        print(f"    {case}: {other}: {1000 * took:.1f} ms, {rates[other]:.1f} micro-batches/s", file=sys.stderr, flush=True)
    best = max(rates, key=rates.get)
    own = members * micro / seconds
    print(f"| {case.replace('/', ' | ')} | {name}, {micro} | {float(chosen[5]):.0f} | {1000 * seconds:.0f} | {own:.1f} | "
          f"{best} | {rates[best]:.1f} | {own / rates[best]:.2f} |", flush=True)
    return own / rates[best], float(chosen[5]) / 1000 / seconds


def main(build, *cases):
    build = os.path.abspath(build)
    if not lan.allowed():
        return 77
    os.environ["CAIRN_PACE"] = str(PACE)
    print(f"boards of {PACE:.0e} FLOP/s; load {os.getloadavg()[0]:.1f}")
    print("| model | boards | Mbit/s | auto's layout, micro-batches a member | predicted ms | measured ms | micro-batches/s "
          "| best layout | micro-batches/s | ratio |\n" + "|---" * 10 + "|")
    found = [measure(build, case) for case in cases or CASES]
    near = sum(ratio >= 0.9 for ratio, _ in found)
    print(f"{near} of {len(found)} cases are within 10 % of the best; predicted / measured: median "
          f"{statistics.median(share for _, share in found):.2f}")
    return 0


if __name__ == "__main__":
    usage(__doc__)
    sys.exit(main(*sys.argv[1:]))
