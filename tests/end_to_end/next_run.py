"""A gateway begins its next run with other job values from what was trained: the boards keep their keys."""

import contextlib
import os
import sqlite3
import sys

from bad_input import expect
from cluster import DIGITS, SOURCE, Cluster

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402

GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"]}


def rows(cluster, state, sql):
    with contextlib.closing(sqlite3.connect(cluster.path(state, "ledger.sqlite"))) as ledger:
        return ledger.execute(sql).fetchall()


def the_next_run_begins_with_what_was_trained(cluster):
    """Same boards, same keys, another learning rate."""
    after = [cluster.aggregator, "init", "--after", "state/gateway", "gateway.yaml"]
    expect(cluster.command(*after[:3], "state/none", "gateway.yaml", check=False), 1, "no run was ever started there")
    cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "lost", "-o", "lost.key")
    cluster.command(cluster.aggregator, "revoke", "gateway.yaml", "lost")
    cluster.start_all()
    cluster.wait_for_end(120)
    keys = {name: open(cluster.path("keys", f"{name}.key")).read() for name in cluster.boards}
    expect(cluster.command(*after, check=False), 1, "state/gateway: a run or boards are there already")

    # The profile of the next run: another value, another state directory.
    job = open(cluster.path("job.yaml")).read().replace("learning_rate: 0.05", "learning_rate: 0.02")
    cluster.write("job.yaml", job)
    refused = cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False)
    expect(refused, 1, "train.learning_rate: 0.05 in the run, 0.02 in the profile", "init --after state/gateway PROFILE")
    profile = open(cluster.path("gateway.yaml")).read().replace("state/gateway", "state/next")
    cluster.write("gateway.yaml", profile)
    expect(cluster.command(*after, "--version", "7", check=False), 1, "--version 7: there is none")
    cluster.write("job.yaml", job.replace("digits-cnn", "digits-mlp"))
    expect(cluster.command(*after, check=False), 1, "another model than the profile", "--version none")
    cluster.write("job.yaml", job)
    expect(cluster.command(*after, "--version", "1"), 0, "2 groups", "version 0 is version 1 of run")
    expect(cluster.command(*after, check=False), 1, "state/next: a run or boards are there already")
    old, new = ({name: rest for name, *rest in rows(cluster, state, "SELECT name,grp,secret,max_weight,revoked FROM board")}
                for state in ("state/gateway", "state/next"))
    assert old == new and new["lost"][-1] == 1, "other boards, or a revoked one came back"
    full = [open(cluster.path(state, "files", name), "rb").read()
            for state, name in (("state/gateway", "version-1.full"), ("state/next", "version-0.full"))]
    assert full[0][88:] == full[1][88:], "version 0 has other weights than version 1 of the earlier run"

    # What a group trained in the earlier run is not in this ledger.
    expect(cluster.command(cluster.aggregator, "remove", "gateway.yaml", "lost", "--reason", "x"), 0,
           "no update of group lost is in version 0", "Version 0 is version 1 of an earlier run")
    expect(cluster.command(cluster.aggregator, "replay", "gateway.yaml", "--without", "lost"), 0,
           "no version has something of group lost", "Version 0 is version 1 of an earlier run")

    # Boards that were never touched take part; every version can be made again.
    cluster.start_all()
    cluster.wait_for_end(120)
    assert "version 0 is version 1 of run" in cluster.log("gateway"), cluster.log("gateway")
    assert cluster.replay()[-1].startswith("3 versions, 0 differ, 0 not"), cluster.replay()
    count, _ = replay.replay(cluster.path("state/next"), os.path.join(DIGITS, cluster.job["model"]), 10)
    assert count == 2, "the second implementation made other versions"
    assert keys == {name: open(cluster.path("keys", f"{name}.key")).read() for name in cluster.boards}
    assert rows(cluster, "state/gateway", "SELECT run FROM meta") != rows(cluster, "state/next", "SELECT run FROM meta")


def boards_are_taken_to_another_model(cluster):
    """With --version none the model may be any."""
    job = open(cluster.path("job.yaml")).read()
    cluster.write("job.yaml", job.replace("digits-cnn", "digits-mlp"))
    cluster.write("gateway.yaml", open(cluster.path("gateway.yaml")).read().replace("state/gateway", "state/next"))
    after = [cluster.aggregator, "init", "--after", "state/gateway", "--version", "none", "gateway.yaml"]
    assert "version 0" not in cluster.command(*after).stdout
    cluster.start_all()
    cluster.wait_for_end(120)
    assert cluster.replay()[-1].startswith("3 versions, 0 differ, 0 not"), cluster.replay()


CASES = (the_next_run_begins_with_what_was_trained, boards_are_taken_to_another_model)


def main(build):
    for case in CASES:
        with Cluster(build, GROUPS, rounds=2, quorum=2, local_steps=5) as cluster:
            case(cluster)
        print(f"{case.__name__}: {case.__doc__.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
