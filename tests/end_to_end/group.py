"""A group on a LAN of its own in network namespaces: links cut, boards frozen and killed, the LAN split.

    group.py BUILD [SCENARIO...]

Wall times are printed, not asserted: tests/unit/test_membership.c asserts them with a clock of its own.
"""

import functools
import os
import sys
import time

from lan import Lan, run

FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
# Boards mixed: every board has samples of all digits, so what one that is away knew is not lost with it.
HASTY = {"rounds": 16, "local_steps": 60, "rejoin": "100 ms", "form": "10 s", "timeout": "60 s", "quorum": 1,
         "mixed": True}

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def mark(version):
    return f"version {version}: held-out"


def begin(lan):
    lan.start_all()
    lan.wait_for_line("board-1", mark(2))


def finish(lan):
    lan.wait_for_end(180)
    lan.replay()
    models = {board: lan.current_model(board) for board in lan.boards}
    assert len(set(models.values())) == 1, "the boards hold different models"


def be_lost_and_return(lan, victim, lose, back, others):
    """The others go on without the victim, and take it in again. Seconds until they went on."""
    views = {name: lan.log(name).count("of 3") for name in others}
    begun = time.monotonic()
    lose(victim)
    for name in others:
        lan.wait_for_line(name, "of 3", views[name] + 1)
    took = time.monotonic() - begun
    whole = {name: lan.log(name).count("of 4") for name in others}
    back(victim)
    for name in others:
        lan.wait_for_line(name, "of 4", whole[name] + 1)
    return took


@scenario
def a_link_is_cut(build):
    times = []
    with Lan(build, FOUR, **HASTY) as lan:
        begin(lan)
        for victim in ("board-2", "board-1"):
            others = [name for name in lan.boards if name != victim]
            times.append(be_lost_and_return(lan, victim, lan.cut, lan.mend, others))
            said = "".join(lan.log(name) for name in others)
            assert f"{victim} (" in said or f"{victim} is lost" in said, "nobody named the lost board"
        finish(lan)
    return f"went on after {', '.join(f'{t:.2f}' for t in times)} s"


@scenario
def a_board_freezes(build):
    times = []
    with Lan(build, FOUR, **HASTY) as lan:
        begin(lan)
        for victim in ("board-3", "board-1"):
            others = [name for name in lan.boards if name != victim]
            times.append(be_lost_and_return(lan, victim, lan.freeze, lan.thaw, others))
        finish(lan)
    return f"went on after {', '.join(f'{t:.2f}' for t in times)} s"


@scenario
def a_board_is_killed(build):
    times = []
    with Lan(build, FOUR, **HASTY) as lan:
        begin(lan)
        for victim in ("board-4", "board-1"):
            others = [name for name in lan.boards if name != victim]
            times.append(be_lost_and_return(lan, victim, lan.kill, lan.start, others))
        finish(lan)
    return f"went on after {', '.join(f'{t:.2f}' for t in times)} s"


@scenario
def a_straggler_stays(build):
    """It runs a third of the time, in turns shorter than four heartbeats."""
    with Lan(build, FOUR, **{**HASTY, "rounds": 6, "local_steps": 20}) as lan:
        begin(lan)
        views = lan.log("board-1").count("epoch")
        for _ in range(15):
            lan.freeze("board-2")
            time.sleep(0.4)
            lan.thaw("board-2")
            time.sleep(0.2)
        assert lan.log("board-1").count("of 3") == 0, "a board that answers was thrown out"
        finish(lan)
        assert views  # it formed at all


if __name__ == "__main__":
    bound = {name: functools.partial(function, os.path.abspath(sys.argv[1])) for name, function in SCENARIOS.items()}
    sys.exit(run(bound, sys.argv[2:]))
