#!/usr/bin/env python3
"""What export.py of tests/examples/own writes into a file: which tensors train. PyTorch is played.

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
        export.say_what_is_trained(model, path)
        after, text = check(node, path)
        assert after == trained, (after, trained)
        assert "seldom" not in text, text
    print("only what trains is a parameter")


if __name__ == "__main__":
    main(*sys.argv[1:])
