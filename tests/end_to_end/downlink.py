"""How versions go down is chosen by the links that boards measured, recorded, and obeyed by whoever makes them again.

    downlink.py BUILD [SCENARIO...]
"""

import os
import random
import sys
import time

from cluster import DIGITS, SOURCE, Cluster, same_model_everywhere
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
from update import MODES, Refused  # noqa: E402

GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3"]}
# 25 kB/s: a tenth of the deadline carries 12 kB at most, where q8 takes 39 kB and q4 20 kB.
THIN = {"rate": "200e3", "delay": "10", "loss": "0", "queue": "300"}
AUTO = {"down": "{mode: auto}", "quorum": 3, "local_steps": 4, "deadline": "5 s", "central": False}
SIZES = {"q8": 39_000, "q4": 20_000}
scenario = Scenarios()


def rows(cluster):
    return cluster.ledger("SELECT version, mode, link_bps, budget, size FROM downlink ORDER BY version")


def made_again(cluster, count):
    """By the aggregator and by the second implementation."""
    lines = cluster.replay()
    assert lines[-1] == f"{count + 1} versions, 0 differ, 0 not checked", lines[-1]
    found, digest = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, "digits-cnn.onnx"), "ledger")
    assert found == count and digest.hex() == cluster.digest(), found
    same_model_everywhere(cluster)


def keep_all(cluster):
    cluster.edit("gateway.yaml", ("gateway: {", "gateway: {keep_versions: all, keep_rounds: all, "))


@scenario
def a_thin_link_gets_small_versions(build):
    with Cluster(build, GROUPS, link=THIN, rounds=5, **AUTO) as cluster:
        keep_all(cluster)
        cluster.start_all()
        cluster.wait_for_end(120)
        found = rows(cluster)
        assert [row[0] for row in found] == [1, 2, 3, 4, 5], found
        for number, mode, link_bps, budget, size in found:
            assert MODES[mode] == "topk" and 20e3 < link_bps < 200e3 and size <= budget < 12_600, found
            delta = os.path.getsize(cluster.path("state/gateway/files", f"version-{number}.delta"))
            assert 0.6 * size < delta < 1.5 * size, (number, delta, size)
        said = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert "versions go down as topk" in said and "the slowest quarter of the links takes" in said, said
        made_again(cluster, 5)
        # The record is what counts: with another one in it the second implementation refuses the version.
        ledger = cluster.path("state/gateway/ledger.sqlite")
        cluster.command(sys.executable, "-c", "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]); "
                        "base.execute('UPDATE downlink SET mode=1 WHERE version=4'); base.commit()", ledger)
        try:
            replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, "digits-cnn.onnx"), "ledger")
        except Refused as error:
            assert "encoding of version 4" in str(error), error
        else:
            raise AssertionError("another record changed nothing")
        again = cluster.command(cluster.aggregator, "replay", "gateway.yaml", check=False)
        assert again.returncode != 0 and " 0 differ" not in again.stdout, again.stdout


@scenario
def a_fast_link_gets_q8(build):
    with Cluster(build, GROUPS, rounds=3, **{**AUTO, "deadline": "60 s"}) as cluster:
        keep_all(cluster)
        cluster.start_all()
        cluster.wait_for_end(60)
        found = rows(cluster)
        assert [MODES[row[1]] for row in found] == ["q8"] * 3, found
        made_again(cluster, 3)


@scenario
def killed_programs_keep_to_the_record(build):
    """All are killed again and again, at random times, the gateway most often."""
    generator = random.Random(5)
    with Cluster(build, GROUPS, link=THIN, rounds=6, **AUTO) as cluster:
        keep_all(cluster)
        cluster.start_all()
        cluster.wait_for_version(1)
        kills = 0
        before = rows(cluster)
        while cluster.version() < 5:
            time.sleep(generator.uniform(0.2, 1.5))
            victim = generator.choice(["gateway", "gateway", *cluster.boards])
            if cluster.processes["gateway"].poll() is not None:
                break
            if cluster.processes[victim].poll() is None:
                cluster.kill(victim)
                cluster.start(victim)
                kills += 1
            now = rows(cluster)
            assert now[:len(before)] == before, (before, now)  # what was recorded stays
            before = now
        cluster.wait_for_end(120)
        assert kills >= 3, kills
        assert [row[0] for row in rows(cluster)] == [1, 2, 3, 4, 5, 6]
        made_again(cluster, 6)


if __name__ == "__main__":
    scenario.main()
