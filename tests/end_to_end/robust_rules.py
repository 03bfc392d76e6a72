"""Robust rules in real runs: killed, made again, changed by a reload; and who is named as refused.

    robust_rules.py BUILD [SCENARIO...]

Five groups of one board. Each run is made again by the aggregator and by the second implementation in tests/peers.
"""

import itertools
import json
import os
import sys

from cluster import ENDLESS, Cluster, DIGITS, SOURCE
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
import robust  # noqa: E402
import server_optimizer  # noqa: E402

MODEL = "digits-mlp.onnx"
ROUNDS = 5
BOARDS = [f"board-{number}" for number in range(1, 6)]
# robust.rule, robust.mix, server.optimizer
RULES = [("median", "none", "fedavg"), ("trimmed", "nearest", "fedavg"), ("multi_krum", "none", "fedavgm"),
         ("rfa", "none", "fedavg"), ("cclip", "none", "fedadam"), ("cclip", "nearest", "fedavg"),
         ("median", "bucket", "fedavg")]

scenario = Scenarios()


class Five(Cluster):
    """The fifth board has the samples of the first one."""

    def write_profiles(self):
        self.job["mixed"] = True  # its samples are in the run's own directory
        os.mkdir(self.path("data"))
        for index, board in enumerate(self.boards):
            for part in ("images", "labels"):
                os.symlink(os.path.join(DIGITS, f"board-{index % 4 + 1}-{part}.npy"),
                           self.path("data", f"{board}-{part}.npy"))
        super().write_profiles()


def cluster_of(build, rule, mix="none", optimizer="fedavg", **job):
    text = f"server: {{optimizer: {optimizer}}}\nrobust: {{rule: {rule}, mix: {mix}}}"
    return Five(build, {f"lab-{board}": [board] for board in BOARDS},
                **{"rounds": ROUNDS, "quorum": 5, "local_steps": 4, "model": MODEL, "up": "{mode: q8}", "extra": text,
                   **job})


def check(cluster, rule, mix, optimizer):
    lines = cluster.replay()
    assert lines[-1] == f"{ROUNDS + 1} versions, 0 differ, 0 not checked", lines
    count, _ = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), 10.0,
                             server=server_optimizer.Server(optimizer), robust=robust.Robust(rule, mix))
    assert count == ROUNDS, count


def run(build, rule, mix, optimizer, kills=()):
    with cluster_of(build, rule, mix, optimizer) as cluster:
        cluster.start_all()
        for version in kills:
            cluster.wait_for_version(version)
            cluster.kill("gateway")
            assert cluster.version() < ROUNDS, "the run was over before the kill"
            cluster.start("gateway")
        cluster.wait_for_end(120)
        check(cluster, rule, mix, optimizer)
        return cluster.digest()


@scenario
def a_killed_run_with_a_center_has_the_same_digest(build):
    assert run(build, "cclip", "none", "fedadam", kills=(1, 2)) == run(build, "cclip", "none", "fedadam")


@scenario
def each_rule_is_made_again(build):
    digests = {run(build, *rule) for rule in RULES}
    assert len(digests) == len(RULES), digests


@scenario
def a_refused_group_is_in_the_status(build):
    with cluster_of(build, "multi_krum") as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        lines = cluster.command(cluster.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()
        groups = [json.loads(line) for line in lines if "judged_round" in line]
        assert len(groups) == 5 and all(group["judged_round"] == ROUNDS for group in groups), lines
        refused = [group for group in groups if group["refused_in_a_row"]]
        assert len(refused) == 1 and refused[0]["factor"] == 0, refused
        text = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert f"its update of round {ROUNDS} counted for 0 %" in " ".join(text.split()), text


@scenario
def a_rule_that_changes_in_a_run_is_made_again(build):
    with cluster_of(build, "none", rounds=ENDLESS) as cluster:
        cluster.start_all()
        for rule in ("cclip", "trimmed", "cclip"):
            with open(cluster.path("job.yaml")) as file:
                lines = [f"robust: {{rule: {rule}}}" if line.startswith("robust:") else line
                         for line in file.read().splitlines()]
            cluster.wait_for_version(cluster.version() + 1)
            cluster.write("job.yaml", "\n".join(lines) + "\n")
            cluster.command(cluster.aggregator, "reload", "gateway.yaml")
            cluster.wait_for_version(cluster.ledger("SELECT max(from_round) FROM setting")[0][0])
            cluster.wait_for_line("gateway", "robust.rule is another one: " + (
                "its center begins from zero" if rule == "cclip" else "the center is dropped"))
        cluster.wait_for_line("gateway", "its center begins from zero", 2)
        last = cluster.end_run()
        cluster.wait_for_end(120)
        lines = cluster.replay()
        assert lines[-1] == f"{last + 1} versions, 0 differ, 0 not checked", lines
        judged = cluster.ledger("SELECT count(DISTINCT round) FROM judgement")[0][0]
        rules = [job.split("robust.rule: ")[1].split()[0] for job, in
                 cluster.ledger("SELECT job FROM setting ORDER BY from_round")]
        changes = [rule for rule, _ in itertools.groupby(rules)][-3:]
        assert judged >= 3 and changes == ["cclip", "trimmed", "cclip"], (judged, rules)


if __name__ == "__main__":
    scenario.main()
