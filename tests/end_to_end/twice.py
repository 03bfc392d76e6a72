"""Two boards that use one key are named by the gateway; one that is started again, or moves, is not.

    twice.py BUILD [SCENARIO...]
"""

from cluster import ENDLESS, Cluster, wait_until
from missing import told, wait_until_told
from scenarios import Scenarios

ONE = {"lab": ["board-1"]}
HASTY = {"rounds": ENDLESS, "local_steps": 20, "quorum": 1}
NAMED = "board-1 runs twice: two programs use its key, from 127.0.0.1:"

scenario = Scenarios()


def add_copy(cluster):
    """The same board with a state of its own."""
    with open(cluster.path("board-1.yaml")) as file:
        text = file.read()
    assert "state/board-1" in text
    cluster.write("copy.yaml", text.replace("state/board-1", "state/copy"))


@scenario
def two_boards_with_one_key_are_named(build):
    with Cluster(build, ONE, **HASTY) as cluster:
        add_copy(cluster)
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.wait_for_line("board-1", ": update of")
        cluster.start("copy")
        cluster.wait_for_line("gateway", NAMED, timeout=120)
        wait_until_told(cluster, "board-1", "runs twice: two programs use its key, from 127.0.0.1:")
        assert told(cluster, "board-1")["twice_s"] < 300, told(cluster, "board-1")
        assert cluster.log("gateway").count(" runs twice: ") == 1, "said more than once"
        wait_until(lambda: "board_twice board-1: two programs use the board's key, from 127.0.0.1:" in
                   cluster.command(cluster.aggregator, "events", "--alarms", "gateway.yaml").stdout, "an event")


@scenario
def a_board_that_is_started_again_is_one(build):
    with Cluster(build, ONE, **HASTY) as cluster:
        cluster.start("gateway")
        for count in range(1, 5):
            cluster.start("board-1")
            cluster.wait_for_line("board-1", ": update of", count=count)
            cluster.kill("board-1")
        cluster.start("board-1")
        cluster.kill("gateway")  # the sessions begin again
        cluster.start("gateway")
        done = cluster.log("board-1").count(": update of")
        cluster.wait_for_line("board-1", ": update of", count=done + 2)
        assert " runs twice" not in cluster.log("gateway"), cluster.log("gateway")
        assert "twice_s" not in told(cluster, "board-1"), told(cluster, "board-1")


if __name__ == "__main__":
    scenario.main()
