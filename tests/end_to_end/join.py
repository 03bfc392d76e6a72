"""A board comes into a group in the middle of a round: it takes what it lacks, and the result is that without it.

    join.py BUILD [SCENARIO...]
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import time

from cluster import SOURCE
from lan import Lan, run

TWO = {"lab": ["board-1", "board-2"]}
THREE = {"lab": ["board-1", "board-2", "board-3"]}
# A state of about 18 MB: 18 pieces. Membership does not change: all are waited for.
PATIENT = {"rounds": 3, "local_steps": 40, "rejoin": "60 s", "form": "60 s", "timeout": "60 s", "quorum": 1}
HASTY = {"rounds": 8, "local_steps": 60, "rejoin": "100 ms", "form": "20 s", "timeout": "60 s", "quorum": 1,
         "mixed": True}

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def use_wide_model(lan):
    model = lan.path("wide.onnx")
    writer = os.path.join(SOURCE, "tests", "end_to_end", "wide_model.py")
    subprocess.run([sys.executable, writer, model, "1,8,8", "1000", "1000", "10"], check=True)
    lan.set_model(model)


def taken(lan, board):
    """(pieces it lacked, pieces of the state) for each time."""
    found = re.findall(r"takes (\d+) of (\d+) pieces of the state", lan.log(board))
    return [tuple(map(int, pair)) for pair in found]


def undisturbed(build):
    with Lan(build, TWO, **PATIENT) as lan:
        use_wide_model(lan)
        lan.start_all()
        lan.wait_for_end(120)
        return lan.digest()


def lose_everything(lan, board):
    lan.kill(board)
    shutil.rmtree(lan.path("state", board))


@scenario
def a_transfer_that_is_cut_goes_on_where_it_was(build):
    expected = undisturbed(build)
    with Lan(build, TWO, **PATIENT) as lan:
        use_wide_model(lan)
        lan.start_all()
        lan.wait_for_line("board-1", "version 1: held-out")
        time.sleep(0.3)
        lose_everything(lan, "board-2")
        lan.limit("board-1", "40mbit")
        lan.start("board-2")
        lan.wait_for_line("board-2", "pieces of the state of board-1")
        time.sleep(1)
        lan.cut("board-2")
        lan.wait_for_line("board-2", "they are kept for the next epoch")
        lan.mend("board-2")
        lan.wait_for_line("board-2", "pieces of the state of board-1", 2)
        lan.limit("board-1", None)
        lan.wait_for_end(120)
        lan.replay()
        (first, pieces), (second, _) = taken(lan, "board-2")[:2]
        assert first > pieces // 2, f"a board without a state took {first} of {pieces} pieces"
        assert 0 < second < first, f"{second} pieces were taken after the cut, {first} before"
        assert lan.digest() == expected, f"digest {lan.digest()}, undisturbed {expected}"
        return f"{first} of {pieces} pieces lacked at first, {second} after the cut"


@scenario
def a_stopped_board_that_resumes_late_takes_the_state(build):
    with Lan(build, THREE, **HASTY) as lan:
        lan.start_all()
        lan.wait_for_line("board-1", "version 2: held-out")
        lan.freeze("board-3")
        lan.wait_for_line("board-1", "of 2")
        time.sleep(1.5)  # the others train on, in a later epoch
        whole = lan.log("board-1").count("of 3")
        before = len(taken(lan, "board-3"))
        lan.thaw("board-3")
        lan.wait_for_line("board-1", "of 3", whole + 1)
        lan.wait_for_end(120)
        lan.replay()
        assert len(taken(lan, "board-3")) > before, "it took no state"
        assert len({lan.current_model(name) for name in lan.boards}) == 1, "the boards hold different models"


if __name__ == "__main__":
    bound = {name: functools.partial(function, os.path.abspath(sys.argv[1])) for name, function in SCENARIOS.items()}
    sys.exit(run(bound, sys.argv[2:]))
