"""Four emulated boards in two groups against one gateway: each is flashed and booted, all train a run to its end.

The boards share a LAN of their own (QEMU's multicast on the loopback); the gateway is on this machine.

usage: plant.py HOST_BIN GUEST_BUILD
"""

import contextlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import GROUPS, Cluster, free_ports  # noqa: E402
from flashing import flash, make_base, make_packages, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

ROUNDS = 3
PORT = 7000

SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
threads: 1
aggregator: {{address: "10.0.2.2:{port}"}}
group: {{listen: "{own}:{lan_port}", members: {{{members}}}, form: 120 s, rejoin: 60 s, timeout: 60 s}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""


def address(board):
    return f"10.9.0.{board[-1]}"


def site_of(cluster, board, members):
    listed = ", ".join(f'{member}: "{address(member)}:{PORT}"' for member in members)
    return SITE.format(source=SOURCE, port=cluster.port, own=address(board), lan_port=PORT, members=listed)


def lan(board, port):
    return ["-netdev", f"socket,id=lan,mcast=239.193.7.1:{port},localaddr=127.0.0.1",
            "-device", f"virtio-net-pci,netdev=lan,romfile=,mac=52:54:00:09:00:0{board[-1]}"]


def main(host_bin, guest_build):
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with Cluster(host_bin, {}, rounds=ROUNDS, local_steps=5, quorum=2) as cluster, contextlib.ExitStack() as guests:
        base = make_base("small", cluster.path("base.img"))
        packages = make_packages(guest_build, cluster.path("packages"), "cairn-node")
        port, = free_ports(1)
        started = {}
        cluster.start("gateway")
        for group, members in GROUPS.items():
            for board in members:
                image = flash(cluster, host_bin, base, board, site_of(cluster, board, members), packages.values(),
                              group)
                options = f"cairn.poweroff cairn.options=--until-end cairn.lan={address(board)}/24"
                guest = Guest(image, cluster.path("logs", f"{board}.log"), options, memory=192, processors=1)
                started[board] = guests.enter_context(guest)
        say("four images made")
        for board, guest in started.items():
            guest.start(devices=lan(board, port))
        for board in started:
            wait_until_joined(cluster, host_bin, board, 180)
        say("all have joined")
        for guest in started.values():
            guest.wait_for_power_off(400)
        cluster.wait_for_end(60, ["gateway"])
        status, lines = cluster.status(), cluster.replay()
        assert status["version"] == ROUNDS, status
        rows = [line.split() for line in cluster.log("gateway").splitlines() if line.strip()[:1].isdigit()]
        assert [row[3:5] for row in rows if row[0] != "0"] == [["4", "2"]] * ROUNDS, "boards, updates: " + str(rows)
        for board, guest in started.items():
            assert "rank 0 of 2" in guest.log() or "rank 1 of 2" in guest.log(), f"{board} was alone\n{guest.tail()}"
        say(f"4 boards and 2 updates in each of {ROUNDS} versions; replay: {lines[-1]}")


if __name__ == "__main__":
    if missing_tools():
        print("skipped: needs " + ", ".join(missing_tools()))
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
