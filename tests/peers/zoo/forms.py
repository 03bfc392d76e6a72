#!/usr/bin/env python3
"""Trains every form in which PyTorch exports the models of the zoo, and compares the losses.

    forms.py CAIRN_NODE [--quick] [--only TEXT] [NAME ...]

For each model and form: "cairn-node check", then "cairn-node train --steps 3" on samples in file order; losses within
2e-5 of PyTorch's own or, where PyTorch's own runs lie further apart, within three times as much (SPREAD_RUNS says of which
runs; such a form is "spread"). A form that the installed PyTorch cannot write is a "-". Prints a Markdown table, then a
line for what was refused or deviates, and fails if there is such a line. --quick tries a few forms; --only those whose
name has the text.

Reference: the module in training mode for TRAINING exports and for "bn: train", else in inference mode, where batch
normalization uses its running statistics. An export that folded batch normalization into convolutions is another model
from the second step on, as one that split or joined weights (SPLIT): its first loss is compared; with the weights of a folded
normalization rounded to float16, within 1e-2. Weights and statistics are moved a little before, as in a model that
was trained: exporters make one initializer of tensors that hold the same.
"""
import argparse
import copy
import dataclasses
import inspect
import os
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else two threads on a loaded machine hardly get on

import numpy  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from torch.onnx import TrainingMode  # noqa: E402

import record  # noqa: E402
import trained  # noqa: E402

STEPS = 3
TOLERANCE = 2e-5
SPREADS = 3
# Threads, whether oneDNN computes, the type, and whether each weight is first moved to the next float32, up or down.
SPREAD_RUNS = ((2, True, torch.float32, 0), (1, False, torch.float32, 0), (1, True, torch.float64, 0),
               (1, True, torch.float32, 1), (1, True, torch.float32, 2))
HAS_DYNAMO = "dynamo" in inspect.signature(torch.onnx.export).parameters
MODELS = ("mlp", "lenet", "resnet8", "mobilenetv2", "cnn1d", "lstm", "gru", "rnn", "lstm-tagger", "gpt", "gpt-fused", "gpt-tied", "vit",
          "encoder", "encoder-sequence-first", "einsum", "autoencoder", "unet", "shared", "activations")


@dataclasses.dataclass
class Form:
    name: str
    mode: str  # TRAINING, EVAL, PRESERVE (as the module is: here for inference), DYNAMO
    opset: int = 17
    data: str = "raw"  # raw, float (float_data), external, half (the module and its samples in float16)
    dynamic: bool = True
    bn: str = "model"
    optimize: bool = True  # of the newer exporter: it takes the branches of known conditions, and folds


FORMS = [
    *(Form(f"training {opset}", "TRAINING", opset) for opset in range(13, 18)),
    Form("training 17 fixed", "TRAINING", dynamic=False),
    Form("training 17 float_data", "TRAINING", data="float"),
    Form("training 17 external", "TRAINING", data="external"),
    *(Form(f"eval {opset}", "EVAL", opset) for opset in range(13, 18)),
    Form("eval 17 fixed", "EVAL", dynamic=False),
    Form("eval 17 half", "EVAL", data="half"),
    Form("kept 17 bn: train", "PRESERVE", bn="train"),
    Form("kept 17 bn: frozen", "PRESERVE", bn="frozen"),
    *(Form(f"dynamo {opset}", "DYNAMO", opset) for opset in range(18, 22)),
    Form("dynamo 18 fixed", "DYNAMO", 18, dynamic=False),
    Form("dynamo 18 external", "DYNAMO", 18, data="external"),
    Form("dynamo 18 half", "DYNAMO", 18, data="half"),
]
# Where an exporter makes several weights of one, of a tied weight or in the steps that it unrolls a layer into, or one of
# two that are multiplied.
SPLIT = {"gpt-tied": ("EVAL", "DYNAMO"), "rnn": ("DYNAMO",), "einsum": ("DYNAMO",)}
# At its own rate PyTorch's runs of it are 0.24 apart after three steps.
RATES = {"mobilenetv2": 0.002}
# The table's columns: forms that have the same entry share one.
COLUMNS = (
    ("training 13 to 17", [f"training {opset}" for opset in range(13, 18)]),
    ("fixed", ["training 17 fixed"]), ("float_data", ["training 17 float_data"]), ("external", ["training 17 external"]),
    ("eval 13 to 17", [f"eval {opset}" for opset in range(13, 18)]),
    ("fixed", ["eval 17 fixed"]), ("half", ["eval 17 half"]),
    ("`bn: train`", ["kept 17 bn: train"]), ("`bn: frozen`", ["kept 17 bn: frozen"]),
    ("dynamo 18 to 21", [f"dynamo {opset}" for opset in range(18, 22)]),
    ("fixed", ["dynamo 18 fixed"]), ("external", ["dynamo 18 external"]), ("half", ["dynamo 18 half"]),
)
QUICK = ("training 13", "training 17 external", "eval 17", "eval 17 half", "kept 17 bn: frozen", "dynamo 18")


