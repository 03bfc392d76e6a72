"""What fits into a board's memory: groups train models that none of their members could train alone.

    memory.py BUILD [SCENARIO...]

The limit is RLIMIT_DATA: all private memory that a process may write, touched or not.
"""

import resource

import wide_model
from cluster import Cluster, wait_until
from scenarios import Scenarios
from sets import share_samples

LIMIT = 128 << 20
LAYERS, WIDTH = 17, 480  # 3.7 million parameters: 14.3 MiB a row of them
FOUR_WIDTH = 840  # 11.4 million: 3.5 times the largest that trains alone, of width 446
SETTINGS = {"rounds": 1, "quorum": 1, "batch": 8, "momentum": "0.9, optimizer: adam", "learning_rate": 1e-4,
            "up": "{mode: sign}", "central": False, "form": "60 s", "timeout": "60 s"}
TWO = {"lab": ["board-1", "board-2"]}
FOUR = {"lab": [f"board-{i + 1}" for i in range(4)]}
CHAIN = {**SETTINGS, "batch": "8, accumulate: 1", "held_out": "10 %, scope: shared", "local_steps": 4,
         "extra": "parallel: {pipeline: 4}"}
scenario = Scenarios()


class Limited(Cluster):
    def start(self, name, *options, environment=None):
        process = super().start(name, *options, environment={**(environment or {}), "MALLOC_ARENA_MAX": "1"})
        if name != "gateway":
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (LIMIT, LIMIT))
        return process


def prepare(cluster, width=WIDTH):
    wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[width] * LAYERS, 10)
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
def four_boards_train_three_and_a_half_times_what_fits_into_one(build):
    """The whole model's rows lie on the boards' disks (memory.rows), also when the group forms and at the round's end."""
    with Limited(build, FOUR, **CHAIN) as cluster:
        share_samples(cluster)
        prepare(cluster, FOUR_WIDTH)
        cluster.wait_for_end(800)
        for board in cluster.boards:
            assert "out of memory" not in cluster.log(board), cluster.log(board)
            assert "version 1" in cluster.log(board), cluster.log(board)


@scenario
def rows_that_must_stay_in_memory_do_not_fit(build):
    """What the test above would end with without files for the rows."""
    with Limited(build, FOUR, **CHAIN) as cluster:
        share_samples(cluster)
        for board in cluster.boards:
            cluster.edit(f"{board}.yaml", ("threads: 1", "threads: 1\nmemory: {rows: memory}"))
        prepare(cluster, FOUR_WIDTH)
        wait_until(lambda: any("out of memory" in cluster.log(board) for board in cluster.boards), "a board gives up", 300)


@scenario
def one_board_alone_says_so(build):
    with Limited(build, TWO, **SETTINGS, local_steps=3) as cluster:
        prepare(cluster)
        cluster.wait_for_line("board-1", "out of memory", timeout=300)


if __name__ == "__main__":
    scenario.main()
