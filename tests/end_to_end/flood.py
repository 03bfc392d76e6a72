"""A host without a key, and a board that misbehaves on the wire: the others go on.

    flood.py BUILD [SCENARIO...]

The attackers are written from RFC 6347, RFC 8323 and transport/PROTOCOL.md alone; TLS is that of the openssl program.
"""

import contextlib
import os
import queue
import select
import shutil
import socket
import subprocess
import threading
import time

from cluster import ENDLESS, Cluster
from coap_client import dtls_key
from scenarios import Scenarios

scenario = Scenarios()
UDP = "network: {transport: udp}"


def client_hello(random, cookie=b"", sequence=0):
    """A ClientHello for the suite of the protocol, in a record of DTLS 1.2."""
    extensions = bytes.fromhex("000a00040002001d" "000b00020100")  # X25519; uncompressed points
    body = (b"\xfe\xfd" + random + b"\x00" + bytes([len(cookie)]) + cookie + bytes.fromhex("0002ccac" "0100")
            + len(extensions).to_bytes(2, "big") + extensions)
    length = len(body).to_bytes(3, "big")
    message = b"\x01" + length + sequence.to_bytes(2, "big") + bytes(3) + length + body
    return b"\x16\xfe\xfd\x00\x00" + sequence.to_bytes(6, "big") + len(message).to_bytes(2, "big") + message


class HalfOpen:
    """Handshakes that are never finished, from many ports, new ones all the time, until the end of the block."""

    def __init__(self, port, count):
        self.port, self.count = port, count
        self.granted = 0  # ServerHello that came
        self.ended = threading.Event()
        self.filled = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        attempts = {}  # the random of each socket
        while not self.ended.is_set():
            if len(attempts) < self.count:
                self.begin(attempts)
            for ready in select.select(list(attempts), [], [], 0.01)[0]:
                self.go_on(attempts, ready)
            if len(attempts) == self.count:
                self.filled.set()
                next(iter(attempts)).close()
                attempts.pop(next(iter(attempts)))
        for client in attempts:
            client.close()

    def begin(self, attempts):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect(("127.0.0.1", self.port))
        attempts[client] = os.urandom(32)
        client.send(client_hello(attempts[client]))

    def go_on(self, attempts, client):
        """The cookie goes back; what follows is never answered."""
        try:
            answer = client.recv(4096)
        except ConnectionError:
            return  # the gateway is not there yet
        if answer[13] == 3:  # HelloVerifyRequest
            client.send(client_hello(attempts[client], answer[28:28 + answer[27]], 1))
        self.granted += answer[13] == 2

    def __enter__(self):
        self.thread.start()
        assert self.filled.wait(300), f"only {self.granted} handshakes were begun"
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


@scenario
def handshakes_that_are_never_finished_keep_nobody_out(build):
    """From the board's own address: only the port is another one."""
    with Cluster(build, {"lab-a": ["board-1"]}, rounds=ENDLESS, quorum=1, network=UDP) as cluster:
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening")
        with HalfOpen(cluster.port, 150) as flood:
            cluster.start("board-1")
            cluster.wait_for_line("board-1", "registered")
            assert not flood.ended.is_set()
            return f"registered while {flood.granted} handshakes had been begun"


class Relay:
    """Stands between a board and the gateway, with one address for all that come; records what goes up."""

    def __init__(self, port, target):
        self.listen = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.listen.bind(("127.0.0.1", port))
        self.up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.up.connect(("127.0.0.1", target))
        self.board = None  # its address
        self.hellos = []  # with a cookie
        self.tapped = None  # messages in clear from the gateway, kept from the board
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            for ready in select.select([self.listen, self.up], [], [], 0.1)[0]:
                try:
                    self.carry(ready)
                except ConnectionError:
                    pass  # whoever was there is not for now

    def carry(self, ready):
        if ready is self.up:
            data = self.up.recv(4096)
            tapped = self.tapped
            if tapped and data[0] == 22 and data[3:5] == b"\0\0":
                tapped.put(data)
            elif self.board:
                self.listen.sendto(data, self.board)
            return
        data, self.board = self.listen.recvfrom(4096)
        if len(data) > 61 and data[0] == 22 and data[3:5] == b"\0\0" and data[13] == 1 and data[60 + data[59]]:
            self.hellos.append(data)
        self.up.send(data)

    @contextlib.contextmanager
    def tap(self):
        self.tapped = queue.Queue()
        yield self.tapped
        self.tapped = None

    def replay(self, hello):
        self.up.send(hello)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.listen.close()
        self.up.close()


