"""The losses of a job are PyTorch's, for each optimizer: a model with two inputs that computes its loss itself.

    optimizers.py BIN PYTHON        PYTHON has NumPy and PyTorch
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

TOLERANCE = 2e-5
REFERENCE = """
import json, numpy, torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x, target):
        difference = self.second(torch.tanh(self.first(x))) - target
        return (difference * difference).mean()

torch.manual_seed(0)
model, x = Model(), torch.randn(64, 4)
target = torch.stack([x[:, 0] * x[:, 1], x.sum(1)], 1)
axes = {"x": {0: "batch"}, "target": {0: "batch"}}
torch.onnx.export(model, (x[:8], target[:8]), "model.onnx", input_names=["x", "target"], output_names=["loss"],
                  dynamic_axes=axes, opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False)
numpy.save("x.npy", x.numpy())
numpy.savez("data.npz", target=target.numpy())
start = {name: value.clone() for name, value in model.state_dict().items()}
makers = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
losses = {}
for name, make, spare in ((name, make, spare) for name, make in makers.items() for spare in ("none", "*.bias")):
    model.load_state_dict(start)
    biases = [value for place, value in model.named_parameters() if place.endswith(".bias")]
    others = [value for place, value in model.named_parameters() if not place.endswith(".bias")]
    optimizer = make(model.parameters() if spare == "none" else [{"params": others}, {"params": biases, "weight_decay": 0.0}])
    name = f"{name} {spare}"
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    losses[name] = []
    for step in range(20):
        rows = [(step * 16 + i) % 64 for i in range(16)]
        optimizer.zero_grad()
        loss = model(x[rows], target[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        schedule.step()
        losses[name].append(loss.item())
json.dump(losses, open("losses.json", "w"))
"""
PROFILE = """schema: cairn/site/v1
state: state-{name}
device: cpu
data: {{d: {{inputs: {{x: x.npy, target: "data.npz:target"}}}}}}
job:
  name: d
  model: model.onnx
  loss: {{output: loss}}
  data: {{set: d, held_out: 0}}
  train: {{batch: 16, local_steps: 20, learning_rate: 0.01, optimizer: {name}, momentum: 0.9, nesterov: {nesterov},
          weight_decay: 0.1, no_decay: "{spare}", clip: 0.3, schedule: {{kind: step, every: 5, factor: 0.5}}}}
  rounds: {{count: 1}}
"""


def run(directory, *command):
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stdout + result.stderr


def main(build, python):
    node = os.path.join(os.path.abspath(build), "cairn-node")
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as directory:
        run(directory, python, "-c", REFERENCE)
        run(directory, node, "check", "model.onnx")
        with open(os.path.join(directory, "losses.json")) as file:
            losses = json.load(file)
        for case, wanted in losses.items():
            name, spare = case.split()
            with open(os.path.join(directory, "site.yaml"), "w") as file:
                file.write(PROFILE.format(name=name, spare=spare, nesterov="true" if name == "sgd" else "false"))
            run(directory, node, "train", "--anew", "--order", "sequential", "--threads", "2", "--trace", "trace.csv", "site.yaml")
            with open(os.path.join(directory, "trace.csv")) as file:
                found = [float(row["loss"]) for row in csv.DictReader(file)]
            worst = max(abs(a - b) / abs(b) for a, b in zip(found, wanted))
            assert len(found) == len(wanted) and worst < TOLERANCE, "%s: %s, wanted %s" % (case, found, wanted)
            print("%s: %d losses, the worst off by %.1e" % (case, len(found), worst))
        assert len(losses) == 6 and losses["adamw none"] != losses["adamw *.bias"], losses


if __name__ == "__main__":
    main(*sys.argv[1:])
