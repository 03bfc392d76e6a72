#!/usr/bin/env python3
"""Trains models of the zoo in PyTorch and in Cairn and compares: prints a Markdown table, fails on a deviation.

    agree.py ZOO_STEPS [--folder FOLDER] [--forms] [NAME ...]

ZOO_STEPS is build/release/tests/peers/zoo_steps. Gradients of the first step: the norm of the difference over
the norm, the largest of all tensors; at most 1e-5, or twice what PyTorch itself is off by from its float64: deep
models have ReLUs that a rounding switches. A tensor whose gradient is zero but for rounding (below 1e-6 of the
largest one's norm in float64) is left out. Losses of 50 steps and final weights: the largest difference over
three times PyTorch's own spread (record.py says over what); at most 1. --forms trains what TRAINING and EVAL
mode, opset 13 to 17, open and fixed batches export, and compares the losses; of EVAL mode the first.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import record  # noqa: E402
from record import FAMILIES, STEPS, TrainingMode  # noqa: E402

GRADIENT_LIMIT = 1e-5
SPREADS = 3


def run(program, family, model, folder, name, threads=1, steps=STEPS):
    """Layout, losses, and the rows of gradients and weights by name."""
    out = folder / f"{name}.cairn"
    command = [program, model, folder / f"{name}.samples.npy", folder / f"{name}.labels.npy", family.loss,
               family.batch, steps, family.rate, family.momentum, threads, out]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    losses = numpy.array([float(words[1]) for words in lines if words[0] == "loss"])
    rows, start = {}, 0
    flat = {what: numpy.fromfile(f"{out}.{what}", dtype=numpy.float32) for what in ("gradients", "weights")}
    for _, tensor, count in (words for words in lines if words[0] == "tensor"):
        rows[tensor] = {what: flat[what][start:start + int(count)].astype(float) for what in flat}
        start += int(count)
    return losses, rows


def compare(losses, rows, expected):
    """The worst gradient, loss and weight, each as the table has it, and the tensors."""
    norms = {key[6:]: numpy.linalg.norm(expected[key]) for key in expected if key.startswith("exact/")}
    floor = 1e-6 * max(norms.values())
    gradient, theirs, weight, excess = (0, "-"), 0, (0, "-"), 0
    for name, norm in norms.items():
        if norm <= floor or name not in rows:
            continue
        reference = expected[f"gradient/{name}"].ravel()
        off = numpy.linalg.norm(rows[name]["gradients"] - reference) / numpy.linalg.norm(reference)
        gradient = max(gradient, (off, name))
        own = numpy.linalg.norm(reference - expected[f"exact/{name}"].ravel()) / norm
        theirs = max(theirs, own)
        excess = max(excess, off / max(GRADIENT_LIMIT, 2 * own))
    for key in (key for key in expected if key.startswith("weight/")):
        name = key[7:]
        if name not in rows:
            continue
        off = numpy.linalg.norm(rows[name]["weights"] - expected[key].ravel())
        # Below this, a difference is one rounding of float32.
        least = 1e-7 * numpy.linalg.norm(expected[key]) + 1e-12
        weight = max(weight, (off / (SPREADS * max(expected[f"spread/{name}"], least)), name))
    loss = numpy.abs(losses - expected["losses"]).max() / (
        SPREADS * max(expected["loss-spread"], 1e-7 * abs(expected["losses"]).max()))
    return gradient, theirs, loss, weight, excess


def check(program, name, folder):
    family = FAMILIES[name]
    expected = dict(numpy.load(folder / f"{name}.npz"))
    worst = []
    for threads in (1, 2):
        losses, rows = run(program, family, folder / f"{name}.onnx", folder, name, threads)
        worst.append(compare(losses, rows, expected))
    gradient, loss, weight, excess = (max(result[i] for result in worst) for i in (0, 2, 3, 4))
    print(f"| {name} | {sum(expected[key].size for key in expected if key.startswith('exact/')):,} | {gradient[0]:.1e} "
          f"| {worst[0][1]:.1e} | {expected['losses'][0]:.4f} | {expected['losses'][-1]:.4f} "
          f"| {expected['loss-spread']:.1e} | {loss:.2f} | {weight[0]:.2f} |", flush=True)
    wrong = []
    if not excess <= 1:
        wrong.append(f"{name}: the gradient of {gradient[1]} is off by {gradient[0]:.2g}")
    if not loss <= 1:
        wrong.append(f"{name}: losses are {loss:.2f} times as far off as allowed")
    if not weight[0] <= 1:
        wrong.append(f"{name}: {weight[1]} is {weight[0]:.2f} times as far off as allowed")
    return wrong


def check_forms(program, name, folder):
    """What every form of export computes: the same first losses, where both modes mean the same."""
    family = FAMILIES[name]
    model, inputs, _ = record.draw(family)
    expected = numpy.load(folder / f"{name}.npz")["losses"][:3]
    modes = [TrainingMode.TRAINING]
    if not any("BatchNorm" in type(module).__name__ for module in model.modules()):
        modes.append(TrainingMode.EVAL)
    wrong, path = [], folder / f"{name}.form.onnx"
    for form in modes:
        for opset in range(13, 18):
            for dynamic in (False, True):
                record.export(model, inputs[:2], path, form, opset, dynamic)
                what = f"{name}, {form.name}, opset {opset}, {'open' if dynamic else 'fixed'} batch"
                try:
                    losses, _ = run(program, family, path, folder, name, steps=3)
                except subprocess.CalledProcessError:
                    wrong.append(f"{what}: cannot be trained")
                    continue
                # An EVAL export makes one initializer of weights that are equal before training (all LayerNorm
                # scales): from then on it is another model.
                count = 3 if form == TrainingMode.TRAINING else 1
                if not numpy.allclose(losses[:count], expected[:count], rtol=2e-5):
                    wrong.append(f"{what}: losses {losses}, PyTorch has {expected}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--folder", help="where record.py left its files; else it runs first")
    parser.add_argument("--forms", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    wrong = []
    print("| model | parameters | gradient | PyTorch's own | first loss | last loss | spread | losses | weights |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(options.folder or made)
        for name in options.names or FAMILIES:
            if not options.folder:
                record.record(name, folder)
            wrong += check(options.program, name, folder)
            if options.forms:
                wrong += check_forms(options.program, name, folder)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
