"""One malicious group of four: whatever it sends, the others' model is about that of a run without it.

Three honest boards, each with digits of its own that the others hardly have, train beside a fourth that
says it has 2^31 samples and sends a random direction, or the last version's step times -10 or -100. The
gateway has to name that group, with its numbers, and no other.
"""

import os
import random
import struct
import sys

from cluster import Cluster, DIGITS, SOURCE
from hostile import RAW, TOTAL, Board, declaration_of, frame_of
from scenarios import chosen

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402

HONEST = ["board-1", "board-2", "board-3"]
ROUNDS = 12
HEADER = 88  # bytes before the values of a version's file


def values_of(cluster, version):
    with open(cluster.path(f"state/gateway/files/version-{version}.full"), "rb") as file:
        return struct.unpack(f"<{TOTAL}f", file.read()[HEADER:])


def random_direction(cluster, now, draw):
    return [draw.gauss(0, 1) for _ in range(TOTAL)]


def back(times):
    """Sends the last version's step, so many times back."""
    def against_the_last_step(cluster, now, draw):
        if now[4] < 2:
            return random_direction(cluster, now, draw)
        newer, older = values_of(cluster, now[7]), values_of(cluster, now[7] - 1)
        return [max(-15.0, min(15.0, -times * (a - b))) for a, b in zip(newer, older)]
    return against_the_last_step


def send_all(cluster, program, make):
    """Sends an update in each round until the run has ended."""
    board, draw, sent = Board(cluster, program, "mallory"), random.Random(1), 0
    while True:
        now = board.round()
        if now[3] == 2:
            break
        if now[3] == 0 and now[6] and now[4] > sent:
            frame = frame_of(now, "evil", weight=2**31, values=make(cluster, now, draw))
            code, body = board.send(declaration_of(now, frame), frame)
            assert code in (201, 204), (code, body)
            sent = now[4]
    board.close()


def run(build, program, make, rounds=ROUNDS, after=None):
    """The accuracy of the last version on the central set, the gateway's log, and what after() found."""
    groups = {name: [name] for name in HONEST}
    if make:
        groups["evil"] = ["mallory"]
    with Cluster(build, groups, up=RAW, rounds=rounds, quorum=len(groups), local_steps=20,
                 model="digits-mlp.onnx") as cluster:
        for name in ["gateway"] + HONEST:
            cluster.start(name)
        if make:
            send_all(cluster, program, make)
        cluster.wait_for_end(120)
        log = cluster.log("gateway")
        lines = cluster.replay()
        assert lines[-1].startswith(f"{rounds + 1} versions, 0 differ"), lines
        return cluster.accuracy(), log, after and after(cluster)


def attacked(build, program, make):
    alone, _, _ = run(build, program, None)
    found, log, _ = run(build, program, make)
    print(f"{make.__name__}: accuracy {found:.3f}, without the group {alone:.3f}", flush=True)
    assert found > alone - 0.05, log
    assert "group evil has the norm" in log and "group evil says 2147483648 samples" in log, log
    assert not any(f"group {name} " in log for name in HONEST), log


def a_random_direction_of_any_weight(build, program):
    attacked(build, program, random_direction)


def the_last_step_a_hundred_times_back(build, program):
    attacked(build, program, back(100))


def the_last_step_ten_times_back(build, program):
    attacked(build, program, back(10))


def replayed(cluster):
    """The digest of the last version, made again by the second implementation."""
    return replay.replay(cluster.path("state/gateway"), os.path.join(DIGITS, "digits-mlp.onnx"), 10.0)[1]


def an_update_that_is_left_out_leaves_no_bit(build, program):
    _, _, alone = run(build, program, None, 3, replayed)
    _, _, found = run(build, program, random_direction, 3, replayed)
    assert found == alone, (found.hex(), alone.hex())


SCENARIOS = (a_random_direction_of_any_weight, an_update_that_is_left_out_leaves_no_bit,
             the_last_step_a_hundred_times_back, the_last_step_ten_times_back)


def main(build, program, *names):
    for scenario in chosen(SCENARIOS, names):
        scenario(build, program)


if __name__ == "__main__":
    main(*sys.argv[1:])