class RelayedCluster(Cluster):
    """Its boards reach the gateway through a relay of this process."""

    def __init__(self, build, groups, **job):
        super().__init__(build, groups, **job)
        self.relay_port = self.port + 1  # reserved with it
        self.link_ports = {board: self.relay_port for board in self.boards}

    def start_link(self, board):
        pass


def wait_for_versions(cluster, more):
    cluster.wait_for_version(cluster.version() + more)


def connections(cluster):
    return cluster.log("board-1").count("connected over UDP")


@scenario
def a_recorded_hello_ends_no_session(build):
    """Sent again from the board's own address, while its cookie is good, and when it is not any more."""
    job = {"rounds": ENDLESS, "quorum": 1, "network": UDP}
    with RelayedCluster(build, {"lab-a": ["board-1"]}, **job) as cluster, \
            Relay(cluster.relay_port, cluster.port) as relay:
        cluster.start("gateway")
        cluster.start("board-1", "--log-level", "debug")
        cluster.wait_for_line("board-1", "registered")
        wait_for_versions(cluster, 1)
        hellos = relay.hellos[-2:]
        assert hellos, "no ClientHello with a cookie was seen"
        for _ in range(40):
            for hello in hellos:
                relay.replay(hello)
            time.sleep(0.05)
        wait_for_versions(cluster, 2)
        assert connections(cluster) == 1, cluster.log("board-1")
        return f"{40 * len(hellos)} were sent again"


class RelayedGroup(Cluster):
    """board-1 reaches board-2 over UDP through a relay of this process."""

    def __init__(self, build, groups, **job):
        super().__init__(build, groups, **job)
        self.relay_port = self.port + 1  # reserved with it

    def group_text(self, board, members):
        text = super().group_text(board, members)
        listed = f'board-2: "127.0.0.1:{self.board_ports["board-2"]}"'
        assert listed in text, text
        return text.replace(listed, f'board-2: "127.0.0.1:{self.relay_port}"') if board == "board-1" else text


@scenario
def a_recorded_hello_ends_no_session_of_members(build):
    job = {"rounds": ENDLESS, "quorum": 1, "network": UDP}
    with RelayedGroup(build, {"lab-a": ["board-1", "board-2"]}, **job) as cluster, \
            Relay(cluster.relay_port, cluster.board_ports["board-2"]) as relay:
        cluster.start_all()
        cluster.wait_for_view("board-1", 2)
        wait_for_versions(cluster, 1)
        hellos = relay.hellos[-2:]
        assert hellos, "no ClientHello with a cookie was seen"
        seen = len(relay.hellos)
        for _ in range(40):
            for hello in hellos:
                relay.replay(hello)
            time.sleep(0.05)
        wait_for_versions(cluster, 2)
        assert len(relay.hellos) == seen, f"{len(relay.hellos) - seen} new handshakes"
        return f"{40 * len(hellos)} were sent again"


@scenario
def a_handshake_beside_a_session_ends_none(build):
    """A new ClientHello from the address of a session, with a cookie of its own, that is not followed by a key."""
    job = {"rounds": ENDLESS, "quorum": 1, "network": UDP}
    with RelayedCluster(build, {"lab-a": ["board-1"]}, **job) as cluster, \
            Relay(cluster.relay_port, cluster.port) as relay:
        cluster.start("gateway")
        cluster.start("board-1", "--log-level", "debug")
        cluster.wait_for_line("board-1", "registered")
        wait_for_versions(cluster, 1)
        begun = sum(begin_beside(relay) for _ in range(20))
        wait_for_versions(cluster, 2)
        assert connections(cluster) == 1, cluster.log("board-1")
        assert begun, "no handshake was begun"
        return f"{begun} were begun"


