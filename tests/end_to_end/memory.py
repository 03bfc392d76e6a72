"""What fits into a board's memory: a group of shards trains a model that none of its members could train alone.

    memory.py BUILD [SCENARIO...]

The limit is RLIMIT_DATA: all private memory that a process may write, touched or not.
"""

import resource

import wide_model
from cluster import Cluster
from scenarios import Scenarios

LIMIT = 128 << 20
LAYERS, WIDTH = 17, 480  # 3.7 million parameters: 14.3 MiB a row of them
SETTINGS = {"rounds": 1, "quorum": 1, "batch": 8, "momentum": "0.9, optimizer: adam", "learning_rate": 1e-4,
            "up": "{mode: sign}", "central": False, "form": "60 s", "timeout": "60 s"}
TWO = {"lab": ["board-1", "board-2"]}
scenario = Scenarios()


class Limited(Cluster):
    def start(self, name, *options, environment=None):
        process = super().start(name, *options, environment={**(environment or {}), "MALLOC_ARENA_MAX": "1"})
        if name != "gateway":
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (LIMIT, LIMIT))
        return process


def prepare(cluster):
    wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[WIDTH] * LAYERS, 10)
    cluster.set_model("wide.onnx")
    cluster.start_all()


@scenario
def shards_train_what_does_not_fit_into_one_board(build):
    """A round is long enough that its state is stored in the middle, after 5 s."""
    with Limited(build, TWO, **SETTINGS, local_steps=100, extra="parallel: {shard: 2, stage: 3}") as cluster:
        prepare(cluster)
        cluster.wait_for_end(800)
        for board in cluster.boards:
            assert "out of memory" not in cluster.log(board), cluster.log(board)
            assert "version 1" in cluster.log(board), cluster.log(board)


@scenario
def one_board_alone_says_so(build):
    with Limited(build, TWO, **SETTINGS, local_steps=3) as cluster:
        prepare(cluster)
        cluster.wait_for_line("board-1", "out of memory", timeout=300)


if __name__ == "__main__":
    scenario.main()