def distinct(model):
    """No two tensors hold the same."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point():
                value += 0.02 * torch.rand(value.shape, generator=generator)
    return model


def batch_norms(model):
    return sum("BatchNorm" in type(module).__name__ for module in model.modules())


def torch_losses(family, model, inputs, labels, training):
    model = copy.deepcopy(model).train(training)
    optimizer = torch.optim.SGD(model.parameters(), family.rate, momentum=family.momentum)
    losses = []
    for step in range(STEPS):
        part = slice(step * family.batch, (step + 1) * family.batch)
        optimizer.zero_grad()
        loss = record.loss_of(family, model(inputs[part]), labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def moved(model, seed):
    """Each weight at the next float32, up or down."""
    model, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            up = torch.rand(value.shape, generator=generator) < 0.5
            value.copy_(torch.nextafter(value, torch.where(up, 1.0, -1.0) * float("inf")))
    return model


def spread(family, model, inputs, labels, training):
    """How far PyTorch's own losses lie apart at each step."""
    wanted, apart = torch_losses(family, model, inputs, labels, training), [0.0] * STEPS
    for threads, onednn, real, seed in SPREAD_RUNS:
        samples, targets = (x.to(real) if x.is_floating_point() else x for x in (inputs, labels))
        torch.set_num_threads(threads)
        with torch.backends.mkldnn.flags(enabled=onednn):
            found = torch_losses(family, (moved(model, seed) if seed else model).to(real), samples, targets, training)
        apart = [max(a, abs(b - c)) for a, b, c in zip(apart, found, wanted)]
        model.to(torch.float32)
    torch.set_num_threads(1)
    return apart


def export_script(model, samples, path, form, names):
    mode = getattr(TrainingMode, form.mode)
    more = {"dynamo": False} if HAS_DYNAMO else {}
    axes = {name: {0: "batch"} for name in names} if form.dynamic else None
    torch.onnx.export(model.train(form.mode == "TRAINING"), samples, str(path), training=mode, opset_version=form.opset,
                      do_constant_folding=form.mode == "EVAL", input_names=list(names), output_names=["output"],
                      dynamic_axes=axes, **more)


def export_dynamo(model, samples, path, form, names):
    batch = torch.export.Dim("batch", min=2)
    shapes = tuple({0: batch} for _ in names) if form.dynamic else None
    torch.onnx.export(model.eval(), samples, str(path), dynamo=True, opset_version=form.opset, dynamic_shapes=shapes,
                      input_names=list(names), output_names=["output"], external_data=form.data == "external",
                      optimize=form.optimize, verbose=False)


