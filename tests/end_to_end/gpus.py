"""A board with two GPUs is two members of its group, looked after by one process.

    gpus.py BUILD [SCENARIO...]

The GPUs are those that the host plays, with the libraries of tests/support/cuda_host.h: none is needed, and none
is tested.
"""

import json
import os
import signal
import socket
import sys
import time

from cluster import ENDLESS, Cluster, same_model_everywhere, wait_until
from scenarios import Scenarios
from sets import losses

GROUP = {"lab": ["board-1.0", "board-1.1", "board-2"]}
SETTINGS = {"rounds": ENDLESS, "local_steps": 5, "quorum": 1, "form": "30 s", "rejoin": "20 s"}
scenario = Scenarios()


def join_board(cluster, gpus="[0, 1]"):
    """board-1's one profile, from those of its members; the files are those of the data set board-1."""
    with open(cluster.path("board-1.0.yaml")) as file:
        text = file.read()
    for word in ("name: ", "state: state/", "key: keys/"):
        text = text.replace(f"{word}board-1.0", f"{word}board-1")
    for part in ("images", "labels"):
        text = text.replace(f"board-1.0-{part}", f"board-1-{part}")
    cluster.write("board-1.yaml", f"{text}gpus: {gpus}\n")


def members(cluster):
    lines = cluster.command(cluster.node, "status", "--json", "board-1.yaml", check=False).stdout.splitlines()
    return [json.loads(line) for line in lines]


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def at_work(cluster, version):
    found = members(cluster)
    return len(found) == 2 and all(m["running"] and m["version"] >= version for m in found)


def start(cluster):
    with open(cluster.path("board-2.yaml"), "a") as file:
        file.write("device: cpu\n")
    cluster.start("gateway")
    cluster.start("board-2")
    cluster.start("board-1")


@scenario
def two_members_train_and_one_that_is_killed_comes_back(build):
    with Cluster(build, GROUP, **SETTINGS) as cluster:
        join_board(cluster)
        start(cluster)
        wait_until(lambda: at_work(cluster, 1), "both at work")
        found = members(cluster)
        assert [m["board"] for m in found] == ["board-1.0", "board-1.1"], found
        assert {m["group"]["size"] for m in found} == {3}, found
        os.kill(found[1]["pid"], signal.SIGKILL)
        cluster.wait_for_line("board-1", "board-1.1 was killed by signal 9: started again in 1 s")
        last = cluster.end_run()
        cluster.wait_for_end(150)
        cluster.replay()
        same_model_everywhere(cluster, ["board-1/gpu-0", "board-1/gpu-1", "board-2"])
        log = cluster.log("board-1")
        for name in ("board-1.0", "board-1.1"):
            assert f"{name} epoch: version {last}" in log, f"{name} did not get the last version"
        return losses(cluster)


@scenario
def both_end_with_their_parent(build):
    for number in signal.SIGTERM, signal.SIGKILL:
        with Cluster(build, GROUP, **SETTINGS) as cluster:
            join_board(cluster)
            start(cluster)
            wait_until(lambda: at_work(cluster, 1), "both at work")
            pids = [m["pid"] for m in members(cluster)]
            cluster.signal("board-1", number)
            cluster.processes["board-1"].wait(30)
            wait_until(lambda: not any(runs(pid) for pid in pids), "the end of both")


def signs(manager, seconds):
    """How often the manager is told within this time that all is well."""
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        manager.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            count += b"WATCHDOG=1" in manager.recv(256)
        except TimeoutError:
            break
    return count


@scenario
def a_child_that_stands_still_stops_the_watchdog(build):
    with Cluster(build, GROUP, **{**SETTINGS, "rounds": 1000}) as cluster, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(cluster.path("notify"))
        join_board(cluster)
        cluster.start("gateway")
        cluster.start("board-1", environment={"NOTIFY_SOCKET": cluster.path("notify")})
        wait_until(lambda: len(members(cluster)) == 2, "both processes")
        assert signs(manager, 3) >= 2, "the watchdog is not fed"
        pid = members(cluster)[1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            signs(manager, 1.5)
            assert signs(manager, 3) == 0, "the watchdog is fed although a child stands still"
        finally:  # one that stands still would outlive its parent
            os.kill(pid, signal.SIGCONT)
        assert signs(manager, 3) >= 2, "the watchdog is not fed again"
        cluster.signal("board-1", signal.SIGTERM)
        cluster.processes["board-1"].wait(30)


@scenario
def bad_lists_are_refused(build):
    with Cluster(build, GROUP, **SETTINGS) as cluster:
        for gpus, line in (("[0, 0]", "gpus: '0' is there twice"),
                           ("[0, -1]", "gpus: '-1'"),
                           ("[0, 1.5]", "gpus: '1.5' is no number of a GPU"),
                           ("[0, first]", "gpus: 'first'"),
                           ("[0, 2]", "gpus: 'board-1.2' is missing in group.members"),
                           ("[0, 1]\ndevice: cpu", "gpus: device is cpu; expected auto or cuda")):
            join_board(cluster, gpus)
            result = cluster.command(cluster.node, "run", "board-1.yaml", check=False)
            assert result.returncode == 3 and line in result.stderr, (gpus, result)
        join_board(cluster, "5")
        with open(cluster.path("board-1.yaml")) as file:
            alone = "".join(line for line in file if not line.startswith("group:"))
        cluster.write("board-1.yaml", alone.replace("keys/board-1.key", "keys/board-1.0.key")
                      .replace("name: board-1\n", "name: board-1.0\n"))
        result = cluster.command(cluster.node, "run", "board-1.yaml", check=False)
        assert result.returncode == 1, result
        assert "there is no GPU 5: this machine has 2" in result.stderr, result


@scenario
def giving_up_ends_all(build):
    with Cluster(build, GROUP, **SETTINGS) as cluster:
        join_board(cluster)
        result = cluster.command(cluster.node, "run", "board-1.yaml", "--give-up", "1", check=False)
        assert result.returncode == 1, result
        assert "the aggregator was not there; giving up" in result.stderr, result
        assert "started again" not in result.stderr, result


if __name__ == "__main__":
    libraries = os.path.join(os.path.abspath(sys.argv[1]), "..", "tests", "support", "cuda_host")
    os.environ.update(LD_LIBRARY_PATH=libraries, CAIRN_CUDA_HOST="two")
    scenario.main()
