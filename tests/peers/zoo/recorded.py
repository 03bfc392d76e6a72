#!/usr/bin/env python3
"""Trains recorded models and compares the losses with PyTorch's. Standard library.

    recorded.py CAIRN_NODE FOLDER    of tests/data/forms or tests/data/losses

A line of expected.txt: name, loss, batch, learning rate, losses. A loss output:NAME:INPUTS is the model's own, and there
is a file for each of its inputs.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import trained  # noqa: E402

TOLERANCE = 2e-5


def say(folder, name, loss):
    """The model, its data and its loss as a profile has them."""
    if not loss.startswith("output:"):
        return f"{name}.onnx", f"inputs: {folder}/{name}-inputs.npy, labels: {folder}/{name}-labels.npy", loss
    _, output, inputs = loss.split(":")
    files = ", ".join(f"{key}: {folder}/{name}-{key}.npy" for key in inputs.split(","))
    return f"{name}-model.onnx", f"inputs: {{{files}}}", f"{{output: {output}}}"


def main():
    node, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    wrong = []
    for line in (folder / "expected.txt").read_text().splitlines():
        name, loss, batch, rate, *wanted = line.split()
        model, data, loss = say(folder, name, loss)
        found, problem = trained.losses(node, folder / model, data, loss, batch, rate)
        if problem:
            wrong.append(f"{name}: {problem}")
        elif any(abs(one - float(other)) > TOLERANCE * abs(one) for one, other in zip(found, wanted)):
            wrong.append(f"{name}: losses {found}, PyTorch has {wanted}")
    print("\n".join(wrong) or "all as PyTorch has it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
