"""A group of a board with a GPU and one without: equal to the bit after every step, and an accurate model.

    mixed_gpu.py BIN [short | shards]   ends with 77 where no GPU works; short: each precision with one optimizer;
                                        shards: both hold the model together, in each stage with the same result
"""

import sys

import wide_model
from cluster import Cluster
from members import CASES, COMMON, check_members

PRECISIONS = ("float32", "bfloat16")
OPTIMIZERS = ("adam_with_batch_statistics_and_dropout_after_each_step", "adamw_with_a_proximal_term")
GROUP = {"lab": ["board-1", "board-2"]}


def set_devices(cluster, precision):
    """Whether board-1 trains on a GPU; board-2 does not."""
    for board, device in (("board-1", f"device: cuda\ncompute: {{precision: {precision}}}\n"),
                          ("board-2", "device: cpu\n")):
        with open(cluster.path(f"{board}.yaml")) as file:
            text = file.read()
        cluster.write(f"{board}.yaml", text.replace("threads: 1\n", "threads: 1\n" + device))
    with open(cluster.path("board-1.yaml")) as file:
        cluster.write("alone.yaml", file.read() + "job: job.yaml\n")
    return cluster.command(cluster.node, "bench", "alone.yaml", check=False).returncode == 0


def train(build, precision, check, **job):
    """False where no GPU works."""
    with Cluster(build, GROUP, **job) as cluster:
        if not set_devices(cluster, precision):
            return False
        cluster.start_all()
        cluster.wait_for_end(120)
        for board in cluster.boards:
            assert "the epoch ended" not in cluster.log(board)
        check(cluster, precision)
    return True


def check_accuracy(cluster, precision):
    assert cluster.current_model("board-1") == cluster.current_model("board-2")
    assert cluster.accuracy() > 0.75, cluster.accuracy()
    print(f"{precision}: held-out accuracy {cluster.accuracy()}")


def check_steps(cluster, precision):
    check_members(cluster)
    print(f"{precision}: equal after {cluster.job['rounds']} rounds of {cluster.job['local_steps']} steps")


def share(build):
    """In shards a GPU and a processor come to what they come to without, also where only their shares are whole."""
    job = {"rounds": 2, "local_steps": 8, "quorum": 1, "learning_rate": 0.005, "momentum": "0.9, optimizer: adam"}
    wanted = None
    for stage in (0, 1, 2, 3):
        extra = f"parallel: {{shard: 2, stage: {stage}}}" if stage else ""
        with Cluster(build, GROUP, **job, extra=extra) as cluster:
            wide_model.main(cluster.path("deep.onnx"), "1,8,8", *[128] * 5, 10, norm=True, tied=True)
            cluster.set_model("deep.onnx")
            if not set_devices(cluster, "float32"):
                return False
            cluster.start_all()
            cluster.wait_for_end(120)
            for board in cluster.boards:
                assert not stage or f"state, stage {stage}, " in cluster.log(board), f"{board} took no share"
            wanted = wanted or cluster.digest()
            assert cluster.digest() == wanted, f"stage {stage}: digest {cluster.digest()}, without shards {wanted}"
    print("shards: the same digest in each stage as without")
    return True


def main(build, length=""):
    assert length in ("", "short", "shards"), f"there is no length {length}"
    if length == "shards":
        return 0 if share(build) else 77
    for precision, first in zip(PRECISIONS, OPTIMIZERS):
        for name in (first,) if length == "short" else OPTIMIZERS:
            if not train(build, precision, check_steps, **{**COMMON, **CASES[name]}):
                return 77
        if length != "short":
            train(build, precision, check_accuracy, rounds=6, local_steps=20, quorum=1)
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    if code:
        print("no GPU works here")
    sys.exit(code)
