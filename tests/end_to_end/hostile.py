"""A hostile board with a valid key against the real aggregator, while an honest board does its round.

It speaks through coap_board, which sends what it is told over DTLS. Messages and frames are made here from
transport/PROTOCOL.md and runtime/update/UPDATE.md alone. Each attack has to get a CoAP error with a
diagnostic or a verdict with a reason, and must change neither ledger nor files.
"""

import hashlib
import os
import random
import signal
import struct
import subprocess
import sys
import time

from cluster import Cluster

SIZES = [4096, 64, 640, 10]  # elements of the tensors of digits-mlp.onnx
TOTAL = sum(SIZES)
CHUNK = 64
RAW = "{mode: raw32}"  # update.up of jobs that take what frame_of makes
PARCEL = 16 * CHUNK  # bytes of a message
GET, POST, PUT, DELETE = 1, 2, 3, 4
ACCEPTED, REJECTED, LATE = 0, 1, 2
TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def head(major, value):
    if value < 24:
        return bytes([major << 5 | value])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << 8 * size:
            return bytes([major << 5 | code]) + value.to_bytes(size, "big")
    raise ValueError(value)


def encode(item):
    """CBOR of what the protocol's messages consist of."""
    if isinstance(item, dict):
        return head(5, len(item)) + b"".join(encode(key) + encode(item[key]) for key in sorted(item))
    if isinstance(item, float):
        return b"\xfb" + struct.pack(">d", item)
    if isinstance(item, bytes):
        return head(2, len(item)) + item
    return head(0, item) if item >= 0 else head(1, -1 - item)


def decode(data, at=0):
    """The item at a position and the position behind it."""
    major, value, at = data[at] >> 5, data[at] & 31, at + 1
    if value > 23:
        size = 1 << value - 24
        if major == 7:
            return struct.unpack(">d", data[at:at + 8])[0], at + 8
        value, at = int.from_bytes(data[at:at + size], "big"), at + size
    if major == 7:
        return value == 21, at
    if major in (2, 3):
        return data[at:at + value], at + value
    if major == 0:
        return value, at
    items = []
    for _ in range(value * (2 if major == 5 else 1)):
        item, at = decode(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if major == 5 else items), at


# The example of transport/PROTOCOL.md.
REGISTER = bytes.fromhex("a70182020202820102038201020406051b000000010000000006193a9807696f72696e2d6e616e6f")


