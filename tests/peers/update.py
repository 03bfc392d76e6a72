"""A second implementation of update frames, written from runtime/update/UPDATE.md alone.

usage: update.py [--make] DIRECTORY   (makes and reads every vector of tests/data/update; --make writes the frames)

Values are array("f"). A sum, product or quotient of float32 numbers computed as float64 and rounded once
to float32 is what float32 arithmetic gives, so `floats` of exact or float64 results is that arithmetic.
"""

import hashlib
import math
import re
import struct
import sys
from array import array
from typing import NamedTuple

RAW32, Q8, TOPK, BF16, Q4, SIGN, _, SKIP = range(8)
MODES = ("raw32", "q8", "topk", "bf16", "q4", "sign")  # as a profile writes them
# A tensor that never travels has STAYS added to its class; a small one that travels as signs has SIGNS added.
PARAM, STATISTIC, STAYS, SIGNS = 0, 1, 2, 4
BLOCK, THIN_BLOCK, THIN, GROUP, SMALL = 4096, 16384, 0.002, 256, 1024
SNAPSHOT, LEAVE, ROUNDED, STAY, SMALL_SIGNS = 1, 2, 4, 8, 16
CODE_MIN, CODE_MAX, LARGEST = 0x0100, 0x8300, 16.0
NAME = re.compile("[a-z0-9][a-z0-9._-]{0,62}")
HEADER = struct.Struct("<8sBBBBIQQQQ32s")


class Refused(Exception):
    """What was read is not what the format describes."""


def refuse(condition, reason):
    if condition:
        raise Refused(reason)


class Header(NamedTuple):
    mode: int
    value_bits: int
    group: str
    round: int
    run: int
    weight: int
    density: float
    base: bytes
    flags: int = 0


def floats(values):
    return array("f", values)


def bits_of(values):
    """The bits of each float32."""
    bits = array("I")
    bits.frombytes(floats(values).tobytes())
    return bits


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def value_of(code):
    return float_of(code << 15)


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def checksum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return (~crc & 0xFFFF).to_bytes(2, "little")


# The kind of block of a tensor: trained and large, trained and small, a statistic
KINDS = {
    RAW32: ("raw", "raw", "raw"),
    BF16: ("bf16", "bf16", "bf16"),
    Q8: ("q8", "q8", "q8"),
    Q4: ("q4", "q8", "q8"),
    SIGN: ("sign", "q8", "q8"),
    TOPK: ("sparse", "q8", "q8"),
    SKIP: (None, None, None),
}


def kind_of(header, tensor):
    count, kind = tensor[0], tensor[1] & STATISTIC
    if header.flags & STAY and tensor[1] & STAYS:
        return None
    if header.flags & SNAPSHOT and (kind == STATISTIC or count < SMALL):
        return "raw"
    if kind == STATISTIC:
        return None if header.flags & LEAVE else KINDS[header.mode][2]
    if header.flags & SMALL_SIGNS and count < SMALL and header.mode in (SIGN, TOPK):
        return "sign"
    return KINDS[header.mode][count < SMALL]


def flags_of(tensors):
    """The flags that say how the tensors travel in each frame of a job but snapshots."""
    return (STAY if any(kind & STAYS for _, kind in tensors) else 0) | \
        (SMALL_SIGNS if any(kind & SIGNS for _, kind in tensors) else 0)


def blocks(header, tensors):
    """(kind, first element in the row, elements) of each block; kind None is not written."""
    most = THIN_BLOCK if header.mode == TOPK and header.density < THIN else BLOCK
    start = 0
    for tensor in tensors:
        for done in range(0, tensor[0], most):
            yield kind_of(header, tensor), start + done, min(most, tensor[0] - done)
        start += tensor[0]


# Rice codes


