#!/usr/bin/env python3
"""Trains the recorded models with cairn-node and has others run what it saved.

    run_exports.py CAIRN_NODE DATA        DATA is tests/data

What "train --save FILE.onnx" writes passes the ONNX checker and, run by ONNX Runtime or else by onnx.reference, has
the loss on held-out samples that cairn-node printed. "--save FILE.safetensors" has the same tensors, with the names and
shapes of the PyTorch module's state_dict; loaded into it they give that loss, too. Each part where its packages are
installed, 77 without NumPy and onnx or with nothing that can run a model.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 2e-5  # of a mean loss: sums in another order
STEPS = 10
PROFILE = """schema: cairn/site/v1
state: state
device: cpu
data:
  seen: {{inputs: seen-inputs.npy, labels: seen-labels.npy, held_out: other}}
  other: {{inputs: other-inputs.npy, labels: other-labels.npy}}
job:
  name: saved
  model: {model}
  loss: {loss}
  data: {{set: seen}}
  train: {{batch: {batch}, local_steps: {steps}, learning_rate: {rate}, momentum: 0.9}}
  rounds: {{count: 1}}
"""

try:
    import numpy
    import onnx
    import onnx.numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None
try:
    import onnx.reference
except ImportError:
    pass
try:
    import torch
except ImportError:
    torch = None


def train(node, directory, model, case, inputs, labels):
    """Trains on half of the samples; the loss on the others, as cairn-node says."""
    half = len(inputs) // 2
    for name, part in (("seen", slice(half)), ("other", slice(half, None))):
        numpy.save(directory / f"{name}-inputs.npy", inputs[part])
        numpy.save(directory / f"{name}-labels.npy", labels[part])
    profile = PROFILE.format(model=model, loss=case["loss"], batch=case["batch"], steps=STEPS, rate=case["rate"])
    (directory / "site.yaml").write_text(profile)
    for path in ("saved.onnx", "saved.safetensors"):  # the second time nothing is left to train
        done = subprocess.run([node, "train", "--json", "--save", path, "site.yaml"], cwd=directory, text=True,
                              capture_output=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        if path == "saved.onnx":
            said = json.loads(done.stdout.splitlines()[-1])
    return said["held_out_loss"], inputs[half:], labels[half:]


def loss_of(outputs, labels, kind):
    outputs = outputs.astype(numpy.float64)
    if kind == "mse":
        return ((outputs - labels) ** 2).mean()
    outputs -= outputs.max(1, keepdims=True)
    return (numpy.log(numpy.exp(outputs).sum(1)) - outputs[numpy.arange(len(labels)), labels]).mean()


def run_onnx(model, inputs):
    """The outputs, or None where nothing can run an ONNX file."""
    name = model.graph.input[0].name
    if onnxruntime:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {name: inputs})[0]
    if hasattr(onnx, "reference"):
        try:
            return onnx.reference.ReferenceEvaluator(model).run(None, {name: inputs})[0]
        except (NotImplementedError, RuntimeError, ValueError) as error:
            # It has no RNN with Relu and fails on ConvTranspose with groups; of 1.23 the rest runs.
            print(f"onnx.reference does not run {[n.op_type for n in model.graph.node]}: {error}")
    return None


def run_torch(make, tensors, inputs):
    """The outputs of the module that the file came from, with these weights."""
    module = make().eval()
    names = {name: tuple(value.shape) for name, value in module.state_dict().items()
             if not name.endswith("num_batches_tracked")}
    found = {name: value.shape for name, value in tensors.items()}
    assert found == names, f"safetensors has {found}, the state_dict {names}"
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)
    with torch.no_grad():
        return module(torch.from_numpy(inputs)).numpy()


def close(outputs, labels, kind, wanted, who):
    found = loss_of(outputs, labels, kind)
    assert abs(found - wanted) <= TOLERANCE * max(1, abs(wanted)), f"{who}: loss {found}, cairn-node's {wanted}"


def check(node, data, case, make):
    from check_exports import read_safetensors
    name = case["name"]
    path = data / "models" / f"{name}.onnx"
    inputs, labels = (numpy.load(data / "torch" / f"{name}-{what}.npy") for what in ("inputs", "labels"))
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as base:
        directory = pathlib.Path(base)
        wanted, inputs, labels = train(node, directory, path, case, inputs, labels)
        saved = onnx.load(str(directory / "saved.onnx"))
        tensors = {n: v.copy() for n, v in read_safetensors(directory / "saved.safetensors").items()}
    onnx.checker.check_model(saved, full_check=True)
    before = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(str(path)).graph.initializer}
    floats = [i for i in saved.graph.initializer if i.data_type == onnx.TensorProto.FLOAT]
    assert sorted(i.name for i in floats) == sorted(tensors)
    for tensor in floats:
        assert (onnx.numpy_helper.to_array(tensor) == tensors[tensor.name]).all(), tensor.name
    assert any((before[n] != v).any() for n, v in tensors.items()), "nothing was trained"
    outputs = run_onnx(saved, inputs)
    if outputs is not None:
        close(outputs, labels, case["loss"], wanted, f"{name}, saved.onnx")
    if make:
        close(run_torch(make, tensors, inputs), labels, case["loss"], wanted, f"{name}, saved.safetensors")
    return outputs is not None


def main():
    node, data = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    runner = "ONNX Runtime" if onnxruntime else "onnx.reference" if hasattr(onnx, "reference") else None
    if not runner and not torch:
        print("skipped: neither ONNX Runtime nor onnx.reference nor PyTorch is installed")
        return 77
    modules = {}
    if torch:
        sys.path.insert(0, str(data / "torch"))
        from record import CASES as modules
        torch.set_num_threads(1)
    count = run = 0
    for line in (data / "torch" / "expected.txt").read_text().splitlines():
        name, loss, batch, _, rate = line.split()[:5]
        if (data / "models" / f"{name}.onnx").exists():
            case = {"name": name, "loss": loss, "batch": batch, "rate": rate}
            run += check(node, data, case, modules[name][0] if modules else None)
            count += 1
    assert count > 15 and (run > 15 or not runner)
    print(f"{count} models: {run} run by {runner or 'nobody'}, "
          f"{count if torch else 0} with the state_dict of PyTorch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
