"""`status --json` of the gateway says of each board which build it runs, on which system, with how much disk.

    inventory.py BUILD [SCENARIO...]
"""

import json
import os
import time

from cluster import ENDLESS, Cluster
from scenarios import Scenarios

GROUPS = {"a": ["board-1"]}
RELEASE = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n"

scenario = Scenarios()


def inventory(cluster, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        lines = cluster.command(cluster.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()
        board, = [found for found in map(json.loads, lines) if found.get("board") == "board-1"]
        if "build" in board:
            return board
        time.sleep(0.1)
    raise AssertionError(f"no build of board-1: {board}")


@scenario
def a_board_tells_what_it_is(build):
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=1, model="digits-mlp.onnx") as cluster:
        for folder in ("root/etc", "root/sys", "root/proc"):
            os.makedirs(cluster.path(folder))
        cluster.write("root/etc/nv_tegra_release", RELEASE)
        cluster.start("gateway")
        cluster.start("board-1", "--sysroot", cluster.path("root"))
        found = inventory(cluster)
        named = cluster.command(cluster.node, "--version").stdout.split()[1]
        assert found["build"] == named, found
        assert found["system"] == "JetPack 6.2 (L4T 36.4.3)", found
        assert found["disk_size"] >= found["disk_free"] > 0, found
        assert found["type"] == "generic-x86-64" and found["silent_s"] is not None, found


@scenario
def a_board_with_two_systems_tells_which_one_runs(build):
    """And how its last update went, soon after cairn-update has decided; the node does not start again for it."""
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=1, model="digits-mlp.onnx") as cluster:
        for folder in ("root/run/cairn-update", "root/sys", "root/proc"):
            os.makedirs(cluster.path(folder))

        def report(line):
            cluster.write("root/run/cairn-update/new", line)
            os.rename(cluster.path("root/run/cairn-update/new"), cluster.path("root/run/cairn-update/report"))

        def wait_for(**wanted):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                found = inventory(cluster)
                if all(found.get(key) == value for key, value in wanted.items()):
                    return
                time.sleep(0.2)
            raise AssertionError(f"{wanted} is not told: {found}")

        report("B 1.4.0 trying:1.4.0\n")
        cluster.start("gateway")
        node = cluster.start("board-1", "--sysroot", cluster.path("root"))
        wait_for(slot="B", slot_version="1.4.0", update="trying", update_version="1.4.0")
        report("B 1.4.0 good:1.4.0\n")
        wait_for(slot="B", update="good")
        text = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert "\n                   slot B, version 1.4.0; update to 1.4.0: good\n" in text, text
        report("\x1b[2J $(id) x\n")
        wait_for(slot=None, update=None)
        report("A unknown rolled-back:1.5.0\n")
        wait_for(slot="A", slot_version=None, update="rolled-back", update_version="1.5.0")
        assert node.poll() is None and cluster.log("board-1").count("registered in group") == 1


if __name__ == "__main__":
    scenario.main()
