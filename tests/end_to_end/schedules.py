"""The learning rate over a run, as `train --trace` tells it.

    schedules.py BUILD [SCENARIO...]
"""

import csv

from bad_input import write_train
from cluster import Cluster
from scenarios import Scenarios

ROUNDS, STEPS = 8, 5

scenario = Scenarios()


def rates(build, keys):
    """The learning rate of each step of a whole run."""
    with Cluster(build, rounds=ROUNDS, local_steps=STEPS) as cluster:
        write_train(cluster, "state/alone")
        cluster.edit("train.yaml", ("momentum: ", f"{keys}, momentum: "))
        cluster.command(cluster.node, "train", "--trace", "trace.csv", "alone.yaml")
        with open(cluster.path("trace.csv")) as file:
            return [float(row["lr"]) for row in csv.DictReader(file)]


@scenario
def a_cosine_ends_with_the_last_round(build):
    found = rates(build, "schedule: {kind: cosine}")
    assert len(found) == ROUNDS * STEPS and abs(found[0] - 0.05) < 1e-8 and 0 < found[-1] < 0.001, found
    assert found == sorted(found, reverse=True), found


@scenario
def also_where_rounds_may_have_more_steps(build):
    """Each round counts as local_steps_max steps, so all groups have the same rate in a round."""
    found = rates(build, f"local_steps_max: {4 * STEPS}, schedule: {{kind: cosine}}")
    assert len(found) == ROUNDS * STEPS and abs(found[0] - 0.05) < 1e-8, found
    assert 0 < found[-1] < found[-STEPS] < 0.05 / 10 < found[2 * STEPS], found
    assert found == sorted(found, reverse=True), found


if __name__ == "__main__":
    scenario.main()
