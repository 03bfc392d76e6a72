"""Running statistics of a board that lies: no version has a negative variance, and no lie about weights hides there.

The update of a batch-normalized model is what a board sends; nothing but the gateway stands between a variance
of -2 and every other board's model. Here a group without any other fault sends -3 for all variances in each
round, beside an honest board. Every version is looked at, measured, and made again by both programs that can.
"""

import math
import os
import struct
import sys

from cluster import Cluster, DIGITS, SOURCE
from hostile import RAW, Board, declaration_of, frame_of

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import formats  # noqa: E402
import replay  # noqa: E402

MODEL = "digits-norm.onnx"
ROUNDS = 3
HEADER = 88  # bytes before the values of a version's file


def least_variance(cluster, version, variances, total):
    with open(cluster.path(f"state/gateway/files/version-{version}.full"), "rb") as file:
        values = struct.unpack(f"<{total}f", file.read()[HEADER:])
    return min(values[at] for at in variances)


def send_all(cluster, program, values, sizes):
    """Sends the update in each round until the run has ended."""
    board, sent = Board(cluster, program, "mallory"), 0
    while True:
        now = board.round()
        if now[3] == 2:
            break
        if now[3] == 0 and now[6] and now[4] > sent:
            frame = frame_of(now, "evil", weight=200, values=values, sizes=sizes)
            code, body = board.send(declaration_of(now, frame), frame)
            assert code in (201, 204), (code, body)
            sent = now[4]
    board.close()


def sizes_of(data):
    return [count for count, _ in formats.layout_of(data)]


def negative_variances(build, program, model, data):
    sizes, variances = sizes_of(data), formats.variances_of(data)
    values = [0.0] * sum(sizes)
    for at in variances:
        values[at] = -3.0
    assert variances
    with Cluster(build, {"board-1": ["board-1"], "evil": ["mallory"]}, up=RAW, rounds=ROUNDS, quorum=2, local_steps=20,
                 model=MODEL) as cluster:
        for name in ("gateway", "board-1"):
            cluster.start(name)
        send_all(cluster, program, values, sizes)
        cluster.wait_for_end(120)
        for version in range(1, ROUNDS + 1):
            least = least_variance(cluster, version, variances, len(values))
            assert least >= 0, f"version {version} has a variance of {least}"
        check_replays(cluster, model, replay.Robust())


def check_replays(cluster, model, robust):
    lines = cluster.replay()
    assert lines[-1].startswith(f"{ROUNDS + 1} versions, 0 differ"), lines
    assert replay.replay(cluster.path("state/gateway"), model, 10.0, robust=robust)[0] == ROUNDS
    print(f"accuracy {cluster.accuracy():.3f}")


def lies_beside_large_statistics(build, program, model, data, norm, robust):
    """Four honest boards, whose statistics move ten times as far as their weights, and one that sends weights of this
    norm and no statistics. Returns the gateway's log."""
    sizes, kept = sizes_of(data), set(formats.statistics_of(data))
    each = norm / math.sqrt(sum(sizes) - len(kept))
    values = [0.0 if at in kept else each if at * 2654435761 >> 7 & 1 else -each for at in range(sum(sizes))]
    groups = {f"board-{i}": [f"board-{i}"] for i in range(1, 5)}
    with Cluster(build, {**groups, "evil": ["mallory"]}, up=RAW, rounds=ROUNDS, quorum=5, local_steps=20,
                 model=MODEL) as cluster:
        if robust.rule != "none":
            with open(cluster.path("job.yaml"), "a") as file:
                file.write(f"robust: {{rule: {robust.rule}, tolerate: {robust.tolerate}}}\n")
        for name in ("gateway", *groups):
            cluster.start(name)
        send_all(cluster, program, values, sizes)
        cluster.wait_for_end(120)
        check_replays(cluster, model, robust)
        return cluster.log("gateway")


def main(build, program):
    model = os.path.join(DIGITS, MODEL)
    with open(model, "rb") as file:
        data = file.read()
    negative_variances(build, program, model, data)
    log = lies_beside_large_statistics(build, program, model, data, 11, replay.Robust())
    assert log.count("the update of group evil has the norm 11") == ROUNDS and "left out" in log, log
    assert "limits.max_norm" not in log, log
    lies_beside_large_statistics(build, program, model, data, 3, replay.Robust("multi_krum", tolerate=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
