#!/usr/bin/env python3
"""Trains the models of the zoo with cairn-node and has others run what it saved.

    saved.py CAIRN_NODE [NAME ...]

Each model, exported in TRAINING form and by the newer exporter (as forms.py does), is trained for ten steps. The file
of "--save FILE.onnx" passes the ONNX checker and, run by ONNX Runtime or else by onnx.reference, has the loss on held-out
samples that cairn-node printed. Of a TRAINING form "--save FILE.safetensors" has the names and shapes of the module's
state_dict, and gives that loss when it is loaded into it.
"""
import copy
import inspect
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "oracle")]

import onnx  # noqa: E402
import torch  # noqa: E402

import forms  # noqa: E402
import record  # noqa: E402
import run_exports  # noqa: E402
from check_exports import read_safetensors  # noqa: E402

TOLERANCE = 1e-4  # of a loss, relative; float32 in another order through a whole model
BATCHES = 6  # half of them are held out
FORMS = (forms.Form("training", "TRAINING"), forms.Form("dynamo", "DYNAMO", 18))


def state_names(model, tensors):
    """What is wrong with the names; tied tensors have one of their names in the file."""
    state = {name: value for name, value in model.state_dict().items()
             if value.is_floating_point()}
    wrong = [name for name, value in tensors.items() if name not in state or state[name].shape != value.shape]
    held = {state[name].data_ptr() for name in tensors if name in state}
    wrong += [name for name, value in state.items() if value.data_ptr() not in held]
    return [f"the state_dict and the safetensors file differ in {', '.join(wrong)}"] if wrong else []


def apart(who, family, outputs, labels, wanted):
    found = record.loss_of(family, torch.as_tensor(outputs), torch.from_numpy(labels)).item()
    return [] if abs(found - wanted) <= TOLERANCE * max(1, abs(wanted)) else [
        f"{who} has the loss {found}, cairn-node {wanted}"]


def check(node, name, form):
    """What is wrong, and whether somebody ran the ONNX file."""
    family = record.FAMILIES[name]
    torch.manual_seed(record.SEED)
    model, count = forms.distinct(family.build().train()), BATCHES * family.batch
    inputs, labels = family.inputs(count), family.labels(count)
    case = {"loss": family.loss.replace("-", "_"), "batch": family.batch, "rate": family.rate}
    with tempfile.TemporaryDirectory(prefix="cairn-saved-") as made:
        folder = pathlib.Path(made)
        forms.export(model, inputs[:2], folder / "model.onnx", form)
        wanted, inputs, labels = run_exports.train(node, folder, "model.onnx", case, inputs.numpy(), labels.numpy())
        saved = onnx.load(str(folder / "saved.onnx"))
        tensors = {key: torch.from_numpy(value.copy()) for key, value in
                   read_safetensors(folder / "saved.safetensors").items()}
    onnx.checker.check_model(saved, full_check=True)
    outputs = run_exports.run_onnx(saved, inputs)
    wrong = [] if outputs is None else apart("the saved file", family, outputs, labels, wanted)
    if form.mode == "TRAINING":
        wrong += state_names(model, tensors)
        model = copy.deepcopy(model).eval()
        model.load_state_dict(tensors, strict=False)
        with torch.no_grad():
            wrong += apart("the module", family, model(torch.from_numpy(inputs)), labels, wanted)
    return wrong, outputs is not None


def main():
    node, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or [n for n in forms.MODELS if n in record.FAMILIES]
    has_dynamo = "dynamo" in inspect.signature(torch.onnx.export).parameters
    torch.set_num_threads(1)
    failed = 0
    for name in names:
        for form in FORMS[:2 if has_dynamo else 1]:
            try:
                wrong, run = check(node, name, form)
            except Exception as error:  # whatever PyTorch, the checker or the runner raise
                wrong, run = [str(error).splitlines()[0][:200]], False
            failed += bool(wrong)
            print(f"{name}, {form.name}: {'; '.join(wrong) or ('as cairn-node' if run else 'nobody ran it')}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
