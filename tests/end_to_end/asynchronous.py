"""Asynchronous rounds: slow groups, kills, replay; and equal to synchronous ones where they should be.

    asynchronous.py BUILD [SCENARIO...]

Four groups of one board, or more. A board is made late by stopping it while it trains, until the others have made
versions. Each run is made again by the aggregator and by the second implementation in tests/peers.
"""

import contextlib
import os
import signal
import sys
import time

from cluster import DIGITS, ENDLESS, SOURCE, Cluster
from rollback import CALM, GATE, LIMITS, REFUSED, ROLLED_BACK, WILD, aggregator, rulings, wait_for_ruling
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402

MODEL = "digits-mlp.onnx"
BOARDS = [f"board-{number}" for number in range(1, 5)]
LATE = "lab-board-1"
STEPS = 5000  # of a round that is long enough for the test to stop a board in the middle of it

scenario = Scenarios()


class KeepingCluster(Cluster):
    """Its gateway keeps all versions: a run lasts as long as a late board needs, and is then made again as a whole."""

    def write_profiles(self):
        super().write_profiles()
        self.edit("gateway.yaml", ("gateway: {", "gateway: {keep_versions: all, keep_rounds: all, "))


def cluster_of(build, mode, quorum=4, **job):
    return KeepingCluster(build, {f"lab-{board}": [board] for board in BOARDS},
                          **{"rounds": 6, "quorum": f"{quorum}{mode}", "local_steps": 5, "model": MODEL,
                             "up": "{mode: q8}", "central": False, **job})


def asynchronous(**keys):
    values = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return f", mode: asynchronous, async: {{{values}}}"


def wait_for(cluster, what, query, *values):
    """The first column of the first row, when the query has one that is not 0."""
    deadline = time.monotonic() + 120
    while True:
        rows = cluster.ledger(query, *values)
        if rows and rows[0][0]:
            return rows[0][0]
        assert time.monotonic() < deadline, f"there was no {what} after 120 s"
        time.sleep(0.01)


def wait_for_version(cluster, number):
    return wait_for(cluster, f"version {number}", "SELECT number FROM version WHERE number>=?", number)


def newest_version(cluster):
    return cluster.ledger("SELECT max(number) FROM version")[0][0] or 0


@contextlib.contextmanager
def stopped_in_training(cluster, board="board-1", group=LATE):
    """Stops a board that trains; gives its round."""
    process = cluster.processes[board]
    while True:
        training = wait_for(cluster, f"round of {group}", "SELECT round FROM training WHERE grp=?", group)
        time.sleep(0.3)  # it begins
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)  # what it sent before it stopped arrives
        if cluster.ledger("SELECT 1 FROM training WHERE grp=? AND round=?", group, training):
            break
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    try:
        yield training
    finally:
        process.send_signal(signal.SIGCONT)


def make_late(cluster, versions):
    """Keeps a board from sending its update for some versions. Gives the rounds of its update and of what came next.

    A board that had not begun when it was stopped begins from a newer version: then it is tried again.
    """
    for _ in range(20):
        with contextlib.ExitStack() as others:
            with stopped_in_training(cluster) as training:
                wait_for_version(cluster, training - 1 + versions)
                for board in BOARDS[1:]:  # no more versions until it has sent
                    cluster.processes[board].send_signal(signal.SIGSTOP)
                    others.callback(cluster.processes[board].send_signal, signal.SIGCONT)
            wait_for(cluster, "answer", "SELECT count(*) FROM selection WHERE grp=? AND round>=?", LATE, training)
        after = wait_for(cluster, "update", "SELECT min(round) FROM contribution WHERE grp=? AND round>=?",
                         LATE, training)
        trained = cluster.ledger("SELECT 1 FROM selection WHERE grp=? AND round=?", LATE, training)
        if trained:
            return training, after
    raise AssertionError("the board was never stopped in its round")


def check(cluster):
    lines = cluster.replay()
    versions = newest_version(cluster)
    assert lines[-1] == f"{versions + 1} versions, 0 differ, 0 not checked", lines
    count, digest = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), "ledger")
    assert count == versions and digest.hex() == cluster.digest(), (count, digest)


def digest_of_run(build, mode, **job):
    with cluster_of(build, mode, **job) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest()


@scenario
def a_full_buffer_is_a_synchronous_round(build):
    expected = digest_of_run(build, "")
    assert digest_of_run(build, asynchronous(buffer=4)) == expected
    assert digest_of_run(build, asynchronous(buffer=4, max_staleness=0)) == expected


