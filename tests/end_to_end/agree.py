"""Members that are about to do different things, and one that keeps the others waiting, are named at once.

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
def a_mismatch_names_both_and_what_each_was_about_to_do(build):
    """board-2 knows board-1 by a name, so a rule over addresses holds for other members there."""
    parallel = "parallel: {train: near, sets: {near: address == 127.0.0.0/8}}"
    with Cluster(build, TWO, rounds=3, local_steps=10, quorum=1, extra=parallel) as cluster:
        with open(cluster.path("board-2.yaml")) as file:
            text = file.read()
        assert 'board-1: "127.0.0.1:' in text
        cluster.write("board-2.yaml", text.replace('board-1: "127.0.0.1:', 'board-1: "localhost:'))
        cluster.start_all()
        cluster.wait_for_line("board-1", "board-1 board-2 train")
        begun = time.monotonic()
        cluster.wait_for_line("board-1", "(this board) is at call", timeout=20)
        took = time.monotonic() - begun
        cluster.wait_for_line("board-2", "(this board) is at call", timeout=20)
        doing = r"call \d+ of set \d+: all-reduce of (\d+) float32 \(.*fingerprint \w+\)"
        for own, other in ("board-1", "board-2"), ("board-2", "board-1"):
            found = re.search(rf"{other} is at {doing}; {own} \(this board\) is at {doing}", cluster.log(own))
            assert found and found.group(1) != found.group(2), f"{own} did not say what both were about to do"
        return f"{took:.1f} s after the first step began"


@scenario
def who_is_waited_for_is_named_after_a_second(build):
    """board-2 runs a seventh of the time, in turns shorter than its heartbeats, and steps are long."""
    with Cluster(build, TWO, rounds=1, local_steps=4, quorum=1, batch="1024, accumulate: 12") as cluster:
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
        assert "rank 0 of 1" not in cluster.log("board-1"), "a board that is only slow was thrown out"


if __name__ == "__main__":
    scenario.main()
