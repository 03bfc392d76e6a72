"""A capture of a whole run on the loopback interface holds no plaintext CoAP and no weights.

Needs the right to open a packet socket; without it the test is skipped (exit 77).
"""

import socket
import sys
import threading

from cluster import Cluster

ETH_P_ALL = 3
DTLS_TYPES = {20, 21, 22, 23, 25}  # change cipher spec, alert, handshake, data, data with connection id


class Capture(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.5)
        self.packets = []
        self.running = True

    def run(self):
        while self.running:
            try:
                packet, address = self.socket.recvfrom(65536)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:
                self.packets.append(packet)


def payload(packet, ports):
    """(protocol, payload) of a UDP or TCP packet of these ports, or None."""
    if packet[12:14] != b"\x08\x00":
        return None
    start = 14 + (packet[14] & 15) * 4
    here = {int.from_bytes(packet[start:start + 2], "big"), int.from_bytes(packet[start + 2:start + 4], "big")}
    if not here & ports:
        return None
    if packet[23] == 17:
        return "udp", packet[start + 8:]
    if packet[23] == 6:
        return "tcp", packet[start + (packet[start + 12] >> 4) * 4:]
    return None


def main(build):
    try:
        capture = Capture()
    except PermissionError:
        print("skipped: opening a packet socket is not allowed here")
        return 77
    with Cluster(build, rounds=3, local_steps=10) as cluster:
        capture.start()
        cluster.start_all()
        cluster.wait_for_end(90)
        capture.running = False
        capture.join()
        ports = {cluster.port} | {p + i for p in cluster.board_ports.values() for i in (0, 1)}
        model = cluster.current_model("board-1")
        secrets = [b"cairn-version-1", b"digits"] + [model[i:i + 16] for i in range(4096, len(model) - 16, 1024)]
        seen = {"udp": 0, "tcp": 0}
        for packet in capture.packets:
            found = payload(packet, ports)
            if not found or not found[1]:
                continue
            kind, data = found
            seen[kind] += 1
            if kind == "udp":
                assert data[0] in DTLS_TYPES, f"not a DTLS record: {data[:16].hex()}"
            for secret in secrets:
                assert secret not in data, f"plaintext {secret[:16]!r} in a {kind} packet"
        assert seen["udp"] > 100 and seen["tcp"] > 100, f"captured too little: {seen}"
        print(f"{seen['udp']} DTLS and {seen['tcp']} TLS packets, no plaintext")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
