"""Somebody in the switch of a group's LAN: reads all frames, and sends them again.

    wiretap.py BUILD [SCENARIO...]

What is read holds no plaintext and no weights. What is sent again, each datagram with the addresses that it had, and each
TLS stream on a new connection, changes no bit of the model.
"""

import collections
import ctypes
import os
import socket
import struct
import threading
import time

from capture import DTLS_TYPES, ETH_P_ALL
from lan import Lan, allowed
from scenarios import Scenarios

GROUP = {"lab": ["board-1", "board-2", "board-3"]}
JOB = {"rounds": 8, "local_steps": 40, "quorum": 1, "rejoin": "60 s", "form": "60 s", "timeout": "60 s", "mixed": True}
TLS_TYPES = {20, 21, 22, 23}
CLONE_NEWNET = 0x40000000
scenario = Scenarios()


class Inside:
    """This thread makes its sockets in a network namespace."""

    def __init__(self, name):
        self.name = name

    def enter(self, path):
        with open(path) as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def __enter__(self):
        self.enter(f"/run/netns/{self.name}")

    def __exit__(self, *reason):
        self.enter(f"/proc/{os.getpid()}/ns/net")


class Packet:
    """An IPv4 frame of UDP or TCP, taken apart."""

    def __init__(self, frame):
        self.frame = frame
        self.start = 14 + (frame[14] & 15) * 4
        self.end = 14 + int.from_bytes(frame[16:18], "big")
        self.udp = frame[23] == 17
        self.source, self.target = socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
        self.ports = struct.unpack(">HH", frame[self.start:self.start + 4])
        data = self.start + (8 if self.udp else (frame[self.start + 12] >> 4) * 4)
        self.sequence = int.from_bytes(frame[self.start + 4:self.start + 8], "big")
        self.data = frame[data:self.end]

    def without_checksum(self):
        """Of a datagram: 0 says that there is none. The one in the frame was left to a device that is not there."""
        return self.frame[:self.start + 6] + b"\0\0" + self.frame[self.start + 8:self.end]


class Tap(threading.Thread):
    """All that boards send to boards."""

    def __init__(self, lan):
        super().__init__(daemon=True)
        self.lan, self.packets, self.running = lan, [], True
        with Inside(lan.switch):
            self.sockets = {board: self.open(lan.port_of(board)) for board in lan.boards}
        self.boards = {lan.hosts[board]: board for board in lan.boards}

    @staticmethod
    def open(port):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        tap.bind((port, 0))
        tap.setblocking(False)
        return tap

    def run(self):
        while self.running:
            for tap in self.sockets.values():
                self.read(tap)
            time.sleep(0.005)

    def read(self, tap):
        while True:
            try:
                frame, address = tap.recvfrom(65536)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[23] not in (6, 17):
                continue
            packet = Packet(frame)
            if packet.data and packet.source in self.boards and packet.target in self.boards:
                self.packets.append(packet)

    def stop(self):
        self.running = False
        self.join()

    def send_again(self, packet):
        self.sockets[self.boards[packet.target]].send(packet.without_checksum())

    def send_forged(self, packet):
        """As one that is still to come: its sequence number is higher (RFC 6347, 4.1)."""
        frame = bytearray(packet.without_checksum())
        frame[packet.start + 8 + 7] ^= 1
        self.sockets[self.boards[packet.target]].send(frame)

    def streams(self):
        """{(from, to with port): bytes} of each connection and direction, without what was repeated."""
        parts = collections.defaultdict(dict)
        for packet in [p for p in self.packets if not p.udp]:
            parts[packet.source, packet.target, packet.ports].setdefault(packet.sequence, packet.data)
        found = {}
        for key, pieces in parts.items():
            first = next(iter(pieces))
            found[key] = b"".join(pieces[s] for s in sorted(pieces, key=lambda s: (s - first) % 2**32))
        return found


def datagrams_in(lan, board):
    """That the kernel of a board took, and that it dropped for their checksum."""
    rows = [line.split() for line in lan.command(*lan.enter(board), "cat", "/proc/net/snmp").stdout.splitlines()
            if line.startswith("Udp:")]
    counts = dict(zip(rows[0][1:], map(int, rows[1][1:])))
    return counts["InDatagrams"], counts["InCsumErrors"]


@scenario
def a_capture_holds_no_plaintext_and_no_weights(build):
    with Lan(build, GROUP, **{**JOB, "rounds": 3}) as lan:
        tap = Tap(lan)
        tap.start()
        lan.start_all()
        lan.wait_for_end(120)
        tap.stop()
        model = lan.current_model("board-1")
        secrets = [b"cairn", b"digits"] + [model[i:i + 8] for i in range(4096, len(model) - 8, 4096)]
        secrets = [secret for secret in secrets if len(set(secret)) > 3]
        datagrams = [packet for packet in tap.packets if packet.udp]
        streams = tap.streams()
        for packet in datagrams:
            assert packet.data[0] in DTLS_TYPES, f"not a DTLS record: {packet.data[:16].hex()}"
        for stream in streams.values():
            assert stream[0] in TLS_TYPES and stream[1] == 3, f"not a TLS record: {stream[:16].hex()}"
        for data in [*streams.values(), *(packet.data for packet in datagrams)]:
            handshake = data[0] == 22  # names are the identities of its keys
            for secret in secrets[1:] if handshake else secrets:
                assert secret not in data, f"plaintext {secret!r}"
        # Each hello begins with it. In megabytes of other bytes four are there by chance, in one of a few hundred runs.
        assert sum(stream.count(b"CNRP") for stream in streams.values()) <= 1, "hellos in plaintext"
        total = sum(map(len, streams.values()))
        assert len(datagrams) > 40 and total > 1_000_000, (len(datagrams), total)
    return f"{len(datagrams)} datagrams and {total} bytes of TLS"


