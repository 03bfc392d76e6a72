"""Everything over IPv6: the same model, bit by bit, as over IPv4.

    ipv6.py BUILD

A group of two, so its collective, and a board alone, on [::1]. Ends with 77, skipped, where there is no IPv6.
"""

import socket
import sys

from cluster import Cluster, same_model_everywhere

GROUPS = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}


def have_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def run(build, host):
    with Cluster(build, GROUPS, rounds=3, host=host) as cluster:
        cluster.start_all()
        cluster.wait_for_end(90)
        same_model_everywhere(cluster)
        assert cluster.status()["version"] == 3, cluster.status()
        for name in cluster.processes:
            assert host == "127.0.0.1" or "127.0.0.1" not in cluster.log(name), f"{name} speaks of IPv4"
        return cluster.digest()


def main(build):
    if not have_ipv6():
        print("no IPv6 here")
        sys.exit(77)
    new, old = run(build, "[::1]"), run(build, "127.0.0.1")
    assert new == old, f"{new} over IPv6, {old} over IPv4"
    print(f"{new} over both")


if __name__ == "__main__":
    main(*sys.argv[1:])
