"""A group of a board with a GPU and one without: equal weights after every round, and an accurate model.

    mixed_gpu.py BIN        ends with 77 where no GPU works
"""

import sys

from cluster import Cluster

PRECISIONS = ("float32", "bfloat16")


def main(build):
    for precision in PRECISIONS:
        with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=6, local_steps=20, quorum=1) as cluster:
            for board, device in (("board-1", f"device: cuda\ncompute: {{precision: {precision}}}\n"),
                                  ("board-2", "device: cpu\n")):
                with open(cluster.path(f"{board}.yaml")) as file:
                    text = file.read()
                cluster.write(f"{board}.yaml", text.replace("threads: 1\n", "threads: 1\n" + device))
            with open(cluster.path("board-1.yaml")) as file:
                alone = file.read() + "job: job.yaml\n"
            cluster.write("alone.yaml", alone)
            if cluster.command(cluster.node, "bench", "alone.yaml", check=False).returncode:
                print("no GPU works here")
                return 77
            cluster.start_all()
            cluster.wait_for_end(120)
            # A version is the sum of what the members trained: they agree on each frame to the bit, or a
            # member would have had to heal.
            assert cluster.current_model("board-1") == cluster.current_model("board-2")
            for board in ("board-1", "board-2"):
                assert "the epoch ended" not in cluster.log(board)
            assert cluster.accuracy() > 0.75, cluster.accuracy()
            print(f"{precision}: held-out accuracy {cluster.accuracy()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
