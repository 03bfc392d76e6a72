"""What a terminal shows while a run goes on: progress, time left, curves; and what others get in its place.

    screen.py BIN [SCENARIO...]
"""

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading

from bad_models import expect
from cluster import ENDLESS, Cluster
from scenarios import Scenarios
from terminal import Alone

COLUMNS = 80
ROWS = 6  # of a terminal with keys: fewer than the view has
PATIENCE = 120  # seconds
CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
COLORS = re.compile(r"\x1b\[[0-9;]+m")
scenario = Scenarios()


class Screen:
    """A program on a terminal of COLUMNS, and all that it wrote there; with log=True its log, too."""

    def __init__(self, folder, *command, log=False, **environment):
        known = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **environment}
        self.ours, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, COLUMNS, 0, 0))
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal,
                                        stderr=terminal if log else subprocess.DEVNULL, env={**os.environ, **known})
        os.close(terminal)
        self.said = ""

    def read(self):
        """Reads a piece; False at the end."""
        try:
            piece = os.read(self.ours, 4096)
        except OSError:  # the program's end of it is closed
            piece = b""
        self.said += piece.decode(errors="replace")
        return bool(piece)

    def read_until(self, pattern):
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        while not re.search(pattern, self.said):
            assert self.read(), f"'{pattern}' was not shown:\n{self.said[-4000:]}"
        watch.cancel()

    def end(self, number=None):
        """Its exit code, after a signal if one is given."""
        if number:
            self.process.send_signal(number)
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        while self.read():
            pass
        os.close(self.ours)
        code = self.process.wait()
        watch.cancel()
        return code

    def fits(self):
        for line in re.split(r"[\r\n]+", CODES.sub("", self.said)):
            assert len(line) <= COLUMNS, f"{len(line)} columns: '{line}'"


def shown(folder, *command, **environment):
    screen = Screen(folder, *command, **environment)
    assert screen.end() == 0, screen.said
    screen.fits()
    return screen.said


@scenario
def a_run_that_is_over_is_drawn_once(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=3, quorum=1) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        watch = (cluster.directory, cluster.aggregator, "status", "--watch", "gateway.yaml")
        said = shown(*watch)
        assert said.startswith("\x1b[H\x1b[J") and COLORS.search(said), said
        assert re.search(r"accuracy  [▁▂▃▄▅▆▇█]{4}  0\.\d+ to 0\.\d+", said), said
        assert "[########################] version 3 of 3" in said and "all rounds are done" in said, said
        plain = shown(*watch, LC_ALL="C", NO_COLOR="1")
        assert not COLORS.search(plain) and "\x1b[H" in plain, plain
        assert re.search(r"accuracy  [_.:=+*#-]{4}  ", plain), plain
        assert "\x1b" not in shown(*watch, TERM="dumb")
        piped = cluster.command(cluster.aggregator, "status", "--watch", "gateway.yaml").stdout
        assert "all rounds are done" in piped and "\x1b" not in piped, piped
        expect(cluster.command(cluster.aggregator, "status", "--watch", "--json", "gateway.yaml", check=False), 2,
               "--watch and --json do not go together")


@scenario
def the_view_of_a_run_shows_time_left_and_trouble_until_ctrl_c(build):
    with Cluster(build, {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}, rounds=ENDLESS, rejoin="2 s") as cluster:
        cluster.start_all()
        cluster.wait_for_line("gateway", "\n      2 ")
        screen = Screen(cluster.directory, cluster.aggregator, "status", "--watch", "gateway.yaml")
        screen.read_until(r"version \d+ of 1000000, about \d+ (min|h|days) left")
        screen.read_until(r"boards    3, 0 with trouble")
        cluster.kill("board-2")
        screen.read_until(r"\x1b\[33m  board-2 +lab-a +missing in its group")
        cluster.command(cluster.aggregator, "pause", "gateway.yaml")
        screen.read_until(r"\x1b\[33m[^\r\n]*: paused until `resume`")
        assert screen.end(signal.SIGINT) == 0, screen.said
        screen.fits()
        assert cluster.processes["gateway"].poll() is None, "the run went on"
        head = subprocess.run(["sh", "-c", f"{cluster.aggregator} status --watch gateway.yaml | head -1"],
                              cwd=cluster.directory, capture_output=True, text=True, timeout=60)
        assert head.stdout.count("\n") == 1, head  # and the view ended, though the run goes on


