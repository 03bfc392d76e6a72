"""Control variates (SCAFFOLD) in real runs: killed, made again, lost, and compared with plain averaging.

    control_variates.py BUILD [SCENARIO...]

Each board's samples are of some digits only. Runs are made again by the aggregator and by the second
implementation in tests/peers, which also computes the variates of the boards from their updates.
"""

import os
import shutil
import sys

from cluster import Cluster, DIGITS, ENDLESS, SOURCE, wait_until
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
sys.path.append(os.path.join(SOURCE, "tests", "bench", "learning"))
import control  # noqa: E402
import formats  # noqa: E402
import replay  # noqa: E402
import strategies as bench  # noqa: E402
import update  # noqa: E402

MODEL = "digits-norm.onnx"
ROUNDS = 8
GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3"], "lab-d": ["board-4"]}
TEXT = "limits: {trust_groups: true}"

scenario = Scenarios()


def cluster_of(build, groups=None, correction="scaffold", **job):
    job = {"rounds": ROUNDS, "quorum": len(groups or GROUPS), "local_steps": 10, "model": MODEL, "up": "{mode: q8}",
           "momentum": f"0, correction: {correction}", "extra": TEXT, **job}
    return Cluster(build, groups or GROUPS, **job)


def check(cluster, rounds=ROUNDS):
    """Both implementations make the run again, by the jobs that the ledger has."""
    lines = cluster.replay()
    assert lines[-1] == f"{rounds + 1} versions, 0 differ, 0 not checked", lines
    count, digest = replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), "ledger")
    assert count == rounds and digest.hex() == cluster.digest(), count


def refuse_other_steps(cluster):
    """With other values of the job the second implementation makes other variates."""
    for correction in None, control.Control(0.05), control.Control(0.04, 0.5), control.Control(0.05, 0.5, nesterov=True):
        try:
            replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, MODEL), 10.0, trust=True, correction=correction)
        except update.Refused:
            continue
        raise AssertionError(f"the variates of {correction} are the same")


def run(build, kills=(), groups=None, **job):
    """The digest of a run in which each of kills, (version, process), is killed and started again."""
    with cluster_of(build, groups, **job) as cluster:
        cluster.start_all()
        for version, name in kills:
            cluster.wait_for_version(version)
            cluster.kill(name)
            assert cluster.version() < ROUNDS, "the run was over before the kill"
            cluster.start(name)
        cluster.wait_for_end(180)
        check(cluster)
        return cluster.digest()


def epochs(cluster):
    return cluster.ledger("SELECT from_round, last_round, groups, lost FROM control_epoch ORDER BY from_round")


@scenario
def killed_boards_and_gateway_reach_the_same_digest(build):
    kills = [(1, "gateway"), (2, "board-1"), (3, "board-3"), (4, "gateway")]
    assert run(build, kills) == run(build)


@scenario
def members_of_a_group_have_one_variate(build):
    """A member is killed; the other has its variate. The boards that train together give one update."""
    groups = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3", "board-4"]}
    assert run(build, [(2, "board-2"), (3, "board-3")], groups) == run(build, groups=groups)


@scenario
def momentum_lengthens_the_steps(build):
    with cluster_of(build, momentum="0.5, correction: scaffold") as cluster:
        cluster.start_all()
        cluster.wait_for_end(180)
        check(cluster)
        refuse_other_steps(cluster)


def own_variates(cluster, rounds):
    """The variates of all groups after the last round, from their updates and the gateway's versions alone."""
    data = formats.read_file(DIGITS, MODEL)
    layout, files = formats.layout_of(data), cluster.path("state/gateway/files")
    has, job = control.has_values(layout), control.Control(0.05)
    run_number = cluster.ledger("SELECT run FROM meta")[0][0] % 2**64
    zeros = update.floats([0.0]) * len(has)
    base, begun = formats.read_version(formats.read_file(files, "version-0.full")), {each[0] for each in epochs(cluster)}
    for number in range(1, rounds + 1):
        if number in begun:
            own, sent = {group: zeros for group in cluster.groups}, zeros
        else:
            frame = control.frame_of(server, run_number, number - 1, base.digest, layout)
            sent = update.decode(frame, layout)[1]
        for group in own:
            values = update.decode(formats.read_file(files, f"round-{number}-{group}.update"), layout)[1]
            own[group] = job.advance(own[group], sent, values, 10, has)
        server = formats.get_array(formats.read_file(files, f"version-{number}.state"), len(has))
        base = formats.read_version(formats.read_file(files, f"version-{number}.full"))
    return own, server


