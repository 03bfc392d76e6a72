"""Writes small ONNX files, good and bad ones. Standard library only; field numbers are those of onnx.proto."""
import struct

BATCH = "batch"  # a dimension that is left open
FLOAT = 1


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def integer(field, number):
    return varint(field << 3) + varint(number & (1 << 64) - 1)


def part(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, numbers, kind=FLOAT, location=None):
    """numbers is None where the data lies in the file location."""
    data = b"".join(integer(1, dim) for dim in dims) + integer(2, kind) + part(8, name)
    if location is None:
        return data + part(9, struct.pack(f"<{len(numbers)}f", *numbers))
    return data + part(13, part(1, "location") + part(2, location)) + integer(14, 1)


def node(op, inputs, outputs):
    return b"".join(part(1, name) for name in inputs) + b"".join(part(2, name) for name in outputs) + part(4, op)


def value(name, dims, kind=FLOAT):
    shape = b"".join(part(1, part(2, dim) if isinstance(dim, str) else integer(1, dim)) for dim in dims)
    return part(1, name) + part(2, part(1, integer(1, kind) + part(2, shape)))


def told(name, key, text):
    """What an exporter says of a value."""
    return part(1, name) + part(4, part(1, key) + part(2, text))


def model(nodes, initializers, inputs, outputs, opset=17, values=(), signature=None):
    graph = b"".join(part(field, each) for field, group in ((1, nodes), (5, initializers), (11, inputs), (12, outputs), (13, values))
                     for each in group)
    if signature:
        graph += part(16, part(1, "pkg.torch.export.ExportedProgram.graph_signature") + part(2, signature))
    return integer(1, 8) + part(7, graph + part(2, "graph")) + part(8, integer(2, opset))
