"""What dies and what happens then: one scenario for each row of the crash-only list in DESIGN.md.

    recover.py BUILD [SCENARIO...]

Without names all scenarios run. Where membership is unchanged and no deadline expires, the final digest
is that of the undisturbed run with the same groups.
"""

import resource
import shutil
import signal
import socket
import time

from cluster import ENDLESS, JOB, Cluster, same_model_everywhere
from scenarios import Scenarios

# Long enough that "no deadline expired" holds on a busy machine.
PATIENT = {"rounds": 6, "local_steps": 20, "rejoin": "30 s", "form": "30 s"}
# Goes on without a member soon.
HASTY = {"rounds": 6, "local_steps": 20, "rejoin": "300 ms", "form": "10 s", "timeout": "2 s"}

PAIRS = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3", "board-4"]}
THREE = {"lab-a": ["board-1"], "lab-b": ["board-2", "board-3", "board-4"]}
FOUR = {"lab-a": ["board-1", "board-2", "board-3", "board-4"]}
SINGLES = {f"lab-{number}": [f"board-{number}"] for number in (1, 2, 3, 4)}

undisturbed = {}

scenario = Scenarios()


def expected(build, groups, settings):
    """Digest of the run in which nothing dies."""
    key = str((groups, settings))
    if key not in undisturbed:
        with Cluster(build, groups, **settings) as cluster:
            cluster.start_all()
            cluster.wait_for_end(120)
            undisturbed[key] = cluster.digest()
    return undisturbed[key]


def finish(cluster, names=None):
    if cluster.job["rounds"] == ENDLESS:
        cluster.end_run()
    cluster.wait_for_end(120, names)
    cluster.replay()


def check_same(build, groups, disturb, settings=PATIENT, **more):
    """Runs it with a disturbance and compares with the undisturbed run."""
    settings = {**settings, **more}
    wanted = expected(build, groups, settings)
    with Cluster(build, groups, **settings) as cluster:
        cluster.start_all()
        disturb(cluster)
        finish(cluster)
        assert cluster.digest() == wanted, f"digest {cluster.digest()}, undisturbed {wanted}"
        same_model_everywhere(cluster)


def restart(cluster, *names):
    for name in names:
        cluster.kill(name)
    for name in names:
        cluster.start(name)


def mark(version):
    """What a board's log says when it has taken this version."""
    return f"version {version}: held-out"


# Membership unchanged: the same digest


@scenario
def all_die_at_once(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(2))
        restart(cluster, "gateway", *cluster.boards)

    check_same(build, PAIRS, disturb)


@scenario
def a_whole_group_dies(build):
    def disturb(cluster):
        cluster.wait_for_line("board-3", mark(3))
        restart(cluster, "board-3", "board-4")

    check_same(build, PAIRS, disturb)


@scenario
def each_dies_as_it_starts(build):
    def disturb(cluster):
        for name in ["gateway", *cluster.boards]:
            restart(cluster, name)
            time.sleep(0.05)

    check_same(build, PAIRS, disturb)


@scenario
def one_dies_again_and_again(build):
    def disturb(cluster):
        cluster.wait_for_line("board-2", mark(1))
        for _ in range(5):
            restart(cluster, "board-2")
            time.sleep(0.4)

    check_same(build, PAIRS, disturb)


@scenario
def the_leader_dies_at_the_end(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(6))
        restart(cluster, "board-1")

    check_same(build, PAIRS, disturb)


@scenario
def a_member_dies_at_the_end(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(6))
        restart(cluster, "board-2")

    check_same(build, PAIRS, disturb)


