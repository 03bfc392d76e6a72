"""The images of fat binaries, as "cuobjdump -lelf -lptx" lists them, and what they say of the compiler. NVIDIA does not
document the format: this is how nvcc 12.6 to 13.0 write it.
"""

import collections
import re
import struct

PTX, CODE = 1, 2
MAGIC = struct.pack("<I", 0xBA55ED50)
LZ4, ZSTD = 0x2000, 0x8000  # of an image's flags

# binary: number of the fat binary. compression: LZ4, ZSTD or 0.
Image = collections.namedtuple("Image", "binary kind number compression data")


def images_in(data):
    """Yields each image of each fat binary in data. image.data is unpacked, but None where it is packed by zstd."""
    binary, at = 0, data.find(MAGIC)
    while at >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, at)
        start, end = at + header, at + header + size
        while version == 1 and start < end:
            kind, _, skip, length, packed = struct.unpack_from("<HHIQI", data, start)
            number, = struct.unpack_from("<I", data, start + 28)
            flags, = struct.unpack_from("<Q", data, start + 40)
            content = data[start + skip:start + skip + length]
            compression = flags & (LZ4 | ZSTD)
            if compression == LZ4:
                content = unpack(content[:packed])
            yield Image(binary, kind, number, compression, None if compression == ZSTD else content)
            start += skip + length
        binary, at = binary + 1, data.find(MAGIC, at + 4)


def unpack(packed):
    """Decodes an LZ4 block (its "LZ4 Block Format Description")."""
    out, at = bytearray(), 0

    def whole(length):
        nonlocal at
        more = length == 15
        while more:
            more = packed[at] == 255
            length += packed[at]
            at += 1
        return length

    while at < len(packed):
        token = packed[at]
        at += 1
        literals = whole(token >> 4)
        out += packed[at:at + literals]
        at += literals
        if at >= len(packed):  # the last sequence has no match
            break
        distance, = struct.unpack_from("<H", packed, at)
        at += 2
        left = whole(token & 15) + 4
        while left:
            part = out[-distance:][:left]
            out += part
            left -= len(part)
    return bytes(out)


def release_of(image):
    """The release of CUDA that made an image of machine code, times ten: 126. Versions 7 and 8 of the format have it in
    other places."""
    assert image.data[:4] == b"\x7fELF" and image.kind == CODE
    if image.data[8] <= 7:  # EI_ABIVERSION
        return struct.unpack_from("<I", image.data, 20)[0]  # e_version
    text = re.search(rb"Cuda compilation tools, release (\d+)\.(\d+)", image.data)
    return int(text[1]) * 10 + int(text[2])


def ptx_version_of(image):
    text = re.search(rb"^\.version (\d+)\.(\d+)$", image.data, re.MULTILINE)
    return int(text[1]) * 10 + int(text[2])


def name_of(image):
    return f"{'PTX' if image.kind == PTX else 'sm'} {image.number}"
