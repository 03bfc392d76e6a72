#!/usr/bin/env python3
"""Exports your own model as model.onnx. Needs PyTorch; Cairn trains the file without it."""
import inspect
import warnings

import torch
from torch import nn


def make_model():
    """Your model. It returns the raw outputs: the loss, with its softmax, belongs to the job."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 3),
    )


def number(value):
    """A varint of protobuf."""
    coded = b""
    while value > 127:
        coded, value = coded + bytes([value & 127 | 128]), value >> 7
    return coded + bytes([value])


def field(tag, data):
    """A field of protobuf that holds bytes."""
    return number(tag << 3 | 2) + number(len(data)) + data


def read_number(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def say_what_is_trained(model, path):
    """Writes into the file which tensors are parameters that train, and which are buffers or frozen.

    Cairn keeps the latter as they are. The keys are those of PyTorch's newer exporter.
    """
    kinds = {name: "PARAMETER" if weight.requires_grad else "FROZEN" for name, weight in model.named_parameters()}
    kinds.update({name: "BUFFER" for name, _ in model.named_buffers()})
    notes = b""
    for name, kind in kinds.items():
        entry = field(1, b"pkg.torch.export.graph_signature.InputSpec.kind") + field(2, kind.encode())
        notes += field(13, field(1, name.encode()) + field(4, entry))  # value_info, metadata_props
    with open(path, "rb") as file:
        content = file.read()
    at, parts = 0, []
    while at < len(content):
        start = at
        key, at = read_number(content, at)
        size, at = read_number(content, at)  # the fields of a model are numbers or bytes
        if key == 7 << 3 | 2:  # the graph
            parts.append(field(7, content[at:at + size] + notes))
            at += size
            continue
        at += size if key & 7 == 2 else 0
        parts.append(content[start:at])
    with open(path, "wb") as file:
        file.write(b"".join(parts))


def export(model, sample, path):
    # TRAINING without constant folding keeps every weight under its name in the state_dict, so that the
    # trained weights can be loaded back. PyTorch 2.5 and later must be told to use this exporter; 2.9 and later warn of it.
    more = {}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        more["dynamo"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            model.train(),
            sample,
            path,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            opset_version=17,
            input_names=["input"],
            output_names=["output"],
            dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
            **more,
        )
    say_what_is_trained(model, path)


if __name__ == "__main__":
    export(make_model(), torch.zeros(1, 1, 12, 12), "model.onnx")
