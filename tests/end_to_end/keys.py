"""A board that was revoked is out of its group, also when its own way to the gateway is cut.

    keys.py BUILD [SCENARIO...]

The boards reach the gateway through relays that the test cuts; no program of theirs is changed.
"""

import re
import shutil
import signal

from cluster import ENDLESS, Cluster, same_model_everywhere
from scenarios import Scenarios

LAB = ["board-1", "board-2", "board-3"]
JOB = {"rounds": ENDLESS, "quorum": 1, "mixed": True, "link": {"delay": 0}, "rejoin": "2 s", "form": "5 s"}
ROUNDS = 3  # that a member without the newest keys is waited for: runtime/round/node/node_keys.h

scenario = Scenarios()


def cut(cluster, board):
    """Begins or ends an outage of its way to the gateway."""
    cluster.links[board].send_signal(signal.SIGUSR2)


def revoke(cluster, board):
    cluster.command(cluster.aggregator, "revoke", "gateway.yaml", board)


def newest(cluster, board):
    """The newest version that its log tells of."""
    return max(int(number) for number in re.findall(r"version (\d+): held-out", cluster.log(board)))


def wait_for_keys(cluster, boards, epoch, timeout=60):
    for board in boards:
        cluster.wait_for_line(board, f"the keys of epoch {epoch} are used", timeout=timeout)


def goes_on_without(cluster, thief, others):
    """The others make versions in a group of their own; the thief's log tells of none of them."""
    counts = {board: cluster.views(board, len(others)) for board in others}
    assert all(counts.values()), f"not a group of {len(others)}: {counts}"
    held = newest(cluster, thief)
    views = cluster.views(thief, len(others) + 1)
    cluster.wait_for_version(cluster.version() + 10)
    assert newest(cluster, thief) == held, "the revoked board got another version"
    assert cluster.views(thief, len(others) + 1) == views, "the revoked board was taken in again"


def end(cluster, boards):
    cluster.end_run()
    cluster.wait_for_end(120, boards)
    same_model_everywhere(cluster, boards)
    cluster.replay()


def drop(build, thief):
    others = [board for board in LAB if board != thief]
    with Cluster(build, {"lab": LAB}, **JOB) as cluster:
        cluster.start_all()
        for board in LAB:
            cluster.wait_for_view(board, 3)
            cluster.wait_for_line(board, "version 2: held-out")
        cut(cluster, thief)
        revoke(cluster, thief)
        before = cluster.version()
        wait_for_keys(cluster, others, 1)
        for board in others:
            cluster.wait_for_view(board, 2)
        took_part = newest(cluster, thief) - before
        goes_on_without(cluster, thief, others)
        return f"{max(took_part, 0)} versions after it was revoked"


@scenario
def a_revoked_board_with_its_link_cut_is_dropped(build):
    return drop(build, "board-3")


@scenario
def a_revoked_leader_with_its_link_cut_is_dropped(build):
    return drop(build, "board-1")


@scenario
def a_name_that_is_enrolled_again_is_another_board(build):
    thief = "board-2"
    with Cluster(build, {"lab": LAB[:2]}, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_view(thief, 2)
        cluster.wait_for_line("board-1", "version 2: held-out")
        cut(cluster, thief)
        revoke(cluster, thief)
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", thief, "--group", "lab", "-o", "keys/new.key")
        wait_for_keys(cluster, ["board-1"], 2)
        cluster.wait_for_view("board-1", 1)
        goes_on_without(cluster, thief, ["board-1"])

        # The stolen one restarts with what it has on its disk: the keys of before.
        cluster.kill(thief)
        cluster.start(thief)
        cluster.wait_for_line(thief, "going on with the last registration")
        cluster.wait_for_version(cluster.version() + 5)
        assert cluster.views("board-1", 2) == 1, "the stolen board was taken in again"
        cluster.kill(thief)

        # The one that replaces it takes part.
        shutil.rmtree(cluster.path("state", thief))
        shutil.copy(cluster.path("keys", "new.key"), cluster.path("keys", f"{thief}.key"))
        cut(cluster, thief)
        cluster.start(thief)
        cluster.wait_for_view("board-1", 2, 2)
        end(cluster, LAB[:2])


class LaterEnrolled(Cluster):
    def enroll_all(self):
        for board in LAB[:2]:
            self.enroll(board)

    def enroll(self, board):
        self.command(self.aggregator, "enroll", "gateway.yaml", board, "--group", "lab", "-o", f"keys/{board}.key")


@scenario
def a_member_that_is_enrolled_later_is_taken_in(build):
    with LaterEnrolled(build, {"lab": LAB}, **JOB) as cluster:
        for name in ("gateway", "board-1", "board-2"):
            cluster.start(name)
        cluster.wait_for_view("board-1", 2)
        cluster.wait_for_line("board-1", "version 1: held-out")
        cluster.enroll("board-3")
        for board in LAB[:2]:
            cluster.wait_for_line(board, "new keys for the members of the group (epoch 0)")
        cluster.start("board-3")
        for board in LAB:
            cluster.wait_for_view(board, 3)
        end(cluster, LAB)


@scenario
def a_member_that_cannot_hear_of_new_keys_is_waited_for_and_comes_back(build):
    """board-3 is revoked and cut; board-2 is honest, and cut as well."""
    with Cluster(build, {"lab": LAB}, **JOB) as cluster:
        cluster.start_all()
        for board in LAB:
            cluster.wait_for_view(board, 3)
            cluster.wait_for_line(board, "version 2: held-out")
        cut(cluster, "board-2")
        cut(cluster, "board-3")
        revoke(cluster, "board-3")
        wait_for_keys(cluster, ["board-1"], 1)
        waited = cluster.log("board-1").split("new keys for the members of the group")[1]
        assert "board-2 does not have the keys of epoch 1" in waited, "board-2 was not left out"
        rounds = waited.split("board-2 does not have")[0].count(": held-out")
        assert rounds >= ROUNDS - 1, f"board-2 was waited for through {rounds} rounds"

        # Who has not heard of the new keys goes on with the others that have not.
        cluster.wait_for_view("board-2", 2)
        cut(cluster, "board-2")
        wait_for_keys(cluster, ["board-2"], 1)
        cluster.wait_for_view("board-1", 2)
        goes_on_without(cluster, "board-3", LAB[:2])
        end(cluster, LAB[:2])
        return f"{rounds} rounds"


if __name__ == "__main__":
    scenario.main()