def begin_beside(relay):
    """Begins a handshake where the board has its session; whether the gateway went into it."""
    random = os.urandom(32)
    with relay.tap() as answers:
        relay.replay(client_hello(random))
        answer = answers.get(timeout=60)
        if answer[13] == 3:  # HelloVerifyRequest
            relay.replay(client_hello(random, answer[28:28 + answer[27]], 1))
            answer = answers.get(timeout=60)
    return answer[13] == 2  # ServerHello


@scenario
def a_board_comes_back_at_the_address_of_its_session(build):
    """As behind a NAT that gives the same port again: the gateway still has a session of its first process there."""
    job = {"rounds": ENDLESS, "quorum": 1, "network": UDP}
    with RelayedCluster(build, {"lab-a": ["board-1"]}, **job) as cluster, \
            Relay(cluster.relay_port, cluster.port):
        cluster.start("gateway")
        for number in range(1, 4):
            cluster.start("board-1", "--log-level", "debug")
            cluster.wait_for_line("board-1", "connected over UDP", count=number)
            wait_for_versions(cluster, 1)
            cluster.kill("board-1")
        assert connections(cluster) == 3, cluster.log("board-1")


# Over TCP

def message(code, token=b"", options=b"", payload=b""):
    """A CoAP message over TCP (RFC 8323, 3.2)."""
    body = options + (b"\xff" + payload if payload else b"")
    if len(body) < 13:
        head, extended = len(body), b""
    else:
        head, extended = 13, bytes([len(body) - 13])
    return bytes([head << 4 | len(token)]) + extended + bytes([code]) + token + body


def path_options(path):
    """Uri-Path (11), one for each part."""
    options, last = b"", 0
    for part in path.split("/"):
        delta, data = 11 - last, part.encode()
        if len(data) < 13:
            options += bytes([delta << 4 | len(data)]) + data
        else:
            options += bytes([delta << 4 | 13, len(data) - 13]) + data
        last = 11
    return options


CSM, GET = 0xE1, 1


class DeafClient:
    """A board with a valid key that asks over TLS and reads nothing: what comes stays in a socket of this process."""

    def __init__(self, cluster, board):
        self.answers = cluster.path("answers")
        self.listen = socket.create_server(("127.0.0.1", 0))
        self.key = dtls_key(cluster.path("keys", f"{board}.key"))
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % self.listen.getsockname()[1], "-tls1_2", "-quiet",
             "-cipher", "ECDHE-PSK-CHACHA20-POLY1305", "-psk_identity", board, "-psk", self.key.hex()],
            stdin=subprocess.PIPE, stdout=open(self.answers, "wb"), stderr=subprocess.DEVNULL)
        self.near, _ = self.listen.accept()
        self.far = socket.create_connection(("127.0.0.1", cluster.port))
        self.deaf = threading.Event()
        self.gone = threading.Event()  # the gateway has closed the connection
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()

    def carry(self):
        waiting = b""  # for the gateway
        self.far.setblocking(False)
        while self.process.poll() is None and not self.gone.is_set():
            sources = ([] if self.deaf.is_set() else [self.far]) + ([self.near] if not waiting else [])
            readable, writable, _ = select.select(sources, [self.far] if waiting else [], [], 0.1)
            try:
                if self.far in readable:
                    self.near.sendall(self.far.recv(65536))
                if self.near in readable:
                    waiting = self.near.recv(65536)
                if self.far in writable:
                    waiting = waiting[self.far.send(waiting):]
            except OSError:
                self.gone.set()
            if self.is_closed():
                self.gone.set()

    def is_closed(self):
        poll = select.poll()
        poll.register(self.far, 0)  # errors and hang-ups only
        return bool(poll.poll(0))

    def send(self, data):
        """False when nobody takes it any more."""
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            return True
        except (BrokenPipeError, OSError):
            return False

    def wait_for(self, token):
        """Until the answer with this token has come."""
        deadline = time.monotonic() + 60
        while True:
            with open(self.answers, "rb") as file:
                if token in file.read():
                    return
            assert time.monotonic() < deadline and not self.gone.is_set(), "the gateway did not answer"
            time.sleep(0.05)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        for each in (self.near, self.far, self.listen):
            each.close()


