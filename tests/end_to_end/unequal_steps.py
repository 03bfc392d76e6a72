"""FedNova: groups whose links make them train for other numbers of steps, in a real run that is made again.

    unequal_steps.py BUILD [SCENARIO...]
"""

import os
import sys
import time

from cluster import Cluster, DIGITS, SOURCE
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
from normalize import Normalize  # noqa: E402
from update import Refused  # noqa: E402

ROUNDS = 3
MODEL = "digits-norm.onnx"

scenario = Scenarios()


def cluster_of(build, others, **job):
    """lab-b has a slow uplink, so the rule "auto" lets it train for more steps."""
    cluster = Cluster(build, {"lab-a": ["board-1"], "lab-b": ["board-3"], **others}, **{
        "rounds": ROUNDS, "quorum": 2 + len(others), "local_steps": "4, local_steps_max: 4000", "model": MODEL, "up": "{mode: auto}",
        "extra": "server: {normalize: steps}", **job})
    cluster.__enter__()
    with open(cluster.path("board-3.yaml")) as file:
        text = file.read()
    cluster.write("board-3.yaml", text.replace("threads: 1", "threads: 1\nnetwork: {uplink: 16 kbit/s}"))
    return cluster


def refuse_other_steps(cluster):
    """With other values of the job the second implementation makes other versions."""
    for normalize in None, Normalize(momentum=0.8, learning_rate=0.05), Normalize(0.9, 0.05, nesterov=True):
        try:
            replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), 10.0, normalize=normalize)
        except Refused:
            continue
        raise AssertionError(f"the versions of {normalize} are the same")


def check_run(build, **others):
    cluster = cluster_of(build, others)
    try:
        cluster.start_all()
        deadline = time.monotonic() + 120
        while cluster.ledger("SELECT count(*) FROM version")[0][0] < 2:
            assert time.monotonic() < deadline, "there was no version 1 after 120 s"
            time.sleep(0.02)
        cluster.kill("gateway")
        cluster.start("gateway")
        cluster.wait_for_end(180)
        steps = cluster.ledger("SELECT a.steps, b.steps FROM contribution a JOIN contribution b ON a.round = b.round "
                               "WHERE a.grp = 'lab-a' AND b.grp = 'lab-b' ORDER BY a.round")
        assert all(4 <= each <= 4000 for pair in steps for each in pair), steps
        assert any(a != b for a, b in steps), f"both groups always did as many steps: {steps}"
        lines = cluster.replay()
        assert lines[-1] == f"{ROUNDS + 1} versions, 0 differ, 0 not checked", lines
        count, digest = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), "ledger")
        assert count == ROUNDS and digest.hex() == cluster.digest(), count
        refuse_other_steps(cluster)
        return f"steps {steps}"
    finally:
        cluster.__exit__(*sys.exc_info())


@scenario
def groups_of_unequal_steps_are_made_again(build):
    return check_run(build)


@scenario
def the_medians_of_three_groups_limit_their_steps(build):
    """Three groups have caps. The second implementation has the same limits."""
    return check_run(build, **{"lab-c": ["board-2"]})


if __name__ == "__main__":
    scenario.main()
