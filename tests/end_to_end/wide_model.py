"""Writes a perceptron of any size as ONNX, without any library: for tests and benches of groups.

    wide_model.py FILE SHAPE HIDDEN... CLASSES       SHAPE is that of a sample: 1,8,8

Weights are drawn from a fixed generator, so the file is the same everywhere. A hidden layer is Gemm and Relu, or Gemm,
BatchNormalization in training and Relu; layers from the second on, all or those in `tied`, may share the second's weight,
which then is of equal sizes.
Each hidden layer may end with a Dropout in training, and the last may add what the first gave, or the sample, of the
same size.
"""

import array

import math
import random
import struct
import sys


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name, dims, values):
    data = array.array("f", values)
    if sys.byteorder == "big":
        data.byteswap()
    return block(5, b"".join(number(1, d) for d in dims) + number(2, 1) + block(8, name) + block(9, data.tobytes()))


def drawn(generator, name, *dims):
    """Uniform values; of a large tensor the first 65521 again and again, so that gigabytes take seconds."""
    bound = 1 / math.sqrt(dims[-1])
    count = math.prod(dims)
    values = array.array("f", (generator.uniform(-bound, bound) for _ in range(min(count, 65521))))
    return tensor(name, dims, (values * (count // len(values) + 1))[:count])


def node(op, inputs, outputs, attribute=b""):
    return block(1, b"".join(block(1, name) for name in inputs) + b"".join(block(2, name) for name in outputs)
                 + block(4, op) + attribute)


def flag(name):
    return block(5, block(1, name) + number(3, 1) + number(20, 2))


def normalization(i, size):
    """A node from n{i} to g{i}, and its tensors."""
    names = [f"{kind}{i}" for kind in ("scale", "shift", "mean", "variance")]
    tensors = b"".join(tensor(name, [size], [value] * size) for name, value in zip(names, (1, 0, 0, 1)))
    outputs = [f"g{i}", f"moved-mean{i}", f"moved-variance{i}"]
    return node("BatchNormalization", [f"n{i}", *names], outputs, flag("training_mode")), tensors


def dropout(i):
    """A node from r{i} to h{i}, half of whose values are zeros."""
    return node("Dropout", [f"r{i}", "ratio", "trains"], [f"h{i}"], block(5, block(1, "seed") + number(3, i) + number(20, 2)))


def scalar(name, kind, data):
    return block(5, number(2, kind) + block(8, name) + block(9, data))


def value(field, name, words):
    dims = block(1, block(2, "batch")) + b"".join(block(1, number(1, w)) for w in words)
    return block(field, block(1, name) + block(2, block(1, number(1, 1) + block(2, dims))))


def perceptron(shape, sizes, norm=False, tied=False, drops=False, skips=False, echoes=False):
    """shape is that of a sample; sizes are the words of each layer's output."""
    generator = random.Random(4)
    parts = [node("Flatten", ["x"], ["h0"])]
    tensors = []
    words = math.prod(shape)
    if drops:
        tensors += [scalar("ratio", 1, struct.pack("<f", 0.5)), scalar("trains", 9, b"\1")]
    for i, size in enumerate(sizes):
        last = i + 1 == len(sizes)
        shares = 1 < i and not last and (tied is True or tied and i in tied)
        weight = "w1" if shares else f"w{i}"
        if not shares:
            tensors.append(drawn(generator, weight, size, words))
        tensors.append(drawn(generator, f"b{i}", size))
        product = "y" if last else f"n{i}" if norm else f"g{i}"
        source = f"h{i}"
        if last and (skips or echoes):
            parts.append(node("Add", [source, "h0" if echoes else "h1"], ["s"]))
            source = "s"
        parts.append(node("Gemm", [source, weight, f"b{i}"], [product], flag("transB")))
        if norm and not last:
            normalizes, statistics = normalization(i, size)
            parts.append(normalizes)
            tensors.append(statistics)
        if not last:
            parts.append(node("Relu", [f"g{i}"], [f"r{i + 1}" if drops else f"h{i + 1}"]))
        if not last and drops:
            parts.append(dropout(i + 1))
        words = size
    parts += [block(2, "perceptron"), *tensors, value(11, "x", shape), value(12, "y", sizes[-1:])]
    return number(1, 8) + block(7, b"".join(parts)) + block(8, number(2, 17))


def main(path, shape, *sizes, **kinds):
    with open(path, "wb") as file:
        file.write(perceptron([int(words) for words in shape.split(",")], [int(size) for size in sizes], **kinds))


def weights_of(model):
    """The values of all tensors of floats in a file that main wrote."""
    values = array.array("f")
    for name in (f"{kind}{layer}".encode() for layer in range(32) for kind in "wb"):
        at = model.find(block(8, name) + b"\x4a")
        if at >= 0:
            at += len(name) + 3
            shift = size = 0
            while not shift or model[at - 1] > 127:
                size |= (model[at] & 127) << shift
                at, shift = at + 1, shift + 7
            values.frombytes(model[at:at + size])
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
