"""A NAT gives boards new addresses in the middle of everything: sessions go on, no handshake is repeated.

    rebind.py BUILD

The relay between board and gateway changes the address the gateway sees every second.
"""

import signal
import sys
import time

from cluster import Cluster


def main(build):
    link = {"rate": 2e6, "delay": 20, "queue": 200, "loss": 0.01}
    with Cluster(build, {"lab-a": ["board-1"], "lab-b": ["board-2"]}, rounds=4, link=link) as cluster:
        for board in cluster.boards:
            cluster.start(board, "--log-level", "debug")
        cluster.start("gateway")
        end = time.monotonic() + 120
        moves = 0
        while cluster.processes["gateway"].poll() is None and time.monotonic() < end:
            time.sleep(0.5)
            if all("registered" in cluster.log(board) for board in cluster.boards):
                for process in cluster.links.values():
                    process.send_signal(signal.SIGUSR1)
                moves += 1
        cluster.wait_for_end(30)
        for board in cluster.boards:
            log = cluster.log(board).partition("registered")[2]
            for word in ("silent", "the session was closed", "registered in"):
                assert word not in log, f"{board}: '{word}' after {moves} moves"
        assert moves >= 3, moves
        print(f"{moves} new addresses, no new handshake")


if __name__ == "__main__":
    main(*sys.argv[1:])
