#!/usr/bin/env python3
"""Exports models of the zoo and records what PyTorch computes with them.

    record.py FOLDER [NAME ...]     for each: NAME.onnx, NAME.samples.npy, NAME.labels.npy, NAME.npz

The .npz holds the gradients of the first step (mean over the batch), the losses of all steps and the final
weights, by the names of the state_dict, from a run in float32 with one thread. Beside them how far PyTorch's own
float32 runs (RUNS: threads and back ends) lie from that one: losses and weights. For the gradients of the first step
float64 is the truth: "exact", and "own", the norm of what the worst of the float32 runs is off by.
"""
import copy
import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else threads on a loaded machine hardly get on

import numpy  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from torch.onnx import TrainingMode  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from models import FAMILIES  # noqa: E402

STEPS = 50
SEED = 20
# Threads, whether oneDNN computes, whether with the kernels of this processor or those for any.
RUNS = ((2, True, True), (4, True, True), (1, False, True), (2, False, True), (1, True, False))
ANY_PROCESSOR = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41", "ONEDNN_MAX_CPU_ISA": "SSE41"}

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


def train(family, threads=1, onednn=True, real=torch.float32, steps=STEPS):
    """Gradients of the first step, losses of all, and the weights after them."""
    torch.set_num_threads(threads)
    model, inputs, labels = draw(family)
    model = model.to(real)
    inputs = inputs.to(real) if inputs.is_floating_point() else inputs
    labels = labels.to(real) if labels.is_floating_point() else labels
    optimizer = torch.optim.SGD(model.parameters(), family.rate, momentum=family.momentum)
    gradients, losses = {}, []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for step in range(steps):
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
    return {"gradient": gradients, "losses": numpy.array(losses), "weight": weights}


def flatten(run):
    return {"losses": run["losses"], **{f"{kind}/{key}": value for kind in ("gradient", "weight")
                                        for key, value in run[kind].items()}}


def train_elsewhere(name, threads, onednn):
    """The same in a process of its own, with the kernels for any processor."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run.npz"
        subprocess.run([sys.executable, "-W", "ignore", __file__, "--run", name, str(threads), str(int(onednn)), out],
                       env={**os.environ, **ANY_PROCESSOR}, check=True)
        with numpy.load(out) as arrays:
            return dict(arrays)


def record(name, folder):
    family = FAMILIES[name]
    model, inputs, labels = draw(family)
    export(model, inputs[:2], folder / f"{name}.onnx")
    numpy.save(folder / f"{name}.samples.npy", inputs.numpy())
    numpy.save(folder / f"{name}.labels.npy", labels.numpy())
    result = flatten(train(family))
    exact = train(family, real=torch.float64, steps=1)["gradient"]
    runs = [flatten(train(family, threads, onednn)) if native else train_elsewhere(name, threads, onednn)
            for threads, onednn, native in RUNS]
    for key in [key for key in result if key.startswith("weight/")]:
        result[f"spread/{key[7:]}"] = max(numpy.linalg.norm(run[key] - result[key]) for run in runs)
    result["loss-spread"] = max(numpy.abs(run["losses"] - result["losses"]).max() for run in runs)
    for key, value in exact.items():
        result[f"exact/{key}"] = value
        result[f"own/{key}"] = max(numpy.linalg.norm(run[f"gradient/{key}"] - value) for run in [result, *runs])
    numpy.savez_compressed(folder / f"{name}.npz", **result)


def main():
    if sys.argv[1] == "--run":
        numpy.savez(sys.argv[5], **flatten(train(FAMILIES[sys.argv[2]], int(sys.argv[3]), sys.argv[4] == "1")))
        return
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or FAMILIES:
        record(name, folder)
        print(name, flush=True)


if __name__ == "__main__":
    main()
