"""Living on a board: pauses, their reasons in status and log, hooks, energy and wear, alone and in a run.

The board is a folder: a record of its /sys in tests/data/sysfs, laid out, and given to the node with
--sysroot. The test raises and lowers its temperature as the weather would.
"""

import json
import os
import signal
import subprocess
import sys
import time

from bad_input import write_train
from cluster import SOURCE, Cluster

HOOK = """\
#!/bin/sh
env | grep '^CAIRN_' >"{folder}/$CAIRN_EVENT.$$.new"
mv "{folder}/$CAIRN_EVENT.$$.new" "{folder}/$CAIRN_EVENT.$CAIRN_ROUND.$CAIRN_VERSION.$$"
"""


class Board:
    """A folder with the files of a recorded board."""

    def __init__(self, directory, record):
        self.directory = directory
        with open(os.path.join(SOURCE, "tests", "data", "sysfs", f"{record}.txt")) as file:
            for line in file:
                if not line.startswith("#") and line.strip():
                    path, content = line.rstrip("\n").split("\t")
                    self.put(path, content.replace("\\0", "\0") + "\n")
        self.put("proc/self/io", "write_bytes: 0\n")

    def put(self, path, text):
        path = os.path.join(self.directory, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w") as file:  # whole at once, as the kernel gives it
            file.write(text)
        os.rename(path + ".new", path)

    def heat(self, celsius):
        for zone in sorted(os.listdir(os.path.join(self.directory, "sys/class/thermal"))):
            with open(os.path.join(self.directory, "sys/class/thermal", zone, "type")) as file:
                if file.read().strip() == "tj-thermal":
                    self.put(f"sys/class/thermal/{zone}/temp", f"{celsius * 1000}\n")


def until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.05)


