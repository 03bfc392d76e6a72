"""A gateway and its boards as separate processes on the loopback interface, for the end-to-end tests.

    with Cluster(build, GROUPS, job) as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)

Every process runs the shipped programs with profile files as a user writes them. All processes are ended
by their pid; the run directory is removed unless the test failed.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIGITS = os.path.join(SOURCE, "tests", "data", "digits")
ENDLESS = 1_000_000  # rounds, of a run that lasts until the test has done what it wants: Cluster.end_run
LOG_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\+\d+\.\d{3}s) ", re.MULTILINE)  # docs/log.md
GROUPS = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3", "board-4"]}

JOB = {
    "seed": 1,
    "batch": 32,
    "local_steps": 10,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "up": "{mode: topk, density: 10 %, value_bits: 2}",
    "down": "{mode: q8}",
    "rounds": 6,
    "quorum": 2,
    "deadline": "60 s",
    "central": True,
    "held_out": "10 %",
    "model": "digits-cnn.onnx",
    "loss": "cross_entropy",
    # Long: on a busy machine nobody is left out who is only slow. Who loses a board for good says less.
    "rejoin": "30 s",
    "form": "30 s",
    "timeout": "30 s",
    "mixed": False,
    "extra": "",
    "update": "",
    "network": "",
    "group": "",  # more keys of it: ", lan: trusted"
    "host": "127.0.0.1",  # of all processes; not for links
    "link": None,  # values of tests/support/relay.c for a link between each board and the gateway
}

JOB_TEXT = """\
schema: cairn/job/v1
name: digits
model: {model}
seed: {seed}
loss: {loss}
data: {{set: digits, scale: 0.0625, mean: 0, held_out: {held_out}}}
{central}
train: {{batch: {batch}, local_steps: {local_steps}, learning_rate: {learning_rate}, momentum: {momentum}}}
update: {{up: {up}, down: {down}{update}}}
rounds: {{count: {rounds}, quorum: {quorum}, over_select: 1, deadline: {deadline}}}
{extra}
"""

GATEWAY_TEXT = """\
schema: cairn/site/v1
extends: {source}/boards/generic-x86-64/board.yaml
name: gateway
state: state/gateway
threads: 1
gateway: {{listen: "{host}:{port}"}}
data:
  digits-held-out: {{inputs: {data}/held-out-images.npy, labels: {data}/held-out-labels.npy}}
job: job.yaml
"""

BOARD_TEXT = """\
schema: cairn/site/v1
extends: {source}/boards/generic-x86-64/board.yaml
name: {name}
state: state/{name}
threads: 1
{network}
aggregator: {{address: "{host}:{port}", key: keys/{name}.key}}
{group}
data:
  digits: {{inputs: {data}/{name}-images.npy, labels: {data}/{name}-labels.npy}}
