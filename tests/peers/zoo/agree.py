#!/usr/bin/env python3
"""Trains models of the zoo in PyTorch and in Cairn and compares: prints a Markdown table, fails on a deviation.

    agree.py ZOO_STEPS [--folder FOLDER] [--forms] [NAME ...]

ZOO_STEPS is build/release/tests/peers/zoo_steps. What is compared is stated in README.md beside this file: of the
first step's gradients each tensor is within 1e-5 of PyTorch's; or PyTorch's own float32 is not that close to its
float64 either, and ours at most twice as far from it. Losses of 50 steps and final weights: the largest difference
over three times PyTorch's own spread (record.py says over what); at most 1. --forms trains what TRAINING and EVAL
mode, opset 13 to 17, open and fixed batches export, and compares the losses; of EVAL mode the first.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
from torch.onnx import errors

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import record  # noqa: E402
from record import FAMILIES, STEPS, TrainingMode  # noqa: E402

GRADIENT_LIMIT = 1e-5
OWN_ERRORS = 2  # of PyTorch's float32 against its float64, where that is what float32 can do
SPREADS = 3
ZERO = 1e-6  # of the largest tensor's norm: below, a gradient is zero but for rounding, and the largest is the measure
ROUNDING = 1e-7  # of a value: a difference of one rounding of float32 is none


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


def compare_gradients(rows, expected):
    """For each tensor: off from PyTorch, off from float64, PyTorch's own worst off from float64, and its name."""
    norms = {key[6:]: numpy.linalg.norm(expected[key]) for key in expected if key.startswith("exact/")}
    largest, found = max(norms.values()), []
    for name, norm in norms.items():
        if name not in rows:
            continue
        measure, ours = norm if norm > ZERO * largest else largest, rows[name]["gradients"]
        found.append((numpy.linalg.norm(ours - expected[f"gradient/{name}"].ravel()) / measure,
                      numpy.linalg.norm(ours - expected[f"exact/{name}"].ravel()) / measure,
                      expected[f"own/{name}"] / measure, name))
    return found


def over_spread(off, spread, size):
    return off / (SPREADS * max(spread, ROUNDING * size))


def compare_rest(losses, rows, expected):
    """The largest difference of losses, and of a tensor of weights with its name, over what is allowed."""
    weights = []
    for name in (key[7:] for key in expected if key.startswith("weight/") and key[7:] in rows):
        wanted = expected[f"weight/{name}"].ravel()
        weights.append((over_spread(numpy.linalg.norm(rows[name]["weights"] - wanted), expected[f"spread/{name}"],
                                    numpy.linalg.norm(wanted) + 1e-5), name))
    return over_spread(numpy.abs(losses - expected["losses"]).max(), expected["loss-spread"],
                       numpy.abs(expected["losses"]).max()), max(weights)


def row_of(name, gradients, expected, loss, weight):
    beyond = [each for each in gradients if each[0] > GRADIENT_LIMIT]
    close = [each[0] for each in gradients if each[0] <= GRADIENT_LIMIT]
    apart = "| - | - | - |"
    if beyond:
        apart = f"| {len(beyond)} | {max(each[1] for each in beyond):.1e} | {max(each[2] for each in beyond):.1e} |"
    parameters = sum(expected[key].size for key in expected if key.startswith("exact/"))
    return (f"| {name} | {parameters:,} | {len(close)} of {len(gradients)} | {max(close, default=0):.1e} {apart} "
            f"{expected['losses'][0]:.4f} | {expected['losses'][-1]:.4f} | {expected['loss-spread']:.1e} | {loss:.2f} "
            f"| {weight[0]:.2f} |")


def check(program, name, folder):
    family, wrong, worst = FAMILIES[name], [], None
    expected = dict(numpy.load(folder / f"{name}.npz"))
    for threads in (1, 2):
        losses, rows = run(program, family, folder / f"{name}.onnx", folder, name, threads)
        gradients, (loss, weight) = compare_gradients(rows, expected), compare_rest(losses, rows, expected)
        missing = sum(key.startswith("exact/") for key in expected) - len(gradients)
        if missing:
            wrong.append(f"{name}: {missing} tensors of the state_dict have another name or none")
        for off, ours, own, tensor in gradients:
            if not (off <= GRADIENT_LIMIT or ours <= OWN_ERRORS * own):
                wrong.append(f"{name}, {threads} threads: the gradient of {tensor} is off by {off:.2g}; from float64 by "
                             f"{ours:.2g}, PyTorch's own by {own:.2g}")
        if not loss <= 1:
            wrong.append(f"{name}, {threads} threads: losses are {loss:.2f} times as far off as allowed")
        if not weight[0] <= 1:
            wrong.append(f"{name}, {threads} threads: {weight[1]} is {weight[0]:.2f} times as far off as allowed")
        result = (gradients, loss, weight)
        if not worst:
            worst = result
        else:  # tensor by tensor
            worst = ([max(pair) for pair in zip(worst[0], gradients)], max(worst[1], loss), max(worst[2], weight))
    print(row_of(name, worst[0], expected, worst[1], worst[2]), flush=True)
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
                what = f"{name}, {form.name}, opset {opset}, {'open' if dynamic else 'fixed'} batch"
                try:
                    record.export(model, inputs[:2], path, form, opset, dynamic)
                except errors.UnsupportedOperatorError as error:  # newer versions export fewer old opsets
                    print(f"{what}: not exported: {str(error).splitlines()[0][:120]}", file=sys.stderr)
                    continue
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
    print("| model | parameters | tensors within 1e-5 | worst of them | others | from float64 | PyTorch's own | "
          "first loss | last loss | spread | losses | weights |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
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
