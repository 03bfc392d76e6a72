#!/usr/bin/env python3
"""Reads what write_exports wrote."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

try:
    import onnx
    import onnx.numpy_helper
except ImportError:
    onnx = None


def read_safetensors(path):
    """A reader after github.com/huggingface/safetensors, "Format", with its rules checked."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size].decode("utf-8"))
    assert content[8:9] == b"{"
    data, tensors, end = content[8 + size:], {}, 0
    assert all(isinstance(v, str) for v in header.pop("__metadata__").values())
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert set(entry) == {"dtype", "shape", "data_offsets"} and entry["dtype"] == "F32"
        assert begin == end, "the data has a hole"
        tensors[name] = numpy.frombuffer(data[begin:stop], "<f4").reshape(entry["shape"])
        end = stop
    assert end == len(data)
    return tensors


def check(program, model, directory):
    stem = directory / model.stem
    subprocess.run([program, model, stem], check=True)
    tensors = read_safetensors(stem.with_suffix(".safetensors"))
    flat = numpy.concatenate([t.flatten() for t in tensors.values()])
    assert (flat == numpy.arange(len(flat))).all()
    if onnx is None:
        return
    exported = onnx.load(str(stem.with_suffix(".onnx")))
    if exported.ir_version <= onnx.IR_VERSION:  # an older package knows no newer files
        onnx.checker.check_model(exported)
    for initializer in exported.graph.initializer:
        if initializer.name in tensors:  # the others are constants of the model
            assert (onnx.numpy_helper.to_array(initializer) == tensors.pop(initializer.name)).all()
    assert not tensors


def main():
    program, data = sys.argv[1], pathlib.Path(sys.argv[2])
    models = sorted(data.glob("*/*.onnx"))
    assert models
    with tempfile.TemporaryDirectory() as directory:
        for model in models:
            check(program, model, pathlib.Path(directory))
    print(f"{len(models)} models" + ("" if onnx else " (the onnx package is missing: only safetensors)"))


if __name__ == "__main__":
    main()
