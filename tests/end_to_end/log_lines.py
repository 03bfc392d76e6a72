"""The lines that the programs write to standard error: their time, or under journald their priority; as JSON.

    log_lines.py BIN
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bad_models import npy, plain, profile, write  # noqa: E402
from scenarios import Scenarios  # noqa: E402

LINE = r"(error|warn |info |debug) [a-z]+: .*"
scenario = Scenarios()


def train(build, *options, stderr=subprocess.PIPE, **environment):
    """Trains a round alone and returns the lines on standard error, if it is a pipe."""
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        npy(os.path.join(folder, "x.npy"), 8, 4, [0.25 * (i % 7) for i in range(32)])
        npy(os.path.join(folder, "y.npy"), 8, 2, [0.5] * 16)
        write(os.path.join(folder, "model.onnx"), plain())
        profile(folder)
        done = subprocess.run([os.path.join(build, "cairn-node"), "train", *options, "site.yaml"], cwd=folder, timeout=60,
                              stdout=subprocess.DEVNULL, stderr=stderr, env={**os.environ, **environment}, check=True)
        return (done.stderr or b"").decode().splitlines()


def each_is(pattern, lines):
    lines = [line for line in lines if not line.startswith("model: ")]  # of the command, not of the log
    assert lines, "nothing was logged"
    for line in lines:
        assert re.fullmatch(pattern, line), line


@scenario
def each_line_has_the_time(build):
    each_is(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z " + LINE, train(build))


@scenario
def a_board_whose_clock_was_never_set_writes_the_time_since_boot(build):
    shim = os.path.join(build, "..", "tests", "support", "clock_1970.so")
    each_is(r"\+\d+\.\d{3}s " + LINE, train(build, LD_PRELOAD=shim))


@scenario
def a_format_and_levels_of_areas_are_chosen_by_options(build):
    each_is("<[3467]>" + LINE, train(build, "--log-format", "journal"))
    areas = {line.split()[2] for line in train(build, "--log-level", "error,train=info")
             if not line.startswith("model: ")}
    assert areas <= {"train:"}, areas


@scenario
def journald_gets_priorities_and_no_time(build):
    ours, journald = socket.socketpair()
    with ours, journald:
        status = os.fstat(journald.fileno())
        train(build, stderr=journald.fileno(), JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}")
        journald.close()
        with ours.makefile() as file:
            each_is("<[3467]>" + LINE, file.read().splitlines())


@scenario
def a_file_beside_journald_gets_the_time(build):
    """A service whose standard error was led elsewhere still has JOURNAL_STREAM."""
    each_is(r"20\d\d-.*Z " + LINE, train(build, JOURNAL_STREAM="8:1234567"))


@scenario
def json_is_an_object_a_line(build):
    for option in (["--log-format", "json"], ["--log-format=json"]):
        lines = [json.loads(line) for line in train(build, *option) if not line.startswith("model: ")]
        assert lines, "nothing was logged"
        for line in lines:
            assert list(line) == ["time", "level", "area", "message"], line
    program = os.path.join(build, "cairn-aggregator")
    wrong = subprocess.run([program, "run", "--log-format", "xml", "x"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "'xml' is not text, json or journal" in wrong.stderr, wrong


if __name__ == "__main__":
    scenario.main()
