#!/usr/bin/env python3
"""Exports small models in the forms that PyTorch 2.9 writes, and records the losses that PyTorch has with them.

    record.py           writes its files beside itself; needs PyTorch 2.9 with onnxscript, and tests/peers/zoo

expected.txt: name, loss, batch, learning rate, and the losses of three steps of SGD with momentum 0.9.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "peers" / "zoo"))

import numpy  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import forms  # noqa: E402
from models import GPT, Family, classes, images, tokens  # noqa: E402


class Handed(nn.Module):
    """One LSTM goes on with the hidden state and the cell of another. In the file the steps come first."""

    def __init__(self):
        super().__init__()
        self.steps_first = False
        self.first, self.second = nn.LSTM(3, 4), nn.LSTM(3, 4)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = x if self.steps_first else x.transpose(0, 1)
        _, state = self.first(x)
        y, (_, cell) = self.second(x, state)
        return self.head(torch.cat((y[-1], cell[0]), 1))


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(3, 4, num_layers=2, batch_first=True), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


class Scaled(nn.Module):
    """A buffer and a number, which are no parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.randn(6, 3))
        self.body = mlp()

    def forward(self, x):
        return self.body(x * 1.5 + self.places)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(18, 6), nn.GELU(), nn.Linear(6, 5))


def small_gpt():
    return GPT(vocabulary=11, length=6, width=8, heads=2, layers=1)


# name: (family, form)
CASES = {
    "dynamo-gpt": (Family(small_gpt, tokens(11, 6), classes(11, 6), batch=4), forms.Form("", "DYNAMO", 18)),
    "dynamo-lstm": (Family(Series, images(7, 3), classes(5), batch=4), forms.Form("", "DYNAMO", 18, dynamic=False)),
    "dynamo-buffer": (Family(Scaled, images(6, 3), classes(5), batch=4), forms.Form("", "DYNAMO", 20)),
    "half": (Family(mlp, images(6, 3), classes(5), batch=4), forms.Form("", "EVAL", 17, data="half")),
    "lstm-cell": (Family(Handed, images(7, 3), classes(5), batch=4), forms.Form("", "TRAINING", 17)),
}


def without_stories(file):
    """Nodes without what they were made from, which is larger than they are."""
    for node in file.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del file.graph.metadata_props[:]
    return file


def export(model, sample, path, form):
    if not isinstance(model, Handed):
        return forms.export(model, sample, path, form)
    model.steps_first = True
    torch.onnx.export(model.train(), sample.transpose(0, 1), str(path), dynamo=False, opset_version=form.opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["input"],
                      output_names=["output"], dynamic_axes={"input": {1: "batch"}, "output": {0: "batch"}})
    model.steps_first = False
    return onnx.load(str(path))


def main():
    torch.set_num_threads(1)
    lines = []
    for name, (family, form) in CASES.items():
        torch.manual_seed(5)
        model = forms.distinct(family.build())
        inputs, labels = (draw(forms.STEPS * family.batch) for draw in (family.inputs, family.labels))
        file = without_stories(export(model, inputs[:2], HERE / f"{name}.onnx", form))
        onnx.save(file, str(HERE / f"{name}.onnx"))
        numpy.save(HERE / f"{name}-inputs.npy", inputs.numpy())
        numpy.save(HERE / f"{name}-labels.npy", labels.numpy())
        model = model.half().float() if form.data == "half" else model
        losses = forms.torch_losses(family, model, inputs, labels, False)
        lines.append(" ".join([name, "cross_entropy", str(family.batch), str(family.rate)]
                              + [f"{loss:.8g}" for loss in losses]))
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
