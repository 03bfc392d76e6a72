"""A stored state that is not one of the gateway's run, as a member that lied has left it: the board gives it up.

    false_state.py BUILD [SCENARIO...]
"""

import glob
import hashlib
import json

from cluster import ENDLESS, Cluster, wait_until
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
SETTINGS = {"rounds": ENDLESS, "local_steps": 50, "quorum": 1, "form": "2 s", "rejoin": "300 ms"}
ROUND_AT, DIGEST_SIZE = 40, 32  # runtime/round/CHECKPOINT.md
FAR = 1000000
scenario = Scenarios()


def doctor(cluster, board, number):
    """Both slots say that the board is in another round, with a digest that fits."""
    slots = glob.glob(cluster.path("state", board, "**", "checkpoint.[ab01]"), recursive=True)
    assert slots, "no state"
    for slot in slots:
        with open(slot, "rb") as file:
            body = bytearray(file.read()[:-DIGEST_SIZE])
        body[ROUND_AT : ROUND_AT + 4] = number.to_bytes(4, "little")
        with open(slot, "wb") as file:
            file.write(bytes(body) + hashlib.sha256(body).digest())


def status(cluster, board):
    return json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)


@scenario
def a_round_that_the_gateway_has_not_opened_is_given_up(build):
    with Cluster(build, TWO, **SETTINGS) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 2: held-out")
        for board in TWO["lab"]:
            cluster.kill(board)
        doctor(cluster, "board-1", FAR)
        cluster.start("board-1")
        cluster.wait_for_line("board-1", f"resuming at round {FAR}")
        cluster.wait_for_line("board-1", f"(round {FAR}, version")
        cluster.wait_for_line("board-1", "the stored state is given up")
        version = cluster.status()["version"]
        cluster.wait_for_version(version + 2)
        wait_until(lambda: status(cluster, "board-1").get("residuals_lost") == 1, "the lost residual is told", 10)
        cluster.start("board-2")
        cluster.wait_for_line("board-2", f"version {version + 4}: held-out")
        assert cluster.log("board-1").count("is given up, with the residual") == 1, cluster.log("board-1")
        cluster.stop_all()


if __name__ == "__main__":
    scenario.main()
