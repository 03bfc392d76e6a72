"""Boards that serve one run after another and come back: the state of each run stays as it was.

    several_runs.py BUILD [SCENARIO...]
"""

import os
import subprocess

from cluster import ENDLESS, Cluster
from scenarios import Scenarios

GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3", "board-4"]}
ONE = {"lab-a": ["board-1"]}
# The update is sparse, so each board has a residual, and its later updates depend on it.
JOB = {"rounds": 6, "quorum": 3, "local_steps": 20, "model": "digits-mlp.onnx"}

scenario = Scenarios()


def make_other(cluster, *changes):
    """A second gateway at the address of the first: the same boards, another job."""
    with open(cluster.path("gateway.yaml")) as file:
        profile = file.read().replace("state/gateway", "state/other").replace("job.yaml", "other-job.yaml")
    with open(cluster.path("job.yaml")) as file:
        job = file.read().replace("seed: 1\n", "seed: 7\n").replace("name: digits\n", "name: other\n")
    cluster.write("gateway-other.yaml", profile)
    cluster.write("other-job.yaml", job)
    cluster.edit("other-job.yaml", *changes)


def take_boards(cluster):
    """The boards of the gateway that runs no more become the other one's, too."""
    cluster.command(cluster.aggregator, "init", "--after", "state/gateway", "--version", "none", "gateway-other.yaml")


def start_board(cluster, board, **environment):
    """A board that does not end with the run, as a service."""
    log = open(cluster.path("logs", f"{board}.log"), "ab")
    cluster.processes[board] = subprocess.Popen([cluster.node, "run", f"{board}.yaml"], cwd=cluster.directory,
                                                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                env={**os.environ, **environment})
    log.close()


def alive(cluster):
    return all(cluster.processes[board].poll() is None for board in cluster.boards)


def undisturbed(build):
    with Cluster(build, GROUPS, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest()


@scenario
def a_run_that_is_interrupted_by_another_ends_as_if_it_were_not(build):
    wanted = undisturbed(build)
    with Cluster(build, GROUPS, **JOB) as cluster:
        make_other(cluster, ("count: 6", f"count: {ENDLESS}"), ("learning_rate: 0.05", "learning_rate: 0.02"))
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.kill("gateway")
        take_boards(cluster)
        for turn in (1, 2):
            cluster.start("gateway-other")
            cluster.wait_for_version(2 * turn, state="other")
            cluster.kill("gateway-other")
            cluster.start("gateway")
            if turn == 1:
                cluster.wait_for_version(4)
                cluster.kill("gateway")
        assert alive(cluster), "a board ended while another run was served"
        cluster.wait_for_end(120, ["gateway", *cluster.boards])
        assert cluster.digest() == wanted, f"{cluster.digest()} instead of {wanted}"
        for board in cluster.boards:
            assert "belongs to another run" not in cluster.log(board), cluster.log(board)
            files = [name for name in os.listdir(cluster.path("state", board)) if name.endswith("checkpoint.a")]
            assert len(files) == 2, files


@scenario
def the_end_of_a_run_is_not_the_end_of_the_next(build):
    with Cluster(build, ONE, **{**JOB, "rounds": 2, "quorum": 1}) as cluster:
        make_other(cluster, ("count: 2", "count: 3"))
        cluster.start("gateway")
        start_board(cluster, "board-1")
        cluster.wait_for_line("board-1", "the run has ended: this board trains no more")
        cluster.kill("gateway")
        take_boards(cluster)
        cluster.start("gateway-other")
        cluster.wait_for_version(3, state="other")
        cluster.wait_for_line("board-1", "the run has ended: this board trains no more", 2)
        assert alive(cluster)


@scenario
def a_board_that_cannot_train_one_job_serves_another(build):
    with Cluster(build, ONE, **{**JOB, "rounds": 2, "quorum": 1}) as cluster:
        make_other(cluster)
        cluster.edit("job.yaml", ("set: digits,", "set: elsewhere,"))
        cluster.start("gateway")
        start_board(cluster, "board-1", NOTIFY_SOCKET=cluster.path("none"))
        cluster.wait_for_line("gateway", "board-1 of group lab-a reports: data set 'elsewhere'")
        cluster.wait_for_line("board-1", "the program ends in 60 s")
        cluster.kill("gateway")
        take_boards(cluster)
        cluster.start("gateway-other")
        cluster.wait_for_version(2, state="other")
        assert "for this board, which goes on with it" in cluster.log("board-1"), cluster.log("board-1")
        cluster.wait_for_line("gateway-other", "board-1 of group lab-a reports no error any more")
        assert alive(cluster)


if __name__ == "__main__":
    scenario.main()
