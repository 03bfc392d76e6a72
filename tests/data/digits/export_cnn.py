#!/usr/bin/env python3
"""Exports the two models for the digits: digits-cnn.onnx and digits-mlp.onnx, beside this script.

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
