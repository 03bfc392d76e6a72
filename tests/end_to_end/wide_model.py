"""Writes a perceptron of any size as ONNX, without any library: for tests and benches of groups.

    wide_model.py FILE SHAPE HIDDEN... CLASSES       SHAPE is that of a sample: 1,8,8

Weights are drawn from a fixed generator, so the file is the same everywhere. A hidden layer is Gemm and Relu.
"""

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


def tensor(generator, name, rows, cols=None):
    dims = [rows] if cols is None else [rows, cols]
    bound = 1 / math.sqrt(dims[-1])
    values = [generator.uniform(-bound, bound) for _ in range(math.prod(dims))]
    return block(5, b"".join(number(1, d) for d in dims) + number(2, 1) + block(8, name)
                 + block(9, struct.pack(f"<{len(values)}f", *values)))


def node(op, inputs, output, attribute=b""):
    return block(1, b"".join(block(1, name) for name in inputs) + block(2, output) + block(4, op) + attribute)


def value(field, name, words):
    dims = block(1, block(2, "batch")) + b"".join(block(1, number(1, w)) for w in words)
    return block(field, block(1, name) + block(2, block(1, number(1, 1) + block(2, dims))))


def perceptron(shape, sizes):
    """shape is that of a sample; sizes are the words of each layer's output."""
    generator = random.Random(4)
    graph = node("Flatten", ["x"], "h0")
    tensors = b""
    words = math.prod(shape)
    for i, size in enumerate(sizes):
        last = i + 1 == len(sizes)
        tensors += tensor(generator, f"w{i}", size, words) + tensor(generator, f"b{i}", size)
        transposed = block(5, block(1, "transB") + number(3, 1) + number(20, 2))
        graph += node("Gemm", [f"h{i}", f"w{i}", f"b{i}"], "y" if last else f"g{i}", transposed)
        if not last:
            graph += node("Relu", [f"g{i}"], f"h{i + 1}")
        words = size
    graph += block(2, "perceptron") + tensors + value(11, "x", shape) + value(12, "y", sizes[-1:])
    return number(1, 8) + block(7, graph) + block(8, number(2, 17))


def main(path, shape, *sizes):
    with open(path, "wb") as file:
        file.write(perceptron([int(words) for words in shape.split(",")], [int(size) for size in sizes]))


if __name__ == "__main__":
    main(*sys.argv[1:])
