#!/usr/bin/env python3
"""Exports models of the zoo and records what PyTorch computes with them.

    record.py FOLDER [NAME ...]     for each: NAME.onnx, NAME.samples.npy, NAME.labels.npy, NAME.npz

The .npz holds the gradients of the first step (mean over the batch), the losses of all steps and the final
weights, by the names of the state_dict, from a run in float32 with one thread; and for the losses and weights
how far PyTorch's own runs lie apart: other thread counts, without oneDNN, and in float64.
"""
import copy
import importlib
import inspect
import pathlib
import sys
import warnings

import numpy
import onnx
import torch
from torch.onnx import TrainingMode

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from models import FAMILIES  # noqa: E402

STEPS = 50
SEED = 20

for path in sorted(HERE.glob("models_*.py")):
    FAMILIES.update(getattr(importlib.import_module(path.stem), "FAMILIES", {}))


def draw(family):
    """The model and STEPS batches, always the same."""
    torch.manual_seed(SEED)
    model = family.build().train()
    count = family.batch * STEPS
    return model, family.inputs(count), family.labels(count)


def export(model, sample, path, form=TrainingMode.TRAINING, opset=17, dynamic=True):
    axes = {"input": {0: "batch"}, "output": {0: "batch"}} if dynamic else None
    more = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    state = model.state_dict()
    model = copy.deepcopy(model).train(form == TrainingMode.TRAINING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, sample, str(path), training=form, opset_version=opset,
                          do_constant_folding=form == TrainingMode.EVAL, input_names=["input"],
                          output_names=["output"], dynamic_axes=axes, **more)
    # Tracing a module in training mode moves its running statistics once: put back what the file is to start from.
    exported = onnx.load(str(path))
    for tensor in exported.graph.initializer:
        if "running_" in tensor.name and tensor.name in state:
            tensor.raw_data = state[tensor.name].numpy().tobytes()
    onnx.save(exported, str(path))


def loss_of(family, output, labels):
    if family.loss == "mse":
        return torch.nn.functional.mse_loss(output, labels)
    return torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), labels.reshape(-1))


def train(family, threads=1, onednn=True, real=torch.float32):
    """Gradients of the first step, losses of all, and the weights after them."""
    torch.set_num_threads(threads)
    model, inputs, labels = draw(family)
    model = model.to(real)
    inputs = inputs.to(real) if inputs.is_floating_point() else inputs
    labels = labels.to(real) if labels.is_floating_point() else labels
    optimizer = torch.optim.SGD(model.parameters(), family.rate, momentum=family.momentum)
    gradients, losses = {}, []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for step in range(STEPS):
            part = slice(step * family.batch, (step + 1) * family.batch)
            optimizer.zero_grad()
            loss = loss_of(family, model(inputs[part]), labels[part])
            loss.backward()
            if step == 0:
                gradients = {name: value.grad.double().numpy().copy() for name, value in model.named_parameters()}
            optimizer.step()
            losses.append(loss.item())
    weights = {name: value.detach().double().numpy().copy() for name, value in model.state_dict().items()
               if value.is_floating_point()}
    return gradients, numpy.array(losses), weights


def record(name, folder):
    family = FAMILIES[name]
    model, inputs, labels = draw(family)
    export(model, inputs[:2], folder / f"{name}.onnx")
    numpy.save(folder / f"{name}.samples.npy", inputs.numpy())
    numpy.save(folder / f"{name}.labels.npy", labels.numpy())
    gradients, losses, weights = train(family)
    exact, _, _ = others = train(family, real=torch.float64)
    runs = [others] + [train(family, threads, onednn) for threads, onednn in ((2, True), (4, True), (1, False), (2, False))]
    result = {"losses": losses, "loss-spread": max(numpy.abs(run[1] - losses).max() for run in runs)}
    for key, value in gradients.items():
        result[f"gradient/{key}"] = value
        result[f"exact/{key}"] = exact[key]
    for key, value in weights.items():
        result[f"weight/{key}"] = value
        result[f"spread/{key}"] = max(numpy.linalg.norm(run[2][key] - value) for run in runs)
    numpy.savez_compressed(folder / f"{name}.npz", **result)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or FAMILIES:
        record(name, folder)
        print(name, flush=True)


if __name__ == "__main__":
    main()
