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
        print(f"held-out accuracy {accuracy}; replay: {lines[-1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
