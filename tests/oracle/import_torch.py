#!/usr/bin/env python3
"""Exports small models from PyTorch in every opset and form, and has cairn-node check each.

Where PyTorch has a newer exporter, too, that one writes each form once, in the opset that it prefers.

    import_torch.py CAIRN_NODE
"""
import contextlib
import inspect
import io
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
from torch import nn
from torch.onnx import TrainingMode

OPSETS = range(13, 18)
NEWER = "dynamo" in inspect.signature(torch.onnx.export).parameters


class View(nn.Module):
    """The reshapes that people write by hand."""

    def __init__(self, reshape):
        super().__init__()
        self.reshape = reshape

    def forward(self, x):
        return self.reshape(x)


def mlp():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def cnn(*flatten):
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), *flatten,
                         nn.Linear(64, 10))


def pooled(*flatten):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), *flatten,
                         nn.Linear(4, 10))


def normalised():
    return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(144, 10))


def dropped():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))


IMAGE = (1, 8, 8)
EVAL, TRAINING = TrainingMode.EVAL, TrainingMode.TRAINING

# name: (module, dims of a sample, forms)
ACCEPTED = {
    "mlp": (mlp(), (64,), (EVAL, TRAINING)),
    "flatten": (cnn(nn.Flatten()), IMAGE, (EVAL, TRAINING)),
    "view": (cnn(View(lambda x: x.view(x.size(0), -1))), IMAGE, (EVAL, TRAINING)),
    "view-fixed": (cnn(View(lambda x: x.view(-1, 64))), IMAGE, (EVAL, TRAINING)),
    "reshape": (cnn(View(lambda x: x.reshape(x.shape[0], -1))), IMAGE, (EVAL, TRAINING)),
    "flatten-function": (cnn(View(lambda x: torch.flatten(x, 1))), IMAGE, (EVAL, TRAINING)),
    "pooled-flatten": (pooled(nn.Flatten()), IMAGE, (EVAL, TRAINING)),
    "pooled-view": (pooled(View(lambda x: x.view(x.size(0), -1))), IMAGE, (EVAL, TRAINING)),
    "pooled-squeeze": (pooled(View(lambda x: x.squeeze(-1).squeeze(-1))), IMAGE, (EVAL, TRAINING)),
    "dropped": (dropped(), (64,), (EVAL, TRAINING)),
    "normalised": (normalised(), IMAGE, (EVAL, TRAINING)),
}

# name: (module, dims of a sample, forms, what the message names)
REFUSED = {
    "sorted": (nn.Sequential(nn.Linear(64, 8), View(lambda x: x.topk(3)[0])), (64,),
               (EVAL, TRAINING), ("TopK", "not supported")),
}


def export(model, dims, form, opset, dynamic, path):
    """Writes the model with the older exporter, or, where opset is None, with the newer one."""
    axes = {"input": {0: "batch"}, "output": {0: "batch"}} if dynamic else None
    more = {"dynamo": opset is None} if NEWER else {}
    model.train(form == TRAINING)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(model, torch.zeros(2, *dims), str(path), training=form, opset_version=opset,
                          do_constant_folding=form == EVAL, input_names=["input"],
                          output_names=["output"], dynamic_axes=axes, **more)


def check(program, case, path, words):
    """What is wrong with the program's answer for an exported file, or None."""
    model, dims, forms, *_ = case
    wrong = []
    for form in forms:
        for opset in [*OPSETS, None] if NEWER else OPSETS:
            for dynamic in (False, True):
                export(model, dims, form, opset, dynamic, path)
                done = subprocess.run([program, "check", str(path)], text=True, timeout=30,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                if done.returncode != (1 if words else 0) or any(w not in done.stdout for w in words):
                    wrong.append(f"{path.stem}, {form.name}, {f'opset {opset}' if opset else 'newer exporter'}, "
                                 f"{'dynamic' if dynamic else 'fixed'} batch: exit status "
                                 f"{done.returncode}\n{done.stdout}")
    return wrong


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        for name, case in ACCEPTED.items():
            wrong += check(sys.argv[1], case, pathlib.Path(directory, f"{name}.onnx"), ())
        for name, case in REFUSED.items():
            wrong += check(sys.argv[1], case, pathlib.Path(directory, f"{name}.onnx"), case[3])
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