def export(model, samples, path, form, names=("input",)):
    """The exported file as a module of onnx; samples is a tensor, or a tuple of one for each name."""
    model = copy.deepcopy(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    samples = samples if isinstance(samples, tuple) else (samples,)
    if form.data == "half":
        model, samples = model.half(), tuple(x.half() if x.is_floating_point() else x for x in samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (export_dynamo if form.mode == "DYNAMO" else export_script)(model, samples, path, form, names)
    file = onnx.load(str(path))
    for tensor in file.graph.initializer:
        # Tracing a module in training mode moves its statistics once.
        if "running_" in tensor.name and tensor.name in state and form.data != "half":
            tensor.raw_data = state[tensor.name].numpy().tobytes()
        if form.data == "float" and tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy.frombuffer(tensor.raw_data, "<f4").tolist()
            tensor.ClearField("raw_data")
            tensor.float_data.extend(values)
    more = {"save_as_external_data": True, "location": path.name + ".data", "size_threshold": 0}
    onnx.save(file, str(path), **(more if form.data == "external" else {}))
    return file


def is_training(form):
    return form.mode == "TRAINING" or form.bn == "train"


def as_exported(model, form):
    return copy.deepcopy(model).half().float() if form.data == "half" else copy.deepcopy(model)


def reference(name, family, model, inputs, labels, form, file):
    """PyTorch's losses, as many as mean the same as the file's."""
    losses = torch_losses(family, as_exported(model, form), inputs, labels, is_training(form))
    kept = sum(node.op_type == "BatchNormalization" for node in file.graph.node)
    return losses[:1] if kept < batch_norms(model) or form.mode in SPLIT.get(name, ()) else losses


def attempt(node, name, family, model, inputs, labels, form, folder):
    """What the table says, and what is wrong."""
    path = folder / "model.onnx"
    try:
        file = export(model, inputs[:2], path, form)
    except Exception as error:  # whatever PyTorch raises where it cannot export
        print(f"{name}, {form.name}: not exported: {str(error).splitlines()[0][:120]}", file=sys.stderr)
        return "-", None
    wanted = reference(name, family, model, inputs, labels, form, file)
    data = f"inputs: {folder}/inputs.npy, labels: {folder}/labels.npy"
    found, problem = trained.losses(node, path, data, family.loss.replace("-", "_"), family.batch, family.rate,
                                    family.momentum, form.bn)
    if problem:
        return "refused", problem
    worst = max(abs(a - b) / max(1e-3, abs(b)) for a, b in zip(found, wanted))
    if worst <= (1e-2 if form.data == "half" and batch_norms(model) else TOLERANCE):
        return "first" if len(wanted) == 1 else "yes", None
    own = spread(family, as_exported(model, form), inputs, labels, is_training(form))
    if all(abs(a - b) <= max(SPREADS * c, TOLERANCE * abs(b)) for a, b, c in zip(found, wanted, own)):
        return "spread", None
    return f"{worst:.0e}", f"losses {found}, PyTorch has {wanted} and its own runs are {own} apart"


def check(node, name, forms):
    family = record.FAMILIES[name]
    family = dataclasses.replace(family, rate=RATES.get(name, family.rate))
    cells, wrong = [], []
    with tempfile.TemporaryDirectory(prefix="cairn-forms-") as made:
        folder = pathlib.Path(made)
        model, inputs, labels = record.draw(family)
        model, count = distinct(model), STEPS * family.batch
        inputs, labels = inputs[:count], labels[:count]
        numpy.save(folder / "inputs.npy", inputs.numpy())
        numpy.save(folder / "labels.npy", labels.numpy())
        for form in forms:
            if (form.mode == "DYNAMO" and not HAS_DYNAMO) or (form.bn != "model" and not batch_norms(model)):
                cells.append("-")
                continue
            cell, problem = attempt(node, name, family, model, inputs, labels, form, folder)
            cells.append(cell)
            if problem:
                wrong.append(f"{name}, {form.name}: {problem}")
                print(wrong[-1], file=sys.stderr, flush=True)
    return cells, wrong


def entry(cells):
    return cells[0] if len(set(cells)) == 1 else " ".join(cells)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("node")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    forms = [form for form in FORMS if options.only in form.name and (form.name in QUICK or not options.quick)]
    names = options.names or [name for name in MODELS if name in record.FAMILIES]
    wrong, table = [], []
    for name in names:
        cells, problems = check(options.node, name, forms)
        table.append(cells)
        wrong += problems
    columns = [(title, [i for i, form in enumerate(forms) if form.name in group]) for title, group in COLUMNS]
    columns = [(title, group) for title, group in columns if group]
    print(f"PyTorch {torch.__version__}\n\n| model | " + " | ".join(title for title, _ in columns) + " |")
    print("|" + "---|" * (len(columns) + 1))
    for name, cells in zip(names, table):
        print(f"| {name} | " + " | ".join(entry([cells[i] for i in group]) for _, group in columns) + " |")
    print("\n".join(["", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
