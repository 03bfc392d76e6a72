#!/usr/bin/env python3
"""Loads the trained weights into PyTorch and measures them on all samples: load_back.py MODEL.safetensors

With the safetensors package, safetensors.torch.load_file does what read_weights does.
"""
import json
import sys

import numpy
import torch

from export import make_model


def read_weights(path):
    with open(path, "rb") as file:
        content = file.read()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(content[begin:end], "<f4").reshape(entry["shape"])
        weights[name] = torch.from_numpy(values.copy())
    return weights


def main():
    model = make_model()
    model.load_state_dict(read_weights(sys.argv[1]), strict=False)  # the file has what trained, and statistics
    model.eval()
    inputs = torch.from_numpy(numpy.load("inputs.npy"))
    labels = torch.from_numpy(numpy.load("labels.npy"))
    with torch.no_grad():
        correct = (model(inputs).argmax(1) == labels).float().mean().item()
    print(f"accuracy {correct:.3f}")


if __name__ == "__main__":
    main()
