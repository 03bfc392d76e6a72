"""`parallel: auto`: stage and shards by memory, micro-batches by the measured link; all members choose alike and say why.

    auto.py BUILD [SCENARIO...]

Needs network namespaces and tc; ends with 77 without.
"""

import re

import wide_model
from cluster import JOB, same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios
from sets import status
from tuning import shape

TWO = {"lab": ["board-1", "board-2"]}
# Adam has two values of state for each of 160000 weights.
SETTINGS = {"rounds": 2, "local_steps": 20, "quorum": 1, "learning_rate": 0.001,
            "momentum": "0.9, optimizer: adam", "extra": "parallel: auto"}
CHOSE = r"parallel: auto: (\d+) replicas? of (\d+) shards?(?:, stage (\d))?, (\d+) micro-batch(?:es)? a step: (.*)"
scenario = Scenarios()


def choice(build, memory, megabits):
    """Replicas, shards, stage, micro-batches and why."""
    with Lan(build, TWO, **SETTINGS) as lan:
        wide_model.main(lan.path("wide.onnx"), "1,8,8", *[128] * 10, 10)
        lan.set_model("wide.onnx")
        for board in lan.boards:
            with open(lan.path(f"{board}.yaml"), "a") as file:
                file.write(f"memory: {{train_max: {memory} KiB}}\n")
        shape(lan, megabits)
        lan.start_all()
        lan.wait_for_end(150)
        lan.replay()
        same_model_everywhere(lan)
        chosen = [re.search(CHOSE, lan.log(board)).groups() for board in lan.boards]
        assert chosen[0] == chosen[1], f"the members chose otherwise: {chosen}"
        samples = SETTINGS["local_steps"] * JOB["batch"] * int(chosen[0][3]) * len(lan.boards)
        counted = [row[0] for row in lan.ledger("SELECT weight FROM contribution")]
        assert counted == [samples] * SETTINGS["rounds"], f"{counted} samples in rounds of {samples}"
        # Who is the last to hear of the end is alone then, and in no group of which there is something to say.
        told = [status(lan, board)["group"].get("auto", "") for board in lan.boards]
        assert any(told), told
        assert all(not said or said.endswith(chosen[0][4]) for said in told), told
        stages = [re.findall(r"shard \d of 2: .* stage (\d)", lan.log(board))[-1:] for board in lan.boards]
        assert stages == [[chosen[0][2]] if chosen[0][1] == "2" else []] * 2, f"{stages} are not what was chosen: {told}"
    return [int(number or 0) for number in chosen[0][:4]], chosen[0][4]


def needed(why):
    return int(re.match(r"(\d+) KiB of \d+ KiB on board-\d", why).group(1))


@scenario
def shards_are_chosen_by_the_smallest_memory(build):
    (replicas, shards, _, _), why = choice(build, 65536, 1000)
    assert (replicas, shards) == (2, 1), why
    (replicas, shards, stage, _), why = choice(build, needed(why) - 200, 1000)
    assert (replicas, shards, stage) == (1, 2, 1), why
    return why


@scenario
def a_higher_stage_is_chosen_where_a_lower_one_does_not_fit(build):
    _, why = choice(build, needed(choice(build, 65536, 1000)[1]) - 200, 1000)
    for wanted in (2, 3):
        needs = needed(why)
        (replicas, shards, stage, _), why = choice(build, needs - 20, 1000)
        assert (replicas, shards, stage) == (1, 2, wanted), why
        assert f"stage {wanted - 1} would take {needs} KiB of board-" in why, why
    return why


@scenario
def a_slow_link_gets_more_micro_batches_a_step(build):
    (_, _, _, micro), why = choice(build, 65536, 20)
    assert micro == 16, why
    return why


if __name__ == "__main__":
    scenario.main(possible=allowed)
