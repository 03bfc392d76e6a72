"""cairn-flash rollout against doubles of ssh and of the gateway: waves, one board of a group at a time, the stop after
failures, and that it goes on where it was.

usage: rollout.py BIN [CASE...]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

# Stands for ssh and for cairn-aggregator, by its name. The fleet is a file; each look at the status is a tick.
DOUBLE = """\
#!/usr/bin/python3
import fcntl, hashlib, json, os, sys, time
TRICK = b"\\x1b]0;owned\\x07\\x1b[31mred \\xc2\\x9b2J\\xff end\\n"
folder = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
lock = open(os.path.join(folder, "lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
path = os.path.join(folder, "fleet.json")
fleet = json.load(open(path))

def leave(code):
    json.dump(fleet, open(path + ".new", "w"))
    os.rename(path + ".new", path)
    sys.exit(code)

if os.path.basename(sys.argv[0]) == "cairn-aggregator":
    if fleet["installs"] and fleet.get("looks_away", 0) > 0:
        fleet["looks_away"] -= 1
        print("error: restarting", file=sys.stderr)
        leave(1)
    if fleet.get("away"):
        print("error: nobody there", file=sys.stderr)
        leave(1)
    print(json.dumps({"job": "digits"}))
    print("no JSON")
    for name, board in fleet["boards"].items():
        if board.get("ticks"):
            board["ticks"] -= 1
            if not board["ticks"]:
                version, result = board.pop("new"), board["ends"]
                board["update"], board["update_version"] = result, version
                if result == "good":
                    board["slot_version"] = version
        print(json.dumps({"board": name, **{key: board[key] for key in ("group", "revoked", "slot_version", "update", "update_version")
                                             if key in board}}))
    leave(0)
options, host, script = sys.argv[1:-2], sys.argv[-2], sys.argv[-1]
assert "BatchMode=yes" in options and any(option.startswith("ServerAliveInterval=") for option in options), options
board = fleet["boards"][host.split("@")[1]]
if board["ends"] == "unreachable":
    print("ssh: no route to host", file=sys.stderr)
    leave(255)
def hang():
    # As a machine that somebody has taken: it never ends, and says things without end.
    fcntl.flock(lock, fcntl.LOCK_UN)
    with open(os.path.join(folder, "hanging"), "a") as file:
        print(os.getpid(), file=file)
    if os.fork() == 0:
        with open(os.path.join(folder, "hanging"), "a") as file:
            print(os.getpid(), file=file)
    while True:
        os.write(2, b"x" * 4096)
        os.write(1, b"y" * 4096)
        time.sleep(0.02)
if board["ends"] == "hangs in sending":
    hang()
if "cat >" in script:
    content = sys.stdin.buffer.read()
    if board["ends"] == "writes to the terminal":
        os.write(2, TRICK)
        leave(1)
    board["bundle"] = hashlib.sha256(content if board["ends"] != "damaged" else content + b"x").hexdigest()
    print(board["bundle"], " bundle.raucb")
    leave(0)
assert "cairn-update install" in script, script
fleet["installs"].append(sorted([host.split("@")[1]] + [name for name, other in fleet["boards"].items() if other.get("ticks")]))
if board["ends"] == "hangs in installing":
    hang()
if board["ends"] == "refuses and writes":
    os.write(2, b"first line\\n" + TRICK)
    leave(1)
if board["ends"] == "refuses":
    print("it has not the space", file=sys.stderr)
    leave(1)
if board["ends"] != "silent":
    board.update(new=fleet["version"], ticks=fleet.get("ticks", 3))
leave(255 if board["ends"] == "good" else 0)
"""


class Fleet:
    def __init__(self, build, groups, **ends):
        self.build, self.folder = build, tempfile.mkdtemp(prefix="cairn-rollout-")
        os.mkdir(self.path("bin"))
        for name in ("ssh", "cairn-aggregator"):
            self.write(f"bin/{name}", DOUBLE)
            os.chmod(self.path("bin", name), 0o755)
        self.write("fleet.raucb", "an update " * 1000)
        self.names = [name for names in groups.values() for name in names]
        self.save({"version": "1.4.0", "installs": [], "boards": {
            name: {"group": group, "slot_version": "1.3.0", "update": "good", "update_version": "1.3.0", "ends": ends.get(name, "good")}
            for group, names in groups.items() for name in names}})
        self.write("hall.txt", "".join(f"{name} root@{name}\n" for name in self.names))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def load(self):
        with open(self.path("fleet.json")) as file:
            return json.load(file)

    def save(self, fleet):
        self.write("fleet.json", json.dumps(fleet))

    def start(self, *more, version="1.4.0"):
        return subprocess.Popen([os.path.join(self.build, "cairn-flash"), "rollout", "hall.txt", "--bundle", "fleet.raucb", "--version",
                                 version, "--gateway", "gateway.yaml", *more], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace",
                                env={**os.environ, "PATH": f"{self.path('bin')}:{os.environ['PATH']}"})

    def finish(self, process, code=0):
        try:
            self.said = "".join(process.communicate(timeout=120))
        finally:
            process.kill()
        assert process.returncode == code, f"{process.returncode}, wanted {code}\n{self.said}"
        return self.said

    def run(self, *more, code=0, version="1.4.0"):
        return self.finish(self.start(*more, version=version), code)

    def hanging(self):
        """The processes of boards that hang which still run."""
        with open(self.path("hanging")) as file:
            return [pid for pid in file.read().split() if is_running(pid)]

    def versions(self):
        return {name: board["slot_version"] for name, board in self.load()["boards"].items()}


def all_boards_are_updated_one_of_a_group_at_a_time(build):
    fleet = Fleet(build, {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"], "c": ["c1"]})
    said = fleet.run("--wave", "5")
    assert "6 of 6 boards have version 1.4.0" in said and "c1 runs version 1.4.0" in said, said
    assert set(fleet.versions().values()) == {"1.4.0"}
    installs = fleet.load()["installs"]
    assert max(len(together) for together in installs) == 3, f"a wave is not updated together: {installs}"
    for together in installs:
        assert len({name[0] for name in together}) == len(together), f"two of a group at a time: {together}"
    assert len({board["bundle"] for board in fleet.load()["boards"].values()}) == 1
    before = len(installs)
    assert "6 of 6 boards" in fleet.run("--wave", "5") and len(fleet.load()["installs"]) == before, "done again"


def without_options_one_board_is_updated_at_a_time(build):
    fleet = Fleet(build, {"a": ["a1"], "b": ["b1"], "c": ["c1"]})
    fleet.run()
    assert fleet.load()["installs"] == [["a1"], ["b1"], ["c1"]], fleet.load()["installs"]


def failures_stop_it_and_it_goes_on_later(build):
    fleet = Fleet(build, {"a": ["a1"], "b": ["b1"], "c": ["c1"], "d": ["d1"]}, b1="rolled-back")
    said = fleet.run(code=1)
    assert "b1: update to 1.4.0: rolled-back" in said and "stopped after 1 failures; 2 boards are as they were" in said, said
    assert fleet.versions() == {"a1": "1.4.0", "b1": "1.3.0", "c1": "1.3.0", "d1": "1.3.0"}
    said = fleet.run("--stop-after", "2", code=1, *("--timeout", "6 s"))  # b1 still fails, as it did
    assert "3 of 4 boards have version 1.4.0" in said, said
    state = fleet.load()
    state["boards"]["b1"]["ends"] = "good"
    fleet.save(state)
    assert "4 of 4 boards" in fleet.run()


def a_gateway_that_is_away_for_a_while_ends_no_wave(build):
    fleet = Fleet(build, {"a": ["a1"], "b": ["b1"]})
    state = fleet.load()
    state["looks_away"] = 2
    fleet.save(state)
    assert "2 of 2 boards" in fleet.run(), fleet.said
    assert fleet.said.count("the aggregator's status") == 1, fleet.said
    assert fleet.load()["looks_away"] == 0
    state.update(looks_away=1000)
    fleet.save(state)
    assert "the aggregator's status" in fleet.run("--timeout", "3 s", code=1), fleet.said


def each_kind_of_failure_is_said(build):
    wanted = {"unreachable": "no route to host", "damaged": "reads back differently there", "refuses": "cairn-update install has failed there",
              "silent": "has not said in time", "interrupted": "update to 1.4.0: interrupted", "failed": "update to 1.4.0: failed"}
    for kind, words in wanted.items():
        fleet = Fleet(build, {"a": ["a1"], "b": ["b1"]}, a1=kind)
        said = fleet.run("--timeout", "5 s", code=1)
        assert words in said and "0 of 2 boards" in said, f"{kind}: {said}"
        assert fleet.versions()["b1"] == "1.3.0", f"{kind}: the next wave began"


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def a_board_that_hangs_holds_up_no_other(build):
    for kind, words in {"hangs in sending": "b1: it has not taken the bundle in time",
                        "hangs in installing": "b1: it has not said in time that the new system works"}.items():
        fleet = Fleet(build, {"a": ["a1"], "b": ["b1"], "c": ["c1"], "d": ["d1"]}, b1=kind)
        fleet.save({**fleet.load(), "ticks": 1})  # the gateway is asked once more when the time is over
        said = fleet.run("--timeout", "4 s", "--wave", "3", "--stop-after", "2", code=1)
        assert words in said and "3 of 4 boards have version 1.4.0" in said, f"{kind}: {said}"
        assert fleet.versions() == {"a1": "1.4.0", "b1": "1.3.0", "c1": "1.4.0", "d1": "1.4.0"}, kind
        assert not fleet.hanging(), f"{kind}: its ssh still runs"


def ctrl_c_ends_what_hangs(build):
    fleet = Fleet(build, {"b": ["b1"]}, b1="hangs in installing")
    process = fleet.start()
    while not os.path.exists(fleet.path("hanging")) or not fleet.hanging():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    fleet.finish(process, 130)
    assert not fleet.hanging(), "ssh still runs"


def what_a_board_says_does_not_reach_the_terminal_as_it_is(build):
    for kind, words in {"writes to the terminal": "b1: ?]0;owned??[31mred ?2J? end",
                        "refuses and writes": "cairn-update install has failed there: ?]0;owned??[31mred ?2J? end",
                        "refuses": "cairn-update install has failed there: it has not the space"}.items():
        fleet = Fleet(build, {"b": ["b1"]}, b1=kind)
        assert words in fleet.run("--timeout", "4 s", code=1), f"{kind}: {fleet.said}"
        assert "\x1b" not in fleet.said and "\x9b" not in fleet.said and "first line" not in fleet.said, f"{kind}: {fleet.said}"


def wrong_orders_change_nothing(build):
    fleet = Fleet(build, {"a": ["a1"]})
    fleet.run("--wave", "0", code=2)
    fleet.run("--wave", "65", code=2)
    fleet.run("--stop-after", "x", code=2)
    fleet.run("--timeout", "5", code=2)
    fleet.run(code=2, version="1 4")
    fleet.write("hall.txt", "a1 -oProxyCommand=reboot\n")
    assert "no USER@HOST" in fleet.run(code=2), fleet.said
    fleet.write("hall.txt", "a1 root@$(reboot)\n")
    assert "no USER@HOST" in fleet.run(code=2), fleet.said
    fleet.write("hall.txt", "a1 root@a1\nz9 root@a1\n")
    assert "line 2: the gateway does not know z9" in fleet.run(code=1)
    state = fleet.load()
    state["boards"]["a1"]["revoked"] = True
    fleet.save(state)
    fleet.write("hall.txt", "a1 root@a1\n")
    assert "does not know a1" in fleet.run(code=1)
    state["away"] = True
    fleet.save(state)
    assert "the aggregator's status" in fleet.run(code=1)
    os.remove(fleet.path("fleet.raucb"))
    assert "fleet.raucb cannot be read" in fleet.run(code=1)
    assert fleet.load()["installs"] == []


CASES = [all_boards_are_updated_one_of_a_group_at_a_time, without_options_one_board_is_updated_at_a_time,
         failures_stop_it_and_it_goes_on_later,
         a_gateway_that_is_away_for_a_while_ends_no_wave, each_kind_of_failure_is_said, a_board_that_hangs_holds_up_no_other, ctrl_c_ends_what_hangs,
         what_a_board_says_does_not_reach_the_terminal_as_it_is, wrong_orders_change_nothing]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="cairn-rollout-") as tempfile.tempdir:
        for case in CASES:
            if sys.argv[2:] and case.__name__ not in sys.argv[2:]:
                continue
            case(os.path.abspath(sys.argv[1]))
            print(case.__name__, flush=True)
