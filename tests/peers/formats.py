"""Graph blobs, versions and checkpoints read by a second implementation, and compared with each other.

usage: formats.py MODEL.onnx GATEWAY_STATE BOARD_STATE...

Written from runtime/engine/GRAPH.md, runtime/update/version.h and runtime/round/CHECKPOINT.md alone.
"""

import hashlib
import json
import math
import os
import re
import sqlite3
import struct
import sys
from array import array
from typing import NamedTuple

import update
from update import PARAM, STATISTIC, Refused, floats, refuse

FLOAT32 = 1


def read_file(*names):
    with open(os.path.join(*names), "rb") as file:
        return file.read()


def digest_of(data):
    return hashlib.sha256(data).digest()


# ONNX: only where the weights are


class Tensor(NamedTuple):
    name: str
    count: int
    kind: int
    ranges: list  # (offset, size) in the file


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data, start, end):
    """(number, value or None, offset, size) of each field of a protobuf message."""
    at = start
    while at < end:
        key, at = varint(data, at)
        value, size = None, {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            first = at
            value, at = varint(data, at)
            yield key >> 3, value, first, at - first
            continue
        if key & 7 == 2:
            size, at = varint(data, at)
        yield key >> 3, value, at, size
        at += size


def text_of(data, at, size):
    return data[at : at + size].decode()


ROLE = "pkg.torch.export.graph_signature.InputSpec.kind"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
PARAMETER = re.compile("[^:]*: PARAMETER target='([^']*)'.*")
KNOWN = {"Clip": (1, 3), "Dropout": (1, 2), "OneHot": (1, 3), "Pad": (2, 3), "Range": (0, 3), "Resize": (1, 3)}


def nodes_of(data, start, end, same):
    """(operator, inputs) of a node and of those in its branches, with the names that go through Identity nodes
    resolved; an Identity node adds to what is the same by other names, for the nodes behind it in its graph."""
    inputs, outputs, operator, branches = [], [], "", []
    for number, _, at, size in fields(data, start, end):
        if number == 1:
            inputs.append(text_of(data, at, size))
        elif number == 2:
            outputs.append(text_of(data, at, size))
        elif number == 4:
            operator = text_of(data, at, size)
        elif number == 5:
            branches += [part[2:] for part in fields(data, at, at + size) if part[0] == 6]
    inputs = [same.get(name, name) for name in inputs]
    if operator == "Identity":
        same[outputs[0]] = inputs[0]
    yield operator, inputs
    for at, size in branches:
        inside = dict(same)
        for number, _, node, length in fields(data, at, at + size):
            if number == 1:
                yield from nodes_of(data, node, node + length, inside)


def entry_of(data, start, end):
    entry = {part: text_of(data, where, length) for part, _, where, length in fields(data, start, end)}
    return entry.get(1, ""), entry.get(2, "")


def role_of(data, start, end):
    """What the file says of a value: (name, entries by key)."""
    name, entries = "", {}
    for number, _, at, size in fields(data, start, end):
        if number == 1:
            name = text_of(data, at, size)
        elif number == 4:
            entries.update([entry_of(data, at, at + size)])
    return name, entries


def parameters_of(signature):
    lines = (PARAMETER.fullmatch(line) for line in signature.split("\n")[:-1])
    return {line[1] for line in lines if line}


def without_constants(data, tensors, ranks, statistics, roles, nodes, parameters):
    """The tensors, by GRAPH.md, "The layout"."""
    says = any(ROLE in roles.get(name, {}) for name in ranks)
    known = {name for operator, inputs in nodes if operator in KNOWN for name in inputs[slice(*KNOWN[operator])]}
    first = {name for operator, inputs in nodes if operator in ("LSTM", "GRU", "RNN") for name in inputs[5:7]}

    def constant(name):
        entries, tensor = roles.get(name, {}), named[name]
        if ROLE in entries:
            return entries[ROLE] != "PARAMETER"
        if entries.get(FOLDED) and parameters:
            return not parameters.intersection(entries[FOLDED].split("'")[1::2])
        if name in known or not says:
            return name in known
        numbers = array("f", b"".join(data[at : at + size] for at, size in tensor.ranges))
        return ((tensor.count == 1 and ranks[name] < 2) or name in first
                or not all(-1e4 < number < 1e4 for number in numbers))

    named = {tensor.name: tensor for tensor in tensors}
    return [tensor for tensor in tensors if tensor.name in statistics or not constant(tensor.name)]


def rank_of(data, start, end):
    rank = 0
    for number, value, at, size in fields(data, start, end):
        if number == 1 and value is not None:
            rank += 1
        elif number == 1:
            rank += sum(byte < 0x80 for byte in data[at : at + size])
    return rank


def read_tensor(data, start, end):
    name, kind, count, ranges = "", 0, 1, []
    for number, value, at, size in fields(data, start, end):
        if number == 1 and value is not None:
            count *= value
        elif number == 1:
            stop = at + size
            while at < stop:
                value, at = varint(data, at)
                count *= value
        elif number == 2:
            kind = value
        elif number == 8:
            name = text_of(data, at, size)
        elif number in (4, 9) and size:
            ranges.append((at, size))
    refuse(kind == FLOAT32 and sum(size for _, size in ranges) != 4 * count, "size of a tensor")
    return kind, Tensor(name, count, PARAM, ranges)


def read_model(data):
    """The float32 initializers of an ONNX file, in its order."""
    tensors, same, ranks, roles, nodes, parameters = [], {}, {}, {}, [], set()
    for number, _, start, size in fields(data, 0, len(data)):
        if number != 7:
            continue
        for part, _, at, length in fields(data, start, start + size):
            if part == 1:
                nodes += nodes_of(data, at, at + length, same)
            elif part == 13:
                name, entries = role_of(data, at, at + length)
                if ROLE in entries or entries.get(FOLDED):
                    roles.setdefault(name, entries)
            elif part == 16:
                key, text = entry_of(data, at, at + length)
                parameters = parameters_of(text) if key == SIGNATURE else parameters
            elif part == 5:
                kind, tensor = read_tensor(data, at, at + length)
                ranks[tensor.name] = rank_of(data, at, at + length)
                if kind == FLOAT32:
                    tensors.append(tensor)
    statistics = {name for operator, inputs in nodes if operator == "BatchNormalization" for name in inputs[3:5]}
    tensors = without_constants(data, tensors, ranks, statistics, roles, nodes, parameters)
    return [tensor._replace(kind=STATISTIC) if tensor.name in statistics else tensor for tensor in tensors]


def layout_of(data):
    return [(tensor.count, tensor.kind) for tensor in read_model(data)]


def variances_of(data):
    """The positions of running variances in the row of all weights."""
    return inputs_of_normalization(data, 4)


def statistics_of(data):
    """The positions of running means and variances in the row of all weights."""
    return inputs_of_normalization(data, 3)


def inputs_of_normalization(data, first):
    """The positions of what batch normalizations read as their inputs from first on."""
    same, names = {}, set()
    for number, _, start, size in fields(data, 0, len(data)):
        parts = fields(data, start, start + size) if number == 7 else []
        for operator, inputs in (node for part, _, at, length in parts if part == 1
                                 for node in nodes_of(data, at, at + length, same)):
            names.update(inputs[first:5] if operator == "BatchNormalization" else [])
    found, at = [], 0
    for tensor in read_model(data):
        found += range(at, at + tensor.count) if tensor.name in names else []
        at += tensor.count
    return found


def weights_of(data):
    return array("f", b"".join(data[at : at + size] for each in read_model(data) for at, size in each.ranges))


def with_weights(data, values):
    out, raw, done = bytearray(data), values.tobytes(), 0
    for tensor in read_model(data):
        for at, size in tensor.ranges:
            out[at : at + size] = raw[done : done + size]
            done += size
    refuse(done != len(raw), "another number of weights")
    return bytes(out)


# The graph blob


def make_graph(data):
    ranges = [each for tensor in read_model(data) for each in tensor.ranges]
    kept, at = [], 0
    for start, size in ranges:
        kept.append(data[at:start])
        at = start + size
    kept.append(data[at:])
    head = struct.pack("<8sQQ", b"cairn-g1", len(data), len(ranges))
    return head + b"".join(struct.pack("<QQ", *each) for each in ranges) + b"".join(kept)


def read_graph(blob):
    """The ONNX file with zeros for weights."""
    refuse(len(blob) < 24, "a graph is too short")
    magic, size, count = struct.unpack_from("<8sQQ", blob)
    refuse(magic != b"cairn-g1" or size > 1 << 31 or count > (len(blob) - 24) // 16, "head of a graph")
    data, at, end = bytearray(), 24 + 16 * count, 0
    for i in range(count):
        start, length = struct.unpack_from("<QQ", blob, 24 + 16 * i)
        refuse(start < end or not length or start + length > size, "a range of a graph")
        data += blob[at : at + start - end] + bytes(length)
        at += start - end
        end = start + length
    data += blob[at:]
    refuse(len(data) != size, "the graph does not fill its file")
    return bytes(data)


# Versions


class Version(NamedTuple):
    graph: bytes
    parent: bytes
    values: array
    digest: bytes


def make_version(graph, parent, values):
    return struct.pack("<16s32s32sQ", b"cairn-version-1", graph, parent, len(values)) + values.tobytes()


def read_version(data):
    refuse(len(data) < 88, "a version is too short")
    magic, graph, parent, count = struct.unpack_from("<16s32s32sQ", data)
    refuse(magic != b"cairn-version-1\0" or len(data) != 88 + 4 * count, "head of a version")
    return Version(graph, parent, array("f", data[88:]), digest_of(data))


# Checkpoints

PHASES = ["empty", "base", "train", "send"]
HALVES = {"residual", "next residual", "change"}
ARRAYS = ["base", "weights", "optimizer", "residual", "next residual", "change", "second", "control", "server control"]
MUST = {"empty": set(), "base": {"base"}, "train": {"weights"},
        "send": {"base", "next residual", "change"}}
KEPT = {"optimizer", "residual", "second", "control", "server control"}
MAY = {"empty": set(), "base": KEPT, "train": {"base"} | KEPT, "send": KEPT}
CONTROL = struct.Struct("<IIIf")  # the rest of the header in version 5,
WAITING = struct.Struct("<QII")  # and in version 6
CHECKPOINT = struct.Struct("<8sQQQIIIIQQII32s32s32sQddQQQQQ32sIIddIIIBBHQ32sII32s")


class Checkpoint(NamedTuple):
    magic: bytes
    size: int
    counter: int
    run: int
    lineage: int
    phase: str
    round: int
    step: int
    updates: int
    epoch: int
    version: int
    arrays: dict
    graph: bytes
    base: bytes
    parent: bytes
    samples: int
    loss: float
    held_out_loss: float
    held_out_correct: int
    held_out_count: int
    lost: int
    count: int
    frame_size: int
    frame_digest: bytes
    mode: int
    value_bits: int
    density: float
    factor: float
    streak: int
    steps: int
    residual_version: int
    halves: int
    scale: int
    scale_steps: int
    cursor: int
    micro: bytes
    counted_round: int
    counted_own: int
    counted: bytes
    frame: bytes = b""
    control: tuple = (0, 0, 0, 0.0)  # epoch, updates, version, inverse distance
    waiting: tuple = (0, 0)  # the set of files with what waits, its array that is the residual


def get_array(data, count):
    if len(data) == 4 * count:
        return array("f", data)
    return floats(update.float_of(half << 16) for half in struct.unpack(f"<{count}H", data))


def read_checkpoint(data):
    refuse(len(data) < CHECKPOINT.size + 32, "a checkpoint is too short")
    found = Checkpoint(*CHECKPOINT.unpack_from(data))
    version = {b"cairnck4": 4, b"cairnck5": 5, b"cairnck6": 6}.get(found.magic, 0)
    refuse(not version or found.size != len(data), "magic or size of a checkpoint")
    at, newer = CHECKPOINT.size, [CONTROL, WAITING][: version - 4]
    refuse(len(data) < at + sum(fields.size for fields in newer) + 32, "a checkpoint is too short")
    if version >= 5:
        found = found._replace(control=CONTROL.unpack_from(data, at))
    if version >= 6:
        *waiting, zero = WAITING.unpack_from(data, at + CONTROL.size)
        refuse(zero or not waiting[0], "what is not in use")
        found = found._replace(waiting=tuple(waiting))
    at += sum(fields.size for fields in newer)
    refuse(found.halves > 1 or found.scale > 64 or found.counted_own > 1, "what is not in use")
    refuse(found.phase >= len(PHASES) or found.arrays >= 1 << len(ARRAYS), "phase or arrays")
    phase, arrays = PHASES[found.phase], {}
    refuse(version < 5 and found.arrays >> 7, "control variates in an older checkpoint")
    names = [name for bit, name in enumerate(ARRAYS) if found.arrays >> bit & 1]
    must, may = MUST[phase], MUST[phase] | MAY[phase]
    if version >= 6:
        refuse(found.waiting[1] not in {"send": [0], "base": [4, 5], "train": [4, 5]}.get(phase, []), "array of what waits")
        must, may = must - HALVES, may - HALVES
    refuse(not must <= set(names) <= may, "arrays of another phase")
    refuse(bool(found.frame_size) != (phase == "send"), "a frame in another phase")
    sizes = {name: found.count * (2 if found.halves and name in HALVES else 4) for name in names}
    refuse(len(data) != at + sum(sizes.values()) + found.frame_size + 32, "size of a checkpoint")
    refuse(digest_of(data[:-32]) != data[-32:], "digest of a checkpoint")
    for name in names:
        arrays[name] = get_array(data[at : at + sizes[name]], found.count)
        at += sizes[name]
    frame = data[at:-32]
    refuse(phase == "send" and digest_of(frame) != found.frame_digest, "digest of the frame")
    return found._replace(phase=phase, arrays=arrays, frame=frame)


# What waits to be sent, in parts

PART = struct.Struct("<8sQQQIIII32sQQQdfI32sIIIIQ32s")


class Part(NamedTuple):
    magic: bytes
    size: int
    run: int
    epoch: int
    lineage: int
    round: int
    steps: int
    parts: int
    base: bytes
    samples: int
    cursor: int
    updates: int
    loss: float
    scale: float
    scale_steps: int
    micro: bytes
    arrays: int
    part: int
    tensors: int
    cut: int
    values: int
    contents: bytes


def read_waiting(data, layout):
    """A file of what waits: its header, and by tensor its next residual and change. The name of its set is in the header's
    place of the epoch, which such a file does not have."""
    refuse(len(data) < PART.size + 17 * 32 + 32, "a part is too short")
    found, at = Part(*PART.unpack_from(data)), PART.size + 17 * 32
    refuse(found.magic != b"cairnpt1" or found.size != len(data) or found.arrays != 1 << 4 | 1 << 5, "no part of what waits")
    refuse(any((found.epoch, found.updates, found.scale, found.scale_steps, *found.micro)), "what is not in use")
    digests = [data[start : start + 32] for start in range(PART.size, at, 32)]
    refuse(digest_of(b"".join(digests)) != found.contents, "digests of the set")
    refuse(any(any(digest) for digest in digests[1 + found.parts :]), "digests of parts that there are not")
    refuse(digest_of(data[at:-32]) != data[-32:] or digests[1 + found.part] != data[-32:], "digest of a part")
    places = struct.unpack_from(f"<{found.tensors}I", data, at)
    refuse(list(places) != sorted(set(places)) or found.values != sum(layout[place][0] for place in places), "tensors of a part")
    refuse(len(data) != at + 4 * found.tensors + 8 * found.values + 32, "size of a part")
    at += 4 * found.tensors
    tensors = {}
    for place in 2 * places:
        count = layout[place][0]
        tensors.setdefault(place, []).append(array("f", data[at : at + 4 * count]))
        at += 4 * count
    alike = found._replace(size=0, part=0, tensors=0, values=0)
    return found._replace(epoch=int.from_bytes(digest_of(PART.pack(*alike))[:8], "little") | 1), tensors, digests[0]


def with_waiting(state, directories, layout):
    """A state with the arrays that the files of its set have on these boards' disks, and the number of files."""
    rows, holders, count = {}, {}, 0
    for directory in directories:
        for number in range(16):
            try:
                header, tensors, frame = read_waiting(read_file(directory, f"waits-{state.waiting[0]:016x}-{number:02d}"), layout)
            except FileNotFoundError:
                continue
            refuse((header.epoch, header.part) != (state.waiting[0], number), "a part under another name")
            refuse(frame != state.frame_digest, "frame of the set")
            refuse((header.run, header.lineage, header.round, header.steps, header.base, header.samples, header.cursor, header.loss)
                   != (state.run, state.lineage, state.round, state.steps, state.base, state.samples, state.cursor, state.loss),
                   "numbers of the set")
            for place, both in tensors.items():
                refuse(rows.setdefault(place, both) != both, "a tensor of two parts")
                holders[place] = holders.get(place, 0) | 1 << number
            cut, count = header.cut, count + 1
    refuse(sorted(rows) != list(range(len(layout))), "a part is on no disk")
    bits = b"".join(holders[place].to_bytes(4, "little") for place in range(len(layout)))
    refuse(int.from_bytes(digest_of(bits)[:4], "little") != cut, "number of the cut")
    joined = [array("f", b"".join(rows[place][i].tobytes() for place in range(len(layout)))) for i in range(2)]
    return state._replace(arrays={**state.arrays, "next residual": joined[0], "change": joined[1]}), count


def read_slots(directory):
    """The states of a board, the newest first."""
    states = []
    for parity, name in enumerate(["checkpoint.a", "checkpoint.b"]):
        try:
            state = read_checkpoint(read_file(directory, name))
        except FileNotFoundError:
            continue
        refuse(state.counter == 0 or state.counter % 2 != parity, "a counter under the wrong name")
        states.append(state)
    return sorted(states, key=lambda state: -state.counter)


# safetensors (https://github.com/huggingface/safetensors)


def check_safetensors(data, model, values):
    size = int.from_bytes(data[:8], "little")
    header, rows, start = json.loads(data[8 : 8 + size]), data[8 + size :], 0
    names = [name for name in header if name != "__metadata__"]
    tensors = [tensor for tensor in read_model(model) if tensor.count]
    refuse(sorted(names) != sorted(tensor.name for tensor in tensors), "names of the tensors")
    refuse(len(rows) != 4 * len(values), "size of the tensors")
    for tensor in tensors:
        found, end = header[tensor.name], start + tensor.count
        first, last = found["data_offsets"]
        refuse(found["dtype"] != "F32" or math.prod(found["shape"]) != tensor.count, tensor.name)
        refuse(rows[first:last] != values[start:end].tobytes(), tensor.name)
        start = end


# A run


def check_sent(state, layout):
    """What a board is about to send is what it holds, coded."""
    header, sent = update.decode(state.frame, layout)
    refuse((header.run, header.round, header.base) != (state.run, state.round, state.base), "another frame")
    refuse(header.weight != state.samples, "weight of the frame")
    change, left = state.arrays["change"], state.arrays["next residual"]
    refuse(floats(u - v for u, v in zip(change, sent)) != left, "the next residual is not what was left out")
    refuse(update.encode(header, layout, change) != state.frame, "the change gives another frame")


def check_state(state, model, ledger):
    graph = digest_of(make_graph(model))
    run, lineage = ledger.execute("SELECT run, lineage FROM meta").fetchone()
    refuse((state.run, state.lineage) != (run % 2**64, lineage), "another run")
    refuse(state.graph != graph, "another graph")
    layout = layout_of(model)
    refuse(state.count != sum(count for count, _ in layout), "number of weights")
    version = ledger.execute("SELECT digest, parent FROM version WHERE number = ?", (state.version,)).fetchone()
    refuse((state.base, state.parent) != version, "version %d is another" % state.version)
    made = digest_of(make_version(graph, state.parent, state.arrays["base"]))
    refuse(made != state.base, "the weights of the base have another digest")
    if state.phase == "send":
        check_sent(state, layout)


def check_board(directory, model, ledger):
    """All of a board that stands still; its checkpoints, the newest first."""
    blob = read_file(directory, "graph.blob")
    refuse(blob != make_graph(model), "graph.blob")
    states = [state for state in read_slots(directory) if state.phase != "empty"]
    refuse(not states, "no checkpoint")
    for state in states:
        check_state(state, model, ledger)
    current = read_file(directory, "model.current.onnx")  # for inference: as the graph where that trains no norm or dropout
    refuse(with_weights(read_graph(blob), weights_of(current)) != current, "model.current.onnx")
    refuse(not any(weights_of(current) == state.arrays["base"] for state in states), "model.current.onnx: weights")
    return states


def check_versions(gateway, model, ledger):
    graph = digest_of(make_graph(model))
    refuse(ledger.execute("SELECT graph FROM meta").fetchone()[0] != graph, "graph of the ledger")
    rows = ledger.execute("SELECT number, digest, parent FROM version ORDER BY number").fetchall()
    for number, digest, parent in rows:
        version = read_version(read_file(gateway, "files", "version-%d.full" % number))
        refuse((version.graph, version.parent, version.digest) != (graph, parent, digest), "version %d" % number)
    first = read_version(read_file(gateway, "files", "version-0.full"))
    follows = ledger.execute("SELECT count(*) FROM origin").fetchone()[0]  # version 0 is of an earlier run
    refuse(not follows and first.values != weights_of(model), "version 0 has other weights than the model")
    return len(rows)


def open_ledger(gateway):
    return sqlite3.connect("file:%s?mode=ro" % os.path.join(gateway, "ledger.sqlite"), uri=True)


def check_examples():
    """The test vector of GRAPH.md."""
    blob = bytes.fromhex("636169726e2d6731 0a00000000000000 0100000000000000 0200000000000000 0400000000000000"
                         "6162 63646566")
    refuse(read_graph(blob) != bytes.fromhex("61620000000063646566"), "the example of GRAPH.md")


def main(model_path, gateway, *boards):
    check_examples()
    model = read_file(model_path)
    refuse(with_weights(read_graph(make_graph(model)), weights_of(model)) != model, "graph and weights")
    ledger = open_ledger(gateway)
    print("%d versions read" % check_versions(gateway, model, ledger))
    for board in boards:
        states = check_board(board, model, ledger)
        print(board, *("%s: round %d, version %d" % (each.phase, each.round, each.version) for each in states))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit("formats: %s" % error)
