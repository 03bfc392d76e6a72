"""Rounds to a target with and without control variates, by the number of local steps, in real runs.

usage: corrections.py BUILD/bin [ROUNDS [STEPS...]]

Runs `cairn-aggregator try` as strategies.py does, on both splits, with the job of
tests/examples/strategies/base.yaml. Prints a Markdown table.
"""

import os
import sys
import tempfile

import strategies

JOB = """schema: cairn/job/v1
extends: {base}
train: {{local_steps: {steps}, correction: {correction}}}
"""


def measure(build, split, rounds, steps, correction):
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        path = os.path.join(folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(JOB.format(base=os.path.join(strategies.EXAMPLES, "base.yaml"), steps=steps, correction=correction))
        return strategies.run(build, path, split, rounds)


def main(build, rounds="60", *steps):
    print("| steps | split | none | scaffold |\n|---|---|---|---|")
    for count in [int(each) for each in steps] or (1, 5, 20, 50):
        for split in strategies.SPLITS:
            found = [measure(os.path.abspath(build), split, int(rounds), count, correction)
                     for correction in ("none", "scaffold")]
            print(f"| {count} | {split} | " + " | ".join(map(strategies.cell, found)) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
