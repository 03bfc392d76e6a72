#!/usr/bin/env python3
"""Exports the models for the digits, digits-*.onnx beside this script.

Needs PyTorch. TRAINING mode without constant folding keeps the parameter names of the module.
"""
import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent


def digits_cnn():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def digits_mlp():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digits_norm():
    """With statistics of the batch and dropout."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def digits_rows():
    """A class for each row of pixels, of (batch, 8, 8)."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.LayerNorm(24), nn.Dropout(0.1), nn.Linear(24, 10))


def export(model, sample, path):
    torch.onnx.export(
        model.train(),
        sample,
        str(path),
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        opset_version=17,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
    )
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{path.name}: {parameters} parameters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    export(digits_cnn(), torch.zeros(1, 1, 8, 8), HERE / "digits-cnn.onnx")
    export(digits_mlp(), torch.zeros(1, 1, 8, 8), HERE / "digits-mlp.onnx")
    export(digits_norm(), torch.zeros(2, 1, 8, 8), HERE / "digits-norm.onnx")
    export(digits_rows(), torch.zeros(2, 8, 8), HERE / "digits-rows.onnx")
