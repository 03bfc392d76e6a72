"""An emulated board boots, its board joins the aggregator on this machine over DTLS and trains; the power is
cut in the middle, and after the next boot the run goes on to its end.

The guest runs the packaged cairn-node from the image that cairn-flash made of a base image.

usage: board.py HOST_BIN GUEST_BUILD small|full
"""

import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import Cluster  # noqa: E402
from flashing import SITE, flash, make_base, make_packages, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

BOARD = "node-17"
ROUNDS = 6



def wait_for_version(cluster, version, timeout):
    deadline = time.monotonic() + timeout
    while cluster.status()["version"] < version:
        assert time.monotonic() < deadline, f"no version {version} in {timeout} s"
        time.sleep(0.2)


def finish(guest, cluster, kind):
    """The small image powers off by itself when the run has ended; the full one stays a board."""
    if kind == "small":
        guest.wait_for_power_off(120)
    else:
        wait_for_version(cluster, ROUNDS, 300)
        cluster.wait_for_end(60, ["gateway"])
        guest.cut_power()


def main(host_bin, guest_build, kind):
    assert kind in ("small", "full"), f"there is no image {kind}"
    slow = 1 if kind == "small" else 6
    options = "cairn.poweroff cairn.options=--until-end" if kind == "small" else "systemd.show_status=1"
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with Cluster(host_bin, {}, rounds=ROUNDS, local_steps=5, quorum=1) as cluster:
        base = make_base(kind, cluster.path("base.img"))
        packages = make_packages(guest_build, cluster.path("packages"), "cairn-node")
        image = flash(cluster, host_bin, base, BOARD, SITE.format(source=SOURCE, port=cluster.port),
                      packages.values(), "gate")
        say(f"image made, {os.stat(image).st_blocks * 512 >> 20} MiB used of {os.path.getsize(image) >> 20}")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log"), options, 512 * (1 + (kind == "full"))) as guest:
            guest.start()
            wait_until_joined(cluster, host_bin, BOARD, 60 * slow)
            say("joined")
            wait_for_version(cluster, 2, 60 * slow)
            guest.cut_power()
            cut_at = cluster.status()["version"]
            say(f"power cut at version {cut_at}")
            guest.start()
            guest.wait_for_line("registered in group", 2, timeout=60 * slow)
            say("registered again")
            finish(guest, cluster, kind)
            say("the run has ended")
        cluster.wait_for_end(30, ["gateway"])
        lines = cluster.replay()
        status = cluster.status()
        assert status["version"] == ROUNDS, json.dumps(status)
        assert len(lines) >= ROUNDS, lines
        say(f"replay: {lines[-1]}")


if __name__ == "__main__":
    if sys.argv[3] == "full" and (os.getuid() != 0 or missing_tools("mmdebstrap")):
        print("skipped: the full image needs root and mmdebstrap")
        sys.exit(77)
    if missing_tools():
        print("skipped: needs " + ", ".join(missing_tools()))
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3])
