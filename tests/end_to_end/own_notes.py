#!/usr/bin/env python3
"""What export.py of tests/examples/own writes into a file: which tensors train, and the values of buffers, which the
export has changed. PyTorch is played.

    own_notes.py BIN
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.modules["torch"] = types.SimpleNamespace(nn=types.SimpleNamespace())
sys.path.insert(0, str(ROOT / "tests" / "examples" / "own"))

import export  # noqa: E402


def check(node, path):
    done = subprocess.run([node, "check", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          check=True)
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("parameter ")], done.stdout


class Played:
    """A tensor of PyTorch with these bytes."""

    def __init__(self, values):
        self.values = values

    def detach(self):
        return self

    cpu = contiguous = numpy = detach

    def tobytes(self):
        return self.values


def initializer(path, name):
    """The bytes of a tensor of a file."""
    graph = next(content for tag, content, _ in export.read_fields(path.read_bytes()) if tag == 7)
    for tag, tensor, _ in export.read_fields(graph):
        fields = {of: content for of, content, _ in export.read_fields(tensor)} if tag == 5 else {}
        if fields.get(8) == name.encode():
            return fields[9]
    raise KeyError(name)


def main(build):
    node = pathlib.Path(build, "cairn-node")
    with tempfile.TemporaryDirectory(prefix="cairn-notes-") as folder:
        path = pathlib.Path(folder, "model.onnx")
        shutil.copy(ROOT / "tests" / "data" / "models" / "mlp.onnx", path)
        before, _ = check(node, path)
        assert len(before) > 2, before
        trained, frozen, buffer = before[2:], before[0], before[1]
        weights = [(name, types.SimpleNamespace(requires_grad=name != frozen)) for name in before if name != buffer]
        model = types.SimpleNamespace(named_parameters=lambda: weights, named_buffers=lambda: [(buffer, None)])
        size = path.stat().st_size
        values = initializer(path, buffer)
        export.finish_file(model, path, {buffer: Played(values[::-1])})
        assert initializer(path, buffer) == values[::-1] != values
        assert initializer(path, frozen) == initializer(ROOT / "tests" / "data" / "models" / "mlp.onnx", frozen)
        assert path.stat().st_size > size
        after, text = check(node, path)
        assert after == trained, (after, trained)
        assert "seldom" not in text, text
    print("only what trains is a parameter, and buffers have the values of the module")


if __name__ == "__main__":
    main(*sys.argv[1:])
