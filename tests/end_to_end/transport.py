"""Boards reach the gateway over what there is: UDP with any path MTU, TCP, and TCP where UDP does not get through.

    transport.py BUILD

The relay between board and gateway drops datagrams that are too large, or all of them.
"""

import json
import re
import sys

from cluster import ENDLESS, Cluster
from scenarios import chosen

# MTU of the path, then the bytes of a message that a board should find.
PATHS = {1500: 1280, 1280: 1088, 576: 404}
BASE = 1088


def wait_for_log(cluster, text, seconds=30):
    cluster.wait_for_line("board-1", text, timeout=seconds)


def run(cluster):
    cluster.start("gateway")
    cluster.start("board-1", "--log-level", "debug")


def path_mtu(build):
    for mtu, body in PATHS.items():
        link = {"rate": 20e6, "delay": 5, "queue": 200, "mtu": mtu - 28}
        with Cluster(build, {"lab-a": ["board-1"]}, rounds=2, quorum=1, link=link) as cluster:
            run(cluster)
            if body != BASE:
                wait_for_log(cluster, f"takes messages of {body} bytes")
            cluster.wait_for_end(60)
            assert "0 differ" in cluster.replay()[-1]
            log = cluster.log("board-1")
            assert body != BASE or "takes messages of" not in log, log
            cluster.link_bytes()
            dropped = sum(int(line.split(" too_large ")[1].split()[0])
                          for line in cluster.log("link-board-1").splitlines() if "too_large" in line)
            assert (dropped > 0) == (mtu < 1500), f"{dropped} datagrams were too large for {mtu}"
            print(f"MTU {mtu}: messages of {body} bytes, {dropped} datagrams were too large", flush=True)


def tcp(build):
    network = "network: {transport: tcp}"
    with Cluster(build, {"lab-a": ["board-1", "board-2"]}, rounds=3, quorum=1, network=network) as cluster:
        cluster.start("gateway")
        for board in cluster.boards:
            cluster.start(board, "--log-level", "debug")
        cluster.wait_for_end(60)
        assert "0 differ" in cluster.replay()[-1]
        for board in cluster.boards:
            log = cluster.log(board)
            ways = re.findall(rf":{cluster.port}: connected over (\w+)", log)
            assert ways and set(ways) == {"TCP"}, log
            status = json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)
            assert status["link"]["encryption"] == "TLS 1.2", status
    print("tcp: three rounds over TCP", flush=True)


def tcp_killed(build):
    """kill -9 of the gateway over TCP: boards find the new one, the run goes on."""
    network = "network: {transport: tcp}"
    with Cluster(build, {"lab-a": ["board-1"]}, rounds=ENDLESS, quorum=1, local_steps=30, network=network) as cluster:
        run(cluster)
        cluster.wait_for_line("board-1", "registered", timeout=60)
        cluster.wait_for_line("board-1", "version 1: held-out")
        cluster.end_run()
        cluster.wait_for_end(60)
        assert "0 differ" in cluster.replay()[-1]
    print("tcp_killed: the run went on with a new gateway", flush=True)


CASES = (path_mtu, tcp, tcp_killed)


def main(build, *names):
    for case in chosen(CASES, names):
        case(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
