#!/usr/bin/env python3
"""Records what PyTorch computes for small models, for the tests of the engine.

    record.py [NAME ...]    all cases, or those named

Needs PyTorch; writes beside this script and into ../models. For each case NAME:

    ../models/NAME.onnx     the model with its initial weights
    NAME-inputs.npy         float32, STEPS batches one after the other (STEPS * batch, dims of a sample)
    NAME-labels.npy         int64 classes, or float32 targets for mean squared error
    NAME-outputs.npy        float32, outputs for the first batch with the initial weights
    NAME-gradients.npy      float32, one row: gradients of the mean loss of the first batch with the
                            initial weights, tensors in the order of the file's initializers
    NAME-weights.npy        float32, one row: the weights after STEPS steps, statistics included

and one line in expected.txt:

    NAME LOSS BATCH STEPS LEARNING_RATE MOMENTUM WEIGHT_DECAY loss-of-step-1 ... loss-of-step-STEPS

LOSS is cross_entropy or mse. Step n trains on batch n; its loss is the mean over the batch before the
step. SGD as torch.optim.SGD. Statistics have gradient zero.
"""
import pathlib
import sys
import warnings

import numpy
import onnx
import onnx.numpy_helper
import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
sys.path.insert(0, str(HERE.parent / "digits"))
import export_cnn  # noqa: E402

STEPS = 20


class GlobalPool(nn.Module):
    def forward(self, x):
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.body(x))
        return self.head(x.mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def regression():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Sigmoid(), nn.Linear(3, 2))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 40), nn.ReLU(), nn.Linear(40, 10),
    )


def conv_stride():
    return nn.Sequential(
        nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.Linear(60, 3),
    )


def average_pool():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(2, stride=1),
        nn.Conv2d(4, 6, 2, stride=2), nn.ReLU(), nn.AvgPool2d(3, stride=1, padding=1),
        nn.Flatten(), nn.Linear(24, 4),
    )


def global_pool():
    return nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), GlobalPool(), nn.Linear(6, 3))


def batch_norm():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3),
    )


def depthwise():
    return nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU(), nn.Conv2d(4, 6, 1), nn.ReLU(),
        GlobalPool(), nn.Linear(6, 3),
    )


class Recurrent(nn.Module):
    """Recurrent layers, then a linear one on the last step."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        y, _ = self.layers(x)
        return self.head(y[:, -1])


class LastState(nn.Module):
    """Reads the state after the last step of both directions."""

    def __init__(self):
        super().__init__()
        self.layers = nn.GRU(3, 6, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        _, h = self.layers(x)
        return self.head(torch.cat((h[0], h[1]), 1))


class StepsFirst(nn.Module):
    """A layer that wants the steps before the batch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(3, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        y, _ = self.layers(x.permute(1, 0, 2))
        return self.head(y.mean(0))


def lstm():
    return Recurrent(nn.LSTM(3, 7, num_layers=2, batch_first=True), 7)


def gru():
    return Recurrent(nn.GRU(3, 6, num_layers=2, bidirectional=True, batch_first=True), 12)


def rnn():
    return Recurrent(nn.RNN(3, 9, nonlinearity="relu", batch_first=True), 9)


def batch_norm_1d():
    return nn.Sequential(
        nn.Conv1d(3, 6, 3, padding=2, dilation=2), nn.BatchNorm1d(6), nn.LeakyReLU(0.1),
        nn.MaxPool1d(2), nn.Flatten(), nn.Linear(48, 7), nn.BatchNorm1d(7, momentum=0.3),
        nn.ReLU(), nn.Linear(7, 3),
    )


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ELU(), nn.Conv2d(4, 6, 3, 2, 1), nn.Tanh(),
        nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid(),
    )


