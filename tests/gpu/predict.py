#!/usr/bin/env python3
"""Prints the table of PREDICTED.md: what a step of each exported model takes at least.

    predict.py CAIRN_NODE MODELS

MODELS is the folder that "gpu_worker.py export" writes. Needs no GPU.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BOARDS = pathlib.Path(__file__).resolve().parents[2] / "boards"
SITE = """schema: cairn/site/v1
extends: {board}
name: predicted
state: state
job: job.yaml
data:
  made-up: {{inputs: none.npy, labels: none.npy}}
"""
JOB = """schema: cairn/job/v1
name: predicted
model: {model}
loss: {loss}
data: {{set: made-up}}
train: {{batch: {batch}, local_steps: 1, learning_rate: 0.05, momentum: 0.9}}
rounds: {{count: 1}}
"""


def predict(node, row, models, folder):
    (folder / "site.yaml").write_text(SITE.format(board=BOARDS / "host" / "board.yaml"))
    (folder / "job.yaml").write_text(JOB.format(model=models / row["file"], loss=row["loss"], batch=row["batch"]))
    done = subprocess.run([node, "bench", "--predict", "--json", folder / "site.yaml"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{row['name']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    node, models = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    rows = json.loads((models / "rows.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(rows):
            found = predict(node, row, models, pathlib.Path(folder))
            if not number:
                print("| model | batch | calls | GFLOP | MiB |",
                      " | ".join(device["device"] for device in found["devices"]), "|")
                print("|---|---|---|---|---|" + "---|" * len(found["devices"]))
            times = " | ".join(f"{device['step_ms']:.2f} / {device['step_ms_16_bits']:.2f}"
                               for device in found["devices"])
            print(f"| {row['name']} | {row['batch']} | {found['calls']} | {found['flops'] / 1e9:.2f} "
                  f"| {found['bytes'] / 2 ** 20:.0f} | {times} |")


if __name__ == "__main__":
    main()
