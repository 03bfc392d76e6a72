#!/usr/bin/env python3
"""Trains the files of tests/data/forms, which newer versions of PyTorch wrote, and compares the losses. Standard library.

    recorded.py CAIRN_NODE FORMS
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import trained  # noqa: E402

TOLERANCE = 2e-5


def main():
    node, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    wrong = []
    for line in (folder / "expected.txt").read_text().splitlines():
        name, loss, batch, rate, *wanted = line.split()
        data = f"inputs: {folder}/{name}-inputs.npy, labels: {folder}/{name}-labels.npy"
        found, problem = trained.losses(node, folder / f"{name}.onnx", data, loss, batch, rate)
        if problem:
            wrong.append(f"{name}: {problem}")
        elif any(abs(one - float(other)) > TOLERANCE * abs(one) for one, other in zip(found, wanted)):
            wrong.append(f"{name}: losses {found}, PyTorch has {wanted}")
    print("\n".join(wrong) or "all as PyTorch has it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