def check_boards(cluster, rounds):
    """Boards have their variates to the bit. Returns the mean of these, and what the gateway has."""
    own, server = own_variates(cluster, rounds)
    first = epochs(cluster)[-1][0]
    for group, members in cluster.groups.items():
        state = formats.read_slots(cluster.path("state", members[0]))[0]
        assert state.control[:2] == (first, rounds + 1 - first), state.control
        assert state.arrays["control"].tobytes() == own[group].tobytes(), group
    return [sum(each) / len(own) for each in zip(*own.values())], server


@scenario
def boards_have_the_variates_that_their_updates_give(build):
    """The server's is the mean of theirs, but for rounding."""
    with cluster_of(build) as cluster:
        cluster.start_all()
        cluster.wait_for_end(180)
        check(cluster)
        mean, server = check_boards(cluster, ROUNDS)
        largest = max(abs(each) for each in server)
        apart = max(abs(s - m) for s, m in zip(server, mean))
        assert largest > 0.01 and apart < 1e-4 * largest, (largest, apart)
        assert epochs(cluster) == [(1, ROUNDS, 4, "")], epochs(cluster)


@scenario
def a_rate_of_the_server_changes_no_variate(build):
    """Variates follow from what groups send, which the rate does not touch. It only makes the step shorter."""
    with cluster_of(build, extra=f"{TEXT}\nserver: {{learning_rate: 0.5}}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(180)
        check(cluster)
        mean, server = check_boards(cluster, ROUNDS)
        largest = max(abs(each) for each in server)
        apart = max(abs(s - m) for s, m in zip(server, mean))
        assert largest > 0.01 and apart < 1e-4 * largest, (largest, apart)


@scenario
def a_group_that_lost_its_variate_begins_all_again(build):
    with cluster_of(build, rounds=ENDLESS) as cluster:
        cluster.start_all()
        cluster.wait_for_version(3)
        cluster.kill("board-2")
        shutil.rmtree(cluster.path("state/board-2"))
        cluster.start("board-2")
        cluster.wait_for_line("gateway", "begin again: group lab-b has lost its own")
        cluster.wait_for_line("board-1", "control variates begin again with round")
        last = cluster.end_run()
        cluster.wait_for_end(180)
        assert len(epochs(cluster)) == 2 and epochs(cluster)[0][3] == "lab-b", epochs(cluster)
        check(cluster, last)
        check_boards(cluster, last)


@scenario
def a_new_group_and_a_rollback_begin_all_again(build):
    with cluster_of(build, {"lab-a": ["board-1"], "lab-b": ["board-2"]}, rounds=ENDLESS) as cluster:
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "board-3", "--group", "lab-c", "-o", "more.key")
        cluster.wait_for_line("gateway", "3 groups are enrolled, and others than before")
        cluster.command(cluster.aggregator, "rollback", "gateway.yaml", "1", "--reason", "as a test")
        cluster.wait_for_line("gateway", "was not made of updates")
        last = cluster.end_run()
        cluster.wait_for_end(180)
        assert len(epochs(cluster)) == 3, epochs(cluster)
        check(cluster, last)


@scenario
def a_reload_begins_and_ends_the_correction(build):
    with cluster_of(build, correction="none", rounds=ENDLESS) as cluster:
        cluster.start_all()
        for version, old, new in (2, "none", "scaffold"), (5, "scaffold", "none"), (8, "none", "scaffold"):
            cluster.wait_for_version(version)
            cluster.edit("job.yaml", (f"correction: {old}", f"correction: {new}"))
            cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        wait_until(lambda: len(epochs(cluster)) == 2, "a second epoch")
        begun = epochs(cluster)[-1][0]
        cluster.wait_for_version(begun + 2)
        last = cluster.end_run()
        cluster.wait_for_end(180)
        check(cluster, last)
        found = epochs(cluster)
        assert found[0][1] + 1 < found[1][0] and found[1][1] == last and not found[1][3], found
        state = formats.read_slots(cluster.path("state", "board-1"))[0]
        assert state.control[:2] == (begun, last + 1 - begun), state.control


@scenario
def fewer_rounds_than_averaging_with_many_local_steps(build):
    """Rounds until 90 %. Each group has two digits of its own, as `try` divides them."""
    found = {strategy: bench.run(os.path.abspath(build), strategy, "labels", 40) for strategy in ("fedavg-long", "scaffold")}
    rounds = {strategy: next((number for number, accuracy, _ in versions if accuracy >= 0.9), 41)
              for strategy, versions in found.items()}
    assert 1.5 * rounds["scaffold"] < rounds["fedavg-long"], rounds
    return f"rounds to 90 %: {rounds}"


if __name__ == "__main__":
    scenario.main()
