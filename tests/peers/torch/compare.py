#!/usr/bin/env python3
"""Times a training step in PyTorch and in Cairn, in turn, and prints a Markdown table.

    compare.py BENCH_STEP [--rounds N] [--seconds S]     BENCH_STEP is build/release/tests/bench/bench_step

Each figure is from a process of its own: the median step of S seconds, its peak resident memory, and the
time from its start to the end of its first step (files in the page cache). The table has the medians of N
rounds, in each of which both sides run every row once. A step is forward, loss, backward and SGD with
momentum on one batch of synthetic samples.
"""
import argparse
import inspect
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MODELS = {  # name: shape of a sample, batch
    "MLP 784-128-64-10": ((784,), 64),
    "LeNet-5, 28x28": ((1, 28, 28), 64),
    "digits CNN, 8x8": ((1, 8, 8), 32),
}
THREADS = (1, 2)


def make_model(name):
    from torch import nn

    if name.startswith("MLP"):
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    if name.startswith("LeNet"):
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
                             nn.ReLU(), nn.Linear(84, 10))
    sys.path.insert(0, str(HERE.parent.parent / "data" / "digits"))
    import export_cnn

    return export_cnn.digits_cnn()


def export(name, path):
    import torch

    shape, _ = MODELS[name]
    more = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(make_model(name).train(), torch.zeros(1, *shape), path,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17,
                      input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}}, **more)


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def work(name, threads, seconds):
    """The PyTorch side, in a process of its own."""
    import torch

    torch.set_num_threads(threads)
    shape, batch = MODELS[name]
    model = make_model(name)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    inputs, labels = torch.rand(batch, *shape) * 2 - 1, torch.arange(batch) % 10
    times, first, end = [], None, time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 10:
        begun = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        times.append(time.monotonic() - begun)
        if first is None:
            first, end = time.monotonic(), time.monotonic() + seconds
    print(json.dumps({"median_us": statistics.median(times) * 1e6, "peak_resident_bytes": peak_bytes(),
                      "first_step_at_us": first * 1e6}))


def measure(command):
    begun = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(result.stdout)
    return (figures["median_us"] / 1e3, figures["peak_resident_bytes"] / 2**20,
            (figures["first_step_at_us"] - begun * 1e6) / 1e3)


def processor():
    with open("/proc/cpuinfo") as info:
        lines = [line.split(":", 1) for line in info if ":" in line]
    flags = next((value.split() for key, value in lines if key.strip() in ("flags", "Features")), [])
    kind = next((name for name in ("avx512f", "avx2", "asimd") if name in flags), "base")
    count = sum(key.strip() == "processor" for key, _ in lines)
    return f"{platform.machine()} with {kind}, {count} processors"


def blas():
    """Where PyTorch's matrix products come from: OpenBLAS, or Debian's slow reference."""
    import torch

    torch.mm(torch.rand(64, 64), torch.rand(64, 64))
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "blas" in line}
    if any("openblas" in path for path in paths):
        return "OpenBLAS"
    return "the reference BLAS" if paths else "a BLAS of its own"


def print_table(results, options):
    import torch

    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {processor()}; PyTorch {torch.__version__} with {blas()}; "
          f"{options.rounds} rounds of {options.seconds:g} s.\n")
    print("| model, batch | threads | Cairn ms | PyTorch ms | ratio | Cairn peak MiB | PyTorch | Cairn first step ms "
          "| PyTorch |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = {threads: [] for threads in THREADS}
    for (name, threads), (ours, theirs) in results.items():
        a, b = ([statistics.median(column) for column in zip(*side)] for side in (ours, theirs))
        ratios[threads].append(b[0] / a[0])
        print(f"| {name}, {MODELS[name][1]} | {threads} | {a[0]:.3f} | {b[0]:.3f} | {ratios[threads][-1]:.2f} | {a[1]:.1f} "
              f"| {b[1]:.0f} | {a[2]:.1f} | {b[2]:.0f} |")
    means = [f"{statistics.geometric_mean(ratios[threads]):.2f} with {threads}" for threads in THREADS]
    print(f"\nGeometric means of the ratios by threads (above 1, Cairn is faster): {', '.join(means)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bench", help="bench_step, or 'worker'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bench == "worker":
        work(options.model, options.threads, options.seconds)
        return
    results = {(name, threads): ([], []) for name in MODELS for threads in THREADS}
    with tempfile.TemporaryDirectory() as directory:
        paths = {name: f"{directory}/{index}.onnx" for index, name in enumerate(MODELS)}
        for name, path in paths.items():
            export(name, path)
        for _ in range(options.rounds):
            for (name, threads), (ours, theirs) in results.items():
                ours.append(measure([options.bench, paths[name], str(MODELS[name][1]), str(threads),
                                     str(options.seconds)]))
                theirs.append(measure([sys.executable, "-W", "ignore", str(HERE / "compare.py"), "worker", "--model",
                                       name, "--threads", str(threads), "--seconds", str(options.seconds)]))
    print_table(results, options)


if __name__ == "__main__":
    main()
