#!/usr/bin/env python3
"""Exports small models in the forms that PyTorch 2.9 writes, and records the losses that PyTorch has with them.

    record.py [NAME ...]   writes its files beside itself, or those of NAME; needs PyTorch 2.9 with onnxscript, and
                           tests/peers/zoo

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
from models_attention import Contracted  # noqa: E402


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


class Lengths(nn.Module):
    """A class from the state after each text's last word; the exporter writes an If for the squeeze."""

    def __init__(self):
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(11, 4), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 5)

    def forward(self, x):
        last = ((x > 2).sum(1) - 1).clamp(min=0)
        y, _ = self.layer(self.words(x))
        return self.head(y.gather(1, last.view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1))


class Grouped(nn.Module):
    """The exporter works out turned weights, ones and zeros for a group normalization, and a table of cosines."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv1d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.PReLU(4)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        turns = torch.cos(0.5 * torch.arange(6, dtype=torch.float32))
        return self.head((self.act(self.norm(self.conv(x.transpose(1, 2)))) * turns).flatten(1))


class Scaled(nn.Module):
    """A buffer and a number, which are no parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.randn(6, 3))
        self.body = mlp()

    def forward(self, x):
        return self.body(x * 1.5 + self.places)


class Volume(nn.Module):
    """Convolution and pooling of volumes, borders from the other side, a filter made of a weight's direction and length."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv3d(1, 3, (2, 3, 2), (1, 2, 1), (1, 1, 0)), nn.MaxPool3d((2, 1, 2))
        self.around = nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular")
        self.direction, self.length = nn.Parameter(torch.randn(2, 4, 3)), nn.Parameter(torch.rand(2, 1, 1) + 0.5)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = torch.relu(self.around(self.pool(self.conv(x)).flatten(2)))
        size = torch.linalg.vector_norm(self.direction, dim=(1, 2), keepdim=True)
        return self.head(nn.functional.conv1d(x, self.direction * (self.length / size), padding=1).flatten(1))


class Places(nn.Module):
    """OneHot, CumSum, picked elements, a deviation (ReduceProd of sizes), and LogSumExp of rows, one of them masked whole."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(11, 4)), nn.Linear(13, 5)
        self.register_buffer("mask", torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]).bool())

    def forward(self, x):
        h = torch.cumsum(nn.functional.one_hot(x, 11).float() @ self.table, 1)
        picked = h[:, [0, 3, 5], [1, 0, 2]]
        rows = torch.logsumexp(h[:, :3].masked_fill(self.mask, -torch.inf), -1)
        rows = torch.where(rows < -50.0, torch.zeros(()), rows)
        return self.head(torch.cat((picked, rows, h.std(1), h.mean(1)[:, :3]), 1))


