"""Boards of unlike speed: who is slow gets less, every member's status says who and why, the result stays right.

    balance.py BUILD [SCENARIO...]

A board is made slow by stopping it three quarters of the time, in turns far shorter than a heartbeat. Why it
is slow it reads from a record of a board below --sysroot.
"""

import re
import signal
import time

from cluster import ENDLESS, Cluster, same_model_everywhere
from life import Board
from scenarios import Scenarios
from sets import losses, share_samples, status

TWO = {"lab": ["board-1", "board-2"]}
scenario = Scenarios()


def drag(cluster, board, enough, seconds=90):
    """Slows a board down until there is enough of it, or it has ended."""
    deadline = time.monotonic() + seconds
    while not enough() and cluster.processes[board].poll() is None:
        assert time.monotonic() < deadline, f"not in {seconds} s"
        cluster.signal(board, signal.SIGSTOP)
        time.sleep(0.03)
        cluster.signal(board, signal.SIGCONT)
        time.sleep(0.01)


def start(cluster, *options):
    cluster.start("gateway")
    cluster.start("board-1")
    cluster.start("board-2", *options)
    cluster.wait_for_line("board-1", "version 0: held-out")


def throttle(board):
    board.heat(85)
    board.put("sys/class/thermal/cooling_device1/cur_state", "3\n")


@scenario
def every_status_says_who_is_slow_and_why(build):
    with Cluster(build, TWO, rounds=ENDLESS, local_steps=30, quorum=1, mixed=True, batch="32, accumulate: 4",
                 extra="parallel: {balance: true}") as cluster:
        board = Board(cluster.path("root"), "jetson-orin-nano-8gb")
        throttle(board)
        with open(cluster.path("board-2.yaml"), "a") as file:
            file.write("thermal: {zone: tj-thermal}\n")
        start(cluster, "--sysroot", board.directory)
        seen = {}

        def told():
            for name in cluster.boards:
                group = status(cluster, name).get("group", {})
                if "throttled" in group.get("slowest_why", ""):
                    seen[name] = group
            return len(seen) == 2

        drag(cluster, "board-2", told)
        assert len(seen) == 2, f"of the boards only {sorted(seen)} said why"
        for group in seen.values():
            assert group["slowest"] == "board-2", group
            share = re.search(r"trains (\d) of 8 in a step: throttled at 85 C$", group["slowest_why"])
            assert share, group
        drag(cluster, "board-2", lambda: "micro-batches of a step" in cluster.log("board-1"))
        cluster.end_run()
        cluster.wait_for_end(120)
        same_model_everywhere(cluster)


@scenario
def a_board_without_micro_batches_changes_no_result(build):
    # No more steps: what sums in another order round otherwise grows, in 120 steps to some per cent of a small loss.
    shared = {"rounds": 2, "local_steps": 40, "quorum": 1, "up": "{mode: raw32}", "down": "{mode: raw32}",
              "held_out": "10 %, scope: shared", "form": "30 s"}
    with Cluster(build, {"lab": ["board-1"]}, **shared, batch="64, accumulate: 2") as cluster:
        share_samples(cluster)
        cluster.start_all()
        cluster.wait_for_end(120)
        alone = losses(cluster)
    with Cluster(build, TWO, **shared, batch="64, accumulate: 1", extra="parallel: {balance: true}") as cluster:
        share_samples(cluster)
        start(cluster)
        drag(cluster, "board-2", lambda: False)
        cluster.wait_for_end(120)
        same_model_everywhere(cluster)
        together, log = losses(cluster), cluster.log("board-1")
    assert re.search(r"a step: board-1 2 .*, board-2 0 ", log), "no step was divided so that a board gets none"
    assert len(alone) == len(together) == 3, (alone, together)
    for one, two in zip(alone, together):
        assert abs(one - two) < 2e-3 * one, (alone, together)


if __name__ == "__main__":
    scenario.main()
