#!/usr/bin/env python3
"""Exports your own model as model.onnx. Needs PyTorch; Cairn trains the file without it."""
import inspect

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


def export(model, sample, path):
    # TRAINING without constant folding keeps every weight under its name in the state_dict, so that the
    # trained weights can be loaded back. PyTorch 2.5 and later must be told to use this exporter.
    more = {}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        more["dynamo"] = False
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


if __name__ == "__main__":
    export(make_model(), torch.zeros(1, 1, 12, 12), "model.onnx")
