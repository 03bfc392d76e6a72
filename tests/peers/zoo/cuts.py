#!/usr/bin/env python3
"""Cuts models of the zoo into parts, which must train to the bits of the whole model.

    cuts.py TRAINER_CUTS [NAME ...]

TRAINER_CUTS is build/release/tests/contract/trainer_cuts. Each model is exported as agree.py does. Every legal cut into two
parts is trained in two orders, and some cuts into three and four parts. Prints a Markdown table, fails on a difference.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import record  # noqa: E402

LINE = re.compile(r"(\d+) threads: (\d+) nodes, (\d+) places, (\d+) cuts trained, (\d+) with tied tensors")


def cut(program, name, folder):
    """A row of the table, and whether all cuts agreed."""
    family = record.FAMILIES[name]
    model, inputs, _ = record.draw(family)
    path = folder / f"{name}.onnx"
    record.export(model, inputs[:2], path)
    run = subprocess.run([program, "all", path, family.loss], capture_output=True, text=True, check=False)
    found = LINE.findall(run.stdout)
    if run.returncode or not found:
        return f"| {name} | {' '.join((run.stdout + run.stderr).split())[-300:]} | | | |", False
    trained, tied = (sum(int(line[column]) for line in found) for column in (3, 4))
    return f"| {name} | {found[0][1]} | {found[0][2]} | {trained} | {tied} |", True


def main():
    program, failed = pathlib.Path(sys.argv[1]).resolve(), False
    print("| model | nodes | legal cuts into two | cuts trained | with tied tensors |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="cairn-cuts-") as folder:
        for name in sys.argv[2:] or record.FAMILIES:
            row, same = cut(program, name, pathlib.Path(folder))
            failed |= not same
            print(row, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
