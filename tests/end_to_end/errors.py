"""What the gateway hears of a board that cannot train.

    errors.py BUILD [SCENARIO...]
"""

import contextlib
import json
import os
import shutil
import signal
import socket

from cluster import DIGITS, ENDLESS, Cluster, read_npy, wait_until, write_npy
from missing import told, wait_until_told
from scenarios import Scenarios

ONE = {"lab": ["board-1"]}
TWO = {"lab": ["board-1", "board-2"]}
HASTY = {"rounds": ENDLESS, "local_steps": 20, "rejoin": "100 ms", "form": "20 s", "quorum": 1}

scenario = Scenarios()


def own_data(cluster, board):
    """The board reads copies of its files; returns the path of its labels."""
    for part in ("images", "labels"):
        shutil.copy(f"{DIGITS}/{board}-{part}.npy", cluster.path(f"{board}-{part}.npy"))
    with open(cluster.path(f"{board}.yaml")) as file:
        text = file.read()
    cluster.write(f"{board}.yaml", text.replace(f"{DIGITS}/{board}-", cluster.path(f"{board}-")))
    return cluster.path(f"{board}-labels.npy")


def spoil(labels):
    """The third sample has the label 77."""
    header, samples = read_npy(labels)
    samples[2] = bytes([77]) + samples[2][1:]
    write_npy(labels + ".new", header, samples)
    os.rename(labels + ".new", labels)


def ends(cluster, board, code):
    got = cluster.processes[board].wait(60)
    assert got == code, f"{board} ended with {got}, wanted {code}:\n{cluster.log(board)}"


@scenario
def a_board_with_bad_labels_says_so_at_the_gateway(build):
    with Cluster(build, ONE, **HASTY) as cluster:
        labels = own_data(cluster, "board-1")
        good = labels + ".good"
        shutil.copy(labels, good)
        spoil(labels)
        cluster.start("gateway")
        for _ in range(2):
            cluster.start("board-1")
            ends(cluster, "board-1", 1)
            wait_until_told(cluster, "board-1", "sample 2 has the label 77")
        wait_until(lambda: told(cluster, "board-1")["status"].startswith("error "), "an error of a board that was heard")
        line = told(cluster, "board-1")
        assert line["status"].startswith("error ") and "board-1-labels.npy" in line["error"], line
        assert line["error_s"] < 60, line
        assert "sample 2 has the label 77" in cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        said = cluster.log("gateway").count("board-1 of group lab reports: ")
        assert said == 1, f"the gateway said it {said} times"
        os.rename(good, labels)
        cluster.start("board-1")
        cluster.wait_for_line("gateway", "board-1 of group lab reports no error any more")
        wait_until_told(cluster, "board-1", "in the round")
        assert "error" not in told(cluster, "board-1"), told(cluster, "board-1")


def events(cluster):
    shown = cluster.command(cluster.aggregator, "events", "--json", "gateway.yaml").stdout
    return [json.loads(line) for line in shown.splitlines()]


@scenario
def a_failed_board_is_remembered_over_a_restart_of_the_gateway(build):
    """Its reason stays visible while it is off, and its recovery is an event."""
    with Cluster(build, ONE, **HASTY) as cluster:
        labels = own_data(cluster, "board-1")
        shutil.copy(labels, labels + ".good")
        spoil(labels)
        cluster.start("gateway")
        cluster.start("board-1")
        ends(cluster, "board-1", 1)
        wait_until(lambda: [event for event in events(cluster) if event["kind"] == "board_failed"], "the event")
        wait_until(lambda: cluster.ledger("SELECT 1 FROM last_error WHERE board='board-1'"), "the stored error")
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_until_told(cluster, "board-1", "not heard since the aggregator started; it said last: ")
        assert "has the label 77" in told(cluster, "board-1")["status"], told(cluster, "board-1")
        os.rename(labels + ".good", labels)
        cluster.start("board-1")
        wait_until(lambda: [event["text"] for event in events(cluster) if event["kind"] == "board_back"]
                   == ["the board reports no error any more"], "an event of its recovery")
        assert len([event for event in events(cluster) if event["kind"] == "board_failed"]) == 1


@scenario
def a_member_says_what_it_cannot_open_and_the_other_goes_on(build):
    with Cluster(build, TWO, **{**HASTY, "form": "1 s"}) as cluster:
        os.remove(own_data(cluster, "board-2"))
        cluster.start_all()
        ends(cluster, "board-2", 1)
        cluster.wait_for_line("gateway", "board-2 of group lab reports: ")
        wait_until_told(cluster, "board-2", "board-2-labels.npy")
        cluster.wait_for_line("board-1", ": update of", count=2)
        assert "board-2-labels.npy" in told(cluster, "board-2")["error"], told(cluster, "board-2")


@scenario
def a_round_that_was_given_up_is_told(build):
    with Cluster(build, ONE, **{**HASTY, "learning_rate": 1000}) as cluster:
        cluster.start_all()
        wait_until_told(cluster, "board-1", "is given up: the loss or a weight change is not finite")
        cluster.kill("board-1")
        cluster.start("board-1")
        cluster.wait_for_line("board-1", "was given up, because the loss")
        wait_until_told(cluster, "board-1", "`cairn-aggregator rollback PROFILE best --reason TEXT`")
        with open(cluster.path("job.yaml")) as file:
            job = file.read()
        cluster.write("job.yaml", job.replace("learning_rate: 1000", "learning_rate: 0.05"))
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        cluster.command(cluster.aggregator, "rollback", "gateway.yaml", "0", "--reason", "the rate")
        cluster.wait_for_line("gateway", "board-1 of group lab reports no error any more")
        wait_until_told(cluster, "board-1", "in the round")


@scenario
def a_service_waits_before_it_ends(build):
    with Cluster(build, ONE, **HASTY) as cluster:
        spoil(own_data(cluster, "board-1"))
        path = cluster.path("notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(60)
            cluster.start("gateway")
            cluster.start("board-1", environment={"NOTIFY_SOCKET": path})
            cluster.wait_for_line("gateway", "board-1 of group lab reports: ")
            cluster.wait_for_line("board-1", "the program ends in 60 s")
            manager.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # what was sent before
                while manager.recv(256):
                    pass
            manager.settimeout(60)
            assert manager.recv(256) == b"WATCHDOG=1", "the manager would take it for dead"
            assert cluster.processes["board-1"].poll() is None, "it did not wait"
            cluster.signal("board-1", signal.SIGTERM)
            ends(cluster, "board-1", 1)


if __name__ == "__main__":
    scenario.main()
