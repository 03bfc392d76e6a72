"""What the gateway says of a member that its group misses.

    missing.py BUILD [SCENARIO...]
"""

import json
import re
import time

from cluster import ENDLESS, Cluster, wait_until
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
HASTY = {"rounds": ENDLESS, "local_steps": 20, "rejoin": "100 ms", "form": "20 s", "quorum": 1}

scenario = Scenarios()


def told(cluster, board):
    """The gateway's line on a board."""
    lines = cluster.command(cluster.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()
    return next(line for line in map(json.loads, lines) if line.get("board") == board)


def wait_until_told(cluster, board, words):
    wait_until(lambda: words in told(cluster, board)["status"], f"status says '{words}'")


def rows(cluster):
    """version -> boards, of the gateway's table."""
    found = re.findall(r"^ +(\d+) +[\d.-]+ +[\d.e+-]+ +(\d+) +\d+ .* s$", cluster.log("gateway"), re.MULTILINE)
    return {int(version): int(boards) for version, boards in found}


@scenario
def a_dead_member_is_named_and_not_counted(build):
    with Cluster(build, TWO, **HASTY) as cluster:
        cluster.start_all()
        cluster.wait_for_view("board-1", 2)
        cluster.wait_for_line("board-1", ": update of", count=2)
        cluster.kill("board-2")
        cluster.wait_for_line("gateway", "board-2 of group lab is missing since")
        wait_until_told(cluster, "board-2", "missing in its group since")
        cluster.start("board-2")
        cluster.wait_for_line("gateway", "board-2 is back in group lab")
        counts = {boards for version, boards in rows(cluster).items() if version}
        assert counts == {1, 2}, f"the table counted {counts} boards"
        assert "missing" not in told(cluster, "board-1")["status"]


@scenario
def a_lone_board_that_died_falls_silent(build):
    """Rounds that are extended are told to its session, which is still there."""
    with Cluster(build, {"a": ["board-1"], "b": ["board-2"]}, **HASTY | {"quorum": 2, "deadline": "3 s"}) as cluster:
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.kill("board-2")
        begin = time.monotonic()
        wait_until(lambda: cluster.log("gateway").count("deadline") >= 3, "three deadlines")
        silent, killed = told(cluster, "board-2")["silent_s"], time.monotonic() - begin
        assert silent >= killed - 2, f"dead for {killed:.0f} s, but silent for {silent} s"
        assert told(cluster, "board-1")["silent_s"] <= 10


if __name__ == "__main__":
    scenario.main()
