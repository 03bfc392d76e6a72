"""A group on a LAN of its own in network namespaces: links cut, boards frozen and killed, the LAN split.

    group.py BUILD [SCENARIO...]

Wall times are printed, not asserted: tests/unit/test_membership.c asserts them with a clock of its own.
"""

import os
import signal
import time

from cluster import ENDLESS, same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios

FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
# Boards mixed: every board has samples of all digits, so what one that is away knew is not lost with it.
HASTY = {"rounds": ENDLESS, "local_steps": 60, "rejoin": "100 ms", "form": "10 s", "timeout": "60 s", "quorum": 1,
         "mixed": True}

PAIRS = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3", "board-4"]}

scenario = Scenarios()


def mark(version):
    return f"version {version}: held-out"


def begin(lan):
    lan.start_all()
    lan.wait_for_line("board-1", mark(2))


def finish(lan):
    if lan.job["rounds"] == ENDLESS:
        lan.end_run()
    lan.wait_for_end(180)
    lan.replay()
    same_model_everywhere(lan)


def updates_of(lan, group):
    """Rounds for which the gateway's ledger has an update of a group."""
    return [row[0] for row in lan.ledger("SELECT round FROM contribution WHERE grp = ? ORDER BY round", group)]


def check_blame(lan, victim, name, others, since):
    """Its log since then blames no survivor, and one epoch of all three survivors was enough."""
    log = lan.log(name)[since:]
    blamed = [other for other in others if f"{other} is lost" in log or f"no connection with {other} " in log]
    assert not blamed, f"{name} blames {blamed} for the loss of {victim}"
    assert log.count("; without ") == 1 and f"; without {victim}\n" in log, f"{name}: more than one epoch:\n{log}"


def be_lost_and_return(lan, victim, lose, back, others, exact):
    """The others go on without the victim, and take it in again. Seconds until they went on."""
    since = {name: len(lan.log(name)) for name in others}
    views = {name: lan.views(name, 3) for name in others}
    begun = time.monotonic()
    lose(lan, victim)
    for name in others:
        lan.wait_for_view(name, 3, views[name] + 1)
    took = time.monotonic() - begun
    for name in others if exact else ():
        check_blame(lan, victim, name, others, since[name])
    whole = {name: lan.views(name, 4) for name in others}
    back(lan, victim)
    for name in others:
        lan.wait_for_view(name, 4, whole[name] + 1)
    return took


def lose_each(build, victims, lose, back, exact=False, **settings):
    """One after the other is lost, named by somebody (exact: and nobody else is), and comes back."""
    times = []
    with Lan(build, FOUR, **{**HASTY, **settings}) as lan:
        begin(lan)
        for victim in victims:
            others = [name for name in lan.boards if name != victim]
            times.append(be_lost_and_return(lan, victim, lose, back, others, exact))
            said = "".join(lan.log(name) for name in others)
            # As one that was lost, or in the moment when the connections of a new epoch are opened.
            named = (f"{victim} (", f"{victim} is lost", f"no connection with {victim} ")
            assert any(words in said for words in named), "nobody named the lost board"
        patient = [name for name in lan.boards if "group.timeout" in lan.log(name)]
        assert not patient, f"nobody waited so long as group.timeout, and {patient} took it for too short"
        finish(lan)
    return f"went on after {', '.join(f'{t:.2f}' for t in times)} s"


@scenario
def a_link_is_cut(build):
    return lose_each(build, ("board-2", "board-1"), Lan.cut, Lan.mend)


@scenario
def a_board_is_killed(build):
    return lose_each(build, ("board-4", "board-1"), Lan.kill, Lan.start, exact=True)


@scenario
def a_straggler_stays(build):
    """It runs a third of the time, in turns shorter than four heartbeats."""
    with Lan(build, FOUR, **{**HASTY, "local_steps": 20}) as lan:
        begin(lan)
        views = lan.log("board-1").count("epoch")
        for _ in range(15):
            lan.freeze("board-2")
            time.sleep(0.4)
            lan.thaw("board-2")
            time.sleep(0.2)
        assert lan.views("board-1", 3) == 0, "a board that answers was thrown out"
        finish(lan)
        assert views  # it formed at all


@scenario
def each_board_freezes(build):
    """SIGSTOP of each rank in turn, the leader among them."""
    return lose_each(build, FOUR["lab"], Lan.freeze, Lan.thaw)


@scenario
def a_board_leaves_in_order(build):
    """It says BYE: a group that would wait five minutes for a lost one goes on at once."""
    with Lan(build, FOUR, **{**HASTY, "rejoin": "300 s"}) as lan:
        begin(lan)
        views = lan.views("board-1", 3)
        begun = time.monotonic()
        os.kill(lan.pid("board-3"), signal.SIGTERM)
        lan.wait_for_line("board-1", "of 3; without board-3", views + 1, timeout=60)
        took = time.monotonic() - begun
        lan.processes["board-3"].wait(60)
        lan.start("board-3")
        lan.wait_for_view("board-1", 4, 2)
        finish(lan)
    return f"went on after {took:.2f} s"


@scenario
def fewer_than_min_members_wait(build):
    with Lan(build, FOUR, **{**HASTY, "timeout": "60 s, min_members: 3"}) as lan:
        begin(lan)
        lan.kill("board-2")
        lan.wait_for_line("board-1", "of 3; without board-2")
        lan.kill("board-4")
        for name in ("board-1", "board-3"):
            lan.wait_for_line(name, "waiting: 2 of group.min_members 3 are there; forming after epoch")
        versions = lan.log("board-1").count(": held-out")
        time.sleep(2)
        assert lan.log("board-1").count(": held-out") == versions, "too few went on"
        lan.start("board-4")
        lan.wait_for_line("board-1", "of 3; without board-2", 2)
        lan.start("board-2")
        finish(lan)


@scenario
def the_wan_is_down_for_ten_rounds(build):
    """A group that is cut off from the gateway trains its round to the end, also through a death, and keeps the update."""
    with Lan(build, PAIRS, **{**HASTY, "rounds": 24, "local_steps": 30, "rejoin": "30 s", "deadline": "2 s"}) as lan:
        lan.start_all()
        lan.wait_for_line("board-1", mark(2))
        lan.split(["board-1", "board-2"])
        first = lan.status()["version"]
        lan.wait_for_line("board-1", "the aggregator is not there")
        while lan.status()["version"] < first + 10:
            assert lan.processes["gateway"].poll() is None
            time.sleep(0.2)
        lan.merge()
        lan.wait_for_line("board-1", "the aggregator is back")
        finish(lan)
        rounds = updates_of(lan, "lab-a")
        assert len(rounds) == len(set(rounds)), f"two updates of a round: {rounds}"
        away = [number for number in rounds if first + 1 < number <= first + 10]
        assert not away, f"updates of rounds in which it was away: {away}"
        assert max(rounds) > first + 10, f"it did not take part again: {rounds}"
        assert lan.log("board-1").count("accepted") == len(rounds), f"{len(rounds)} updates counted"
    return f"its updates are of rounds {rounds}"


if __name__ == "__main__":
    scenario.main(possible=allowed)
