"""A board comes into a group in the middle of a round: it takes what it lacks, and the result is that without it.

    join.py BUILD [SCENARIO...]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time

from cluster import ENDLESS, SOURCE, same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
THREE = {"lab": ["board-1", "board-2", "board-3"]}
# A state of about 18 MB: 18 pieces. Membership does not change: all are waited for.
PATIENT = {"rounds": 8, "local_steps": 40, "rejoin": "60 s", "form": "60 s", "timeout": "60 s", "quorum": 1}
HASTY = {"rounds": ENDLESS, "local_steps": 60, "rejoin": "100 ms", "form": "20 s", "timeout": "60 s", "quorum": 1,
         "mixed": True}

scenario = Scenarios()


def use_wide_model(lan):
    model = lan.path("wide.onnx")
    writer = os.path.join(SOURCE, "tests", "end_to_end", "wide_model.py")
    subprocess.run([sys.executable, writer, model, "1,8,8", "1000", "1000", "10"], check=True)
    lan.set_model(model)


def taken(lan, board):
    """(pieces it lacked, pieces of the state) for each time."""
    found = re.findall(r"taking (\d+) of (\d+) pieces of the state", lan.log(board))
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


def is_in_a_round(lan, board):
    """By what it wrote last, less than a second ago."""
    with open(lan.path("state", board, "status.json")) as file:
        step = json.load(file)["round"]
    return 0 < step["step"] < step["steps"]


def restart_until_it_lacks_something(lan, board, times):
    """Again where the round ended just then: between two rounds all of the state is on its disk."""
    while len(taken(lan, board)) < times:
        while not is_in_a_round(lan, "board-1"):
            assert lan.processes["board-1"].poll() is None, f"the run is over, and {board} lacked nothing"
            time.sleep(0.01)
        updates = lan.log("board-1").count(": update of")
        lan.kill(board)
        lan.start(board)
        while len(taken(lan, board)) < times and lan.log("board-1").count(": update of") == updates:
            time.sleep(0.01)


@scenario
def a_transfer_that_is_cut_goes_on_where_it_was(build):
    expected = undisturbed(build)
    with Lan(build, TWO, **PATIENT) as lan:
        use_wide_model(lan)
        lan.start_all()
        lan.wait_for_line("board-1", "version 1: held-out")
        time.sleep(0.3)
        lose_everything(lan, "board-2")
        lan.limit("board-1", "20mbit")  # 7 s, of which
        lan.start("board-2")
        lan.wait_for_line("board-2", "pieces of the state from board-1")
        time.sleep(2)
        lan.cut("board-2")
        lan.wait_for_line("board-2", "they are kept for the next epoch")
        lan.mend("board-2")
        lan.wait_for_line("board-2", "pieces of the state from board-1", 2)
        lan.limit("board-1", None)
        lan.wait_for_line("board-2", "version 2: held-out")
        restart_until_it_lacks_something(lan, "board-2", 3)
        lan.wait_for_end(120)
        lan.replay()
        (first, pieces), (second, _), (own, all_of_it) = taken(lan, "board-2")[:3]
        assert first > pieces // 2, f"a board without a state took {first} of {pieces} pieces"
        assert 0 < second < first, f"{second} pieces were taken after the cut, {first} before"
        assert 0 < own <= all_of_it, f"a board with most of the state took {own} of {all_of_it} pieces"
        assert lan.digest() == expected, f"digest {lan.digest()}, undisturbed {expected}"
        return f"{first} of {pieces} pieces lacked at first, {second} after the cut, {own} with an own state"


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
        lan.end_run()
        lan.wait_for_end(120)
        lan.replay()
        assert len(taken(lan, "board-3")) > before, "it took no state"
        same_model_everywhere(lan)


if __name__ == "__main__":
    scenario.main(possible=allowed)
