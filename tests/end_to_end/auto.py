"""`parallel: auto`: shards by memory, micro-batches by the measured link; all members choose alike and say why.

    auto.py BUILD [SCENARIO...]

Needs network namespaces and tc; ends with 77 without.
"""

import re

import wide_model
from cluster import same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios
from sets import status
from tuning import shape

TWO = {"lab": ["board-1", "board-2"]}
# Adam has two values of state for each of 140000 weights.
SETTINGS = {"rounds": 2, "local_steps": 20, "quorum": 1, "learning_rate": 0.001,
            "momentum": "0.9, optimizer: adam", "extra": "parallel: auto"}
CHOSE = r"parallel: auto: (\d+) replicas? of (\d+) shards?, (\d+) micro-batch(?:es)? a step: (.*)"
scenario = Scenarios()


def choice(build, memory, megabits):
    """Replicas, shards, micro-batches and why; the bytes that a step of one shard takes."""
    with Lan(build, TWO, **SETTINGS) as lan:
        wide_model.main(lan.path("wide.onnx"), "1,8,8", 256, 256, 256, 10)
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
        told = [status(lan, board)["group"]["auto"] for board in lan.boards]
        assert told[0] == told[1] and told[0].endswith(chosen[0][3]), told
        shards = [len(re.findall(r"shard \d of 2: ", lan.log(board))) for board in lan.boards]
        assert all(shards) == (chosen[0][1] == "2"), "the shards are not those that were chosen"
    return [int(number) for number in chosen[0][:3]], chosen[0][3]


@scenario
def shards_are_chosen_by_the_smallest_memory(build):
    (replicas, shards, _), why = choice(build, 65536, 1000)
    assert (replicas, shards) == (2, 1), why
    needs = int(re.match(r"(\d+) KiB of 65536 KiB on board-\d", why).group(1))
    (replicas, shards, _), why = choice(build, needs - 200, 1000)
    assert (replicas, shards) == (1, 2), why
    return f"{needs} KiB for one shard; {why}"


@scenario
def a_slow_link_gets_more_micro_batches_a_step(build):
    (_, _, micro), why = choice(build, 65536, 20)
    assert micro == 16, why
    return why


if __name__ == "__main__":
    scenario.main(possible=allowed)
