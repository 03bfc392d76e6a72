"""A member that keeps the others waiting is named; that they differ in a call is port_collective_calls' part.

    agree.py BUILD [SCENARIO...]
"""

import re
import signal
import time

import wide_model
from cluster import Cluster
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
scenario = Scenarios()


@scenario
def who_is_waited_for_is_named_after_a_second(build):
    """board-2 runs a seventh of the time, in turns shorter than its heartbeats, and steps are long."""
    with Cluster(build, TWO, rounds=1, local_steps=2, quorum=1, batch="1024, accumulate: 40") as cluster:
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", 256, 256, 256, 10)
        cluster.set_model("wide.onnx")
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 0: held-out")
        named = re.compile(r"call \d+ of set 0: all-reduce of \d+ float32 .* waits for board-2 since 1\d\d\d ms")
        deadline = time.monotonic() + 40
        while not named.search(cluster.log("board-1")) and cluster.processes["board-2"].poll() is None:
            assert time.monotonic() < deadline, "board-1 did not name board-2 in 40 s"
            cluster.signal("board-2", signal.SIGSTOP)
            time.sleep(0.6)
            cluster.signal("board-2", signal.SIGCONT)
            time.sleep(0.1)
        assert named.search(cluster.log("board-1")), "board-1 never named board-2"
        cluster.wait_for_end(120)
        run = cluster.log("board-1").partition("the run has ended")[0]  # then the boards leave one after the other
        assert "rank 0 of 1" not in run, "a board that is only slow was thrown out"


if __name__ == "__main__":
    scenario.main()
