"""A member that comes back when the run is over and its gateway has left.

    late.py BUILD [SCENARIO...]
"""

import subprocess

from cluster import Cluster
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
SETTINGS = {"rounds": 4, "local_steps": 100, "quorum": 1, "form": "5 s", "rejoin": "300 ms"}
scenario = Scenarios()


def lose(cluster, board):
    """The board is killed in the run, which ends without it."""
    cluster.wait_for_line("board-1", "version 1: held-out")
    cluster.kill(board)
    cluster.wait_for_end(60, ["gateway"])


@scenario
def it_ends_if_a_member_that_is_there_knows(build):
    """Also if it leads, and so would be the one that asks the gateway."""
    for late, stays in ("board-1", "board-2"), ("board-2", "board-1"):
        with Cluster(build, TWO, **SETTINGS) as cluster:
            for name in "gateway", late:
                cluster.start(name)
            with open(cluster.path("logs", f"{stays}.log"), "ab") as log:  # without --until-end
                cluster.processes[stays] = subprocess.Popen([cluster.node, "run", f"{stays}.yaml"], cwd=cluster.directory,
                                                            stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            lose(cluster, late)
            cluster.wait_for_line(stays, "the run has ended")
            cluster.start(late)
            cluster.wait_for_end(60, [late])
            assert "the run has ended: this board trains no more" in cluster.log(late), cluster.log(late)


@scenario
def it_says_what_it_waits_for_if_nobody_is_there(build):
    with Cluster(build, TWO, **SETTINGS) as cluster:
        cluster.start_all()
        lose(cluster, "board-2")
        cluster.wait_for_end(60, ["board-1"])
        cluster.start("board-2")
        cluster.wait_for_line("board-2", "waiting for the aggregator, since nobody here knows whether the run has ended")
        cluster.kill("board-2")
        cluster.start("board-2", "--give-up", "12")
        assert cluster.processes["board-2"].wait(60) == 1, "it did not give up"


if __name__ == "__main__":
    scenario.main()