def status(cluster, profile):
    result = cluster.command(cluster.node, "status", "--json", profile, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else {}


def add_hooks(cluster, profile, folder, extra="", limit="5 s"):
    os.mkdir(cluster.path(folder))
    cluster.write(f"{folder}/hook", HOOK.format(folder=cluster.path(folder)))
    os.chmod(cluster.path(folder, "hook"), 0o700)
    with open(cluster.path(profile), "a") as file:
        hook = cluster.path(folder, "hook")
        file.write(f"hooks: {{on_round: {hook}, on_version: {hook}, on_pause: {hook}, limit: {limit}}}\n{extra}")


def told(cluster, folder, event):
    """The environments of the hooks of an event, oldest round first."""
    found = []
    for name in os.listdir(cluster.path(folder)):
        words = name.split(".")
        if words[0] == event and len(words) == 4:
            with open(cluster.path(folder, name)) as file:
                found.append(dict(line.rstrip("\n").split("=", 1) for line in file))
    return sorted(found, key=lambda facts: (int(facts["CAIRN_ROUND"]), int(facts["CAIRN_VERSION"])))


def train(cluster, name, board, *options):
    log = open(cluster.path("logs", f"{name}.log"), "ab")
    cluster.processes[name] = subprocess.Popen(
        [cluster.node, "train", "--sysroot", board.directory, *options, f"{name}.yaml"],
        cwd=cluster.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    log.close()


def write_alone(cluster, name, extra):
    write_train(cluster, f"state/{name}")
    os.rename(cluster.path("alone.yaml"), cluster.path(f"{name}.yaml"))
    with open(cluster.path(f"{name}.yaml"), "a") as file:
        file.write(extra)


def a_group_goes_on_while_a_board_cools(build):
    """In a run: heat pauses one of two boards, says why, and the end of it takes the board back in."""
    # More rounds than any machine does in the time: the test ends the run.
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=100000, quorum=1, local_steps=20) as cluster:
        board = Board(cluster.path("root"), "jetson-orin-nano-8gb")
        add_hooks(cluster, "board-2.yaml", "told", "thermal: {zone: tj-thermal, pause_above: 80 C}\n"
                  "power: {sensor: VDD_IN}\n")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--sysroot", board.directory)
        until("rounds in the group of two", lambda: status(cluster, "board-2.yaml").get("version", 0) >= 3)
        seen = status(cluster, "board-2.yaml")
        assert seen["running"] and seen["group"]["size"] == 2 and seen["group"]["leader"] == "board-1", seen
        assert seen["group"]["backend"] == "tcp" and seen["group"]["encrypted"] is True, seen
        assert seen["link"]["state"] == "up" and seen["memory"]["planned"] > 0, seen

        board.heat(85)
        until("a pause", lambda: status(cluster, "board-2.yaml").get("pause") == "too hot")
        cluster.wait_for_line("board-2", "training pauses: too hot (tj-thermal at 85.0 C)")
        before = status(cluster, "board-2.yaml")
        text = cluster.command(cluster.node, "status", "board-2.yaml").stdout
        assert "too hot, paused for" in text and "85.0 C (tj-thermal)" in text, text
        until("the other goes on", lambda: status(cluster, "board-1.yaml")["version"] >= before["version"] + 3)
        assert status(cluster, "board-1.yaml")["group"]["size"] == 1
        assert status(cluster, "board-2.yaml")["version"] == before["version"]
        board.heat(75)  # between the limits: still too warm
        time.sleep(1.5)
        assert status(cluster, "board-2.yaml")["pause"] == "too hot"

        board.heat(70)
        cluster.wait_for_line("board-2", "training goes on (tj-thermal at 70.0 C)")
        until("both in the group", lambda: status(cluster, "board-2.yaml")["group"].get("size") == 2)
        until("new versions", lambda: status(cluster, "board-2.yaml")["version"] > before["version"] + 3)
        assert status(cluster, "board-2.yaml")["pause"] == ""

        until("hooks of the end", lambda: told(cluster, "told", "resume"))
        pause, resume = told(cluster, "told", "pause")[0], told(cluster, "told", "resume")[0]
        assert pause["CAIRN_REASON"] == "too hot" and pause["CAIRN_TEMPERATURE_C"] == "85.0", pause
        assert resume["CAIRN_REASON"] == "" and resume["CAIRN_TEMPERATURE_C"] == "70.0", resume
        versions = told(cluster, "told", "version")
        assert len({facts["CAIRN_VERSION"] for facts in versions}) == len(versions) >= 3, versions
        # Of the version with which a board comes back it knows loss and accuracy only.
        last = [facts for facts in versions if "CAIRN_F1" in facts][-1]
        assert last["CAIRN_BOARD"] == "board-2" and float(last["CAIRN_ACCURACY"]) > 0.2, last
        assert 0 < float(last["CAIRN_F1"]) <= 1 and 0 < float(last["CAIRN_TOP5"]) <= 1, last
        rounds = told(cluster, "told", "round")
        # Of a round of a few milliseconds it is 0.0 J.
        assert max(float(facts.get("CAIRN_LAST_ROUND_J", 0)) for facts in rounds) > 0, rounds
        assert rounds[-1]["CAIRN_POWER_W"] == "10.0", rounds[-1]
        assert cluster.log("board-2").count(" J\n") >= 3, "the log has no energy"
        for name in ("board-1", "board-2", "gateway"):
            cluster.processes[name].terminate()
        print(f"paused at version {before['version']}, back in the group; {len(versions)} versions told")


def each_rule_pauses_a_board_alone(build):
    """All rules of the profile hold in train, too, and each says its reason."""
    with Cluster(build, {}, rounds=100000) as cluster:
        hour = (time.localtime().tm_hour + 3) % 24
        rules = {
            "heat": ("thermal: {zone: tj-thermal, pause_above: 50 C}", "too hot"),
            "power": ("power: {sensor: VDD_IN, budget: 9 W, enforce: true}", "above the power budget"),
            "window": (f"window: {{from: {hour} h, to: {(hour + 1) % 24} h}}", "outside the hours for training"),
            "busy": ("idle: {others_max: 10 %}", "other programs need the processors"),
            "wear": ("storage: {wear_budget: 100 MiB}", "enough was written to the disk for today"),
        }
        boards = {}
        for name, (rule, _) in rules.items():
            write_alone(cluster, name, rule + "\n")
            boards[name] = Board(cluster.path("roots", name), "jetson-orin-nano-8gb")
        for name in rules:
            train(cluster, name, boards[name])
        ticks = 0
        for name, (_, reason) in rules.items():
            until(f"{name} trains", lambda: status(cluster, f"{name}.yaml"))
        boards["wear"].put("proc/self/io", f"write_bytes: {101 << 20}\n")

        def all_pause():
            nonlocal ticks
            ticks += 100  # what others use of two processors
            boards["busy"].put("proc/stat", f"cpu  {ticks} 0 0 {ticks} 0 0 0 0 0 0\n")
            boards["busy"].put("proc/self/stat", "7 (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0\n")
            time.sleep(0.3)
            return all(status(cluster, f"{name}.yaml").get("pause") == reason
                       for name, (_, reason) in rules.items())

        until("a pause of each", all_pause, 40)
        for name, (_, reason) in rules.items():
            cluster.wait_for_line(name, f"training pauses: {reason}")
            number = status(cluster, f"{name}.yaml")["round"]
            time.sleep(0.3)
            later = status(cluster, f"{name}.yaml")
            assert later["round"] == number, f"{name} trains in its pause: {number}, {later}"
        boards["heat"].heat(30)
        cluster.wait_for_line("heat", "training goes on")
        number = status(cluster, "heat.yaml")["round"]["number"]
        until("rounds after the pause", lambda: status(cluster, "heat.yaml")["round"]["number"] > number)

        # The day of wear goes on after a restart, which has a counter of its own.
        cluster.processes["wear"].terminate()
        assert cluster.processes["wear"].wait(20) == 130, "a pause cannot be stopped"
        boards["wear"].put("proc/self/io", "write_bytes: 0\n")
        train(cluster, "wear", boards["wear"])
        cluster.wait_for_line("wear", "training pauses: enough was written", count=2, timeout=60)
        for name in rules:
            cluster.processes[name].terminate()
        print("each of", ", ".join(rules), "paused with its reason")


def a_hook_that_hangs_delays_nothing(build):
    with Cluster(build, {}, rounds=100000, local_steps=40) as cluster:

        def running(name):
            """Hooks of a board that have not ended."""
            try:
                with open(cluster.path(f"told-{name}", "pids")) as file:
                    return [int(pid) for pid in file if os.path.exists(f"/proc/{pid.strip()}")]
            except FileNotFoundError:
                return []

        def begin(name, limit):
            write_alone(cluster, name, "")
            board = Board(cluster.path(f"root-{name}"), "jetson-orin-nano-8gb")
            add_hooks(cluster, f"{name}.yaml", f"told-{name}", limit=limit)
            folder = cluster.path(f"told-{name}")
            cluster.write(f"told-{name}/hook", f'#!/bin/sh\necho $$ >>"{folder}/pids"\nwhile [ -d "{folder}" ]; do sleep 1; done\n')
            train(cluster, name, board)
            until("a hook", lambda: running(name))

        def end(name):
            cluster.processes[name].terminate()
            assert cluster.processes[name].wait(20) == 130, f"{name}: a hook keeps the node"

        begin("patient", "1 h")
        hanging = set(running("patient"))
        before = status(cluster, "patient.yaml").get("version", 0)
        until("versions while a hook hangs", lambda: status(cluster, "patient.yaml").get("version", 0) > before + 1)
        assert hanging <= set(running("patient")), "a hook was ended before its time"
        end("patient")
        for pid in running("patient"):
            os.kill(pid, signal.SIGKILL)

        begin("short", "1 s")
        cluster.wait_for_line("short", "hook was ended after 1 s", timeout=60)
        end("short")
        until("all hooks are ended", lambda: not running("short"))
        print("a hook that hangs delays nothing, and is ended with its time")


def main(build):
    a_group_goes_on_while_a_board_cools(build)
    each_rule_pauses_a_board_alone(build)
    a_hook_that_hangs_delays_nothing(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
