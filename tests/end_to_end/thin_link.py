"""The run of the demo with every board behind a thin, lossy link: it reaches what it reaches on loopback.

    thin_link.py BUILD [ROUNDS RATE DELAY_MS LOSS]

The link's rate, delay (one way) and loss hold in both directions, for each board its own link.
"""

import sys

from cluster import Cluster

DEADLINE_S = 60
BUDGET = 400_000  # bytes a board may send in all, headers included


def accuracy_of(build, rounds, timeout, **job):
    with Cluster(build, rounds=rounds, deadline=f"{DEADLINE_S} s", **job) as cluster:
        cluster.start_all()
        cluster.wait_for_end(timeout)
        log = cluster.log("gateway")
        assert "extended by" not in log, "a round missed its deadline"
        assert all("0 differ" in line for line in cluster.replay() if "differ" in line)
        return cluster.accuracy(), cluster.link_bytes(), len(cluster.boards)


def main(build, rounds="5", rate="1e6", delay="100", loss="0.05"):
    rounds = int(rounds)
    plain, _, _ = accuracy_of(build, rounds, 120)
    link = {"rate": rate, "delay": delay, "loss": loss, "queue": 200}
    thin, (up, down), boards = accuracy_of(build, rounds, 60 + rounds * DEADLINE_S, link=link)
    print(f"held-out accuracy {plain} on loopback, {thin} over {float(rate) / 1e6} Mbit/s, "
          f"{2 * float(delay):.0f} ms, {100 * float(loss):.0f} % loss; "
          f"{up / boards:.0f} bytes up and {down / boards:.0f} down for each board")
    assert thin >= plain - 0.01, (thin, plain)
    assert up / boards <= BUDGET, up


if __name__ == "__main__":
    main(*sys.argv[1:])
