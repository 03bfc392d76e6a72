"""Adds low-rank adapters to a model, as a user's export of a module with LoRA has them.

    lora.py MODEL.onnx OUT.onnx RANK

Each product of an activation with a transposed weight NAME.weight, a MatMul or a Gemm, gets a second branch:
x @ NAME.lora_a @ NAME.lora_b, added to its result. NAME.lora_b is zeros, so the model begins as it was.
"""

import os
import random
import sys
from array import array

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers"))
from formats import fields  # noqa: E402

NODE, INITIALIZER, GRAPH = 1, 5, 7
INPUT, OUTPUT, NAME, OPERATOR = 1, 2, 3, 4


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, data):
    """A field of bytes, text or a message; of a number when data is one."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(operator, inputs, output, name):
    return b"".join([*(field(INPUT, each) for each in inputs), field(OUTPUT, output), field(NAME, name),
                     field(OPERATOR, operator)])


def tensor(name, rows, columns, values):
    return b"".join([field(1, rows), field(1, columns), field(2, 1), field(8, name),
                     field(9, array("f", values).tobytes())])


def names(data, number):
    return [data[at : at + size].decode() for each, _, at, size in fields(data, 0, len(data)) if each == number]


def whole_fields(data):
    """(number, payload, encoded field) of each; the payload of a number is None."""
    start = 0
    for number, value, at, size in fields(data, 0, len(data)):
        yield number, None if value is not None else data[at : at + size], data[start : at + size]
        start = at + size


def renamed_output(data, output):
    return b"".join(field(OUTPUT, output) if number == OUTPUT else raw for number, _, raw in whole_fields(data))


def dimensions(data):
    found = []
    for number, value, at, size in fields(data, 0, len(data)):
        if number == 1 and value is not None:
            found.append(value)
        elif number == 1:  # packed
            found += [each for each in packed(data[at : at + size])]
    return found


def packed(data):
    at = 0
    while at < len(data):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield value


def adapted(graph, rank, seed=1):
    """The graph with adapters, and their number of values."""
    drawn, added, out, tail = random.Random(seed), 0, bytearray(), bytearray()
    parts = list(whole_fields(graph))
    shapes = {names(data, 8)[0]: dimensions(data) for number, data, _ in parts if number == INITIALIZER}
    transposed = {names(data, OUTPUT)[0]: names(data, INPUT)[0] for number, data, _ in parts
                  if number == NODE and names(data, OPERATOR) == ["Transpose"]}
    for number, data, raw in parts:
        operator = names(data, OPERATOR) if number == NODE else []
        weight = transposed.get(names(data, INPUT)[1]) if operator == ["MatMul"] else None
        if operator == ["Gemm"]:  # of a linear layer: its weight is transposed, too
            weight = names(data, INPUT)[1]
        if not weight or weight not in shapes:
            out += raw
            continue
        stem, (columns, rows), result = weight.removesuffix(".weight"), shapes[weight], names(data, OUTPUT)[0]
        a, b = stem + ".lora_a", stem + ".lora_b"
        tail += field(INITIALIZER, tensor(a, rows, rank, [drawn.gauss(0, rows**-0.5) for _ in range(rows * rank)]))
        tail += field(INITIALIZER, tensor(b, rank, columns, [0.0] * (rank * columns)))
        out += field(NODE, renamed_output(data, result + ".base"))
        out += field(NODE, node("MatMul", [names(data, INPUT)[0], a], result + ".low", stem + "/low"))
        out += field(NODE, node("MatMul", [result + ".low", b], result + ".lora", stem + "/lora"))
        out += field(NODE, node("Add", [result + ".base", result + ".lora"], result, stem + "/sum"))
        added += rank * (rows + columns)
    return bytes(out + tail), added


def add_adapters(path, out, rank):
    """Writes the model with adapters; returns their number of values."""
    with open(path, "rb") as file:
        model = file.read()
    parts, added = [], 0
    for number, data, raw in whole_fields(model):
        if number == GRAPH:
            graph, added = adapted(data, rank)
            raw = field(GRAPH, graph)
        parts.append(raw)
    with open(out, "wb") as file:
        file.write(b"".join(parts))
    return added


if __name__ == "__main__":
    print(add_adapters(sys.argv[1], sys.argv[2], int(sys.argv[3])), "values added")