class Board:
    def __init__(self, cluster, program, name, key=None):
        self.process = subprocess.Popen(
            [program, f"127.0.0.1:{cluster.port}", key or cluster.path("keys", f"{name}.key")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cluster.directory)

    def ask(self, method, path, body=b""):
        """Code and body; a message gives its items. No answer gives 0 and why."""
        self.process.stdin.write(f"{method} {path} {body.hex() or '-'}\n")
        self.process.stdin.flush()
        code, _, rest = self.process.stdout.readline().rstrip("\n").partition(" ")
        return (0, rest) if code == "-" else (int(code), bytes.fromhex(rest))

    def round(self):
        code, body = self.ask(GET, "r")
        if code == 401:
            assert self.ask(POST, "reg", REGISTER)[0] == 205, "not registered"
            code, body = self.ask(GET, "r")
        assert code == 205, (code, body)
        return decode(body)[0]

    def send(self, declaration, frame, commit=True):
        """Declares and sends all chunks, the last of which commits. Code and message of its answer, or of what
        ended it before."""
        code, body = self.ask(POST, "u", encode(declaration))
        if code != 201 or decode(body)[0][2]:
            return code, body
        path = "u/" + decode(body)[0][1].hex()
        for start in range(0, len(frame) if commit else len(frame) - PARCEL, PARCEL):
            assert code in (201, 204), (code, body)
            code, body = self.ask(PUT, f"{path}/{start // CHUNK}", frame[start:start + PARCEL])
        return code, body

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def frame_of(now, group, weight=100, values=None, name=None, sizes=None):
    """A raw32 frame for the open round; sizes are the elements of each tensor."""
    sizes = sizes or SIZES
    values = values or [0.001] * sum(sizes)
    name = (name or group).encode()
    data = b"cairnup2" + bytes([0, 0, len(name), 0]) + struct.pack("<IQ", now[4], now[1])
    data += struct.pack("<QQQ", weight, len(values), 0) + now[8] + name
    at = 0
    for size in sizes:
        block = struct.pack(f"<{size}f", *values[at:at + size])
        data += block + struct.pack("<H", crc32c(block) & 0xFFFF)
        at += size
    return data + hashlib.sha256(data).digest()


def declaration_of(now, frame, **changes):
    declaration = {1: now[1], 2: now[4], 3: len(frame), 4: hashlib.sha256(frame).digest(), 5: now[8],
                   6: 1.0, 7: 1, 8: 2, 9: 0.5}
    declaration.update({int(key[1:]): value for key, value in changes.items()})
    return declaration


def seal(data):
    """The frame with a digest that fits what was changed in it."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def patched(frame, offset, data):
    return seal(frame[:offset] + data + frame[offset + len(data):])


class Attack:
    def __init__(self, cluster, board):
        self.cluster, self.board = cluster, board
        self.before = self.state()

    def state(self):
        files = os.path.join(self.cluster.directory, "state/gateway/files")
        status = self.cluster.status()
        kept = [status[key] for key in ("round", "state", "accepted", "selected", "version", "digest")]
        return kept, sorted(name for name in os.listdir(files) if not name.startswith("."))

    def unchanged(self, what):
        state = self.state()
        assert state == self.before, f"{what} changed {self.before} to {state}"

    def error(self, what, answer, code, *words):
        text = answer[1].decode(errors="replace")
        assert answer[0] == code and text and all(word in text for word in words), f"{what}: {answer}"
        self.unchanged(what)

    def rejected(self, what, answer, *words, verdict=REJECTED):
        assert answer[0] in (201, 204), f"{what}: {answer}"
        status = decode(answer[1])[0]
        assert status[2] and status[3] == verdict, f"{what}: {status}"
        text = status[8].decode()
        assert text and all(word in text for word in words), f"{what}: {text}"
        self.unchanged(what)
        return status


def lies_in_declarations(attack, now, frame):
    board = attack.board
    wrong = bytes(32)
    attack.error("another run", board.send(declaration_of(now, frame, _1=now[1] ^ 1), frame), 401, "another run")
    attack.rejected("a measurement", board.send(declaration_of(now, frame, _1=0), frame), "nothing is kept")
    attack.rejected("a later round", board.send(declaration_of(now, frame, _2=now[4] + 1), frame), "not open")
    attack.rejected("another base", board.send(declaration_of(now, frame, _5=wrong), frame), "another version")
    for what, declaration in {
        "round 0": declaration_of(now, frame, _2=0),
        "no bytes": declaration_of(now, frame, _3=0),
        "NaN as loss": declaration_of(now, frame, _6=float("nan")),
        "an infinite loss": declaration_of(now, frame, _9=float("inf")),
        "a negative count": declaration_of(now, frame, _8=-1),
        "a short digest": declaration_of(now, frame, _4=b"x"),
    }.items():
        attack.error(what, board.ask(POST, "u", encode(declaration)), 400)
    # A measurement that cannot be says nothing about the frame, which may come.
    for what, declaration in {
        "more right than there are": declaration_of(now, frame, _7=3),
        "a count of 2^63": declaration_of(now, frame, _8=1 << 63),
    }.items():
        code, body = board.ask(POST, "u", encode(declaration))
        assert code in (201, 204), f"{what}: {code} {body}"
        attack.unchanged(what)
    huge = declaration_of(now, frame, _3=1 << 40)
    attack.error("a terabyte", board.ask(POST, "u", encode(huge)), 413, "no update of this model")
    generator = random.Random(7)
    for size in (0, 1, 100, 1152):
        attack.error("noise", board.ask(POST, "u", generator.randbytes(size)), 400)
        attack.error("noise", board.ask(POST, "reg", generator.randbytes(size)), 400)


def lies_in_chunks(attack, now, frame):
    board = attack.board
    declaration = declaration_of(now, frame)
    path = "u/" + decode(board.ask(POST, "u", encode(declaration))[1])[0][1].hex()
    count = (len(frame) + CHUNK - 1) // CHUNK
    code, body = board.ask(POST, f"{path}/commit")
    assert code == 408 and decode(body)[0][7] == [0, count], (code, body)
    for number in (count, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 64, "-1", "x", ""):
        attack.error("a chunk behind the end", board.ask(PUT, f"{path}/{number}", bytes(CHUNK)), 400)
    for number, size in ((0, 0), (0, CHUNK - 1), (0, CHUNK + 1), (count - 1, CHUNK)):
        attack.error("a chunk of a wrong size", board.ask(PUT, f"{path}/{number}", bytes(size)), 400)
    attack.error("what is not there", board.ask(PUT, "u/0011223344556677/0", bytes(CHUNK)), 404)
    code, body = board.ask(PUT, f"{path}/0", bytes(CHUNK))
    assert code == 204 and decode(body)[0][6] == 1, (code, body)
    attack.error("other bytes for chunk 0", board.ask(PUT, f"{path}/0", b"x" * CHUNK), 409)
    other = bytes(len(frame))
    attack.error("bytes of another digest", board.send(declaration, other), 422)
    attack.error("the upload is gone then", board.ask(POST, f"{path}/commit"), 404)


def lies_in_frames(attack, now, frame):
    board = attack.board

    def refused(what, bad, *words):
        attack.rejected(what, board.send(declaration_of(now, bad), bad), *words)

    for weight in (0, (1 << 31) + 1, 1 << 63, (1 << 64) - 1, struct.unpack("<Q", struct.pack("<d", float("nan")))[0]):
        refused(f"a weight of {weight}", frame_of(now, "evil", weight), "weight")
    refused("another group's name", frame_of(now, "evil", name="good"), "good")
    refused("another round inside", patched(frame, 12, struct.pack("<I", now[4] + 1)), "round")
    refused("another run inside", patched(frame, 16, bytes(8)), "run")
    refused("another base inside", patched(frame, 48, bytes(32)), "base")
    for value in (float("nan"), float("inf"), -float("inf"), 16.001, 1e30):
        refused(f"{value} as a weight change", frame_of(now, "evil", values=[value] + [0.0] * (TOTAL - 1)))
    refused("a flipped bit", patched(frame, 200, bytes([frame[200] ^ 1])), "block 0")
    refused("a digest of its own that does not fit", frame[:-1] + bytes([frame[-1] ^ 1]))
    refused("a bomb: 2^60 values in few bytes", patched(frame, 32, struct.pack("<Q", 1 << 60)), "values")
    refused("a snapshot", patched(frame, 11, b"\x01"), "snapshot")
    refused("a change to round by", patched(frame, 11, b"\x04"), "aggregator")
    refused("a frame that ends early", seal(frame[:-1000]))
    refused("a frame that goes on", seal(frame[:-32] + bytes(40)))
    refused("nothing but a header", frame[:80])
    refused("one byte", b"c")


def asks_for_what_is_not_its_own(attack, honest, now):
    board = attack.board
    theirs = frame_of(now, "good")
    code, body = honest.ask(POST, "u", encode(declaration_of(now, theirs)))
    assert code == 201, body
    path = "u/" + decode(body)[0][1].hex()
    attack.error("another group's upload", board.ask(PUT, f"{path}/0", bytes(CHUNK)), 404)
    attack.error("another group's upload", board.ask(DELETE, path), 404)
    attack.error("another group's upload", board.ask(GET, path), 404)
    attack.error("another group's pair key", board.ask(GET, "k/honest"), 404)
    attack.error("its own pair key", board.ask(GET, "k/mallory"), 404)
    attack.error("a blob that is none", board.ask(GET, "b/" + "0" * 64 + "/0"), 410)
    attack.error("a chunk behind the blob", board.ask(GET, f"b/{now[8].hex()}/4294967295"), 404)
    for path in ("", "x", "r/../u", "b", "b/x/0", "u/x", "u//", "reg/x/y/z", "k", ".well-known/core"):
        for method in (GET, POST, PUT, DELETE):
            code, body = board.ask(method, path or "/", b"\xff")
            assert code in (205, 400, 404, 405, 410), (method, path, code, body)
            attack.unchanged(f"{method} {path}")


def repeats(attack, honest, now, frame):
    """An accepted update again, another one for the same round, and one after the quorum."""
    code, body = attack.board.send(declaration_of(now, frame), frame)
    status = decode(body)[0]
    assert code == 204 and status[2] and status[3] == ACCEPTED, status
    accepted = hashlib.sha256(frame).digest()
    assert status[4] == accepted
    attack.before = attack.state()
    again = decode(attack.board.send(declaration_of(now, frame), frame)[1])[0]
    assert again[2] and again[3] == ACCEPTED and again[4] == accepted, again
    attack.unchanged("the same update again")
    second = frame_of(now, "evil", 101)
    answer = attack.board.send(declaration_of(now, second), second)
    assert attack.rejected("a second update", answer, "another update")[4] == accepted
    theirs = frame_of(now, "good")
    status = decode(honest.send(declaration_of(now, theirs), theirs)[1])[0]
    assert status[2] and status[3] == ACCEPTED, status
    for _ in range(100):
        if honest.round()[4] > now[4]:
            break
        time.sleep(0.1)
    attack.before = attack.state()
    third = frame_of(now, "late")
    answer = attack.late.send(declaration_of(now, third), third)
    attack.rejected("an update after the round", answer, "over", verdict=LATE)


def revoked(cluster, board, now):
    """Revoked in the middle of an upload: nothing is taken from it any more."""
    frame = frame_of(now, "evil")
    board.send(declaration_of(now, frame), frame, commit=False)
    cluster.command(cluster.aggregator, "revoke", "gateway.yaml", "mallory")
    for _ in range(100):
        code, why = board.ask(POST, "u", encode(declaration_of(now, frame)))
        if code in (0, 401):
            break
        time.sleep(0.1)
    assert code in (0, 401), (code, why)
    code, why = board.ask(GET, "r")
    assert code == 0 and "refused" in why, (code, why)


def handles(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def memory(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sanitized(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def attack_all(cluster, program):
    gateway = cluster.start("gateway")
    honest, board, late = (Board(cluster, program, name) for name in ("honest", "mallory", "tardy"))
    assert honest.round()[2] == 1
    board.round()
    for _ in range(100):
        now = board.round()
        if now[3] == 0 and now[6]:
            break
        time.sleep(0.1)
    assert now[6] and honest.round()[6], "the round did not open"
    frame = frame_of(now, "evil")
    attack = Attack(cluster, board)
    attack.late = late
    handles_before, memory_before = handles(gateway), 0
    for repetition in range(3):
        lies_in_declarations(attack, now, frame)
        lies_in_chunks(attack, now, frame)
        lies_in_frames(attack, now, frame)
        memory_before = memory_before or memory(gateway)
    asks_for_what_is_not_its_own(attack, honest, now)
    board.ask(DELETE, "u/" + decode(board.ask(POST, "u", encode(declaration_of(now, frame)))[1])[0][1].hex())
    grown = memory(gateway) - memory_before
    assert handles(gateway) <= handles_before + 1, "handles are leaked"  # the honest upload's file
    # A sanitizer keeps freed memory for a while, and reports by itself at the end what leaks.
    assert grown < 2 << 20 or sanitized(cluster.aggregator), f"{grown} bytes of memory are leaked"
    repeats(attack, honest, now, frame)
    late.close()
    for _ in range(100):
        now = board.round()
        if now[3] == 0 and now[6] and honest.round()[6]:
            break
        time.sleep(0.1)
    revoked(cluster, board, now)
    theirs = frame_of(now, "good")
    status = decode(honest.send(declaration_of(now, theirs), theirs)[1])[0]
    assert status[2] and status[3] == ACCEPTED, "the honest board was harmed"
    for each in (honest, board):
        each.close()
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(20) == 130, cluster.log("gateway")
    lines = cluster.replay()
    assert lines[-1].startswith("2 versions, 0 differ"), lines


def member_undoes_nothing(cluster, program):
    """A member of a group on the upload of another, of which it knows all."""
    cluster.start("gateway")
    honest, mallory = (Board(cluster, program, name) for name in ("honest", "mallory"))
    for _ in range(100):
        now = honest.round()
        if now[3] == 0 and now[6]:
            break
        time.sleep(0.1)
    mallory.round()
    frame = frame_of(now, "pair")
    declaration = declaration_of(now, frame)
    path = "u/" + decode(honest.ask(POST, "u", encode(declaration))[1])[0][1].hex()
    honest.send(declaration, frame, commit=False)
    assert mallory.ask(DELETE, path)[0] == 404
    assert mallory.ask(PUT, f"{path}/0", bytes(PARCEL))[0] == 404
    assert mallory.ask(POST, "u", encode(declaration_of(now, frame, _1=0)))[0] == 201  # a measurement
    junk = bytes(len(frame))
    assert mallory.send(declaration_of(now, frame, _6=0.0, _7=2), junk)[0] == 422
    mallory.send(declaration_of(now, frame, _6=0.0, _7=2), junk, commit=False)
    status = decode(honest.ask(GET, path)[1])[0]
    assert status[6] == len(frame) // PARCEL * PARCEL // CHUNK, status
    last = len(frame) // PARCEL * PARCEL
    code, body = honest.ask(PUT, f"{path}/{last // CHUNK}", frame[last:])
    status = decode(body)[0]
    assert code == 204 and status[2] and status[3] == ACCEPTED, (code, status)
    rows = cluster.ledger("SELECT board, held_out_loss FROM contribution")
    assert rows == [("honest", 1.0)], rows
    for each in (honest, mallory):
        each.close()


def main(build, program):
    os.environ["CAIRN_CORE_DUMPS"] = "1"  # else only root may look at a program's descriptors
    with Cluster(build, {"pair": ["honest", "mallory"]}, up=RAW, rounds=3, quorum=1, central=False,
                 model="digits-mlp.onnx") as cluster:
        member_undoes_nothing(cluster, program)
    print("a member undid nothing of another's upload")
    groups = {"good": ["honest"], "evil": ["mallory"], "late": ["tardy"]}
    with Cluster(build, groups, up=RAW, rounds=3, quorum=2, central=False, model="digits-mlp.onnx") as cluster:
        attack_all(cluster, program)
    print("the hostile board changed nothing")


if __name__ == "__main__":
    main(*sys.argv[1:])
