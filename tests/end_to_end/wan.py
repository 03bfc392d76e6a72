"""Boards on a LAN of their own whose gateway is away: they train on, also those that are started meanwhile.

    wan.py BUILD [SCENARIO...]
"""

import os
import sqlite3
import time

from cluster import same_model_everywhere
from group import updates_of
from lan import Lan, allowed
from scenarios import Scenarios

GROUPS = {"lab": ["board-1", "board-2", "board-3"], "solo": ["board-4"]}
# A lost board is waited for, so what dies and comes back changes no bit.
JOB = {"rounds": 3, "local_steps": 300, "rejoin": "60 s", "form": "60 s", "timeout": "60 s", "deadline": "300 s",
       "mixed": True}

scenario = Scenarios()


def until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def train(build, disturb=None, groups=GROUPS, **settings):
    with Lan(build, groups, **{**JOB, **settings}) as lan:
        lan.start_all()
        if disturb:
            disturb(lan)
        lan.wait_for_end(120)
        lan.replay()
        same_model_everywhere(lan)
        for board in lan.boards:  # once for each start: that the gateway is back starts nothing anew
            starts = 1 + lan.log(board).count("going on with the last registration")
            assert lan.log(board).count("registered in group") == starts, f"{board} registered more than {starts} times"
        for group in groups:
            assert updates_of(lan, group) == [1, 2, 3], f"an update of {group} is missing"
        return lan.digest()


def has_begun(lan, board, number):
    """By the file with the order of its round (CHECKPOINT.md)."""
    try:
        with open(lan.path("state", board, "round"), "rb") as file:
            return int.from_bytes(file.read()[20:24], "little") == number
    except FileNotFoundError:
        return False


def cut_in_round(lan, number):
    """All boards were told of it, and none has done it: it is some hundred steps long."""
    for board in lan.boards:
        until(f"{board} begins", lambda board=board: has_begun(lan, board, number))
    lan.cut("gateway")


def has_done(lan, board, number):
    seen = lan.board_status(board).get("round", {})
    return seen.get("number") == number and seen.get("step") == JOB["local_steps"]


def start_again(lan, boards):
    line = "going on with the last registration"
    before = {board: lan.log(board).count(line) for board in boards}
    for board in boards:
        lan.kill(board)
    for board in boards:
        lan.start(board)
    for board in boards:
        lan.wait_for_line(board, line, before[board] + 1, timeout=60)


def be_started_without_the_gateway(lan):
    """One member, then all of them and a board that is alone, killed in a round and started again."""
    cut_in_round(lan, 2)
    start_again(lan, ["board-2"])
    lan.wait_for_view("board-1", 3, 2)
    start_again(lan, lan.boards)
    for board in lan.boards:
        until(f"{board} has done its round", lambda board=board: has_done(lan, board, 2))
    time.sleep(0.5)
    for board in lan.boards:
        assert has_done(lan, board, 2), f"{board} went on to a round that it was not told of"
        assert lan.board_status(board)["state"] != "not registered yet"
    assert lan.status()["version"] == 1, "the gateway was not away"
    start_again(lan, ["board-1", "board-4"])  # with the update in the outbox
    lan.mend("gateway")


@scenario
def boards_started_without_the_gateway_train_on(build):
    wanted = train(build)
    digest = train(build, be_started_without_the_gateway)
    assert digest == wanted, f"digest {digest}, undisturbed {wanted}"
    return f"digest {digest[:8]} as undisturbed"


def be_killed_before_a_state_is_stored(lan):
    """All of them, some steps into a round; the first state of a round is stored after 5 s."""
    cut_in_round(lan, 2)
    start_again(lan, lan.boards)
    for board in lan.boards:
        lan.wait_for_line(board, "beginning round 2 again")
        until(f"{board} has done its round", lambda board=board: has_done(lan, board, 2))
    assert lan.status()["version"] == 1, "the gateway was not away"
    lan.mend("gateway")


@scenario
def shards_that_are_all_killed_begin_their_round_again(build):
    for stage in (1, 2, 3):
        sharded = {"groups": {"lab": ["board-1", "board-2"]}, "extra": f"parallel: {{shard: 2, stage: {stage}}}", "quorum": 1}
        wanted = train(build, **sharded)
        digest = train(build, be_killed_before_a_state_is_stored, **sharded)
        assert digest == wanted, f"stage {stage}: digest {digest}, undisturbed {wanted}"


@scenario
def another_run_waits_at_the_gateway(build):
    """What the boards train without it is of a run that is no more: they take part in the new one."""
    with Lan(build, {"lab": ["board-1", "board-2"]}, **{**JOB, "quorum": 1}) as lan:
        lan.start_all()
        cut_in_round(lan, 2)
        lan.kill("gateway")
        until("board-1 tells its run", lambda: "run" in lan.board_status("board-1"))
        run_before = lan.board_status("board-1")["run"]
        start_again(lan, ["board-1"])  # board-2 runs on, and hears of the other run in a round
        for board in lan.boards:
            until(f"{board} has done its round", lambda board=board: has_done(lan, board, 2))
        with sqlite3.connect(lan.path("state/gateway/ledger.sqlite")) as ledger:
            ledger.execute("UPDATE meta SET run = run + 1")
        lan.start("gateway")
        lan.mend("gateway")
        lan.wait_for_end(120)
        assert lan.board_status("board-1").get("run", run_before) != run_before, "no other run"
        assert updates_of(lan, "lab") == [1, 2, 3]
        same_model_everywhere(lan)


def be_refused(lan, board, text):
    line = "the stored registration is not used: key, aggregator or members have changed"
    count = lan.log(board).count(line)
    lan.kill(board)
    lan.write(f"{board}.yaml", text)
    lan.start(board)
    lan.wait_for_line(board, line, count + 1, timeout=60)


@scenario
def a_registration_of_others_is_not_used(build):
    """Another list of members, gateway or key, a damaged file: the board waits for the gateway, and says why."""
    with Lan(build, {"lab": ["board-1", "board-2"]}, **{**JOB, "quorum": 1, "rounds": 2}) as lan:
        with open(lan.path("keys/board-2.key")) as file:
            magic, name, secret = file.read().split()
        lan.write("keys/other.key", f"{magic} {name} {secret[::-1]}\n")
        os.chmod(lan.path("keys/other.key"), 0o600)
        lan.start_all()
        lan.wait_for_view("board-1", 2)
        lan.cut("gateway")
        path = lan.path("state/board-1/registration")
        assert os.stat(path).st_mode & 0o777 == 0o600, "others can read the keys of the pairs"
        lan.kill("board-1")
        with open(path, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        lan.start("board-1")
        lan.wait_for_line("board-1", "the stored registration is not used", timeout=60)
        until("it waits", lambda: lan.board_status("board-1").get("state") in ("not registered yet",
                                                                         "the aggregator does not answer"))
        with open(lan.path("board-2.yaml")) as file:
            text = file.read()
        for change in (("board-1:", "board-9:"), (f'address: "{lan.hosts["gateway"]}:', 'address: "10.77.0.99:'),
                       ("keys/board-2.key", "keys/other.key")):
            be_refused(lan, "board-2", text.replace(*change))
        lan.kill("board-2")
        lan.write("board-2.yaml", text)
        lan.start("board-2")
        lan.mend("gateway")
        lan.wait_for_end(120)
        same_model_everywhere(lan)


if __name__ == "__main__":
    scenario.main(possible=allowed)
