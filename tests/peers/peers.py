"""Short runs, read and made again by the second implementation in this folder.

usage: peers.py BUILD/bin
"""

import os
import sys
import time

PEERS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(PEERS), "end_to_end"))

from cluster import DIGITS, Cluster  # noqa: E402

import formats  # noqa: E402
from sets import share_samples  # noqa: E402
from replay import replay  # noqa: E402

GROUPS = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}
MODEL = os.path.join(DIGITS, "digits-cnn.onnx")
ROUNDS = 3


def cluster_of(build, **job):
    job = {"central": False, "rounds": ROUNDS, "local_steps": 4, "form": "10 s", **job}
    return Cluster(build, GROUPS, **job)


def wait_for(condition, what):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited 30 s for {what}"
        time.sleep(0.02)
    return found


def states_with_frames(cluster):
    """What boards are about to send. Such a state stays in its slot until the state after the next."""
    return [state for board in cluster.boards for state in formats.read_slots(cluster.path("state", board))
            if state.phase == "send"]


def check(cluster, max_norm=10.0, small="q8"):
    """All that a run left on disk: versions made again, what boards hold, what is exported."""
    gateway = cluster.path("state", "gateway")
    model, ledger = formats.read_file(MODEL), formats.open_ledger(gateway)
    count, digest = replay(gateway, MODEL, max_norm, small=small)
    assert count == ROUNDS, f"{count} versions"
    for board in cluster.boards:
        newest = formats.check_board(cluster.path("state", board), model, ledger)[0]
        assert newest.base == digest, f"{board} holds version {newest.version}"
    cluster.command(cluster.aggregator, "export", "gateway.yaml", "-o", "model")
    exported = formats.read_file(cluster.path("model.onnx"))
    assert exported == formats.with_weights(model, newest.arrays["base"]), "model.onnx"
    formats.check_safetensors(formats.read_file(cluster.path("model.safetensors")), model, newest.arrays["base"])
    return ledger


def interrupted(build):
    """Top-k up, q8 down, a rounded version; all processes are killed when a board holds a frame, and go on."""
    with cluster_of(build, update=", snapshot_every: 2") as cluster:
        cluster.start_all()
        states = wait_for(lambda: states_with_frames(cluster), "a frame in an outbox")
        for name in list(cluster.processes):
            cluster.kill(name)
        model, ledger = formats.read_file(MODEL), formats.open_ledger(cluster.path("state", "gateway"))
        for state in states + states_with_frames(cluster):
            formats.check_state(state, model, ledger)
        ledger.close()
        cluster.start_all()
        cluster.wait_for_end(60)
        check(cluster)


def capped(build):
    """All floats as they are; the largest norm and weight are below those of the updates."""
    limits = "limits: {max_norm: 0.01, max_weight: 100}"
    with cluster_of(build, up="{mode: raw32}", down="{mode: raw32}", extra=limits) as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        ledger = check(cluster, 0.01)
        assert set(ledger.execute("SELECT weight FROM contribution")) == {(100,)}, "weights are not capped"


def one_magnitude(build):
    """Top-k both ways, without bits for magnitudes."""
    rule = "{mode: topk, density: 10 %, value_bits: 0}"
    with cluster_of(build, up=rule, down=rule) as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        check(cluster)


def small_signs(build):
    """Top-k up, sign down, small tensors as signs, a rounded version; killed as above."""
    with cluster_of(build, down="{mode: sign}", update=", small: sign, snapshot_every: 2") as cluster:
        cluster.start_all()
        states = wait_for(lambda: states_with_frames(cluster), "a frame in an outbox")
        for name in list(cluster.processes):
            cluster.kill(name)
        model, ledger = formats.read_file(MODEL), formats.open_ledger(cluster.path("state", "gateway"))
        for state in states:
            formats.check_state(state, model, ledger)
        ledger.close()
        cluster.start_all()
        cluster.wait_for_end(60)
        check(cluster, small="sign")


def in_parts(build):
    """A chain of two boards; all are killed when a board holds a frame: what waits of it lies in files of both."""
    with Cluster(build, {"lab": ["board-1", "board-2"]}, central=False, rounds=ROUNDS, local_steps=4, form="10 s", quorum=1,
                 held_out="10 %, scope: shared", extra="parallel: {pipeline: 2}") as cluster:
        share_samples(cluster)
        cluster.start_all()
        wait_for(lambda: states_with_frames(cluster), "a frame in an outbox")
        for name in list(cluster.processes):
            cluster.kill(name)
        model, ledger = formats.read_file(MODEL), formats.open_ledger(cluster.path("state", "gateway"))
        folders = [cluster.path("state", board) for board in cluster.boards]
        for state in states_with_frames(cluster):
            whole, files = formats.with_waiting(state, folders, formats.layout_of(model))
            assert 2 <= files <= 4, f"{files} files"
            formats.check_state(whole, model, ledger)
        ledger.close()
        cluster.start_all()
        cluster.wait_for_end(60)
        check(cluster)


def main(build):
    formats.check_examples()
    for part in (interrupted, capped, one_magnitude, small_signs, in_parts):
        start = time.monotonic()
        part(build)
        print(f"{part.__name__}: made again, {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
