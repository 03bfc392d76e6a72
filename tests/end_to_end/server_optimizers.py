"""The server's optimizers in real runs: killed, made again, measured; and a state whose bits changed.

    server_optimizers.py BUILD [SCENARIO...]

Each run has a batch-normalized model, so that statistics are beside what the optimizer moves, and is made again
by the aggregator and by the second implementation in tests/peers.
"""

import os
import sys

from cluster import Cluster, DIGITS, ENDLESS, SOURCE
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


def change_bit(path):
    with open(path, "r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def stopped_run(cluster):
    """Some versions, and nothing that runs; gives the newest version."""
    cluster.start_all()
    cluster.wait_for_version(3)
    for name in list(cluster.processes):
        cluster.kill(name)
    return cluster.version()


@scenario
def damaged_files_of_the_newest_version_are_made_again(build):
    """`check` names the file and fails, `run` makes it again from the version before, and the run goes on."""
    with cluster_of(build, "optimizer: fedadam", rounds=ENDLESS) as cluster:
        number = stopped_run(cluster)
        for kind, damage, word in (("state", change_bit, "damaged"), ("state", os.remove, "missing"),
                                   ("residual", change_bit, "damaged"), ("residual", os.remove, "missing"),
                                   ("full", change_bit, "damaged"), ("delta", cut, "damaged")):
            path = cluster.path(f"state/gateway/files/version-{number}.{kind}")
            whole, made = read(path), f"version-{number}.{kind} is {word}: "
            damage(path)
            result = cluster.command(cluster.aggregator, "check", "gateway.yaml", check=False)
            assert result.returncode == 1 and result.stderr.count("\n") == 1, (kind, result)
            assert f"{made}run makes it again from version {number - 1} and" in result.stderr, (kind, result.stderr)
            cluster.start("gateway")
            cluster.wait_for_line("gateway", f"{made}made again from version {number - 1} and the updates since")
            cluster.kill("gateway")
            assert read(path) == whole, kind
            cluster.command(cluster.aggregator, "check", "gateway.yaml")
        for name in ("gateway", "board-1", "board-3"):
            cluster.start(name)
        cluster.wait_for_version(number + 2)
        cluster.end_run()
        cluster.wait_for_end(120)
        lines = cluster.replay()
        assert lines[-1].endswith(" versions, 0 differ, 0 not checked"), lines


@scenario
def what_cannot_be_made_again_is_said_with_what_helps(build):
    with cluster_of(build, "optimizer: fedadam", rounds=ENDLESS) as cluster:
        number = stopped_run(cluster)
        files = cluster.path("state/gateway/files")
        cut(f"{files}/version-{number}.state")
        os.remove(f"{files}/round-{number}-lab-a.update")
        for command in ("check", "run"):
            result = cluster.command(cluster.aggregator, command, "gateway.yaml", check=False)
            assert result.returncode == 1 and result.stderr.count("\n") == 1, (command, result)
            for part in (f"version-{number}.state is damaged and cannot be made again: an update of version {number} ",
                         f"cairn-aggregator init --after state/gateway --version {number} PROFILE"):
                assert part in result.stderr, (command, result.stderr)
        cluster.edit("gateway.yaml", ("state/gateway", "state/next"))
        cluster.command(cluster.aggregator, "init", "--after", "state/gateway", "--version", str(number), "gateway.yaml")


@scenario
def a_damaged_initial_model_is_made_again(build):
    with cluster_of(build, "optimizer: fedavg") as cluster:
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening on")
        cluster.kill("gateway")
        os.remove(cluster.path("state/gateway/files/version-0.full"))
        cluster.start_all()
        cluster.wait_for_line("gateway", "version-0.full is missing: made again from the model's file")
        cluster.wait_for_end(120)
        check(cluster, server_optimizer.Server("fedavg"))


if __name__ == "__main__":
    scenario.main()
