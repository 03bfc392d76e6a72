"""Each loss has its measures, and they are the same at the boards and at the aggregator.

Measured on the gateway's own set, or by the boards: accuracy, top-5 and F1 of a classifier, the mean absolute
error of a model of values.
"""

import json
import re
import sys

from cluster import Cluster
from life import status


def node_status(cluster, board):
    return status(cluster, f"{board}.yaml")["held_out"]


def ended(cluster, board):
    seen = status(cluster, f"{board}.yaml")
    assert seen["state"] == "the run has ended" and seen["version"] == 5 and not seen["running"], seen


def bytes_of_all(cluster, run):
    """Payload, messages and packets are three figures; after the end they are those of the whole run."""
    with open(cluster.path("state/gateway/status.json")) as file:
        last = json.load(file)
    for way in ("in", "out"):
        assert 0 < run[f"payload_{way}"] < run[f"bytes_{way}"] < run[f"wire_{way}"], run
        for what in ("payload", "bytes", "wire"):
            assert run[f"{what}_{way}"] == last[f"{what}_{way}"], (run, last)
    assert re.search("^payload .*; messages .*on the wire ", cluster.log("gateway"), re.MULTILINE)


def run(build, central, change=None):
    with Cluster(build, {"lab": ["board-1", "board-2"], "van": ["board-3"]}, rounds=5, local_steps=30,
                 central=central, mixed=True) as cluster:
        if change:
            with open(cluster.path("job.yaml")) as file:
                text = file.read()
            cluster.write("job.yaml", change(text))
        cluster.start_all()
        cluster.wait_for_end(60)
        for board in cluster.boards:
            ended(cluster, board)
        run = cluster.status()
        bytes_of_all(cluster, run)
        line = [line for line in cluster.log("gateway").splitlines() if line.startswith("held-out ")][-1]
        shown = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        return run, line, shown, node_status(cluster, "board-1"), cluster.log("board-1")


def values(text):
    return text.replace("loss: cross_entropy", "loss: mse").replace("held_out: 10 %", "held_out: 10 %, one_hot: true")


def main(build):
    for central in (True, False):
        run_, line, shown, node, log = run(build, central)
        assert 0.5 < run_["accuracy"] <= run_["top5"] <= 1 and 0.3 < run_["f1"] <= 1, run_
        assert "mae" not in run_ and "perplexity" not in run_, run_
        assert ("central set" if central else "groups' median") in line, line
        assert f"top-5 {run_['top5']:.4g}, F1 {run_['f1']:.4g}" in line, line
        assert "top-5" in shown and "F1" in shown, shown
        assert 0.5 < node["accuracy"] <= node["top5"] <= 1 and 0 < node["f1"] <= 1 and "mae" not in node, node
        assert "held-out loss" in log and ", F1 " in log, log
    # What a group measured is what the aggregator says of it: board-1 and board-2 are one group of two.
    run_, line, shown, node, log = run(build, False, values)
    assert 0 < run_["mae"] < 0.5 and "f1" not in run_ and "top5" not in run_, run_
    assert f"MAE {run_['mae']:.4g}" in line and line.startswith("held-out loss"), line
    assert 0 < node["mae"] < 0.5 and "accuracy" not in node and "f1" not in node, node
    assert ", MAE " in log and "accuracy" not in log, log
    print(json.dumps({"mae": run_["mae"], "of the boards": node["mae"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
