"""What the programs say to a person: nothing wider than the terminal, and small mistakes in plain words.

    terminal.py BIN
"""

import fcntl
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bad_models import expect, npy, plain, profile, write  # noqa: E402
from cluster import ENDLESS, Cluster  # noqa: E402
from scenarios import Scenarios  # noqa: E402

COLUMNS = 80
scenario = Scenarios()


def on_terminal(folder, *command):
    """Runs a command on a terminal of so many columns, without live lines, and returns the lines it printed there."""
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, COLUMNS, 0, 0))
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE,
                               env={**os.environ, "TERM": "dumb"})
    os.close(terminal)
    said = b""
    with open(ours, "rb", buffering=0) as file:
        try:
            while piece := file.read(4096):
                said += piece
        except OSError:  # the program's end of it is closed
            pass
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 0, errors
    return said.decode().splitlines()


def fits(lines):
    assert lines, "nothing was printed"
    for line in lines:
        assert len(line) <= COLUMNS and line == line.rstrip(), f"{len(line)} columns: '{line}'"


class Alone:
    """A folder with a profile, a model and samples for training alone."""

    def __init__(self, build):
        self.node = os.path.join(build, "cairn-node")
        self.folder = tempfile.TemporaryDirectory(prefix="cairn-test-")

    def __enter__(self):
        path = self.folder.name
        npy(os.path.join(path, "x.npy"), 8, 4, [0.25 * (i % 7) for i in range(32)])
        npy(os.path.join(path, "y.npy"), 8, 2, [0.5] * 16)
        write(os.path.join(path, "model.onnx"), plain())
        profile(path)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def edit(self, old, new):
        path = os.path.join(self.folder.name, "site.yaml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert old in text, old
        write(path, text.replace(old, new).encode())

    def run(self, *arguments):
        return subprocess.run([self.node, *arguments], cwd=self.folder.name, capture_output=True, text=True, timeout=60)


@scenario
def help_fits_a_terminal(build):
    for name in ("cairn-node", "cairn-aggregator", "cairn-flash"):
        program = os.path.join(build, name)
        text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        fits(text.splitlines())
        for command in re.findall(r"^  ([a-z]+) ", text, re.MULTILINE):
            text = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
            fits(text.splitlines())


@scenario
def rounds_and_status_fit_a_terminal(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=2, quorum=1) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        for program, name in ((cluster.aggregator, "gateway.yaml"), (cluster.node, "board-1.yaml")):
            fits(on_terminal(cluster.directory, program, "status", name))
            wide = cluster.command(program, "status", name).stdout
            assert max(map(len, wide.splitlines())) > COLUMNS, "a pipe gets lines in one piece"
        with open(cluster.path("job.yaml"), encoding="utf-8") as file:
            job = [line for line in file.read().splitlines() if not line.startswith("central")]
        cluster.write("train.yaml", "\n".join(job) + "\n")
        with open(cluster.path("board-1.yaml"), encoding="utf-8") as file:
            text = file.read().replace("state/board-1", "state/alone")
        cluster.write("alone.yaml", text + "job: train.yaml\n")
        lines = on_terminal(cluster.directory, cluster.node, "train", "alone.yaml")
        fits(lines)
        assert any(line.startswith("    ") for line in lines), f"no line had to be broken: {lines}"


@scenario
def a_board_without_a_name_has_a_status(build):
    with Alone(build) as alone:
        expect(alone.run("train", "site.yaml"), 0)
        said = expect(alone.run("status", "site.yaml"), 0, "the run has ended")
        assert not said.startswith(":"), said


@scenario
def training_that_is_done_says_so(build):
    with Alone(build) as alone:
        said = expect(alone.run("train", "site.yaml"), 0, "round 1/1")
        assert "nothing is left to train" not in said, said
        expect(alone.run("train", "site.yaml"), 0, "rounds.count is 1", "nothing is left to train", "--anew")
        alone.edit("count: 1", "count: 2")
        expect(alone.run("train", "site.yaml"), 0, "round 2/2")


@scenario
def a_file_that_is_no_model_is_named(build):
    with Alone(build) as alone:
        write(os.path.join(alone.folder.name, "model.onnx"), b"this is no model")
        expect(alone.run("train", "site.yaml"), 1, "model.onnx: byte ")


@scenario
def a_state_that_is_a_file_is_said(build):
    with Alone(build) as alone:
        alone.edit("state: state", "state: x.npy")
        expect(alone.run("train", "site.yaml"), 1, "x.npy", "it is a file")
        expect(alone.run("status", "site.yaml"), 1, "x.npy", "it is a file")
    with Cluster(build, {}) as cluster:
        with open(cluster.path("gateway.yaml"), encoding="utf-8") as file:
            cluster.write("file.yaml", file.read().replace("state/gateway", "job.yaml"))
        for command in (("run", "file.yaml"), ("enroll", "file.yaml", "board-1")):
            expect(cluster.command(cluster.aggregator, *command, check=False), 1, "job.yaml", "it is a file")


@scenario
def init_writes_to_standard_output(build):
    for name in ("cairn-node", "cairn-aggregator"):
        with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
            said = expect(subprocess.run([os.path.join(build, name), "init", "-"], cwd=folder, capture_output=True,
                                         text=True, timeout=60), 0)
            assert said.startswith("schema: cairn/site/v1\n"), said
            assert not os.listdir(folder), os.listdir(folder)


@scenario
def a_port_that_is_taken_is_said_without_contradiction(build):
    groups = {"lab": ["board-1", "board-2"]}
    with Cluster(build, groups, rounds=ENDLESS, quorum=1, form="1 s") as cluster:
        port = cluster.board_ports["board-1"]
        cluster.start("gateway")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", port))
            said = expect(cluster.command(cluster.node, "run", "board-1.yaml", check=False), 1,
                          f"group.listen 127.0.0.1:{port}: another program uses this UDP port")
            assert "exists already" not in said, said
        cluster.wait_for_line("gateway", f"board-1 cannot use group.listen 127.0.0.1:{port}: another program uses this UDP")
        with socket.socket() as other:  # a member that is alone for now uses no such port, and is told all the same
            other.bind(("127.0.0.1", port))
            other.listen()
            cluster.start("board-1")
            cluster.wait_for_line("board-1", f"group.listen 127.0.0.1:{port}: another program uses this TCP port")
            cluster.wait_for_line("board-1", "accepted")


@scenario
def a_port_of_the_gateway_that_is_taken_is_said_once(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        for kind, name in ((socket.SOCK_DGRAM, "UDP"), (socket.SOCK_STREAM, "TCP")):
            with socket.socket(socket.AF_INET, kind) as other:
                other.bind(("127.0.0.1", cluster.port))
                if kind == socket.SOCK_STREAM:
                    other.listen()
                said = expect(cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False), 1,
                              f"127.0.0.1:{cluster.port}: cannot listen: another program uses this {name} port")
                assert said.count("cannot listen") == 1 and "input or output" not in said, said


if __name__ == "__main__":
    scenario.main()