class BitWriter:
    def __init__(self):
        self.bits = []

    def put(self, value, count):
        self.bits += [value >> i & 1 for i in range(count)]

    def put_rice(self, value, largest, parameter):
        self.bits += [0] * (value >> parameter)
        if value >> parameter != largest >> parameter:
            self.bits.append(1)
        self.put(value, parameter)

    def data(self):
        text = "".join(map(str, reversed(self.bits)))
        return int(text, 2).to_bytes((len(text) + 7) // 8, "little") if text else b""


class BitReader:
    def __init__(self, data, at):
        self.data, self.position = data, 8 * at

    def get(self, count):
        value = 0
        for i in range(count):
            refuse(self.position >> 3 >= len(self.data), "a block ends early")
            value |= (self.data[self.position >> 3] >> (self.position & 7) & 1) << i
            self.position += 1
        return value

    def get_rice(self, largest, parameter):
        high = 0
        while high < largest >> parameter and not self.get(1):
            high += 1
        value = high << parameter | self.get(parameter)
        refuse(value > largest, "a code above its largest value")
        return value

    def end(self):
        while self.position & 7:
            refuse(self.get(1), "bits behind the last code")
        return self.position >> 3


def gap_parameter(gaps):
    parameter = 0
    while sum(((gap >> parameter) + 1) // 2 for gap in gaps) > len(gaps):
        parameter += 1
    return parameter


def rice_size(value, largest, parameter):
    return (value >> parameter) + (value >> parameter != largest >> parameter) + parameter


def level_parameter(levels, value_bits):
    largest = (1 << value_bits) - 1
    sizes = [sum(rice_size(level, largest, d) for level in levels) for d in range(value_bits + 1)]
    return sizes.index(min(sizes))


# Blocks


def groups(count):
    return [min(GROUP, count - start) for start in range(0, count, GROUP)]


def take(data, at, count):
    refuse(at + count > len(data), "a block ends early")
    return data[at : at + count], at + count


def scale_of(largest, steps):
    code = (bits_of([largest / steps])[0] + 0x7FFF) >> 15
    return code if code >= CODE_MIN else 0


def put_steps(values, limit, pack):
    out = bytearray()
    for start in range(0, len(values), GROUP):
        part = values[start : start + GROUP]
        code = scale_of(max(map(abs, part)), limit)
        out += code.to_bytes(2, "little")
        if code:
            scale = value_of(code)
            out += pack([round(quotient) for quotient in floats(value / scale for value in part)])
    return bytes(out)


def get_scale(data, at, steps):
    raw, at = take(data, at, 2)
    code = int.from_bytes(raw, "little")
    refuse(code and not CODE_MIN <= code <= scale_of(LARGEST, steps), "a scale out of range")
    return code, at


def get_steps(data, at, count, limit, size_of, unpack):
    values = []
    for part in groups(count):
        code, at = get_scale(data, at, limit)
        if code == 0:
            values += [0.0] * part
            continue
        raw, at = take(data, at, size_of(part))
        steps = unpack(raw, part)
        refuse(max(map(abs, steps)) != limit, "a group without its largest step")
        values += [max(-LARGEST, min(LARGEST, step * value_of(code))) for step in steps]
    return values, at


def pack_q8(steps):
    return struct.pack("<%db" % len(steps), *steps)


def unpack_q8(raw, count):
    return struct.unpack("<%db" % count, raw)


def pack_q4(steps):
    steps = steps + [0] * (len(steps) % 2)
    return bytes(low & 15 | (high & 15) << 4 for low, high in zip(steps[::2], steps[1::2]))


def unpack_q4(raw, count):
    halves = [half for byte in raw for half in (byte & 15, byte >> 4)]
    steps = [half - 16 if half > 7 else half for half in halves]
    refuse(any(steps[count:]), "bits behind the last step")
    return steps[:count]


def put_sign(values):
    out = bytearray()
    for start in range(0, len(values), GROUP):
        part = values[start : start + GROUP]
        code = mean_code(floats(map(abs, part)))
        out += code.to_bytes(2, "little")
        if code:
            bits = sum(sign >> 31 << i for i, sign in enumerate(bits_of(part)))
            out += bits.to_bytes((len(part) + 7) // 8, "little")
    return bytes(out)


def get_sign(data, at, count):
    values = []
    for part in groups(count):
        code, at = get_scale(data, at, 1)
        if code == 0:
            values += [0.0] * part
            continue
        raw, at = take(data, at, (part + 7) // 8)
        bits = int.from_bytes(raw, "little")
        refuse(bits >> part, "bits behind the last sign")
        values += [-value_of(code) if bits >> i & 1 else value_of(code) for i in range(part)]
    return values, at


def put_bf16(values):
    return struct.pack("<%dH" % len(values), *((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in bits_of(values)))


def get_bf16(data, at, count):
    raw, at = take(data, at, 2 * count)
    values = [float_of(high << 16) for high in struct.unpack("<%dH" % count, raw)]
    refuse(not all(abs(value) <= LARGEST for value in values), "a value out of range")
    return values, at


def mean_code(magnitudes):
    total = 0.0
    for magnitude in magnitudes:
        total += magnitude
    bits = bits_of([total / len(magnitudes)])[0]
    code = (bits + 0x3FFF + (bits >> 15 & 1)) >> 15
    return code if code >= CODE_MIN else 0


def level_step(low, high, value_bits):
    return (high + 1 - low) << (15 - value_bits)


def put_sparse(values, sent, value_bits):
    """values of the block; sent has the indices of those to send, ascending."""
    if not sent:
        return bytes(3)
    gaps = [index - before - 1 for before, index in zip([-1] + sent, sent)]
    magnitudes = floats(abs(values[index]) for index in sent)
    bits = bits_of(magnitudes)
    if value_bits:
        low, high = min(bits) >> 15, max(bits) >> 15
        step = level_step(low, high, value_bits)
        levels = [(each - (low << 15)) // step for each in bits]
        codes = struct.pack("<HH", low, high)
    else:
        levels = [0] * len(sent)
        codes = struct.pack("<H", mean_code(magnitudes))
    b, d = gap_parameter(gaps), level_parameter(levels, value_bits)
    out, free = BitWriter(), len(values) - len(sent)
    for index, gap, level in zip(sent, gaps, levels):
        out.put_rice(gap, free, b)
        out.put(values[index] < 0, 1)
        if value_bits:
            out.put_rice(level, (1 << value_bits) - 1, d)
        free -= gap
    return (len(sent) | b << 15 | d << 19).to_bytes(3, "little") + codes + out.data()


def get_codes(data, at, value_bits):
    size = 4 if value_bits else 2
    refuse(at + size > len(data), "a block ends early")
    low = high = struct.unpack_from("<H", data, at)[0]
    if value_bits:
        high = struct.unpack_from("<H", data, at + 2)[0]
    refuse(not CODE_MIN <= low <= high <= CODE_MAX, "codes out of range")
    return low, high, at + size


def get_sparse(data, at, count, value_bits):
    values = [0.0] * count
    refuse(at + 3 > len(data), "a block ends early")
    head = int.from_bytes(data[at : at + 3], "little")
    sent, b, d = head & 0x7FFF, head >> 15 & 15, head >> 19 & 15
    refuse(head >> 23 or sent > count or (not sent and head), "head of a block")
    at += 3
    if not sent:
        return values, at
    low, high, at = get_codes(data, at, value_bits)
    step = level_step(low, high, value_bits)
    bits, free, index, gaps, levels = BitReader(data, at), count - sent, 0, [], []
    for _ in range(sent):
        gaps.append(bits.get_rice(free, b))
        negative = bits.get(1)
        levels.append(bits.get_rice((1 << value_bits) - 1, d) if value_bits else 0)
        magnitude = (low << 15) + (levels[-1] * step + step // 2 if value_bits else 0)
        index += gaps[-1]
        values[index] = (-1 if negative else 1) * min(float_of(magnitude), LARGEST)
        index += 1
        free -= gaps[-1]
    refuse(b != gap_parameter(gaps) or d != level_parameter(levels, value_bits), "other parameters")
    return values, bits.end()


def get_raw(data, at, count):
    raw, at = take(data, at, 4 * count)
    values = struct.unpack("<%df" % count, raw)
    refuse(not all(abs(value) <= LARGEST for value in values), "a value out of range")
    return values, at


PUT = {
    "raw": lambda values: values.tobytes(),
    "bf16": put_bf16,
    "q8": lambda values: put_steps(values, 127, pack_q8),
    "q4": lambda values: put_steps(values, 7, pack_q4),
    "sign": put_sign,
}
GET = {
    "raw": get_raw,
    "bf16": get_bf16,
    "q8": lambda data, at, count: get_steps(data, at, count, 127, lambda part: part, unpack_q8),
    "q4": lambda data, at, count: get_steps(data, at, count, 7, lambda part: (part + 1) // 2, unpack_q4),
    "sign": get_sign,
}


# What is sent


def share(density, count):
    return math.ceil(density * count)


def largest(codes, indices, count):
    """The count largest, the first of those with the smallest code; fewer when there are fewer."""
    candidates = [index for index in indices if codes[index] >= CODE_MIN]
    return sorted(candidates, key=lambda index: (-codes[index], index))[:count]


def select(header, tensors, values):
    """The indices in the row of all that sparse blocks send."""
    codes = [(bits & 0x7FFFFFFF) >> 15 for bits in bits_of(values)]
    rows, start = [], 0
    for tensor in tensors:
        if kind_of(header, tensor) == "sparse":
            rows.append(range(start, start + tensor[0]))
        start += tensor[0]
    everywhere = [index for row in rows for index in row]
    chosen = set(largest(codes, everywhere, share(header.density, len(everywhere))))
    for row in rows:
        least = (share(header.density, len(row)) + 9) // 10
        if sum(index in chosen for index in row) < least:
            chosen.update(largest(codes, row, least))
    return chosen


# Frames


def encode(header, tensors, values):
    sparse = header.mode == TOPK
    chosen = select(header, tensors, values) if sparse else ()
    group = header.group.encode()
    frame = bytearray(HEADER.pack(
        magic_of(header.flags), header.mode, header.value_bits if sparse else 0, len(group), header.flags, header.round, header.run,
        header.weight, len(values), struct.unpack("<Q", struct.pack("<d", header.density if sparse else 0))[0],
        header.base) + group)
    for kind, start, count in blocks(header, tensors):
        part = values[start : start + count]
        if kind == "sparse":
            block = put_sparse(part, [i for i in range(count) if start + i in chosen], header.value_bits)
        elif kind:
            block = PUT[kind](part)
        if kind:
            frame += block + checksum(block)
    return bytes(frame + hashlib.sha256(frame).digest())


def magic_of(flags):
    return b"cairnup4" if flags & SMALL_SIGNS else b"cairnup3" if flags & STAY else b"cairnup2"


def get_header(frame, tensors):
    refuse(len(frame) < HEADER.size + 32, "too short")
    magic, mode, value_bits, size, flags, number, run, weight, count, density, base = HEADER.unpack_from(frame)
    refuse(magic != magic_of(flags) or mode not in KINDS or flags & ~(SNAPSHOT | LEAVE | ROUNDED | STAY | SMALL_SIGNS),
           "header")
    refuse(flags & SNAPSHOT and (mode != Q8 or flags & ~STAY != SNAPSHOT), "a snapshot that is not q8 of all tensors")
    refuse(value_bits > (8 if mode == TOPK else 0), "bits of a magnitude")
    refuse(HEADER.size + size + 32 > len(frame), "name of the group")
    refuse(not 1 <= weight <= 1 << 31, "weight")
    refuse(count != sum(each for each, _ in tensors), "another model")
    share_of_all = struct.unpack("<d", struct.pack("<Q", density))[0]
    refuse(density if mode != TOPK else not 0 < share_of_all <= 1, "density")
    group = frame[HEADER.size : HEADER.size + size].decode("latin-1")
    refuse(group and not NAME.fullmatch(group), "name of the group")
    return Header(mode, value_bits, group, number, run, weight, share_of_all, base, flags)


def decode(frame, tensors):
    """(header, values); Refused when the frame is not one for a model of these tensors."""
    header = get_header(frame, tensors)
    refuse(hashlib.sha256(frame[:-32]).digest() != frame[-32:], "digest")
    data, at, values = frame[:-32], HEADER.size + len(header.group), []
    for kind, _, count in blocks(header, tensors):
        if not kind:
            values += [0.0] * count
            continue
        start = at
        if kind == "sparse":
            block, at = get_sparse(data, at, count, header.value_bits)
        else:
            block, at = GET[kind](data, at, count)
        refuse(data[at : at + 2] != checksum(data[start:at]), "checksum of a block")
        at += 2
        values += block
    refuse(at != len(data), "bytes behind the last block")
    return header, floats(values)


def use(header, decoded, tensors, weights, variances=()):
    """The weights of the version that a frame makes of those of its parent. variances: where weights are running
    variances, which are never negative."""
    if header.flags & SNAPSHOT:
        sent = [kind for kind, _, count in blocks(header, tensors) for _ in range(count)]
        return floats(new if kind else old for new, old, kind in zip(decoded, weights, sent))
    weights = floats(a + b for a, b in zip(weights, decoded))
    for at in variances:
        weights[at] = max(weights[at], 0.0)
    if header.flags & ROUNDED:
        flags = SNAPSHOT | header.flags & STAY
        snapshot = Header(Q8, 0, "", header.round, header.run, 1, 0.0, header.base, flags)
        weights = use(snapshot, decode(encode(snapshot, tensors, weights), tensors)[1], tensors, weights)
    return weights


# Test vectors


def check_vector(directory, tensors, values, line, make):
    name, mode, value_bits, density, flags, digest = line.split()
    group = "" if name == "down" or int(flags) & (SNAPSHOT | ROUNDED) else "north"
    header = Header(int(mode), int(value_bits), group, 5, 0x0123456789ABCDEF, 1200, float(density), b"\xab" * 32,
                    int(flags))
    if make:
        with open("%s/%s.frame" % (directory, name), "wb") as file:
            file.write(encode(header, tensors, values))
    with open("%s/%s.frame" % (directory, name), "rb") as file:
        frame = file.read()
    found, decoded = decode(frame, tensors)
    refuse(found != header, "%s: header %s" % (name, found))
    if header.flags & ROUNDED:
        decoded = use(header, decoded, tensors, floats(value * -0.5 for value in values))
    made = hashlib.sha256(decoded.tobytes()).hexdigest()
    refuse(encode(header, tensors, values) != frame, "%s: the values give another frame" % name)
    if make:
        return " ".join((name, mode, value_bits, density, flags, made)) + "\n"
    refuse(made != digest, "%s decodes to something else" % name)
    return line


def main(directory, make):
    with open(directory + "/layout.txt") as file:
        tensors = [tuple(map(int, line.split())) for line in file]
    with open(directory + "/values.f32", "rb") as file:
        values = array("f", file.read())
    with open(directory + "/vectors.txt") as file:
        lines = file.readlines()
    lines = [check_vector(directory, tensors, values, line, make) for line in lines]
    if make:
        with open(directory + "/vectors.txt", "w") as file:
            file.writelines(lines)
    print("%d vectors made and read" % len(lines))


if __name__ == "__main__":
    main(sys.argv[-1], "--make" in sys.argv[1:-1])
