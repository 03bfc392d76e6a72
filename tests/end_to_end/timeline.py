"""Two boards train while one of them, not the leader, writes the timeline of both.

    timeline.py BUILD

Gradients travel in buckets while the backward pass goes on; votes follow; all is on one time axis, though the clocks
of the boards differ (where time namespaces are allowed); status says where a step's time goes. With group.wire: bfloat16 fewer bytes make another, equally good model.
"""

import json
import statistics
import subprocess
import sys

import wide_model
from cluster import Cluster
from sets import status

BUCKET = 65536


def spans_of(path):
    """{(member, step, name): [(begin, end, bytes)]}, and the names of members."""
    spans, names = {}, {}
    with open(path) as file:
        for event in json.load(file):
            if event["ph"] == "M" and event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
            if event["ph"] == "X":
                key = event["pid"], event["args"]["number"], event["name"]
                span = event["ts"], event["ts"] + event["dur"], event["args"].get("bytes", 0)
                spans.setdefault(key, []).append(span)
    return spans, names


def check_step(spans, member, step):
    (begun, computed, _), = spans[member, step, "compute"]
    (_, reduced, _), = spans[member, step, "wait for gradients"]
    (_, voted, _), = spans[member, step, "vote"]
    (_, applied, _), = spans[member, step, "apply"]
    buckets = spans[member, step, "bucket"]
    assert begun <= computed <= reduced <= voted <= applied, (member, step)
    assert len(buckets) > 2 and all(size >= BUCKET for _, _, size in buckets), buckets
    assert all(begun <= begin <= end <= reduced for begin, end, _ in buckets), (member, step)
    return buckets[0][0] < computed


def check_rounds(spans, names, steps):
    """Between the steps of two rounds, what the board that writes did is without a gap of half the time."""
    (own,) = {member for member, _, name in spans if name == "make update"}
    work = sorted(span for (_, _, name), found in spans.items() for span in found
                  if name in ("wait", "begin round", "make update", "take verdict", "take version"))
    votes = sorted((begin, end) for (member, _, name), found in spans.items() for begin, end, _ in found
                   if member == own and name in ("compute", "apply"))
    updates = [span for (_, _, name), found in spans.items() for span in found if name == "make update"]
    pauses = [(end, begin) for (_, end), (begin, _) in zip(votes, votes[1:])
              if any(end <= made < begin for made, _, _ in updates)]
    assert pauses and len(names) == 2 and steps > 1, votes
    for begin, end in pauses:
        covered = sum(min(b, end) - max(a, begin) for a, b, _ in work if a < end and b > begin)
        assert covered > (end - begin) / 2, (begin, end, work)
    assert any(name == "measure version" for member, _, name in spans if member == own)


def check(path, steps):
    spans, names = spans_of(path)
    assert sorted(names.values()) == ["board-1", "board-2"], names
    numbers = sorted({step for _, step, name in spans if name == "vote"})
    assert numbers == list(range(1, steps + 1)), numbers
    for member in names:
        beside = sum(check_step(spans, member, step) for step in numbers)
        assert beside > steps / 4, f"only in {beside} of {steps} steps a bucket left before the backward pass ended"
        assert any(name == "epoch" for who, _, name in spans if who == member)
    check_rounds(spans, names, steps)
    # No call ends on one member before it begins on the other.
    for step in numbers:
        for (a_begin, a_end, _), (b_begin, b_end, _) in zip(spans[0, step, "bucket"], spans[1, step, "bucket"]):
            assert a_begin < b_end + 2000 and b_begin < a_end + 2000, f"step {step}: the clocks do not agree"
    return statistics.median(computed - begun for step in numbers
                             for begun, computed, _ in spans[0, step, "compute"])


def digest_and_accuracy(build, group):
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=8, local_steps=20, quorum=1, mixed=True,
                 group=group) as cluster:
        cluster.start_all()
        cluster.wait_for_end(100)
        return cluster.digest(), cluster.accuracy()


def check_wire(build):
    whole, wanted = digest_and_accuracy(build, "")
    narrow, reached = digest_and_accuracy(build, ", wire: bfloat16, bucket: 16 KiB")
    assert narrow != whole, "bfloat16 changed no bit: it was not used"
    assert reached >= wanted - 0.02, (reached, wanted)
    return f"accuracy {reached} with bfloat16 on the wire, {wanted} with float32"


class Clocks(Cluster):
    """board-1 began 1000 s before the others."""

    earlier = ["unshare", "--time", "--boottime", "1000", "--monotonic", "1000", "--fork", "--kill-child"]

    def enter(self, name):
        allowed = subprocess.run([*self.earlier, "true"], capture_output=True, check=False).returncode == 0
        return self.earlier if name == "board-1" and allowed else []


def check_three(build):
    """Clocks are compared two by two, which must not disturb the calls of all: one epoch, and all three in the file."""
    with Cluster(build, {"lab": ["board-1", "board-2", "board-3"]}, rounds=2, local_steps=5, quorum=1) as cluster:
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--timeline", "timeline.json")
        cluster.start("board-3")
        cluster.wait_for_end(100)
        spans, names = spans_of(cluster.path("timeline.json"))
        assert sorted(names.values()) == ["board-1", "board-2", "board-3"], names
        for member in names:
            steps = sorted(step for who, step, name in spans if who == member and name == "vote")
            assert steps == list(range(1, 11)), (names[member], steps)
        assert "the epoch ended" not in cluster.log("board-1"), "comparing clocks ended an epoch"


def main(build):
    check_three(build)
    print(check_wire(build))
    with Clocks(build, {"lab": ["board-1", "board-2"]}, rounds=2, local_steps=20, batch=1024, quorum=1,
                 group=", bucket: 64 KiB") as cluster:
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", 256, 256, 256, 10)
        cluster.set_model("wide.onnx")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--timeline", "timeline.json")
        cluster.wait_for_end(100)
        compute = check(cluster.path("timeline.json"), 40)
        for board in cluster.boards:
            step = status(cluster, board)["round"]
            assert step["compute_ms"] > 0 and step["wire_ms"] > 0 and step["wait_ms"] >= 0, step
        print(f"both boards on one axis; {compute / 1000:.2f} ms compute a step")


if __name__ == "__main__":
    main(*sys.argv[1:])
