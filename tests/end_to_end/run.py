"""Four boards in two groups train the digits through an aggregator: accuracy, one model everywhere, replay."""

import sys

from cluster import Cluster, same_model_everywhere


def main(build):
    with Cluster(build, rounds=8, local_steps=20) as cluster:
        cluster.start_all()
        cluster.wait_for_end(90)
        accuracy = cluster.accuracy()
        assert accuracy >= 0.93, f"held-out accuracy is only {accuracy}"
        same_model_everywhere(cluster)
        lines = cluster.replay()
        assert len(lines) >= 8, f"replay checked only {len(lines)} versions"
        for board in (name for names in cluster.groups.values() for name in names):
            told = cluster.log(board).count("the run has ended: this board trains no more")
            assert told == 1, f"{board} said {told} times that the run has ended:\n{cluster.log(board)}"
        print(f"held-out accuracy {accuracy}; replay: {lines[-1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
