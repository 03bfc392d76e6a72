"""The server's optimizers in real runs: killed, made again, measured; and a state whose bits changed.

    server_optimizers.py BUILD [SCENARIO...]

Each run has a batch-normalized model, so that statistics are beside what the optimizer moves, and is made again
by the aggregator and by the second implementation in tests/peers.
"""

import os
import sys

from cluster import Cluster, DIGITS, SOURCE
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
import server_optimizer  # noqa: E402

MODEL = "digits-norm.onnx"
ROUNDS = 8

scenario = Scenarios()


def cluster_of(build, server, **job):
    job = {"rounds": ROUNDS, "local_steps": 4, "model": MODEL, "extra": f"server: {{{server}}}", **job}
    return Cluster(build, {"lab-a": ["board-1"], "lab-b": ["board-3"]}, **job)


def check(cluster, server):
    lines = cluster.replay()
    assert lines[-1] == f"{ROUNDS + 1} versions, 0 differ, 0 not checked", lines
    count, _ = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), 10.0, server=server)
    assert count == ROUNDS, count


def run(build, text, server, kills=()):
    with cluster_of(build, text) as cluster:
        cluster.start_all()
        for version in kills:
            cluster.wait_for_version(version)
            cluster.kill("gateway")
            assert cluster.version() < ROUNDS, "the run was over before the kill"
            cluster.start("gateway")
        cluster.wait_for_end(120)
        check(cluster, server)
        return cluster.digest()


@scenario
def a_killed_run_with_yogi_has_the_same_digest(build):
    text, server = "optimizer: fedyogi, learning_rate: 0.02", server_optimizer.Server("fedyogi", 0.02)
    assert run(build, text, server, kills=(1, 2)) == run(build, text, server)


@scenario
def each_optimizer_is_made_again(build):
    digests = {run(build, f"optimizer: {name}", server_optimizer.Server(name))
               for name in ("fedavg", "fedavgm", "nesterov", "fedadagrad", "fedadam")}
    assert len(digests) == 5, digests


@scenario
def a_changed_bit_of_the_state_is_refused(build):
    with cluster_of(build, "optimizer: fedadam") as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        path = cluster.path(f"state/gateway/files/version-{ROUNDS}.state")
        with open(path, "r+b") as file:
            byte = file.read(1)[0]
            file.seek(0)
            file.write(bytes([byte ^ 1]))
        result = cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False)
        assert result.returncode == 1 and f"version-{ROUNDS}.residual or" in result.stderr, result.stderr


if __name__ == "__main__":
    scenario.main()