class Chosen(nn.Module):
    """Branches in a branch, chosen by buffers: statistics that only nodes in branches read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("yes", torch.tensor(True))
        self.register_buffer("no", torch.tensor(False))
        self.norm, self.body, self.more = nn.BatchNorm1d(6), nn.Linear(3, 4), nn.Linear(3, 4)
        self.head = nn.Linear(24, 5)

    def chosen(self, x):
        return torch.cond(self.no, lambda x: torch.tanh(self.body(x)), lambda x: self.more(self.norm(x)), (x,))

    def forward(self, x):
        y = torch.cond(self.yes, self.chosen, lambda x: torch.relu(self.body(x)), (x,))
        y = torch.cond(self.no, lambda y: torch.exp(y), lambda y: torch.tanh(y) * 2.0, (y,))
        return self.head(y.flatten(1))


class ResetBefore(nn.Module):
    """GRU with linear_before_reset=0, which PyTorch does not have: the reset gate comes before the product."""

    def __init__(self, inputs=3, hidden=4):
        super().__init__()
        self.W, self.R = nn.Parameter(torch.randn(1, 3 * hidden, inputs)), nn.Parameter(torch.randn(1, 3 * hidden, hidden))
        self.B, self.head = nn.Parameter(torch.randn(1, 6 * hidden)), nn.Linear(hidden, 5)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.head.in_features)
        (wz, wr, wn), (rz, rr, rn) = self.W[0].chunk(3), self.R[0].chunk(3)
        bz, br, bn = (self.B[0].chunk(6)[i] + self.B[0].chunk(6)[i + 3] for i in range(3))
        for step in x.unbind(1):
            z, r = torch.sigmoid(step @ wz.T + h @ rz.T + bz), torch.sigmoid(step @ wr.T + h @ rr.T + br)
            h = (1 - z) * torch.tanh(step @ wn.T + (r * h) @ rn.T + bn) + z * h
        return self.head(h)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(18, 6), nn.GELU(), nn.Linear(6, 5))


def small_gpt():
    return GPT(vocabulary=11, length=6, width=8, heads=2, layers=1)


# name: (family, form)
CASES = {
    "dynamo-gpt": (Family(small_gpt, tokens(11, 6), classes(11, 6), batch=4), forms.Form("", "DYNAMO", 18)),
    "dynamo-lstm": (Family(Series, images(7, 3), classes(5), batch=4), forms.Form("", "DYNAMO", 18, dynamic=False)),
    "dynamo-buffer": (Family(Scaled, images(6, 3), classes(5), batch=4), forms.Form("", "DYNAMO", 20)),
    "dynamo-folded": (Family(Grouped, images(6, 3), classes(5), batch=4, rate=0.1), forms.Form("", "DYNAMO", 18)),
    "dynamo-if": (Family(Chosen, images(6, 3), classes(5), batch=4, rate=0.1),
                  forms.Form("", "DYNAMO", 18, optimize=False)),
    "volume": (Family(Volume, images(1, 3, 5, 5), classes(5), batch=4), forms.Form("", "TRAINING", 17)),
    "places": (Family(Places, tokens(11, 6), classes(5), batch=4, rate=0.01), forms.Form("", "TRAINING", 17)),
    "half": (Family(mlp, images(6, 3), classes(5), batch=4), forms.Form("", "EVAL", 17, data="half")),
    "einsum": (Family(Contracted, images(6, 7), classes(5), batch=4, rate=0.01), forms.Form("", "TRAINING", 17)),
    "gru-reset-before": (Family(ResetBefore, images(7, 3), classes(5), batch=4), forms.Form("", "TRAINING", 17)),
    "if": (Family(Lengths, tokens(11, 6), classes(5), batch=4), forms.Form("", "TRAINING", 17)),
    "lstm-cell": (Family(Handed, images(7, 3), classes(5), batch=4), forms.Form("", "TRAINING", 17)),
}


def strip(graph):
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
        for attribute in node.attribute:
            strip(attribute.g)


def without_stories(name, file):
    """Nodes without what they were made from, which is larger than they are. One file keeps the module's signature."""
    strip(file.graph)
    if name != "dynamo-folded":
        del file.graph.metadata_props[:]
    return file


def written(model):
    """The file of ResetBefore, which no exporter writes."""
    helper, node = onnx.helper, onnx.helper.make_node
    dims = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("input", ["batch", 7, 3]), ("output", ["batch", 5]))]
    nodes = [node("Transpose", ["input"], ["steps"], perm=[1, 0, 2]),
             node("GRU", ["steps", "W", "R", "B"], ["", "last"], hidden_size=4),
             node("Constant", [], ["axes"], value_ints=[0]), node("Squeeze", ["last", "axes"], ["state"]),
             node("Gemm", ["state", "head.weight", "head.bias"], ["output"], transB=1)]
    weights = [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in model.state_dict().items()]
    return helper.make_model(helper.make_graph(nodes, "main", dims[:1], dims[1:], weights),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def export(model, sample, path, form):
    if isinstance(model, ResetBefore):
        return written(model)
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
    names, expected = sys.argv[1:] or list(CASES), HERE / "expected.txt"
    lines = {line.split()[0]: line for line in expected.read_text().splitlines()}
    for name in names:
        family, form = CASES[name]
        torch.manual_seed(5)
        model = forms.distinct(family.build())
        inputs, labels = (draw(forms.STEPS * family.batch) for draw in (family.inputs, family.labels))
        file = without_stories(name, export(model, inputs[:2], HERE / f"{name}.onnx", form))
        onnx.save(file, str(HERE / f"{name}.onnx"))
        numpy.save(HERE / f"{name}-inputs.npy", inputs.numpy())
        numpy.save(HERE / f"{name}-labels.npy", labels.numpy())
        model = model.half().float() if form.data == "half" else model
        losses = forms.torch_losses(family, model, inputs, labels, False)
        lines[name] = " ".join([name, "cross_entropy", str(family.batch), str(family.rate)]
                               + [f"{loss:.8g}" for loss in losses])
    expected.write_text("".join(lines[name] + "\n" for name in CASES))


if __name__ == "__main__":
    main()
