"""Samples a second of a pipeline of two parts beside data parallelism and shards, on a thin link.

    pipeline.py BUILD [RATE [WIDTH]]     for example 100mbit 256
    pipeline.py BUILD scaled [BOARDS...] a Transformer of 110 M parameters on 1 Gbit/s, scaled down by a hundred

Two boards as processes of this machine, one thread each, in network namespaces joined by links of this rate. Two
models: a perceptron of 17 hidden layers (many weights, small activations) and the digits' CNN (few weights, large
activations). In each layout a step trains the same samples: two boards, four micro-batches each.

`scaled` stands for BERT-base with 128 tokens and micro-batches of 8 on boards of 1.5 TFLOP/s: W is 440 MB, A b 3.1 MB and
a micro-batch takes 380 ms. Bytes and rates are divided by a hundred, times are not: a perceptron of five hidden layers of
512 (4.4 MB), micro-batches of 16 (A b is 33 KB), boards that sleep until one of 2.8e8 FLOP/s would be ready
(tests/support/paced_port.c), links of 10 Mbit/s.
"""

import os
import statistics
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import lan  # noqa: E402
import overlap  # noqa: E402
import shards  # noqa: E402
import wide_model  # noqa: E402
from scenarios import usage  # noqa: E402
from sets import share_samples  # noqa: E402
from timeline import spans_of  # noqa: E402

MICRO = 4
LAYOUTS = {"data parallel": "", "stage 1": "shard: 2, stage: 1", "stage 2": "shard: 2, stage: 2",
           "stage 3": "shard: 2, stage: 3", "pipeline of 2": "pipeline: 2"}
MODELS = {"perceptron": (8, 12), "CNN": (64, 60)}  # samples of a micro-batch, steps


def step_seconds(build, rate, model, parallel, width):
    """Median time from one step's apply to the next."""
    batch, steps = MODELS[model]
    with overlap.Thin(build, rate, rounds=1, local_steps=steps, quorum=1, batch=f"{batch}, accumulate: {MICRO}",
                      learning_rate=1e-4, held_out="10 %, scope: shared", form="60 s", timeout="60 s", central=False,
                      extra=f"parallel: {{{parallel}}}" if parallel else "") as cluster:
        share_samples(cluster)
        if model == "perceptron":
            shards.write_model(cluster.path("wide.onnx"), width)
            cluster.set_model("wide.onnx")
        cluster.start("gateway")
        cluster.start("board-1", "--timeline", "timeline.json")
        cluster.start("board-2")
        cluster.wait_for_end(400)
        spans, _ = spans_of(cluster.path("timeline.json"))
    begins = sorted(times[0][0] for (member, _, name), times in spans.items() if member == 0 and name == "apply")
    return statistics.median(b - a for a, b in zip(begins, begins[1:])) / 1e6


SCALED = {"batch": 16, "pace": 2.8e8, "rate": "10mbit", "layers": [512] * 5}


STEPS = 5  # of a round


def scaled_seconds(build, boards, parallel):
    """Median time from one step's apply to the next, and from the last one of a round to the next round's first pass."""
    with overlap.Thin(build, SCALED["rate"], boards, rounds=2, local_steps=STEPS, quorum=1,
                      batch=f"{SCALED['batch']}, accumulate: {MICRO}", learning_rate=1e-4, form="60 s", timeout="120 s",
                      held_out="2 %, scope: shared", central=False, up="{mode: topk, density: 1 %, value_bits: 2}",
                      extra=f"parallel: {{{parallel}}}" if parallel else "") as cluster:
        share_samples(cluster)
        cluster.node = os.path.join(build, "..", "tests", "support", "node_paced")
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", *SCALED["layers"], 10)
        cluster.set_model("wide.onnx")
        cluster.start("gateway")
        cluster.start("board-1", "--timeline", "timeline.json")
        for number in range(2, boards + 1):
            cluster.start(f"board-{number}")
        cluster.wait_for_end(1500)
        spans, _ = spans_of(cluster.path("timeline.json"))
    own = [(begin, end, name) for (member, _, name), times in spans.items() if member == 0 for begin, end, _ in times]
    ends = sorted(end for _, end, name in own if name == "apply")
    first = min(begin for begin, _, name in own if begin > ends[STEPS - 1] and name != "epoch")
    return (statistics.median(b - a for a, b in zip(ends[:STEPS], ends[1:STEPS])) / 1e6,
            (first - ends[STEPS - 1]) / 1e6)


def scaled(build, *wanted):
    if not lan.allowed():
        return
    os.environ["CAIRN_PACE"] = str(SCALED["pace"])
    print(f"links of {SCALED['rate']}, {MICRO} micro-batches a board; load {os.getloadavg()[0]:.1f}")
    print("| boards | layout | step s, median | micro-batches/s | against one board | between two rounds, s |\n"
          "|---|---|---|---|---|---|")
    one = 0
    for boards in map(int, ("1", *(wanted or (2, 4)))):
        layouts = {"": ""} if boards == 1 else {"data parallel": "", "stage 3": f"shard: {boards}, stage: 3",
                                                f"{boards} parts": f"pipeline: {boards}"}
        for layout, parallel in layouts.items():
            seconds, between = scaled_seconds(build, boards, parallel)
            rate = boards * MICRO / seconds
            one = one or rate
            print(f"| {boards} | {layout} | {seconds:.2f} | {rate:.2f} | {rate / one:.2f} | {between:.2f} |", flush=True)


def main(build, rate="100mbit", width="256"):
    if not lan.allowed():
        return
    print(f"two boards, links of {rate}, perceptron of {shards.DEPTH} layers of {width}, {MICRO} micro-batches a board; "
          f"load {os.getloadavg()[0]:.1f}")
    print("| model | layout | step ms, median | samples/s |\n|---|---|---|---|")
    for model, (batch, _) in MODELS.items():
        for layout, parallel in LAYOUTS.items():
            seconds = step_seconds(build, rate, model, parallel, int(width))
            print(f"| {model} | {layout} | {1000 * seconds:.1f} | {2 * MICRO * batch / seconds:.0f} |", flush=True)


if __name__ == "__main__":
    usage(__doc__)
    if sys.argv[2:3] == ["scaled"]:
        scaled(os.path.abspath(sys.argv[1]), *sys.argv[3:])
    else:
        main(*sys.argv[1:])
