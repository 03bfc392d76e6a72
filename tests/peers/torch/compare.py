#!/usr/bin/env python3
"""Times a training step of the zoo in PyTorch and in Cairn, in turn, and prints a Markdown table.

    compare.py BENCH_STEP [--rounds N] [--seconds S] [--models NAME,...]

BENCH_STEP is build/release/tests/bench/bench_step. Each figure is from a process of its own; the table has the
medians of N rounds, in each of which both sides run every row once. With one thread the step is the median
processor time, which other work on the machine disturbs least; with two it is the 10th percentile of the time
that passed. Peak memory is resident; the first step is counted from the start of the process (files in the
page cache). A step is forward, loss, backward and SGD with momentum on one batch of synthetic samples.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "zoo"), str(HERE.parent.parent / "data" / "digits")]
THREADS = (1, 2)


def rows():
    """The zoo's families with the sizes of this comparison: name -> (family, batch)."""
    from models import GPT, Family, ViT, classes, images, tokens
    from record import FAMILIES
    from torch import nn

    import export_cnn

    def mlp():
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    table = {
        "MLP 784-128-64-10": (Family(mlp, images(784), classes(10)), 64),
        "LeNet-5, 28x28": (FAMILIES["lenet"], 64),
        "digits CNN, 8x8": (Family(export_cnn.digits_cnn, images(1, 8, 8), classes(10)), 32),
        "ResNet-8, 32x32": (FAMILIES["resnet8"], 32),
        "ResNet-20, 32x32": (FAMILIES["resnet20"], 32),
        "ResNet-18, 64x64": (FAMILIES["resnet18"], 16),
        "ResNet-50, 64x64": (FAMILIES["resnet50"], 16),
        "MobileNetV2, 32x32": (FAMILIES["mobilenetv2"], 32),
        "1-D CNN, 9x128": (FAMILIES["cnn1d"], 32),
        "LSTM, 64 steps": (FAMILIES["lstm"], 32),
        "GRU, 64 steps": (FAMILIES["gru"], 32),
        "GPT, 2 x 128, 128 tokens": (Family(lambda: GPT(96, 128, 128, 4, 2), tokens(96, 128), classes(96, 128)), 16),
        "ViT, 4 x 128, 32x32": (Family(lambda: ViT(32, 4, 128, 4, 4), images(3, 32, 32), classes(10)), 16),
        "autoencoder, 28x28": (FAMILIES["autoencoder"], 32),
    }
    if "unet" in FAMILIES:
        table["U-Net, 16x16"] = (FAMILIES["unet"], 32)
    return table


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def work(name, threads, seconds):
    """The PyTorch side, in a process of its own."""
    import torch
    from record import loss_of

    torch.set_num_threads(threads)
    family, batch = rows()[name]
    model = family.build().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    inputs, labels = family.inputs(batch), family.labels(batch)
    times, used, first, end = [], [], None, time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        begun, used_before = time.monotonic(), time.process_time()
        optimizer.zero_grad()
        loss_of(family, model(inputs), labels).backward()
        optimizer.step()
        times.append(time.monotonic() - begun)
        used.append(time.process_time() - used_before)
        if first is None:
            first, end = time.monotonic(), time.monotonic() + seconds
    times.sort()
    print(json.dumps({"p10_us": times[len(times) // 10] * 1e6, "cpu_us": statistics.median(used) * 1e6,
                      "peak_resident_bytes": peak_bytes(), "first_step_at_us": first * 1e6}))


def measure(command, threads):
    begun = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(result.stdout)
    return (figures["cpu_us" if threads == 1 else "p10_us"] / 1e3, figures["peak_resident_bytes"] / 2**20,
            (figures["first_step_at_us"] - begun * 1e6) / 1e3,
            figures.get("planned_bytes", 0) / 2**20)


def processor():
    with open("/proc/cpuinfo") as info:
        lines = [line.split(":", 1) for line in info if ":" in line]
    flags = next((value.split() for key, value in lines if key.strip() in ("flags", "Features")), [])
    kind = next((name for name in ("avx512f", "avx2", "asimd") if name in flags), "base")
    count = sum(key.strip() == "processor" for key, _ in lines)
    return f"{platform.machine()} with {kind}, {count} processors"


def blas():
    """Where PyTorch's matrix products come from: MKL, OpenBLAS, or Debian's slow reference."""
    import torch

    if torch.backends.mkl.is_available():
        return "MKL"
    torch.mm(torch.rand(64, 64), torch.rand(64, 64))
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "blas" in line}
    if any("openblas" in path for path in paths):
        return "OpenBLAS"
    return "the reference BLAS" if paths else "a BLAS of its own"


def print_table(results, batches, options):
    import torch

    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {processor()}; PyTorch {torch.__version__} with {blas()}; "
          f"{options.rounds} rounds of {options.seconds:g} s.\n")
    print("| model, batch | threads | Cairn ms | PyTorch ms | ratio | Cairn peak MiB (planned) | PyTorch "
          "| Cairn first step ms | PyTorch |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = {threads: [] for threads in THREADS}
    for (name, threads), (ours, theirs) in results.items():
        a, b = ([statistics.median(column) for column in zip(*side)] for side in (ours, theirs))
        ratios[threads].append(b[0] / a[0])
        print(f"| {name}, {batches[name]} | {threads} | {a[0]:.3f} | {b[0]:.3f} | {ratios[threads][-1]:.2f} "
              f"| {a[1]:.1f} ({a[3]:.1f}) | {b[1]:.0f} | {a[2]:.1f} | {b[2]:.0f} |")
    means = [f"{statistics.geometric_mean(ratios[threads]):.2f} with {threads}" for threads in THREADS]
    print(f"\nGeometric means of the ratios by threads (above 1, Cairn is faster): {', '.join(means)}.")


def compare(options):
    from record import export

    table = {name: row for name, row in rows().items()
             if not options.models or any(part in name for part in options.models.split(","))}
    results = {(name, threads): ([], []) for name in table for threads in THREADS}
    with tempfile.TemporaryDirectory() as directory:
        paths = {name: f"{directory}/{index}.onnx" for index, name in enumerate(table)}
        for name, path in paths.items():
            family, _ = table[name]
            export(family.build(), family.inputs(2), path)
        for _ in range(options.rounds):
            for (name, threads), (ours, theirs) in results.items():
                family, batch = table[name]
                loss = "mse" if family.loss == "mse" else "classes"
                ours.append(measure([options.bench, paths[name], str(batch), str(threads), str(options.seconds),
                                     loss], threads))
                theirs.append(measure([sys.executable, "-W", "ignore", str(HERE / "compare.py"), "worker", "--model",
                                       name, "--threads", str(threads), "--seconds", str(options.seconds)], threads))
    print_table(results, {name: batch for name, (_, batch) in table.items()}, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bench", help="bench_step, or 'worker'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--models", help="only rows whose name contains one of these")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bench == "worker":
        work(options.model, options.threads, options.seconds)
    else:
        compare(options)


if __name__ == "__main__":
    main()