class Keyboard(Screen):
    """A program on a terminal of ROWS that has keys, too."""

    def __init__(self, folder, *command):
        self.ours, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.modes = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"})
        self.kept = terminal  # so that its modes can be read after the end
        self.said = ""

    def press(self, keys):
        self.said = ""
        os.write(self.ours, keys)

    def is_restored(self):
        return termios.tcgetattr(self.ours) == self.modes

    def leave(self, keys=b"", number=None):
        """Ends the program, which must leave the terminal as it was."""
        assert not self.is_restored(), "keys are not taken"
        if number:
            self.process.send_signal(number)
        else:
            self.press(keys)
        code = self.process.wait(PATIENCE)
        assert self.is_restored(), f"after {keys}, {number}: {termios.tcgetattr(self.ours)}"
        self.fits()
        os.close(self.kept)
        os.close(self.ours)
        return code


@scenario
def keys_end_pause_and_scroll_the_view_and_leave_the_terminal_as_it_was(build):
    boards = [f"board-{number}" for number in range(1, 13)]
    with Cluster(build, {f"lab-{board}": [board] for board in boards}, rounds=ENDLESS, quorum=1) as cluster:
        for board in boards[1:]:
            cluster.write(f"{board}.yaml", "")  # these never come
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.wait_for_line("gateway", "\n      2 ")
        watch = (cluster.directory, cluster.aggregator, "status", "--watch", "gateway.yaml")
        screen = Keyboard(*watch)
        screen.read_until(r"q ends this view, not the run; space pauses it")
        screen.press(b" ")
        screen.read_until(r"PAUSED, space goes on")
        version = int(re.findall(r"version (\d+) of", screen.said)[-1])
        cluster.wait_for_version(cluster.version() + 2)
        screen.press(b"p")
        screen.read_until(r"space pauses it")
        screen.said = ""
        screen.read_until(r"version \d+ of")
        assert int(re.findall(r"version (\d+) of", screen.said)[-1]) > version, screen.said
        screen.press(b"j\x1b[B")
        screen.read_until(r"j k scroll, 3-\d+ of \d+")
        assert "version" not in screen.said.split("\x1b[H")[-1], "it was not scrolled"
        screen.press(b"\x1b[5~")
        screen.read_until(r"j k scroll, 1-\d+ of \d+")
        assert screen.leave(b"q") == 0
        for keys, number in ((b"\x03", None), (b"\x1c", None), (b"", signal.SIGTERM), (b"", signal.SIGHUP)):
            screen = Keyboard(*watch)
            screen.read_until(r"q ends this view")
            assert screen.leave(keys, number) == 0, (keys, number)
        assert cluster.processes["gateway"].poll() is None, "the run went on"


@scenario
def the_gateway_says_how_long_the_run_takes(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start("board-1")
        screen = Screen(cluster.directory, cluster.aggregator, "run", "gateway.yaml")
        screen.read_until(r"round \d+ of 1000000: .*about \d+ (min|h|days) left\r")
        assert screen.end(signal.SIGTERM) == 130, screen.said
        screen.fits()
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "\n  ")  # a row of the table
        cluster.end_run()
        cluster.wait_for_end(120)
        assert "\x1b" not in cluster.log("gateway") and " left" not in cluster.log("gateway")


@scenario
def a_board_of_a_run_says_how_far_it_is_and_its_log_stays_whole(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start("gateway")
        screen = Screen(cluster.directory, cluster.node, "run", "board-1.yaml", "--log-level", "debug", log=True)
        screen.read_until(r"\x1b\[Kround \d+ of 1000000, step \d+ of \d+: [\w' ]+; about \d+ (min|h|days) left\r")
        screen.read_until(r"(?s) left\r.*\n.* left\r.*\n")
        assert screen.end(signal.SIGTERM) == 130, screen.said
        drawn = re.findall(r"\x1b\[K([^\x1b\r\n]+)\r(?!\n)", screen.said)
        assert drawn and all(len(line) < COLUMNS for line in drawn), drawn
        first = screen.said.index(drawn[0])
        ends = re.findall(r"(?:^|[\r\n])([^\r\n]+)\r\n", screen.said[first:])
        assert ends and all(line.startswith("\x1b[K") for line in ends), ends
        assert not screen.said.endswith("left\r"), screen.said[-200:]
        cluster.start("board-1")
        cluster.end_run()
        cluster.wait_for_end(120)
        assert "\x1b" not in cluster.log("board-1") and " left" not in cluster.log("board-1")


@scenario
def training_alone_says_how_long_it_takes(build):
    with Alone(build) as alone:
        alone.edit("local_steps: 5", "local_steps: 1000000")
        screen = Screen(alone.folder.name, alone.node, "train", "site.yaml")
        screen.read_until(r"\x1b\[Kround 1 of \d+, step \d+ of 1000000; about \d+ \w+ left\r")
        assert screen.end(signal.SIGINT) == 130, screen.said
        screen.fits()


if __name__ == "__main__":
    scenario.main()
