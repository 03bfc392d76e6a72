"""Samples a second of a pipeline of two parts beside data parallelism and shards, on a thin link.

    pipeline.py BUILD [RATE [WIDTH]]     for example 100mbit 256

Two boards as processes of this machine, one thread each, in network namespaces joined by links of this rate. Two
models: a perceptron of 17 hidden layers (many weights, small activations) and the digits' CNN (few weights, large
activations). In each layout a step trains the same samples: two boards, four micro-batches each.
"""

import os
import statistics
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import lan  # noqa: E402
import overlap  # noqa: E402
import shards  # noqa: E402
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
    main(*sys.argv[1:])