"""


reserved = []  # sockets by the names of the ports of this process


def reserve(port):
    """Keeps other tests on this machine away from a port and the next one; OSError when one has it."""
    lock = socket.socket(socket.AF_UNIX)
    lock.bind(f"\0cairn-test-port-{port}")
    for number in (port, port + 1):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", number))
    reserved.append(lock)


def free_ports(count):
    """Even port numbers that are free for UDP and TCP, together with the next odd one, until this process ends.

    They lie below those that the kernel gives to sockets that ask for none, of programs beside this test.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = 10000, max(20000, int(file.read().split()[0]))
    begin = first + os.getpid() * 37 % ((last - first) // 2) * 2
    found = []
    for port in itertools.chain(range(begin, last - 1, 2), range(first, begin, 2)):
        if len(found) == count:
            return found
        try:
            reserve(port)
            found.append(port)
        except OSError:
            continue
    raise RuntimeError("no free ports")


def read_npy(path):
    """Header and the bytes of each sample."""
    with open(path, "rb") as file:
        content = file.read()
    begin = 10 + int.from_bytes(content[8:10], "little")
    header = content[10:begin].decode()
    count = int(header.split("'shape': (")[1].split(",")[0])
    size = (len(content) - begin) // count
    return header, [content[begin + i * size : begin + (i + 1) * size] for i in range(count)]


def write_npy(path, header, samples):
    before, after = header.split("'shape': (", 1)
    text = f"{before}'shape': ({len(samples)},{after.split(',', 1)[1]}".rstrip()
    text += " " * (-(len(text) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"".join(samples))


def mix_data(folder, boards):
    """Deals the samples of those boards that have files out in turn, so that every board has all kinds."""
    for part in ("images", "labels"):
        samples = []
        for path in (os.path.join(DIGITS, f"{board}-{part}.npy") for board in boards):
            if os.path.exists(path):
                header, own = read_npy(path)
                samples += own
        for index, board in enumerate(boards):
            write_npy(os.path.join(folder, f"{board}-{part}.npy"), header, samples[index :: len(boards)])


def wait_until(condition, what, timeout=120):
    """Returns the first result of the condition that is true."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.05)
    return found


def same_model_everywhere(cluster, boards=None):
    models = {cluster.current_model(board) for board in boards or cluster.boards}
    assert len(models) == 1, "the boards hold different models"


def run_to_end(cluster, disturb=None):
    """Starts all, disturbs them, and checks that the run ends, can be replayed and leaves one model on all boards."""
    cluster.start_all()
    if disturb:
        disturb(cluster)
    cluster.wait_for_end(200)
    cluster.replay()
    same_model_everywhere(cluster)


def remove_folder(directory):
    """Removes a folder in which a hook of a process that was killed may still work for a moment."""
    for left in range(50, -1, -1):
        try:
            shutil.rmtree(directory)
            return
        except OSError:
            if not left:
                raise
            time.sleep(0.1)


class Cluster:
    def __init__(self, build, groups=None, keep=False, **job):
        build = os.path.abspath(build)
        self.node = os.path.join(build, "cairn-node")
        self.aggregator = os.path.join(build, "cairn-aggregator")
        self.groups = GROUPS if groups is None else groups
        self.job = {**JOB, **job}
        self.boards = [board for members in self.groups.values() for board in members]
        self.keep = keep
        self.processes = {}
        self.links = {}
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.port, *board_ports = free_ports(1 + len(self.boards))
        self.board_ports = dict(zip(self.boards, board_ports))
        self.relay = os.path.join(build, "..", "tests", "support", "relay")
        self.link_ports = {}
        if self.job["link"]:
            self.link_ports = dict(zip(self.boards, free_ports(len(self.boards))))

    def __enter__(self):
        for folder in ("keys", "logs"):
            os.mkdir(self.path(folder))
        if self.job["mixed"]:
            os.mkdir(self.path("data"))
            mix_data(self.path("data"), self.boards)
        self.write_profiles()
        self.enroll_all()
        for board in self.link_ports:
            self.start_link(board)
        return self

    def __exit__(self, kind, value, trace):
        self.stop_all()
        if kind is None and not self.keep:
            remove_folder(self.directory)
        else:
            print(f"kept: {self.directory}", file=sys.stderr)
            for name in sorted(os.listdir(self.path("logs"))):
                with open(self.path("logs", name), errors="replace") as log:
                    print(f"--- {name}\n" + "".join(log.readlines()[-25:]), file=sys.stderr)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def write_profiles(self):
        central = "central: {set: digits-held-out}" if self.job["central"] else ""
        values = {**self.job, "central": central, "model": os.path.join(DIGITS, self.job["model"])}
        self.write("job.yaml", JOB_TEXT.format(**values))
        common = {"source": SOURCE, "port": self.port, "host": self.host_of("gateway"), "data": DIGITS}
        self.write("gateway.yaml", GATEWAY_TEXT.format(**common))
        for members in self.groups.values():
            for board in members:
                data = self.path("data") if self.job["mixed"] else DIGITS
                values = {**common, "data": data, "name": board, "network": self.job["network"],
                          "group": self.group_text(board, members)}
                values["port"] = self.link_ports.get(board, self.port)
                text = BOARD_TEXT.format(**values)
                self.write(f"{board}.yaml", text)

    def edit(self, name, *changes):
        """Changes a file as a person does; each change is a text and what takes its place. Returns the old text."""
        with open(self.path(name)) as file:
            before = text = file.read()
        for old, new in changes:
            assert old in text, f"{name} has no '{old}'"
            text = text.replace(old, new)
        self.write(name, text)
        return before

    def set_model(self, path):
        """The job's model, before anything is started."""
        with open(self.path("job.yaml")) as file:
            lines = [f"model: {path}" if line.startswith("model:") else line for line in file.read().splitlines()]
        self.write("job.yaml", "\n".join(lines) + "\n")

    def group_text(self, board, members):
        if len(members) == 1:
            return ""
        listed = ", ".join(f'{m}: "{self.host_of(m)}:{self.board_ports[m]}"' for m in members)
        return (
            f'group: {{listen: "{self.host_of(board)}:{self.board_ports[board]}", members: {{{listed}}}, '
            f'form: {self.job["form"]}, rejoin: {self.job["rejoin"]}, timeout: {self.job["timeout"]}'
            f'{self.job["group"]}}}'
        )

    def host_of(self, _name):
        return self.job["host"]

    def enter(self, _name):
        """What comes before the command of a process."""
        return []

    def command(self, *arguments, check=True):
        result = subprocess.run(arguments, cwd=self.directory, capture_output=True, text=True, timeout=120)
        if check and result.returncode:
            raise AssertionError(f"{' '.join(arguments)}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def enroll_all(self):
        for group, members in self.groups.items():
            for board in members:
                self.command(self.aggregator, "enroll", "gateway.yaml", board, "--group", group,
                             "-o", f"keys/{board}.key")

    # Processes

    def start(self, name, *options, environment=None):
        if name.startswith("gateway"):
            arguments = [self.aggregator, "run", *options, f"{name}.yaml"]
        else:
            arguments = [self.node, "run", "--until-end", *options, f"{name}.yaml"]
        log = open(self.path("logs", f"{name}.log"), "ab")
        self.processes[name] = subprocess.Popen(
            self.enter(name) + arguments, cwd=self.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})})
        log.close()
        return self.processes[name]

    def start_link(self, board):
        values = [f"{key}={value}" for key, value in self.job["link"].items()]
        values.append(f"seed={100 + self.boards.index(board)}")
        log = open(self.path("logs", f"link-{board}.log"), "ab")
        self.links[board] = subprocess.Popen([self.relay, str(self.link_ports[board]), str(self.port), *values],
                                             stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()

    def link_bytes(self):
        """Ends the links; bytes that used them, headers of IP and UDP included, up and down."""
        total = {"up": 0, "down": 0}
        for board, process in self.links.items():
            process.terminate()
            process.wait()
            for line in self.log(f"link-{board}").splitlines():
                words = line.split()
                if words[0] in total:
                    total[words[0]] += int(words[-1])
        return total["up"], total["down"]

    def chunk_bytes(self):
        """Ends the links; bytes of datagrams with chunks of frames that went up, with the headers of IP and UDP."""
        self.link_bytes()
        return sum(int(line.split()[-1]) for board in self.links for line in self.log(f"link-{board}").splitlines()
                   if line.startswith("large up"))

    def start_all(self):
        for name in ["gateway", *self.boards]:
            self.start(name)

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def stop_all(self):
        for process in [*self.processes.values(), *self.links.values()]:
            if process.poll() is None:
                process.kill()
            process.wait()

    def end_run(self, more=2):
        """An ENDLESS run ends some versions from now, on a fast machine as on a slow one."""
        self.kill("gateway")
        last = more + self.version()
        self.edit("job.yaml", (f"count: {ENDLESS}", f"count: {last}"))
        self.start("gateway")
        return last

    def wait_for_end(self, timeout, names=None):
        """All processes end by themselves with 0."""
        deadline = time.monotonic() + timeout
        for name in names or list(self.processes):
            left = deadline - time.monotonic()
            try:
                code = self.processes[name].wait(max(left, 0.01))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not end in {timeout} s") from None
            if code != 0:
                raise AssertionError(f"{name} ended with {code}")

    def wait_for_line(self, name, text, count=1, timeout=60):
        """Until the log of a process says it, count times in all."""
        deadline = time.monotonic() + timeout
        while self.log(name).count(text) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} did not say '{text}' {count} times in {timeout} s")
            time.sleep(0.01)

    def views(self, name, size):
        """How often a board was in a group of so many."""
        return len(re.findall(rf"rank \d+ of {size}\b", self.log(name)))

    def wait_for_view(self, name, size, count=1, timeout=60):
        deadline = time.monotonic() + timeout
        while self.views(name, size) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} was not {count} times in a group of {size} within {timeout} s")
            time.sleep(0.01)

    def board_status(self, name):
        """What `cairn-node status` tells; nothing before the board wrote any."""
        result = self.command(self.node, "status", "--json", f"{name}.yaml", check=False)
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def wait_for_version(self, number, timeout=120, state="gateway"):
        wait_until(lambda: self.version(state) >= number, f"version {number} of {state}", timeout)

    def wait_for_status(self, name, part, timeout=60, **wanted):
        deadline = time.monotonic() + timeout
        while not wanted.items() <= self.board_status(name).get(part, {}).items():
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} did not tell {wanted} in {timeout} s: {self.board_status(name)}")
            time.sleep(0.05)

    # Results

    def status(self):
        """The run's object; the lines after it are one object for each board."""
        return json.loads(self.command(self.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()[0])

    def digest(self):
        """Of the newest version."""
        return self.status()["digest"]

    def ledger(self, query, *values, state="gateway"):
        """Rows of the gateway's ledger."""
        uri = f"file:{self.path('state', state, 'ledger.sqlite')}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as ledger:
            return ledger.execute(query, values).fetchall()

    def version(self, state="gateway"):
        """The newest version's number; -1 before there is one."""
        if not os.path.exists(self.path("state", state, "ledger.sqlite")):
            return -1
        return self.ledger("SELECT ifnull(max(number), -1) FROM version", state=state)[0][0]

    def replay(self):
        """Lines of the replay; it fails by itself when a version differs."""
        return self.command(self.aggregator, "replay", "gateway.yaml").stdout.splitlines()

    def log(self, name):
        """What a process wrote, without the times of its lines."""
        with open(self.path("logs", f"{name}.log"), errors="replace") as file:
            return LOG_TIME.sub("", file.read())

    def accuracy(self):
        for line in reversed(self.log("gateway").splitlines()):
            if line.startswith("held-out accuracy "):
                return float(line.split()[2])
        raise AssertionError("the aggregator printed no held-out accuracy")

    def current_model(self, board):
        with open(self.path("state", board, "model.current.onnx"), "rb") as file:
            return file.read()
