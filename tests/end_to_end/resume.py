"""Training alone that is stopped at some step goes on bit for bit, with every optimizer and schedule.

    resume.py BIN [CASE...]         a case by its number; "float16" needs a GPU, an emulated one will do
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIGITS = os.path.join(SOURCE, "tests", "data", "digits")
PROFILE = """schema: cairn/site/v1
state: %s
device: {device}
data: {{d: {{inputs: %s/board-1-images.npy, labels: %s/board-1-labels.npy}}}}
job:
  name: d
  model: %s/{model}.onnx
  loss: {{kind: cross_entropy, smoothing: {smoothing}}}
  data: {{set: d, scale: 0.0625, held_out: 20 %%, {data}}}
  train: {{batch: 16, local_steps: 5, {train}}}
  rounds: {{count: 4}}
"""
CASES = {
    "1": dict(train="learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.001", data="crop: 1", smoothing=0),
    "2": dict(train="learning_rate: 0.01, optimizer: adam, clip: 0.5, schedule: {kind: step, every: 6, factor: 0.5}",
         data="noise: 0.1", smoothing=0.1),
    "3": dict(train="learning_rate: 0.01, optimizer: adamw, keep_optimizer: true, proximal: 0.1, weight_decay: 0.01, "
               "schedule: {kind: cosine, warm_up: 3, factor: 0.1}, freeze: ['*bias']",
         data="flip: true, normalize: channel", smoothing=0),
    # Dropout and statistics of the batch.
    "4": dict(train="learning_rate: 0.05, nesterov: true, schedule: {kind: step, every: 3, factor: 0.5, warm_up: 2}",
              data="flip: true", smoothing=0, model="digits-norm"),
    "float16": dict(train="learning_rate: 0.02, keep_optimizer: true", data="noise: 0.1", smoothing=0,
                    model="digits-norm", device="cuda\ncompute: {precision: float16}"),
}


def train(node, directory, *options):
    command = [node, "train", "--threads", "2", *options, "site.yaml"]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def read(directory, name):
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def losses(directory, name):
    with open(os.path.join(directory, name)) as file:
        return [(row["step"], row["loss"], row["lr"]) for row in csv.DictReader(file)]


def one(node, directory, case):
    for state in ("whole", "parts"):
        with open(os.path.join(directory, "site.yaml"), "w") as file:
            file.write(PROFILE.format(**{"model": "digits-cnn", "device": "cpu", **case}) % (state, DIGITS, DIGITS, DIGITS))
        if state == "whole":
            train(node, directory, "--trace", "whole.csv", "--save", "whole.safetensors")
            continue
        parts = []
        for end in (1, 7, 10, 13, 20):
            train(node, directory, "--steps", str(end), "--trace", "part.csv", "--save", "part.safetensors")
            parts += losses(directory, "part.csv")
    assert parts == losses(directory, "whole.csv"), "another trace: %s" % case
    assert read(directory, "part.safetensors") == read(directory, "whole.safetensors"), "other weights: %s" % case
    assert len(parts) == 20


def files(node, directory, case):
    train(node, directory, "--anew", "--save", "model.onnx", "--training", "--ops", "ops.json", "--order", "sequential", "--seed", "7")
    assert len(json.loads(read(directory, "ops.json"))["traceEvents"]) > 5
    assert len(read(directory, "model.onnx")) == os.path.getsize(
        os.path.join(DIGITS, f"{case.get('model', 'digits-cnn')}.onnx"))


def main():
    node = os.path.join(os.path.abspath(sys.argv[1]), "cairn-node")
    names = sys.argv[2:] or [name for name in CASES if name != "float16"]
    for name in names:
        assert name in CASES, f"there is no case {name}"
    for case in (CASES[name] for name in names):
        with tempfile.TemporaryDirectory(prefix="cairn-test-") as directory:
            one(node, directory, case)
            files(node, directory, case)
    print("%d jobs went on bit for bit" % len(names))


if __name__ == "__main__":
    main()
