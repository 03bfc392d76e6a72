"""Rounds to 90 % and the final accuracy on the digits for each optimizer of the server, in real runs.

usage: server_optimizers.py BUILD/bin [ROUNDS [SEEDS]]     prints a Markdown table, a line when its runs are done

Four boards, each a group of its own. "natural": each board has the samples of a few writers only, as they were
recorded; "mixed": the samples are dealt out in turn. A seed is that of the job: it draws the samples of each step.
"""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "end_to_end"))

from cluster import Cluster  # noqa: E402

GROUPS = {f"lab-{number}": [f"board-{number}"] for number in range(1, 5)}
TARGET = 0.9
SERVERS = ["optimizer: fedavg", "optimizer: fedavgm", "optimizer: fedavgm, learning_rate: 0.3", "optimizer: nesterov",
           "optimizer: fedadagrad", "optimizer: fedadam", "optimizer: fedadam, learning_rate: 0.1",
           "optimizer: fedyogi"]


def run(build, server, mixed, seed, rounds):
    """(rounds to the target or None, mean accuracy of the last five versions)"""
    with Cluster(build, GROUPS, rounds=rounds, quorum=4, local_steps=5, seed=seed, mixed=mixed,
                 model="digits-mlp.onnx", extra=f"server: {{{server}}}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(600)
        accuracy = [correct / count for correct, count in
                    cluster.ledger("SELECT correct, count FROM version WHERE number > 0 ORDER BY number")]
        reached = [number + 1 for number, value in enumerate(accuracy) if value >= TARGET]
        return reached[0] if reached else None, statistics.mean(accuracy[-5:])


def main(build, rounds="40", seeds="3"):
    print("| `server:` | natural: rounds to 90 %, final | mixed |\n|---|---|---|", flush=True)
    for server in SERVERS:
        cells = []
        for mixed in (False, True):
            runs = [run(build, server, mixed, seed, int(rounds)) for seed in range(1, int(seeds) + 1)]
            cells.append(" ".join(str(reached or "–") for reached, _ in runs) +
                         f", {100 * statistics.mean(final for _, final in runs):.1f} %")
        print(f"| `{server}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
