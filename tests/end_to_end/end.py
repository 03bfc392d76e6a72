"""The end of a run: a gateway forgets it when the run goes on, and the word of a member ends no program.

    end.py BUILD [SCENARIO...]
"""

import os
import time

from cluster import ENDLESS, Cluster, wait_until
from jobs import Gateway
from scenarios import Scenarios

LINGER_S = 20  # longest time that a gateway waits for boards after an end
ONE = {"lab": ["board-1"]}
TWO = {"lab": ["board-1", "board-2"]}

scenario = Scenarios()


@scenario
def an_earlier_end_is_forgotten_when_the_run_goes_on(build):
    """Else the next start of a gateway that was killed at a later end would leave before the boards know of it."""
    with Cluster(build, ONE, rounds=1, quorum=1, local_steps=5) as cluster:
        over = cluster.path("state", "gateway", "files", "over")
        cluster.start_all()
        cluster.wait_for_end(60)
        assert os.path.exists(over), "the gateway does not keep that it has left"
        cluster.edit("job.yaml", ("count: 1", f"count: {ENDLESS}"))
        cluster.start_all()
        cluster.wait_for_version(3)
        assert not os.path.exists(over), "the earlier end is still there"


@scenario
def a_job_that_ends_long_after_the_run_is_taken_to_its_end(build):
    with Gateway(build, ONE, rounds=1, quorum=1, local_steps=5) as cluster:
        cluster.write_job("second", rounds=3)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.kill("board-1")
        cluster.submit("second")
        time.sleep(LINGER_S + 1)
        assert cluster.processes["gateway"].poll() is None, "the gateway left a job that is not over"
        cluster.start("board-1")
        wait_until(lambda: cluster.processes["gateway"].poll() is not None, "the end of the gateway", 60)
        log = cluster.log("board-1")
        assert "version 3: " in log and "the run has ended" in log, log[-2000:]


@scenario
def a_leader_that_lies_ends_no_other_program(build):
    """With --until-end the other one stays, and goes on when the liar is gone."""
    with Cluster(build, TWO, rounds=ENDLESS, quorum=1, local_steps=5) as cluster:
        honest, cluster.node = cluster.node, os.path.join(build, "..", "tests", "support", "node_that_lies")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.node = honest
        cluster.start("board-2")
        cluster.wait_for_line("board-2", "the group says that the run has ended, but the aggregator says that it goes on")
        time.sleep(7)  # longer than it asks, twice
        assert cluster.processes["board-2"].poll() is None, "a lie ended the program"
        assert cluster.log("board-2").count("the group says that the run has ended") < 10
        cluster.kill("board-1")
        cluster.wait_for_version(cluster.version() + 2)


if __name__ == "__main__":
    scenario.main()
