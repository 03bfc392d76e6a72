"""An emulated board boots, its board joins the aggregator on this machine over DTLS and trains; the power is
cut in the middle, and after the next boot the run goes on to its end.

The guest runs the packaged cairn-node from the image that cairn-flash made of a base image.

usage: board.py HOST_BIN GUEST_BUILD small|full
"""

import glob
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
ROUNDS = 6

SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
threads: 2
aggregator: {{address: "10.0.2.2:{port}"}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""


def make_image(cluster, host_bin, packages, kind):
    """As a user does: a base image and the packages make the image of one board."""
    base, image = cluster.path("base.img"), cluster.path("board.img")
    subprocess.run([os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", kind), base], check=True)
    cluster.write("site.yaml", SITE.format(source=SOURCE, port=cluster.port))
    result = subprocess.run(
        [os.path.join(host_bin, "cairn-flash"), "image", "--base", base, "--site", cluster.path("site.yaml"),
         "--board", "qemu-virt-arm64", "--name", BOARD, "--gateway", "gateway.yaml", "--group", "gate",
         *(word for package in packages for word in ("--deb", package)),
         "--add", os.path.join(DIGITS, "board-1-images.npy") + ":/data/images.npy",
         "--add", os.path.join(DIGITS, "board-1-labels.npy") + ":/data/labels.npy", "-o", image],
        cwd=cluster.directory, env=path_with(host_bin),
        capture_output=True, text=True)
    print(result.stdout + result.stderr, end="")
    assert result.returncode == 0
    assert os.stat(image).st_mode & 0o777 == 0o600, "the image holds a key"
    os.rename(base + ".kernel", image + ".kernel")
    return image


def path_with(host_bin):
    return {**os.environ, "PATH": f"{host_bin}:{os.environ['PATH']}"}


def make_packages(guest_build, folder):
    subprocess.run(["cpack", "--config", os.path.join(guest_build, "CPackConfig.cmake"), "-B", folder],
                   check=True, capture_output=True)
    return [path for path in glob.glob(os.path.join(folder, "*.deb")) if "cairn-node" in path]


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
    slow = 1 if kind == "small" else 6
    options = "cairn.poweroff cairn.options=--until-end" if kind == "small" else "systemd.show_status=1"
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with Cluster(host_bin, {}, rounds=ROUNDS, local_steps=5, quorum=1) as cluster:
        image = make_image(cluster, host_bin, make_packages(guest_build, cluster.path("packages")), kind)
        say(f"image made, {os.stat(image).st_blocks * 512 >> 20} MiB used of {os.path.getsize(image) >> 20}")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log"), options, 512 * (1 + (kind == "full"))) as guest:
            guest.start()
            subprocess.run([os.path.join(host_bin, "cairn-flash"), "wait", "--name", BOARD, "--gateway",
                            cluster.path("gateway.yaml"), "--timeout", f"{60 * slow} s"], check=True,
                           cwd=cluster.directory, env=path_with(host_bin))
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