def memory(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def blob_requests(digest, count):
    """Of 128 bytes each, so that no record and no buffer of the gateway ends inside of a header."""
    options = path_options(f"b/{digest}/0/{128:045}")
    requests = [message(GET, number.to_bytes(8, "big"), options) for number in range(count)]
    assert all(len(each) == 128 for each in requests)
    return requests


LAST = b"the last"  # token of a request


@scenario
def a_client_that_never_reads_takes_little_memory(build):
    """It is closed, and the others are served meanwhile."""
    with Cluster(build, {"lab-a": ["board-1"], "lab-b": ["board-2"]}, rounds=ENDLESS, quorum=1) as cluster:
        gateway = cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening")
        digest = cluster.digest()
        before = most = memory(gateway)
        client = DeafClient(cluster, "board-2")
        sender = threading.Thread(target=ask_for_ever, args=(client, digest))
        try:
            sender.start()
            assert client.deaf.wait(60)
            cluster.start("board-1")
            cluster.wait_for_line("board-1", "registered")
            deadline = time.monotonic() + 240  # it is closed after 60 s
            while not client.gone.is_set():
                most = max(most, memory(gateway))
                assert most - before < 16 << 20, f"the gateway grew by {(most - before) >> 20} MiB"
                assert time.monotonic() < deadline, "the session of the deaf client was not closed"
                time.sleep(0.02)
            return f"the gateway grew by {(most - before) >> 10} KiB until it closed the session"
        finally:
            client.close()
            sender.join()


def ask_for_ever(client, digest):
    client.send(message(CSM, options=bytes.fromhex("224000")))  # messages of 16 KiB
    client.wait_for(b"\xe1")  # the gateway's
    client.deaf.set()
    requests = b"".join(blob_requests(digest, 512))
    for _ in range(200):
        if client.gone.is_set() or not client.send(requests):
            return


@scenario
def a_client_that_reads_nothing_for_twenty_seconds_keeps_its_session(build):
    """As one behind a very slow link, or in a gap of it."""
    with Cluster(build, {"lab-a": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening")
        digest = cluster.digest()
        client = DeafClient(cluster, "board-1")
        try:
            client.send(message(CSM, options=bytes.fromhex("224000")))  # messages of 16 KiB
            client.wait_for(b"\xe1")
            client.deaf.set()
            client.send(b"".join(blob_requests(digest, 512)))
            time.sleep(20)
            client.deaf.clear()
            client.send(message(GET, LAST, path_options("r")))
            client.wait_for(LAST)
        finally:
            client.close()


@scenario
def answers_fit_what_a_client_announced(build):
    """Without Max-Message-Size a message has at most 1152 bytes (RFC 8323, 5.3.1): no line in the log for each."""
    with Cluster(build, {"lab-a": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening")
        digest = cluster.digest()
        client = DeafClient(cluster, "board-1")
        try:
            client.send(message(CSM))
            client.send(b"".join(blob_requests(digest, 3000)))
            client.send(message(GET, LAST, path_options("r")))
            client.wait_for(LAST)
        finally:
            client.close()
        lines = len(cluster.log("gateway").splitlines())
        assert lines < 50, f"{lines} lines in the log of the gateway"
        return f"{lines} lines in the log of the gateway"


def possible():
    if shutil.which("openssl"):
        return True
    print("no openssl here")
    return False


if __name__ == "__main__":
    scenario.main(possible)