@scenario
def the_aggregator_dies_at_the_end(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", "round 6: update")
        restart(cluster, "gateway")

    check_same(build, PAIRS, disturb)


@scenario
def all_die_at_the_end(build):
    def disturb(cluster):
        cluster.wait_for_line("board-3", "round 6: update")
        restart(cluster, "gateway", *cluster.boards)

    check_same(build, PAIRS, disturb)


@scenario
def the_aggregator_is_away_while_boards_wait(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(2))
        cluster.kill("gateway")
        time.sleep(3)
        cluster.start("gateway")

    check_same(build, PAIRS, disturb)


@scenario
def a_board_restarts_while_the_aggregator_is_down(build):
    def disturb(cluster):
        cluster.wait_for_line("board-4", mark(2))
        cluster.kill("gateway")
        restart(cluster, "board-4")
        time.sleep(1.5)
        cluster.start("gateway")

    check_same(build, PAIRS, disturb)


@scenario
def a_member_loses_its_state_directory(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(3))
        cluster.kill("board-1")
        shutil.rmtree(cluster.path("state", "board-1"))
        cluster.start("board-1")

    check_same(build, PAIRS, disturb)


@scenario
def both_slots_of_a_member_are_damaged(build):
    def disturb(cluster):
        cluster.wait_for_line("board-2", mark(3))
        cluster.kill("board-2")
        for slot in ("checkpoint.a", "checkpoint.b"):
            with open(cluster.path("state", "board-2", slot), "r+b") as file:
                file.seek(1000)
                byte = file.read(1)
                file.seek(1000)
                file.write(bytes([byte[0] ^ 4]))
        cluster.start("board-2")
        cluster.wait_for_line("board-2", "checkpoint.a cannot be used")
        cluster.wait_for_line("board-2", "starting from the beginning")

    check_same(build, PAIRS, disturb)


@scenario
def groups_of_one_and_three(build):
    def disturb(cluster):
        cluster.wait_for_line("board-2", mark(1))
        restart(cluster, "board-2")
        cluster.wait_for_line("board-1", mark(3))
        restart(cluster, "board-1", "board-4")

    check_same(build, THREE, disturb)


@scenario
def a_group_of_four(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(1))
        restart(cluster, "board-3")
        cluster.wait_for_line("board-1", mark(3))
        restart(cluster, "board-1", "board-2")

    check_same(build, FOUR, disturb, quorum=1)


@scenario
def boards_alone(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", mark(1))
        restart(cluster, "board-1", "board-2", "gateway")

    check_same(build, SINGLES, disturb, quorum=4)


# Membership changes


@scenario
def all_die_while_they_deliver_and_one_stays_away(build):
    """What it did is in the update that the other has on its disk."""
    settings = {**HASTY, "rounds": 3, "local_steps": 300, "form": "3 s", "quorum": 1, "mixed": True}
    with Cluster(build, {"lab": ["board-1", "board-2"]}, **settings) as cluster:
        cluster.start_all()
        cluster.wait_for_view("board-1", 2)
        cluster.wait_for_line("board-1", mark(1))
        time.sleep(0.3)
        cluster.kill("gateway")
        cluster.wait_for_status("board-2", "round", phase="delivering")
        number = cluster.board_status("board-2")["round"]["number"]
        for last in (signal.SIGSTOP, signal.SIGKILL):  # neither sees the other die
            for name in cluster.boards:
                cluster.signal(name, last)
        for name in cluster.boards:
            cluster.processes[name].wait()
        cluster.start("gateway")
        cluster.start("board-2")
        finish(cluster, ["gateway", "board-2"])
        weights = dict(cluster.ledger("SELECT round, weight FROM contribution"))
        assert weights[number] == 2 * settings["local_steps"] * JOB["batch"], f"round {number}: {weights}"


@scenario
def a_board_that_was_away_is_taken_in(build):
    with Cluster(build, PAIRS, **{**HASTY, "rounds": ENDLESS}) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", mark(1))
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "rank 0 of 1")
        before = cluster.log("board-1").count("rank 0 of 2")
        cluster.start("board-2")
        cluster.wait_for_line("board-1", "rank 0 of 2", before + 1)
        finish(cluster)
        same_model_everywhere(cluster)


@scenario
def a_member_that_gets_no_memory_is_started_anew(build):
    """The only one that has the state cannot give it: it does not keep the group from working for ever."""
    with Cluster(build, {"lab": ["board-1", "board-2"]}, **{**PATIENT, "rounds": ENDLESS}, quorum=1) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", mark(1))
        cluster.kill("board-2")
        shutil.rmtree(cluster.path("state", "board-2"))
        giver = cluster.processes["board-1"]
        resource.prlimit(giver.pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))  # nothing more than it has
        cluster.start("board-2")
        assert giver.wait(60) == 1, giver.returncode
        log = cluster.log("board-1")
        assert "board-1 cannot give its state: out of memory" in log, log
        assert "no memory to take part in 5 epochs in a row: this process ends" in log, log
        views = cluster.views("board-1", 2)
        cluster.start("board-1")  # as systemd does
        cluster.wait_for_view("board-1", 2, views + 1)
        finish(cluster)
        same_model_everywhere(cluster)


@scenario
def a_member_that_stands_still_is_left_out_and_taken_in(build):
    with Cluster(build, PAIRS, **{**HASTY, "rounds": ENDLESS}) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-3", mark(1))
        cluster.signal("board-4", signal.SIGSTOP)
        begun = time.monotonic()
        cluster.wait_for_line("board-3", "rank 0 of 1")
        before = cluster.log("board-3").count("rank 0 of 2")
        time.sleep(max(0, begun + 10 - time.monotonic()))
        cluster.signal("board-4", signal.SIGCONT)
        cluster.wait_for_line("board-3", "rank 0 of 2", before + 1)
        finish(cluster)
        same_model_everywhere(cluster)


@scenario
def the_run_ends_while_a_member_is_away(build):
    with Cluster(build, PAIRS, **HASTY) as cluster:
        cluster.start("gateway", "--stay")
        for board in cluster.boards:
            cluster.start(board)
        cluster.wait_for_line("board-1", mark(1))
        cluster.kill("board-2")
        cluster.wait_for_end(60, ["board-1", "board-3", "board-4"])
        cluster.start("board-2")
        cluster.wait_for_end(60, ["board-2"])
        same_model_everywhere(cluster)
        cluster.signal("gateway", signal.SIGINT)
        cluster.processes["gateway"].wait(20)
        cluster.replay()


@scenario
def a_member_that_cannot_be_reached_is_left_out_with_a_clear_line(build):
    settings = {**HASTY, "rounds": ENDLESS}
    with Cluster(build, PAIRS, **settings) as cluster:
        port = cluster.board_ports["board-2"]
        with socket.socket() as wall:  # takes the gradients' port of board-2; control is UDP
            wall.bind(("127.0.0.1", port))
            wall.listen()
            cluster.start_all()
            cluster.wait_for_line("board-1", "board-2 is heard, but no connection")
        finish(cluster)


if __name__ == "__main__":
    scenario.main()
