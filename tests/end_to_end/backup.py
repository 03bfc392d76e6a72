"""A gateway that is restored from a backup, as docs/backup.md says: the run goes on, and who was revoked stays out.

    backup.py BUILD [SCENARIO...]
"""

import os
import shutil
import time

from cluster import ENDLESS, Cluster, wait_until
from scenarios import Scenarios

GROUPS = {"a": ["board-1"], "b": ["board-2"]}
STATE = ("state", "gateway")

scenario = Scenarios()


def back_up(cluster):
    """With the gateway stopped; boards train on meanwhile."""
    cluster.kill("gateway")
    shutil.copytree(cluster.path(*STATE), cluster.path("backup"), ignore=shutil.ignore_patterns("*.sock"))


def restore(cluster):
    cluster.kill("gateway")
    shutil.rmtree(cluster.path(*STATE))
    shutil.copytree(cluster.path("backup"), cluster.path(*STATE))


def revocations(cluster, *options, check=True):
    return cluster.command(cluster.aggregator, "revocations", *options, "gateway.yaml", check=check).stdout


@scenario
def a_restored_gateway_is_noticed_and_goes_on(build):
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start_all()
        cluster.wait_for_version(2)
        back_up(cluster)
        copied = cluster.version()
        cluster.start("gateway")
        cluster.wait_for_version(copied + 5)
        cluster.command(cluster.aggregator, "revoke", "gateway.yaml", "board-2")
        cluster.wait_for_line("board-2", "refuses this board")
        cluster.wait_for_version(cluster.version() + 3)

        restore(cluster)
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "board-2 is revoked: its key is in")
        cluster.wait_for_line("board-1", "this board is ahead of the aggregator")
        cluster.wait_for_line("gateway", "board-1 is ahead of this ledger: was it restored from a backup?")
        ahead = "it is ahead of this ledger: was that restored from a backup?"
        deadline = time.monotonic() + 60
        while ahead not in cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout:
            assert time.monotonic() < deadline, "status does not say that board-1 is ahead"
            time.sleep(0.1)
        deadline = time.monotonic() + 60
        while "ahead of the aggregator" not in cluster.board_status("board-1").get("state", ""):
            assert time.monotonic() < deadline, "the board's status does not say that it is ahead"
            time.sleep(0.1)
        held = cluster.version()

        cluster.kill("gateway")
        cluster.start("gateway", "--restored")
        cluster.wait_for_version(held + 5)
        boards = {board for board, in cluster.ledger("SELECT board FROM contribution WHERE round > ?", held)}
        assert boards == {"board-1"}, f"these boards took part: {boards}"
        wait_until(lambda: "ahead" not in cluster.board_status("board-1")["state"], "a status that was written after that")
        cluster.end_run()
        cluster.wait_for_end(120, ["gateway", "board-1"])
        assert all(" DIFFERS" not in line for line in cluster.replay())
        return f"from version {copied} of lineage 1"


@scenario
def revocations_are_taken_to_another_gateway(build):
    with Cluster(build, GROUPS) as cluster:
        copy = cluster.path("backup")
        shutil.copytree(cluster.path(*STATE), copy)
        cluster.command(cluster.aggregator, "revoke", "gateway.yaml", "board-2")
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "board-2", "--group", "b", "-o", "keys/new.key")
        listed = revocations(cluster)
        assert listed.count("cairn-revoked-1 board-2 ") == 1 and len(listed.splitlines()) == 1, listed
        for key in ("board-2.key", "new.key"):
            with open(cluster.path("keys", key)) as file:
                assert file.read().split()[2] not in listed, "a secret is listed"
        revoked = "SELECT name FROM board WHERE revoked = 1"
        assert cluster.ledger(revoked) == [], "the name that was enrolled again is revoked"

        # Another machine: the copy of the state, and the list from elsewhere.
        shutil.rmtree(cluster.path(*STATE))
        os.remove(cluster.path("state", "gateway.revocations"))
        shutil.copytree(copy, cluster.path(*STATE))
        cluster.write("list", listed + "cairn-revoked-1 board-2\n")
        result = cluster.command(cluster.aggregator, "revocations", "--import", "list", "gateway.yaml", check=False)
        assert result.returncode == 1 and "lines that are no revocations: 1" in result.stderr, result
        assert cluster.ledger(revoked) == [("board-2",)], "board-2 is enrolled"
        assert cluster.ledger("SELECT grp, raised FROM key_epoch") == [("b", 1)]
        assert revocations(cluster) == listed
        revocations(cluster, "--import", "list", check=False)
        assert cluster.ledger("SELECT raised FROM key_epoch") == [(1,)], "the second import changed something"


if __name__ == "__main__":
    scenario.main()
