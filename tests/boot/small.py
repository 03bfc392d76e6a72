"""A small image boots, its board joins the aggregator on this machine over DTLS and trains; the power is
cut in the middle, and after the next boot the run goes on to its end.

usage: small.py HOST_BIN GUEST_BIN WORK
"""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import DIGITS, Cluster  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

BOARD = "node-17"

SITE = """\
schema: cairn/site/v1
name: {name}
state: /var/lib/cairn
threads: 2
aggregator: {{address: "10.0.2.2:{port}", key: /etc/cairn/node.key}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""


def inject(image, folder, files):
    script = ["mkdir /etc/cairn", "mkdir /data"]
    for source, target, mode in files:
        script += [f"write {source} {target}", f"sif {target} mode 010{mode}", f"sif {target} uid 0",
                   f"sif {target} gid 0"]
    path = os.path.join(folder, "script")
    with open(path, "w") as file:
        file.write("\n".join(script))
    subprocess.run(["debugfs", "-w", "-f", path, f"{image}?offset=1048576"], check=True, capture_output=True)


def make_image(cluster, guest_bin):
    image = cluster.path("board.img")
    subprocess.run([os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", "small"), image], check=True)
    cluster.write("site.yaml", SITE.format(name=BOARD, port=cluster.port))
    inject(image, cluster.directory, [
        (os.path.join(guest_bin, "cairn-node"), "/usr/bin/cairn-node", "0755"),
        (cluster.path("site.yaml"), "/etc/cairn/node.yaml", "0644"),
        (cluster.path("keys", f"{BOARD}.key"), "/etc/cairn/node.key", "0600"),
        (os.path.join(DIGITS, "board-1-images.npy"), "/data/images.npy", "0644"),
        (os.path.join(DIGITS, "board-1-labels.npy"), "/data/labels.npy", "0644"),
    ])
    return image


def wait_for_version(cluster, version, timeout):
    deadline = time.monotonic() + timeout
    while cluster.status()["version"] < version:
        assert time.monotonic() < deadline, f"no version {version} in {timeout} s"
        time.sleep(0.2)


def main(host_bin, guest_bin):
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with Cluster(host_bin, {"gate": [BOARD]}, rounds=6, local_steps=5, quorum=1) as cluster:
        image = make_image(cluster, guest_bin)
        say(f"image made, {os.stat(image).st_blocks * 512 >> 20} MiB used of {os.path.getsize(image) >> 20}")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log")) as guest:
            guest.start("cairn.poweroff cairn.options=--until-end")
            guest.wait_for_line("registered in group", timeout=60)
            say("registered")
            wait_for_version(cluster, 2, 60)
            guest.cut_power()
            cut_at = cluster.status()["version"]
            say(f"power cut at version {cut_at}")
            guest.start("cairn.poweroff cairn.options=--until-end")
            guest.wait_for_line("registered in group", 2, timeout=60)
            say("registered again")
            guest.wait_for_power_off(120)
            say("powered off")
        cluster.wait_for_end(30, ["gateway"])
        lines = cluster.replay()
        status = cluster.status()
        assert status["version"] == 6, json.dumps(status)
        assert len(lines) >= 6, lines
        say(f"replay: {lines[-1]}")


if __name__ == "__main__":
    if missing_tools():
        print("skipped: needs " + ", ".join(missing_tools()))
        sys.exit(77)
    main(sys.argv[1], sys.argv[2])
