"""A CoAP client that is not ours does what PROTOCOL.md says: registers, reads the round, fetches model chunks.

    coap_client.py BUILD

The distribution's coap-client (libcoap with OpenSSL or GnuTLS; each that is installed) over DTLS with the
board's pre-shared key. Ends with 77, skipped, where there is none.
"""

import hashlib
import hmac
import os
import shutil
import subprocess
import sys

from cluster import Cluster

CLIENTS = ["coap-client-openssl", "coap-client-gnutls"]
# As in the examples of PROTOCOL.md: protocol 2 to 2, formats and operator sets 1 to 2, an "orin-nano".
REGISTER = bytes.fromhex("a70182020202820102038201020406051b000000010000000006193a9807696f72696e2d6e616e6f")


def dtls_key(path):
    """HKDF-SHA-256 of the secret, no salt, info "cairn/1 dtls", 32 bytes (RFC 5869)."""
    with open(path) as file:
        kind, _, secret = file.read().split()
    assert kind == "cairn-key-1", kind
    extracted = hmac.new(bytes(32), bytes.fromhex(secret), hashlib.sha256).digest()
    return hmac.new(extracted, b"cairn/1 dtls\x01", hashlib.sha256).digest()


class Reader:
    """CBOR (RFC 8949) as far as manifest and round use it."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data), "the message ends too early"
        return self.data[self.at - count : self.at]

    def value(self):
        major, small = divmod(self.take(1)[0], 32)
        if major == 7:
            return self.take(8) if small == 27 else small == 21
        number = small if small < 24 else int.from_bytes(self.take(1 << small - 24), "big")
        if major == 2:
            return self.take(number)
        if major == 3:
            return self.take(number).decode()
        if major == 4:
            return [self.value() for _ in range(number)]
        if major == 5:
            return {self.value(): self.value() for _ in range(number)}
        assert major == 0, f"major type {major}"
        return number


def decode(data):
    reader = Reader(data)
    value = reader.value()
    assert reader.at == len(data), "bytes behind the message"
    return value


class Client:
    """One process, and so one session, for each request."""

    def __init__(self, program, cluster, board):
        self.program, self.cluster, self.board = program, cluster, board
        self.key = dtls_key(cluster.path("keys", f"{board}.key"))

    def ask(self, method, path, body=None):
        answer = self.cluster.path("answer")
        if os.path.exists(answer):
            os.remove(answer)
        command = [self.program, "-N", "-B", "10", "-m", method, "-u", self.board, "-k", self.key, "-o", answer]
        if body is not None:
            with open(self.cluster.path("body"), "wb") as file:
                file.write(body)
            command += ["-f", self.cluster.path("body")]
        command.append(f"coaps://127.0.0.1:{self.cluster.port}/{path}")
        result = subprocess.run(command, capture_output=True, timeout=60)
        assert os.path.exists(answer), f"{method} {path}: {result.stdout}{result.stderr}"
        with open(answer, "rb") as file:
            return file.read()


def check(client):
    manifest = decode(client.ask("post", "reg", REGISTER))
    assert manifest[1] == 2 and manifest[8] == "lab-a", manifest
    now = decode(client.ask("get", "r"))
    assert now[1] == manifest[6] and now[4] == 1 and now[7] == 0, now
    for digest, size in ((manifest[9], manifest[10]), (now[8], now[9])):
        chunk = manifest[4]
        parcel = 1024 // chunk
        content = b""
        while len(content) < size:
            content += client.ask("get", f"b/{digest.hex()}/{len(content) // chunk}/{parcel}")
        assert len(content) == size, (len(content), size)
        assert hashlib.sha256(content).digest() == digest, "other bytes than the digest says"
        print(f"{client.program}: {size} bytes of {digest.hex()[:8]}")


def main(build):
    programs = [program for program in CLIENTS if shutil.which(program)]
    if not programs:
        print("no coap-client here (package libcoap3-bin)")
        sys.exit(77)
    with Cluster(build, {"lab-a": [f"board-{number}" for number in range(1, 9)]}) as cluster:
        # Arguments of a program cannot hold the byte 0, which one key in eight has.
        board = next(name for name in cluster.boards if b"\0" not in dtls_key(cluster.path("keys", f"{name}.key")))
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening", timeout=60)
        for program in programs:
            check(Client(program, cluster, board))


if __name__ == "__main__":
    main(*sys.argv[1:])
