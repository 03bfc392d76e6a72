"""What a round takes on the wire beside its frames: bytes of a board alone at the gateway, counted by the relay.

usage: wire.py BUILD/bin

Runs with updates of known sizes through tests/support/relay without loss; headers of UDP and IP are counted.
Fits bytes = frames + A for each 1024 of them + B a round. learning.py has the result as WIRE.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "end_to_end"))

from cluster import Cluster  # noqa: E402

ROUNDS = 12
LINK = {"rate": "50e6", "delay": "5", "loss": "0", "queue": "200"}
FRAME = re.compile(r"update of (\d+) bytes accepted")


def run(build, rule):
    """Bytes on the wire of two runs of which one is ROUNDS longer: what starts and ends a run cancels out."""
    totals = []
    for rounds in (2, 2 + ROUNDS):
        with Cluster(build, {"lab-a": ["board-1"]}, link=LINK, rounds=rounds, local_steps=4, quorum=1, central=False,
                     up=rule, down=rule, update=", snapshot_every: never") as cluster:
            cluster.start_all()
            cluster.wait_for_end(120)
            size = int(FRAME.findall(cluster.log("board-1"))[-1])
            totals.append(sum(cluster.link_bytes()))
    return 2 * size, (totals[1] - totals[0]) / ROUNDS


def main(build):
    (small, small_wire), (large, large_wire) = (run(build, rule) for rule in ("{mode: sign}", "{mode: raw32}"))
    slope = (large_wire - small_wire) / (large - small)
    print(f"frames of {small} and {large} bytes a round, both ways: {small_wire:.0f} and {large_wire:.0f} on the wire")
    print(f"for each 1024 bytes {1024 * (slope - 1):.0f} more, for a round {small_wire - slope * small:.0f}")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
