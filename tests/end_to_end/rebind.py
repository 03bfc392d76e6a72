"""A NAT gives boards new addresses in the middle of everything: sessions go on, no handshake is repeated.

    rebind.py BUILD

The relay between board and gateway changes the address the gateway sees, often: on the second link before a time-out
is over, so a board gets on only if it repeats at once what the gateway held back from an address that is not proven.
That takes two round trips, of the second between two addresses: where each process waits for a processor they may take
longer, so the addresses last longer after a minute.
"""

import signal
import sys
import time

from cluster import Cluster


LINKS = {  # seconds between two addresses, rounds, what else the link does
    "near": (0.5, 4, {"rate": 2e6, "delay": 20, "queue": 200, "loss": 0.01}),
    "far": (1.0, 2, {"rate": 2e6, "delay": 200, "queue": 200}),
}


def run(build, name, pause, rounds, link):
    with Cluster(build, {"lab-a": ["board-1"], "lab-b": ["board-2"]}, rounds=rounds, link=link) as cluster:
        for board in cluster.boards:
            cluster.start(board, "--log-level", "debug")
        cluster.start("gateway")
        begun = time.monotonic()
        moves = 0
        while cluster.processes["gateway"].poll() is None and time.monotonic() < begun + 150:
            time.sleep(pause if time.monotonic() < begun + 60 else 3 * pause)
            if all("registered" in cluster.log(board) for board in cluster.boards):
                for process in cluster.links.values():
                    process.send_signal(signal.SIGUSR1)
                moves += 1
        assert cluster.processes["gateway"].poll() is not None, f"{name}: the run did not end"
        cluster.wait_for_end(60)
        for board in cluster.boards:
            log = cluster.log(board).partition("registered")[2]
            for word in ("silent", "the session was closed", "registered in"):
                assert word not in log, f"{board}: '{word}' after {moves} moves"
        assert moves >= 3, moves
        print(f"{name}: {moves} new addresses, no new handshake", flush=True)


def main(build):
    for name, link in LINKS.items():
        run(build, name, *link)


if __name__ == "__main__":
    main(*sys.argv[1:])
