"""A group whose LAN is split while each part still reaches the gateway: both train on, one counts.

    split.py BUILD [SCENARIO...]
"""

import time

from cluster import ENDLESS, same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios

LEFT, RIGHT = ["board-1", "board-2"], ["board-3", "board-4"]
FOUR = {"lab": LEFT + RIGHT}
STEPS, BATCH = 40, 32
JOB = {"rounds": ENDLESS, "local_steps": STEPS, "batch": BATCH, "rejoin": "100 ms", "form": "20 s", "timeout": "60 s",
       "quorum": 1, "mixed": True}

scenario = Scenarios()


def counted(lan):
    """Samples that the ledger has of each round."""
    return dict(lan.ledger("SELECT round, weight FROM contribution"))


def state_of(lan, board):
    """The newest state on its disk without what differs from board to board: counter, epoch, digest (CHECKPOINT.md)."""
    states = []
    for slot in ("checkpoint.a", "checkpoint.b"):
        with open(lan.path("state", board, slot), "rb") as file:
            states.append(file.read())
    newest = max(states, key=lambda state: int.from_bytes(state[16:24], "little"))
    return newest[24:56] + newest[64:-32]


@scenario
def both_parts_finish_a_round_and_one_lineage_stays(build):
    with Lan(build, FOUR, **JOB) as lan:
        lan.start_all()
        lan.wait_for_line("board-1", "version 2: held-out")
        lan.part(LEFT, RIGHT)
        for name in FOUR["lab"]:
            lan.wait_for_view(name, 2)
        apart = counted(lan)
        gave_up = "another part of the group has delivered it"
        deadline = time.monotonic() + 60
        while not any(lan.log(name).count(gave_up) > 1 for name in FOUR["lab"]):
            assert time.monotonic() < deadline, "no part gave a round up"
            time.sleep(0.05)
        together = {name: lan.views(name, 4) for name in FOUR["lab"]}
        lan.join()
        for name, count in together.items():
            lan.wait_for_view(name, 4, count + 1)
        merged, whole = counted(lan), STEPS * BATCH * 4
        deadline = time.monotonic() + 90  # on a busy machine a member may be late for a round
        while not any(weight == whole for number, weight in counted(lan).items() if number not in merged):
            assert time.monotonic() < deadline, "no later round was that of all"
            time.sleep(0.05)
        lan.end_run()
        lan.wait_for_end(180)
        lan.replay()

        samples = counted(lan)
        rounds = set(merged) - set(apart)
        assert all(weight <= whole for weight in samples.values()), f"more samples than there are: {samples}"
        assert any(weight < whole for number, weight in samples.items() if number in rounds), "no part counted alone"
        same_model_everywhere(lan)
        assert len({state_of(lan, name) for name in FOUR["lab"]}) == 1, "the boards hold different states"
        lost = sum(lan.log(name).count(gave_up) for name in FOUR["lab"])
        return f"{len(rounds)} rounds apart, {lost} given up by a board"


if __name__ == "__main__":
    scenario.main(possible=allowed)
