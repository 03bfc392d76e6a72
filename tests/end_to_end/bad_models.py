"""Models and numbers that cannot be trained, as a user meets them: check and train say one clear line, and exit with 1.

    bad_models.py BIN
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from onnx_writer import BATCH, model, node, tensor, told, value  # noqa: E402
from scenarios import chosen  # noqa: E402

PROFILE = """schema: cairn/site/v1
state: state
device: {device}
data: {{d: {{inputs: x.npy, labels: y.npy}}}}
job:
  name: d
  model: {model}
  loss: mse
  data: {{set: d, held_out: 0}}
  train: {{batch: 4, local_steps: 5, learning_rate: {rate}, bn: {norm}}}
  rounds: {{count: {rounds}}}
"""
WEIGHT = tensor("w", (4, 2), [0.1] * 8)
PRODUCT = node("MatMul", ("x", "w"), ("y",))


def plain(**more):
    """x [batch, 4] times w [4, 2]."""
    parts = {"nodes": [PRODUCT], "initializers": [WEIGHT], "inputs": [value("x", (BATCH, 4))], "outputs": [value("y", (BATCH, 2))]}
    return model(**{**parts, **more})


MODELS = {
    # name: (file, what the line says)
    "a dimension that is open beside the batch": (plain(inputs=[value("x", (BATCH, "steps", 4))]), ("'x'", "not fixed")),
    "a cycle": (plain(nodes=[node("Add", ("b", "x"), ("a",)), node("Relu", ("a",), ("b",)), node("MatMul", ("b", "w"), ("y",))]),
                ("cycle",)),
    "a missing initializer": (plain(initializers=[]), ("no float32 initializers",)),
    "another missing initializer": (plain(nodes=[node("MatMul", ("x", "w"), ("h",)), node("Add", ("h", "bias"), ("y",))]),
                                    ("'bias'", "missing")),
    "an old opset": (plain(opset=12), ("opset 12", "13 to 21")),
    "a new opset": (plain(opset=99), ("opset 99", "13 to 21")),
    "a size that overflows": (plain(initializers=[tensor("w", (1 << 62, 1 << 62), [])]), ("tensor", "overflows")),
    "a product of sizes that overflows": (plain(inputs=[value("x", (BATCH, 1 << 40, 1 << 40))]), ("'x'", "too large")),
    "data outside the folder": (plain(initializers=[tensor("w", (4, 2), None, location="../w.bin")]),
                                ("tensor w", "the model's folder or below")),
    "data in a file that is not there": (plain(initializers=[tensor("w", (4, 2), None, location="w.bin")]), ("w.bin",)),
    "shapes that do not fit": (plain(inputs=[value("x", (BATCH, 5))]), ("columns times",)),
    "an operator of nobody": (plain(nodes=[node("MatMul", ("x", "w"), ("h",)), node("Frobnicate", ("h",), ("y",))]),
                              ("Frobnicate", "not supported")),
    "strings for weights": (plain(initializers=[tensor("w", (4, 2), [0.1] * 8, kind=8)]), ("tensor w", "element type 8")),
    "a sample that is not of numbers": (plain(inputs=[value("x", (BATCH, 4), kind=9)]), ("'x'", "element type 9")),
}


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def npy(path, rows, columns, numbers):
    import struct

    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    write(path, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
          + struct.pack(f"<{rows * columns}f", *numbers))


def run(folder, *command):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def expect(result, code, *words):
    text = result.stdout + result.stderr
    assert result.returncode == code, f"exit {result.returncode}, wanted {code}:\n{text}"
    for word in words:
        assert word in text, f"'{word}' is not in:\n{text}"
    return text


def profile(folder, **more):
    values = {"device": "cpu", "model": "model.onnx", "rate": 0.01, "rounds": 1, "norm": "model", **more}
    write(os.path.join(folder, "site.yaml"), PROFILE.format(**values).encode())


def each_model_is_refused_by_check_and_by_train(node_path, folder):
    profile(folder)
    for name, (data, words) in MODELS.items():
        write(os.path.join(folder, "model.onnx"), data)
        for command in (("check", "model.onnx"), ("train", "site.yaml"), ("bench", "site.yaml")):
            text = expect(run(folder, node_path, *command), 1, *words)
            assert len(text.splitlines()) <= 3, f"{name}: more than is needed:\n{text}"


def a_model_that_is_not_there_is_named_once(node_path, folder):
    profile(folder, model="absent.onnx")
    for command in (("check", "absent.onnx"), ("train", "site.yaml"), ("bench", "site.yaml")):
        text = expect(run(folder, node_path, *command), 1, "absent.onnx", "not found")
        assert text.count("absent.onnx") == 1, text


def the_model_itself_is_good(node_path, folder):
    profile(folder)
    write(os.path.join(folder, "model.onnx"), plain())
    expect(run(folder, node_path, "check", "model.onnx"), 0, "8 values in 1 tensors")
    expect(run(folder, node_path, "train", "--anew", "site.yaml"), 0, "round 1/1")


def copies_of_weights_and_names_that_an_exporter_made_up_are_said(node_path, folder):
    numbers = [0.1 * i for i in range(8)]
    nodes = [node("MatMul", ("x", "a"), ("p",)), node("MatMul", ("x", "onnx::MatMul_7"), ("q",)), node("Add", ("p", "q"), ("y",))]
    pair = [tensor("a", (4, 2), numbers), tensor("onnx::MatMul_7", (4, 2), numbers)]
    write(os.path.join(folder, "model.onnx"), plain(nodes=nodes, initializers=pair))
    text = expect(run(folder, node_path, "check", "model.onnx"), 0, "1 weights are not the module's own")
    assert "copies" not in text, text  # deep copies in the module
    signature = "p_a: PARAMETER target='a'\n"
    write(os.path.join(folder, "model.onnx"), plain(nodes=nodes, initializers=pair, signature=signature))
    expect(run(folder, node_path, "check", "model.onnx"), 0, "1 weights are copies of others ('onnx::MatMul_7' of 'a')")
    norms = [node("LayerNormalization", ("x", "s"), ("h",)), node("LayerNormalization", ("h", "s"), ("y",))]
    write(os.path.join(folder, "model.onnx"), plain(nodes=norms, initializers=[tensor("s", (4,), numbers[:4])]))
    expect(run(folder, node_path, "check", "model.onnx"), 0, "1 weights stand in several normalizations ('s' in 2)")
    mask = tensor("causal", (2,), [0, float("-inf")])
    write(os.path.join(folder, "model.onnx"), plain(nodes=[node("MatMul", ("x", "w"), ("h",)), node("Add", ("h", "causal"), ("y",))],
                                                    initializers=[WEIGHT, mask]))
    expect(run(folder, node_path, "check", "model.onnx"), 0, "as masks do ('causal')", "train: {freeze: [causal]}")
    shared = plain(nodes=norms, initializers=[tensor("s", (4,), numbers[:4])], signature="p_s: PARAMETER target='s'\n")
    write(os.path.join(folder, "model.onnx"), shared)
    assert "warning" not in expect(run(folder, node_path, "check", "model.onnx"), 0)
    write(os.path.join(folder, "model.onnx"), plain())
    assert "warning" not in expect(run(folder, node_path, "check", "model.onnx"), 0)


def what_an_exporter_left_out_is_said(node_path, folder):
    """By check and by train: parameters without a tensor, and batch normalization that is folded or merged or for inference."""
    signature = "".join(f"{name}: {kind} target='{name}'\n" for name, kind in (
        ("w", "PARAMETER"), ("bn.weight", "PARAMETER"), ("scale", "PARAMETER"), ("bn.running_mean", "BUFFER_MUTATION")))
    turned = told("w", "pkg.onnxscript.optimizer.folded_from", "['scale', 'val_1']")
    write(os.path.join(folder, "model.onnx"), plain(values=[turned], signature=signature))
    words = ("1 parameters of the module have no tensor in the file ('bn.weight')", "1 parameters of the module train as what",
             "1 batch normalizations of the module have no statistics", "dynamo=False")
    profile(folder)
    for command in (("check", "model.onnx"), ("train", "site.yaml")):
        expect(run(folder, node_path, *command), 0, *words)
    profile(folder, norm="train")
    expect(run(folder, node_path, "train", "--anew", "site.yaml"), 0, "train.bn is 'train', but the model has no BatchNormalization")
    norm = node("BatchNormalization", ("y0", "bn.weight", "bn.bias", "bn.bias", "bn.weight"), ("y",))
    ones = [WEIGHT, tensor("bn.weight", (2,), [1, 1]), tensor("bn.bias", (2,), [0, 0])]
    merged = plain(nodes=[node("MatMul", ("x", "w"), ("y0",)), norm], initializers=ones,
                   signature=signature.replace("scale", "bn.bias"))
    write(os.path.join(folder, "model.onnx"), merged)
    text = expect(run(folder, node_path, "check", "model.onnx"), 0, "statistic  bn.running_mean", "parameter  bn.bias",
                  "('bn.running_mean' moves)", "train: {bn: train}")
    assert text.count("warning") == 1, text
    assert "warning" not in expect(run(folder, node_path, "train", "--anew", "site.yaml"), 0, "round 1/1")


def external_data_is_trained(node_path, folder):
    import struct

    write(os.path.join(folder, "w.bin"), struct.pack("<8f", *[0.1] * 8))
    write(os.path.join(folder, "model.onnx"), plain(initializers=[tensor("w", (4, 2), None, location="w.bin")]))
    profile(folder)
    expect(run(folder, node_path, "train", "--anew", "--save", "saved.onnx", "site.yaml"), 0, "round 1/1")
    os.remove(os.path.join(folder, "w.bin"))
    expect(run(folder, node_path, "check", "saved.onnx"), 0, "8 values in 1 tensors")


def a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(node_path, folder):
    write(os.path.join(folder, "model.onnx"), plain())
    profile(folder, rate=0.01, rounds=1)
    expect(run(folder, node_path, "train", "--anew", "site.yaml"), 0)
    kept = os.path.join(folder, "state", "model.current.onnx")
    before = open(kept, "rb").read()
    npy(os.path.join(folder, "x.npy"), 8, 4, [1e30] * 32)
    profile(folder, rate=0.01, rounds=2)
    expect(run(folder, node_path, "train", "site.yaml"), 1, "round 2, step 1", "not finite", "last good")
    assert open(kept, "rb").read() == before
    npy(os.path.join(folder, "x.npy"), 8, 4, [0.5] * 32)
    expect(run(folder, node_path, "train", "site.yaml"), 0, "round 2/2")


def a_device_that_is_not_there_is_said(node_path, folder):
    write(os.path.join(folder, "model.onnx"), plain())
    if os.path.exists("/dev/nvidia0"):
        return
    profile(folder, device="cuda")
    if os.environ.get("CAIRN_TEST_CUDA_PORT", "1") == "1":
        wanted = "no GPU is used: ", "error: device: cuda does not work here", "'auto'"
    else:
        wanted = ("error: device: cuda is not part of this build; use 'auto' or 'cpu'",)
    text = expect(run(folder, node_path, "train", "--anew", "site.yaml"), 1, *wanted)
    assert len([line for line in text.splitlines() if "error" in line]) == 1, text
    profile(folder, device="auto")
    expect(run(folder, node_path, "train", "--anew", "site.yaml"), 0, "round 1/1")


CASES = (the_model_itself_is_good, copies_of_weights_and_names_that_an_exporter_made_up_are_said, what_an_exporter_left_out_is_said,
         each_model_is_refused_by_check_and_by_train, external_data_is_trained,
         a_loss_that_is_not_finite_keeps_the_last_good_checkpoint, a_device_that_is_not_there_is_said,
         a_model_that_is_not_there_is_named_once)


def main(build, *names):
    for case in chosen(CASES, names):
        with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
            npy(os.path.join(folder, "x.npy"), 8, 4, [0.25 * (i % 7) for i in range(32)])
            npy(os.path.join(folder, "y.npy"), 8, 2, [0.5] * 16)
            case(os.path.join(os.path.abspath(build), "cairn-node"), folder)
        print(case.__name__.replace("_", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
