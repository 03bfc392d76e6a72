"""One run that uses each strategy in turn by `reload`, with a refusal of the gate and a rollback, and kills at random.

    all_strategies.py BIN [SEED [KILLS]]

The run is made twice: undisturbed, and with kills of all programs at times that the seed draws. KILLS is the number
of them in each stage. Both end with the same model, and each version of both can be made again, also by the second
implementation in tests/peers.
"""

import os
import random
import sys
import time

from cluster import DIGITS, SOURCE, Cluster, same_model_everywhere
from reload import FAST, reload
from rollback import REFUSED, ROLLED_BACK, aggregator, rulings

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402

GROUPS = {f"lab-{i}": [f"board-{i}"] for i in range(1, 7)}
ROUNDS = 2  # of a stage
GATE = "gate: {loss: 0.5, accuracy: 40 %}"
CALM = {"train": "{batch: 32, local_steps: 4, learning_rate: 0.05, momentum: 0.5}", "up": "{mode: q8}",
        "down": "{mode: q8}", "rounds": "", "server": "{}", "robust": "", "limits": "{max_norm: 10}"}


def robust(rule, mix="none"):
    return {"robust": f"robust: {{rule: {rule}, mix: {mix}, tolerate: 1}}\n"}


def train(values):
    return {"train": f"{{batch: 32, local_steps: 4, {values}}}"}


# What differs from CALM in each stage. With a buffer of all groups asynchronous rounds do not depend on time.
STAGES = {
    "fedavg": {},
    "top-k": {"up": "{mode: topk, density: 10 %}", "down": "{mode: topk, density: 20 %}"},
    "down by the links": {"down": "{mode: auto}"},
    "fedavgm": {"server": "{optimizer: fedavgm, momentum: 0.5}"},
    "nesterov": {"server": "{optimizer: nesterov, learning_rate: 0.3}"},
    "fedadagrad": {"server": "{optimizer: fedadagrad, learning_rate: 0.02}"},
    "fedadam": {"server": "{optimizer: fedadam, learning_rate: 0.01}"},
    "fedyogi": {"server": "{optimizer: fedyogi, learning_rate: 0.01}"},
    "gate": train("learning_rate: 300, momentum: 0.9") | {"limits": "{max_norm: 1000000}"},
    "fedprox": train("learning_rate: 0.05, momentum: 0.5, proximal: 0.1"),
    "fednova": {"server": "{normalize: steps}"},
    "scaffold": train("learning_rate: 0.05, momentum: 0, correction: scaffold") | {"limits": "{trust_groups: true}"},
    "fedbuff": {"rounds": ", mode: asynchronous, async: {buffer: 6}"},
    "ssp": {"rounds": ", mode: asynchronous, async: {buffer: 6, wait: true}"},
    "median": robust("median"),
    "trimmed": robust("trimmed"),
    "multi-Krum": robust("multi_krum"),
    "rfa": robust("rfa"),
    "cclip": robust("cclip"),
    "nearest": robust("trimmed", "nearest"),
    "bucket": robust("median", "bucket"),
    "trusted": {"limits": "{trust_groups: true}"},
}
JOB = """\
schema: cairn/job/v1
name: digits
model: {model}
seed: 1
loss: cross_entropy
data: {{set: digits, scale: 0.0625, mean: 0, held_out: 10 %}}
central: {{set: digits-held-out}}
train: {train}
update: {{up: {up}, down: {down}}}
rounds: {{count: {count}, quorum: 6, over_select: 1, deadline: 60 s{rounds}}}
server: {server}
{robust}limits: {limits}
{gate}
"""


def disturb(cluster, draw, kills):
    for _ in range(kills):
        time.sleep(draw.uniform(0.05, 0.6))
        names = [draw.choice(["gateway", "gateway", *cluster.boards])]
        if draw.random() < 0.2:
            names = ["gateway", *cluster.boards]
        for name in names:
            if cluster.processes[name].poll() is None:
                cluster.kill(name)
        for name in names:
            cluster.start(name)


def run(build, seed, kills):
    """The digest of the newest version."""
    draw = random.Random(seed)
    with Cluster(build, GROUPS, **{**FAST, "quorum": 6, "mixed": True}) as cluster:
        cluster.edit("gateway.yaml", ("gateway: {", "gateway: {keep_versions: all, keep_rounds: all, "))
        model = os.path.join(DIGITS, FAST["model"])
        last, begun = 0, {}
        for name, changes in [*STAGES.items(), ("rollback", {})]:
            begun[name], last = last + 1, last + ROUNDS
            cluster.write("job.yaml", JOB.format(model=model, count=last, gate=GATE, **CALM | changes))
            if last > ROUNDS:
                reload(cluster)
            if name == "rollback":
                aggregator(cluster, "rollback", "gateway.yaml", str(begun["gate"] - 1), "--reason", "a test")
            cluster.start_all()
            disturb(cluster, draw, kills)
            cluster.wait_for_end(240)
            assert cluster.version() == last, (name, cluster.version())
        wild = range(begun["gate"], begun["gate"] + ROUNDS)
        assert rulings(cluster, REFUSED) == list(wild), cluster.ledger("SELECT version, kind, reason FROM ruling")
        assert rulings(cluster, ROLLED_BACK) == [begun["rollback"]]
        assert len(cluster.ledger("SELECT from_round FROM setting")) == len(STAGES) + 1, "a stage had no values of its own"
        lines = cluster.replay()
        assert lines[-1] == f"{last + 1} versions, 0 differ, 0 not checked", lines[-1]
        same_model_everywhere(cluster)
        count, digest = replay.replay(cluster.path("state/gateway"), model, "ledger")
        assert count == last and digest.hex() == cluster.digest(), "the second implementation made another model"
        return cluster.digest()


def main(build, seed="18", kills="3"):
    begun = time.monotonic()
    undisturbed = run(build, int(seed), 0)
    print(f"undisturbed: {time.monotonic() - begun:.0f} s, {undisturbed}", flush=True)
    begun = time.monotonic()
    killed = run(build, int(seed), int(kills))
    print(f"seed {seed}, {kills} kills in each of {len(STAGES) + 1} stages: {time.monotonic() - begun:.0f} s, {killed}")
    assert killed == undisturbed, f"another model with seed {seed}"


if __name__ == "__main__":
    main(*sys.argv[1:])