@scenario
def a_late_update_counts_in_a_later_version(build):
    """Its round goes on while versions are made, and both implementations make them again. Kills change nothing."""
    with cluster_of(build, asynchronous(buffer=3), rounds=ENDLESS, local_steps=STEPS) as cluster:
        cluster.start_all()
        wait_for_version(cluster, 1)
        assert "rounds, buffer 3 of 4;" in " ".join(cluster.log("gateway").split()), cluster.log("gateway")
        training, after = make_late(cluster, 3)
        version = cluster.ledger("SELECT version FROM contribution WHERE grp=? AND round=?", LATE, training)[0][0]
        assert after == training and version - training >= 3, (training, after, version)
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_for_version(cluster, version + 1)
        text = " ".join(cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout.split())
        assert "its newest update went into version" in text, text
        cluster.end_run()
        cluster.wait_for_end(120)
        check(cluster)


@scenario
def a_group_that_is_too_late_goes_on(build):
    with cluster_of(build, asynchronous(buffer=3, max_staleness=2), rounds=ENDLESS, local_steps=STEPS) as cluster:
        cluster.start_all()
        wait_for_version(cluster, 1)
        training, after = make_late(cluster, 4)
        assert after > training + 2, (training, after)
        cluster.end_run()
        cluster.wait_for_end(120)
        check(cluster)


@scenario
def a_run_that_becomes_asynchronous_by_a_reload_is_made_again(build):
    """And synchronous again. The gateway is killed each time."""
    with cluster_of(build, "", rounds=ENDLESS, local_steps=STEPS // 5, extra="server: {optimizer: fedavgm}") as cluster:
        cluster.start_all()
        for rounds in ("quorum: 4, mode: asynchronous, async: {buffer: 2}", "quorum: 4",
                       "quorum: 4, mode: asynchronous, async: {buffer: 3, max_staleness: 4, wait: true}"):
            wait_for_version(cluster, newest_version(cluster) + 3)
            with open(cluster.path("job.yaml")) as file:
                lines = [f"rounds: {{count: {ENDLESS}, {rounds}}}" if line.startswith("rounds:") else line
                         for line in file.read().splitlines()]
            cluster.write("job.yaml", "\n".join(lines) + "\n")
            cluster.command(cluster.aggregator, "reload", "gateway.yaml")
            cluster.kill("gateway")
            cluster.start("gateway")
        wait_for_version(cluster, newest_version(cluster) + 3)
        cluster.end_run()
        cluster.wait_for_end(120)
        check(cluster)
        assert cluster.ledger("SELECT count(*) FROM contribution WHERE version > round")[0][0]


@scenario
def a_refusal_and_a_rollback_are_made_again(build):
    """The gate refuses versions of a buffer, and a person goes back to version 1; groups train meanwhile."""
    with cluster_of(build, asynchronous(buffer=3), rounds=ENDLESS, central=True, extra=LIMITS + GATE) as cluster:
        cluster.start_all()
        wait_for_version(cluster, 2)
        cluster.edit("job.yaml", *WILD)
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        wait_for_ruling(cluster, REFUSED)
        cluster.edit("job.yaml", *CALM)
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        aggregator(cluster, "rollback", "gateway.yaml", "1", "--reason", "a test")
        wait_for_ruling(cluster, ROLLED_BACK)
        wait_for_version(cluster, rulings(cluster, ROLLED_BACK)[0] + 3)
        # What was trained from a version that was given up does not count.
        back = rulings(cluster, ROLLED_BACK)[0]
        assert not cluster.ledger("SELECT 1 FROM contribution WHERE version > ? AND round <= ?", back, back)
        cluster.kill("gateway")
        cluster.start("gateway")
        cluster.end_run()
        cluster.wait_for_end(120)
        check(cluster)


@scenario
def the_example_runs(build):
    with cluster_of(build, "", central=True) as cluster:
        with open(os.path.join(SOURCE, "tests", "examples", "asynchronous", "job.yaml")) as file:
            cluster.write("job.yaml", file.read().replace("data/digits-cnn", os.path.join(DIGITS, "digits-mlp")))
        cluster.start_all()
        cluster.wait_for_end(120)
        assert cluster.replay()[-1] == "31 versions, 0 differ, 0 not checked"
        assert cluster.ledger("SELECT max(number) FROM (SELECT count(*) AS number FROM contribution GROUP BY version)"
                              ) == [(3,)]


if __name__ == "__main__":
    scenario.main()
