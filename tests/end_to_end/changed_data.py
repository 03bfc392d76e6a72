"""A data file that changes while it is used: the process ends with a line that names it, and its group goes on."""

import os
import shutil
import subprocess
import time

from bad_input import write_train
from cluster import DIGITS, ENDLESS, Cluster
from missing import wait_until_told
from scenarios import Scenarios

scenario = Scenarios()


def own_data(cluster, board):
    """Copies of a board's files, which the scenario may spoil."""
    paths = [cluster.path(f"{board}-{part}.npy") for part in ("images", "labels")]
    for path in paths:
        shutil.copy(os.path.join(DIGITS, os.path.basename(path)), path)
    return paths


def empty(path):
    """What saving the file again does first."""
    os.truncate(path, 0)


def save_again(path):
    """Other bytes, the file as long as before: no page of it is missing."""
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(128)
        file.write(bytes(255 for _ in content[128:]))


def ended(process, seconds=60):
    """Ends with code 1; what it said."""
    _, said = process.communicate(timeout=seconds)
    assert process.returncode == 1, f"exit {process.returncode}:\n{said}"
    return said


def train_and(build, change, part):
    with Cluster(build, groups={}, rounds=ENDLESS) as cluster:
        files = own_data(cluster, "board-1")
        write_train(cluster, "state/alone", *files)
        process = subprocess.Popen([cluster.node, "train", "alone.yaml"], cwd=cluster.directory, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline().startswith("round 1/"), process.communicate()
        change(files[part])
        said = ended(process)
        assert f"{files[part]} changed while it was used" in said, said


@scenario
def a_file_that_is_emptied_ends_train(build):
    train_and(build, empty, 0)


@scenario
def a_file_that_is_written_in_place_ends_train(build):
    train_and(build, save_again, 0)
    train_and(build, save_again, 1)  # labels of 255, where the model has 10 classes


@scenario
def a_board_tells_the_gateway_before_it_ends(build):
    """Also when it trains alone, and with the file's name."""
    with Cluster(build, groups={"lab": ["board-1"]}, rounds=ENDLESS, quorum=1, mixed=True) as cluster:
        cluster.start_all()
        cluster.wait_for_version(1)
        empty(cluster.path("data", "board-1-images.npy"))
        assert cluster.processes["board-1"].wait(30) == 1
        wait_until_told(cluster, "board-1", "board-1-images.npy changed while it was used")
        assert cluster.log("board-1").count("changed while it was used") >= 1


@scenario
def the_others_of_a_group_go_on(build):
    with Cluster(build, groups={"lab": ["board-1", "board-2", "board-3"]}, rounds=ENDLESS, quorum=1, timeout="5 s", form="2 s",
                 rejoin="2 s", mixed=True) as cluster:
        cluster.start_all()
        cluster.wait_for_view("board-1", 3)
        while cluster.status()["version"] < 1:
            time.sleep(0.1)
        empty(cluster.path("data", "board-2-images.npy"))
        assert cluster.processes["board-2"].wait(60) == 1
        said = cluster.log("board-2")
        assert "board-2-images.npy changed while it was used" in said, said
        wait_until_told(cluster, "board-2", "board-2-images.npy changed while it was used")
        cluster.wait_for_view("board-1", 2)
        cluster.end_run()
        cluster.wait_for_end(120, ["gateway", "board-1", "board-3"])


if __name__ == "__main__":
    scenario.main()
