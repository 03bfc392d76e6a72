"""Two boards train while one of them, not the leader, writes the timeline of both.

    timeline.py BUILD

Gradients travel in buckets while the backward pass goes on; votes follow; all is on one time axis; status says
where a step's time goes.
"""

import json
import statistics
import sys

import wide_model
from cluster import Cluster

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


def check(path, steps):
    spans, names = spans_of(path)
    assert sorted(names.values()) == ["board-1", "board-2"], names
    numbers = sorted({step for _, step, name in spans if name == "vote"})
    assert numbers == list(range(1, steps + 1)), numbers
    for member in names:
        beside = sum(check_step(spans, member, step) for step in numbers)
        assert beside > steps / 4, f"only in {beside} of {steps} steps a bucket left before the backward pass ended"
        assert any(name == "epoch" for who, _, name in spans if who == member)
    # No call ends on one member before it begins on the other.
    for step in numbers:
        for (a_begin, a_end, _), (b_begin, b_end, _) in zip(spans[0, step, "bucket"], spans[1, step, "bucket"]):
            assert a_begin < b_end + 2000 and b_begin < a_end + 2000, f"step {step}: the clocks do not agree"
    return statistics.median(computed - begun for step in numbers
                             for begun, computed, _ in spans[0, step, "compute"])


def status_of(cluster, board):
    return json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)


def main(build):
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=2, local_steps=20, batch=1024, quorum=1,
                 group=", bucket: 64 KiB") as cluster:
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", 256, 256, 256, 10)
        cluster.set_model("wide.onnx")
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--timeline", "timeline.json")
        cluster.wait_for_end(100)
        compute = check(cluster.path("timeline.json"), 40)
        for board in cluster.boards:
            step = status_of(cluster, board)["round"]
            assert step["compute_ms"] > 0 and step["wire_ms"] > 0 and step["wait_ms"] >= 0, step
        print(f"both boards on one axis; {compute / 1000:.2f} ms compute a step")


if __name__ == "__main__":
    main(sys.argv[1])
