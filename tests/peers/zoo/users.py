#!/usr/bin/env python3
"""Trains the networks of user_models.py, as a user would, and compares the losses with PyTorch's.

    users.py CAIRN_NODE [--only TEXT] [--keep FOLDER] [NAME ...]

Each is exported in TRAINING form (opset 13 and 17) and by the newer exporter where there is one (opset 18 and 20), and
goes through "cairn-node check" and five steps of "cairn-node train"; the losses are within 2e-5 of PyTorch's, for files
in which an exporter folded batch normalization, or two weights into one, the first. Prints a Markdown table, then a line for what was refused or
deviates, and fails if there is such a line. --only tries the forms whose name has the text; --keep keeps the files.
"""
import argparse
import contextlib
import copy
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import forms  # noqa: E402  first: it sets how threads wait
import numpy  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import trained  # noqa: E402
from user_models import NETWORKS  # noqa: E402

STEPS, BATCH, MOMENTUM = 5, 4, 0.9
TOLERANCE = 2e-5
FORMS = [
    forms.Form("training 13", "TRAINING", 13),
    forms.Form("training 17", "TRAINING", 17),
    forms.Form("dynamo 18", "DYNAMO", 18),
    forms.Form("dynamo 20", "DYNAMO", 20),
]
LOSSES = {
    "cross_entropy": lambda y, t: F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1)),
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "mse": F.mse_loss,
    "huber": F.huber_loss,
}


@contextlib.contextmanager
def silenced():
    """Without what libraries write to the standard output."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def torch_losses(network, model, samples, labels, training):
    model = copy.deepcopy(model).train(training)
    optimizer = torch.optim.SGD(model.parameters(), network.rate, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = model(*(x[part] for x in samples))
        if labels is not None:
            loss = LOSSES[network.loss](loss, labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def draw(network, folder):
    """The model, its samples by name, the labels, and what a profile says of both."""
    torch.manual_seed(31)
    model, count = forms.distinct(network.build()), STEPS * BATCH
    samples = {name: values(count) for name, values in network.inputs.items()}
    labels = network.labels(count) if network.labels else None
    for name, values in [*samples.items(), *([("labels", labels)] if network.labels else [])]:
        numpy.save(folder / f"{name}.npy", values.numpy())
    data = "inputs: {" + ", ".join(f"{name}: {folder}/{name}.npy" for name in samples) + "}"
    return model, samples, labels, data + (f", labels: {folder}/labels.npy" if network.labels else "")


def attempt(node, network, form, drawn, folder):
    """What the table says, and what is wrong."""
    model, samples, labels, data = drawn
    path = folder / f"{form.name.replace(' ', '-')}.onnx"
    try:
        with silenced():  # it prints a whole graph where it fails
            file = forms.export(model, tuple(x[:2] for x in samples.values()), path, form, tuple(samples))
    except Exception as error:  # whatever PyTorch raises where it cannot export
        print(f"{form.name}: not exported: {(str(error) or repr(error)).splitlines()[0][:160]}", file=sys.stderr)
        return "-", None
    wanted = torch_losses(network, model, tuple(samples.values()), labels, form.mode == "TRAINING")
    joined = form.mode == "DYNAMO" and network.joined
    if joined or sum(one.op_type == "BatchNormalization" for one in file.graph.node) < forms.batch_norms(model):
        wanted = wanted[:1]
    loss = network.loss if network.labels else "{output: output}"
    found, problem = trained.losses(node, path, data, loss, BATCH, network.rate, MOMENTUM, steps=STEPS,
                                    freeze=network.freeze if form.mode == "TRAINING" else ())
    if problem:
        return "refused", problem
    worst = max(abs(a - b) / max(1e-3, abs(b)) for a, b in zip(found, wanted))
    if worst <= TOLERANCE:
        return "first" if len(wanted) == 1 else "yes", None
    return f"{worst:.0e}", f"losses {found}, PyTorch has {wanted}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("node")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    tried = [form for form in FORMS if options.only in form.name and (form.mode != "DYNAMO" or forms.HAS_DYNAMO)]
    print(f"PyTorch {torch.__version__}\n\n| network | " + " | ".join(form.name for form in tried) + " |")
    print("|" + "---|" * (len(tried) + 1), flush=True)
    wrong = []
    for name in options.names or NETWORKS:
        with tempfile.TemporaryDirectory(prefix="cairn-users-") as made:
            folder = pathlib.Path(options.keep, name).resolve() if options.keep else pathlib.Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            drawn, cells = draw(NETWORKS[name], folder), []
            for form in tried:
                cell, problem = attempt(options.node, NETWORKS[name], form, drawn, folder)
                cells.append(cell)
                wrong += [f"{name}, {form.name}: {problem}"] if problem else []
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\n".join(["", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
