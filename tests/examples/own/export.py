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


def read_fields(data):
    """The fields of a message: tag, content of one that holds bytes, and all its bytes."""
    at = 0
    while at < len(data):
        start = at
        key, at = read_number(data, at)
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        if key & 7 in (0, 2):
            value, at = read_number(data, at)
            size = value if size is None else size
        yield key >> 3, data[at:at + size], data[start:at + size]
        at += size


def put_back(tensor, buffers):
    """A tensor of the file with the values of the model's buffer of that name, if there is one."""
    parts = list(read_fields(tensor))
    name = next((content.decode() for tag, content, _ in parts if tag == 8), "")
    if name not in buffers or not any(tag == 9 for tag, _, _ in parts):
        return tensor
    values = field(9, buffers[name].detach().cpu().contiguous().numpy().tobytes())
    return b"".join(values if tag == 9 else data for tag, _, data in parts)


def finish_file(model, path, buffers):
    """Writes the values of buffers into the file, and which of its tensors are parameters that train.

    The others are buffers or frozen; Cairn keeps them as they are. The keys are those of PyTorch's
    newer exporter.
    """
    kinds = {name: "PARAMETER" if weight.requires_grad else "FROZEN" for name, weight in model.named_parameters()}
    kinds.update({name: "BUFFER" for name, _ in model.named_buffers()})
    notes = b""
    for name, kind in kinds.items():
        entry = field(1, b"pkg.torch.export.graph_signature.InputSpec.kind") + field(2, kind.encode())
        notes += field(13, field(1, name.encode()) + field(4, entry))  # value_info, metadata_props
    with open(path, "rb") as file:
        content = file.read()
    parts = []
    for tag, graph, data in read_fields(content):
        if tag == 7:
            tensors = (field(5, put_back(tensor, buffers)) if of == 5 else part for of, tensor, part in read_fields(graph))
            data = field(7, b"".join(tensors) + notes)
        parts.append(data)
    with open(path, "wb") as file:
        file.write(b"".join(parts))


def export(model, sample, path):
    # TRAINING without constant folding keeps every weight under its name in the state_dict, so that the
    # trained weights can be loaded back. PyTorch 2.5 and later must be told to use this exporter; 2.9 and later warn of it.
    # The export runs the model once in training mode, which changes the running statistics of batch
    # normalization: they are put back, in the module and in the file.
    buffers = {name: value.clone() for name, value in model.named_buffers()}
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
    for name, value in model.named_buffers():
        value.data.copy_(buffers[name])
    finish_file(model, path, buffers)


if __name__ == "__main__":
    export(make_model(), torch.zeros(2, 1, 12, 12), "model.onnx")