def play_streams(lan, streams, stop):
    """A recorded side of a TLS connection to whoever listens, from the gateway's address."""
    count = 0
    with Inside(lan.space("gateway")):
        while not stop.is_set():
            for (_, target, ports), data in streams.items():
                try:
                    with socket.create_connection((target, ports[1]), 0.2) as connection:
                        connection.sendall(data)
                        count += 1
                        connection.settimeout(0.2)
                        while connection.recv(4096):
                            pass
                except OSError:
                    continue
            time.sleep(0.01)
    stop.played = count


@scenario
def what_is_sent_again_or_forged_is_in_the_log(build):
    """Once for hundreds of records, with their number; and the run goes on."""
    with Lan(build, GROUP, **{**JOB, "rounds": 40}) as lan:
        tap = Tap(lan)
        tap.start()
        lan.start_all()
        lan.wait_for_line("board-1", "version 1: held-out")
        recorded = [packet for packet in list(tap.packets) if packet.udp and packet.data[0] != 22][-200:]
        for packet in recorded:
            if packet.target == lan.hosts["board-2"]:
                tap.send_forged(packet)
        lan.wait_for_line("board-2", "dropped, the last one was forged or damaged")
        for packet in recorded:
            tap.send_again(packet)
        for board in ("board-1", "board-3"):
            lan.wait_for_line(board, "dropped, the last one was sent again")
        refused = f"without a proof of a key refused, the last one from {lan.hosts['gateway']}"
        stop = threading.Event()
        streams = {key: data for key, data in tap.streams().items() if key[2][1] in lan.board_ports.values()}
        player = threading.Thread(target=play_streams, args=(lan, streams, stop), daemon=True)
        player.start()
        for epochs in range(2, 8):  # a board listens while an epoch opens
            lan.kill("board-3")
            lan.start("board-3")
            lan.wait_for_view("board-1", 3, epochs)
            if any(refused in lan.log(board) for board in lan.boards):
                break
        stop.set()
        player.join()
        assert any(refused in lan.log(board) for board in lan.boards), f"nobody speaks of {stop.played} played streams"
        lan.wait_for_end(150)
        tap.stop()
        lan.replay()
        lines = sum(lan.log(board).count("dropped, the last one") for board in lan.boards)
        assert lines <= 15, f"{lines} lines of {len(recorded)} records"
    return f"{lines} lines of {len(recorded)} records, {stop.played} streams"


def train(build, disturb):
    with Lan(build, GROUP, **JOB) as lan:
        tap = Tap(lan)
        tap.start()
        lan.start_all()
        lan.wait_for_line("board-1", "version 2: held-out")
        said = disturb(lan, tap)
        lan.wait_for_end(150)
        tap.stop()
        lan.replay()
        epochs = {name: lan.log(name).count("group: epoch ") for name in lan.boards}
        return lan.digest(), epochs, said


def restart_one(lan):
    lan.kill("board-3")
    lan.start("board-3")
    for name in lan.boards:
        lan.wait_for_view(name, 3, 2)


def wait_until_taken(lan, board, before, wanted):
    """Else the test would test nothing."""
    deadline = time.monotonic() + 60
    taken = broken = 0
    while taken < wanted:
        taken, broken = (now - then for now, then in zip(datagrams_in(lan, board), before))
        assert not broken and time.monotonic() < deadline, f"{board} took {taken} of {wanted}, {broken} broken"
        time.sleep(0.1)


def send_all_again(lan, tap):
    """The group control of two epochs, twice; the streams, while the third epoch opens."""
    restart_one(lan)
    recorded = [packet for packet in tap.packets if packet.udp]
    # Of each connection the side that began it: the higher port is the one that the kernel chose.
    streams = {key: data for key, data in tap.streams().items() if key[2][1] in lan.board_ports.values()}
    before = {board: datagrams_in(lan, board) for board in lan.boards}
    for _ in range(2):
        for packet in recorded:
            tap.send_again(packet)
            time.sleep(0.001)
    for board in lan.boards:
        wait_until_taken(lan, board, before[board], 2 * sum(packet.target == lan.hosts[board] for packet in recorded))
    stop = threading.Event()
    player = threading.Thread(target=play_streams, args=(lan, streams, stop), daemon=True)
    player.start()
    time.sleep(0.3)
    lan.kill("board-2")
    lan.start("board-2")
    for name in lan.boards:
        lan.wait_for_view(name, 3, 3)
    stop.set()
    player.join()
    return f"{2 * len(recorded)} datagrams and {stop.played} TLS streams were sent again"


def only_restarts(lan, _tap):
    restart_one(lan)
    lan.kill("board-2")
    lan.start("board-2")
    for name in lan.boards:
        lan.wait_for_view(name, 3, 3)


@scenario
def what_is_sent_again_changes_nothing(build):
    wanted, epochs, _ = train(build, only_restarts)
    digest, with_replay, said = train(build, send_all_again)
    assert digest == wanted, f"digest {digest}, undisturbed {wanted}"
    return f"{said}; epochs {with_replay}, undisturbed {epochs}"


if __name__ == "__main__":
    scenario.main(possible=allowed)
