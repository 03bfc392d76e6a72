"""A board rests between two rounds while its system is updated, and the other of its group goes on.

    hold.py BUILD [SCENARIO...]
"""

import os

from cluster import Cluster
from life import Board, status, until
from scenarios import Scenarios

RESTS = "the system is updated"

scenario = Scenarios()


def ask(board):
    board.put("run/cairn-update/hold", "")


def release(board):
    os.remove(os.path.join(board.directory, "run/cairn-update/hold"))


@scenario
def a_board_of_a_group_finishes_its_round(build):
    """Rounds take seconds, so a pause at once would fall into one."""
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=100000, quorum=1, local_steps=400) as cluster:
        board = Board(cluster.path("root"), "qemu-virt-arm64")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--sysroot", board.directory)
        until("training in a group of two", lambda: status(cluster, "board-2.yaml").get("round", {}).get("phase") == "training" and
              status(cluster, "board-2.yaml")["group"].get("size") == 2 and status(cluster, "board-2.yaml")["version"] >= 1)
        ask(board)
        cluster.wait_for_line("board-2", "an update of the system waits for the end of the round")
        asked = status(cluster, "board-2.yaml")
        until("the rest", lambda: status(cluster, "board-2.yaml").get("pause") == RESTS)
        cluster.wait_for_line("board-2", "training pauses: " + RESTS)
        rests = status(cluster, "board-2.yaml")
        before = cluster.log("board-2").split("training pauses")[0]
        if asked["round"]["phase"] == "training":  # else it was asked between two rounds
            assert f"round {asked['round']['number']}: update of" in before, "it did not finish its round"
        until("the other goes on", lambda: status(cluster, "board-1.yaml")["version"] >= rests["version"] + 2)
        assert status(cluster, "board-2.yaml")["version"] == rests["version"], "it trains while it rests"
        until("the gateway's word of it", lambda: '"pause":"update"' in cluster.command(  # a board tells its health each 5 s at most
            cluster.aggregator, "status", "--json", "gateway.yaml").stdout.replace(" ", ""))
        release(board)
        cluster.wait_for_line("board-2", "training goes on")
        until("both in the group", lambda: status(cluster, "board-2.yaml")["group"].get("size") == 2)
        until("new versions", lambda: status(cluster, "board-2.yaml")["version"] > rests["version"] + 2)


if __name__ == "__main__":
    scenario.main()