class Resized(nn.Module):
    """Planes brought to other sizes in the ways PyTorch has, and transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.grouped = nn.ConvTranspose2d(4, 4, (2, 3), stride=(1, 2), groups=2, dilation=(2, 1),
                                          bias=False)
        self.line = nn.ConvTranspose1d(4, 3, 4, stride=3, padding=1)

    def forward(self, x):
        x = nn.functional.interpolate(self.first(x), size=(7, 5), mode="bilinear",
                                      align_corners=False)
        x = nn.functional.interpolate(self.grouped(x), scale_factor=1.5, mode="bilinear",
                                      align_corners=True)
        x = nn.functional.interpolate(torch.tanh(x), size=(4, 6), mode="nearest")
        return self.line(x.amax(2)).mean(2)


def grouped_norms():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.ReLU(), nn.Conv2d(6, 6, 3),
        nn.GroupNorm(3, 6), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )


# name: (module, dims of a sample, batch, classes or None, learning rate, momentum, weight decay)
CASES = {
    "mlp": (mlp, (6,), 8, 4, 0.1, 0.9, 0.0),
    "mlp-plain": (mlp, (6,), 8, 4, 0.1, 0.0, 0.0),
    "mlp-decay": (mlp, (6,), 8, 4, 0.1, 0.9, 0.01),
    "regression": (regression, (5,), 8, None, 0.1, 0.9, 0.0),
    "lenet": (lenet, (1, 28, 28), 4, 10, 0.02, 0.9, 0.0),
    "conv-stride": (conv_stride, (3, 11, 9), 5, 3, 0.05, 0.9, 0.0),
    "average-pool": (average_pool, (2, 8, 8), 5, 4, 0.05, 0.9, 0.0),
    "average-pool-pad": (average_pool, (2, 8, 8), 5, 4, 0.05, 0.9, 0.0),
    "global-pool": (global_pool, (2, 6, 5), 5, 3, 0.05, 0.9, 0.0),
    "residual": (Residual, (2, 6, 6), 5, 3, 0.05, 0.9, 0.0),
    "batch-norm": (batch_norm, (2, 6, 6), 6, 3, 0.05, 0.9, 0.0),
    "depthwise": (depthwise, (4, 6, 6), 5, 3, 0.05, 0.9, 0.0),
    "batch-norm-1d": (batch_norm_1d, (3, 16), 6, 3, 0.05, 0.9, 0.0),
    "lstm": (lstm, (6, 3), 5, 3, 0.1, 0.9, 0.0),
    "lstm-steps-first": (StepsFirst, (6, 3), 5, 3, 0.1, 0.9, 0.0),
    "gru": (gru, (6, 3), 5, 3, 0.1, 0.9, 0.0),
    "gru-last-state": (LastState, (6, 3), 5, 3, 0.1, 0.9, 0.0),
    "rnn": (rnn, (6, 3), 5, 3, 0.05, 0.9, 0.0),
    "autoencoder": (autoencoder, (1, 8, 8), 5, None, 0.1, 0.9, 0.0),
    "resized": (Resized, (2, 6, 6), 5, 3, 0.05, 0.9, 0.0),
    "grouped-norms": (grouped_norms, (2, 8, 8), 5, 3, 0.05, 0.9, 0.0),
    "digits-cnn": (export_cnn.digits_cnn, (1, 8, 8), 32, 10, 0.05, 0.9, 0.0),
    "digits-mlp": (export_cnn.digits_mlp, (1, 8, 8), 32, 10, 0.05, 0.9, 0.0),
}


def samples(name, dims, batch, classes):
    """Random samples whose labels can be learned; the digits for the digit models."""
    count = STEPS * batch
    if name.startswith("digits"):
        images = numpy.load(HERE.parent / "digits" / "held-out-images.npy")
        labels = numpy.load(HERE.parent / "digits" / "held-out-labels.npy")
        pick = numpy.arange(count) % len(labels)
        inputs = images[pick].reshape(count, *dims).astype(numpy.float32) / 16
        return torch.from_numpy(inputs), torch.from_numpy(labels[pick].astype(numpy.int64))
    inputs = torch.randn(count, *dims)
    if name == "autoencoder":
        return inputs, torch.sigmoid(inputs)
    if classes is None:
        return inputs, torch.tanh(inputs[:, :2] * 2 + inputs[:, 2:4])
    teacher = torch.randn(inputs[0].numel(), classes)
    return inputs, (inputs.flatten(1) @ teacher).argmax(1)


def row(tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).numpy().astype(numpy.float32)


def in_file_order(path, values):
    """The values of the float initializers of a file, in its order."""
    initializers = onnx.load(str(path)).graph.initializer
    return [values[i.name] for i in initializers if i.data_type == onnx.TensorProto.FLOAT]


def fold_pads(path):
    """Replaces Pad before AveragePool by the attributes, as exporters from PyTorch 2 write it."""
    model = onnx.load(str(path))
    nodes = model.graph.node
    constants = {n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t)
                 for n in nodes if n.op_type == "Constant"}
    pads = {n.output[0]: n for n in nodes if n.op_type == "Pad"}
    for node in nodes:
        pad = pads.get(node.input[0]) if node.op_type == "AveragePool" else None
        if pad is None:
            continue
        amounts = constants[pad.input[1]]  # begins of all axes, then ends
        spatial = amounts.reshape(2, -1)[:, 2:].flatten()
        kept = [a for a in node.attribute if a.name not in ("pads", "count_include_pad")]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.append(onnx.helper.make_attribute("pads", spatial.tolist()))
        node.attribute.append(onnx.helper.make_attribute("count_include_pad", 1))
        node.input[0] = pad.input[0]
    unused = {pad.input[1] for pad in pads.values()}
    kept = [n for n in nodes if n.op_type != "Pad" and n.output[0] not in unused]
    del nodes[:]
    nodes.extend(kept)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def record(name, case):
    make, dims, batch, classes, rate, momentum, decay = case
    torch.manual_seed(7)
    model = make()
    torch.manual_seed(11)
    inputs, labels = samples(name, dims, batch, classes)
    path = MODELS / f"{name}.onnx"
    if name.startswith("digits"):
        path = HERE.parent / "digits" / f"{name}.onnx"
    export_cnn.export(model, torch.zeros(2, *dims), path)
    if name == "average-pool":
        fold_pads(path)
    loss_of = nn.MSELoss() if classes is None else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum, weight_decay=decay)
    losses = []
    for step in range(STEPS):
        part = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        outputs = model(inputs[part])
        loss = loss_of(outputs, labels[part])
        loss.backward()
        if step == 0:
            numpy.save(HERE / f"{name}-outputs.npy", outputs.detach().numpy())
            gradients = {n: torch.zeros_like(v) for n, v in model.state_dict().items()}
            gradients.update({n: p.grad.clone() for n, p in model.named_parameters()})
            numpy.save(HERE / f"{name}-gradients.npy", row(in_file_order(path, gradients)))
        optimizer.step()
        losses.append(loss.item())
    numpy.save(HERE / f"{name}-weights.npy", row(in_file_order(path, model.state_dict())))
    if not name.startswith("digits"):
        numpy.save(HERE / f"{name}-inputs.npy", inputs.numpy())
        numpy.save(HERE / f"{name}-labels.npy", labels.numpy())
    kind = "mse" if classes is None else "cross_entropy"
    numbers = " ".join(f"{loss:.9g}" for loss in losses)
    return f"{name} {kind} {batch} {STEPS} {rate} {momentum} {decay} {numbers}\n"


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    MODELS.mkdir(exist_ok=True)
    expected = HERE / "expected.txt"
    lines = {line.split()[0]: line for line in expected.read_text().splitlines(True)}
    for name in sys.argv[1:] or CASES:
        lines[name] = record(name, CASES[name])
    expected.write_text("".join(lines[name] for name in CASES))


if __name__ == "__main__":
    main()
