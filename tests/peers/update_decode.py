"""A second decoder of update frames, written from runtime/update/UPDATE.md alone.

usage: update_decode.py DIRECTORY   (checks every vector of tests/data/update)
"""

import hashlib
import struct
import sys

BLOCK, GROUP, SPARSE = 4096, 256, 1024
RAW32, Q8, TOPK = range(3)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def from_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Bits:
    """Bits of data from a byte position, lowest first."""

    def __init__(self, data, position):
        self.data, self.position = data, 8 * position

    def get(self, count):
        value = 0
        for i in range(count):
            value |= (self.data[self.position >> 3] >> (self.position & 7) & 1) << i
            self.position += 1
        return value

    def code(self, largest, b):
        high = 0
        while high < largest >> b and not self.get(1):
            high += 1
        value = high << b | self.get(b)
        assert value <= largest, "a code above its largest value"
        return value


def sparse_block(frame, at, count, value_bits):
    values = [0.0] * count
    head = int.from_bytes(frame[at : at + 3], "little")
    sent, gap_b, level_b = head & 0x1FFF, head >> 13 & 15, head >> 17 & 15
    at += 3
    if sent == 0:
        assert head == 0
        return values, at
    low = high = struct.unpack_from("<H", frame, at)[0]
    at += 2
    if value_bits:
        high = struct.unpack_from("<H", frame, at)[0]
        at += 2
    step = (high + 1 - low) << 15 >> value_bits
    bits, unsent, index = Bits(frame, at), count - sent, 0
    for _ in range(sent):
        gap = bits.code(unsent, gap_b)
        negative = bits.get(1)
        level = bits.code((1 << value_bits) - 1, level_b)
        magnitude = (low << 15) + (level * step + step // 2 if value_bits else 0)
        value = from_bits(min(magnitude, 0x8300 << 15))
        index += gap
        values[index] = -value if negative else value
        index += 1
        unsent -= gap
    while bits.position & 7:
        assert bits.get(1) == 0, "bits behind the last code"
    return values, bits.position >> 3


def q8_block(frame, at, count):
    values = []
    while len(values) < count:
        part = min(GROUP, count - len(values))
        code = struct.unpack_from("<H", frame, at)[0]
        at += 2
        if code == 0:
            values += [0.0] * part
            continue
        scale = from_bits(code << 15)
        steps = struct.unpack_from("<%db" % part, frame, at)
        assert max(map(abs, steps)) == 127
        values += [max(-16.0, min(16.0, step * scale)) for step in steps]
        at += part
    return values, at


def decode(frame, tensors):
    assert hashlib.sha256(frame[:-32]).digest() == frame[-32:], "digest"
    magic, mode, value_bits, group_size, zero = struct.unpack_from("<8sBBBB", frame)
    total = struct.unpack_from("<Q", frame, 32)[0]
    assert magic == b"cairnup1" and zero == 0 and total == sum(count for count, _ in tensors)
    at, values = 80 + group_size, []
    for count, kind in tensors:
        for done in range(0, count, BLOCK):
            part, start = min(BLOCK, count - done), at
            if mode == RAW32:
                block = list(struct.unpack_from("<%df" % part, frame, at))
                at += 4 * part
            elif mode == TOPK and kind == 0 and count >= SPARSE:
                block, at = sparse_block(frame, at, part, value_bits)
            else:
                block, at = q8_block(frame, at, part)
            crc = struct.unpack_from("<H", frame, at)[0]
            assert crc == crc32c(frame[start:at]) & 0xFFFF, "CRC"
            at += 2
            values += block
    assert at == len(frame) - 32, "bytes behind the last block"
    return values


def main(directory):
    with open(directory + "/layout.txt") as file:
        tensors = [tuple(map(int, line.split())) for line in file]
    with open(directory + "/vectors.txt") as file:
        vectors = [line.split() for line in file]
    for name, _, _, _, digest in vectors:
        with open("%s/%s.frame" % (directory, name), "rb") as file:
            values = decode(file.read(), tensors)
        found = hashlib.sha256(struct.pack("<%df" % len(values), *values)).hexdigest()
        assert found == digest, "%s: %s, expected %s" % (name, found, digest)
    print("%d vectors decoded" % len(vectors))


if __name__ == "__main__":
    main(sys.argv[1])
