"""An update of a whole emulated board with two systems, in the middle of a run: U-Boot, Debian with systemd, RAUC,
cairn-update, and a bundle of cairn-flash. The run ends as one that nothing disturbed.

usage: ab.py HOST_BIN GUEST_BUILD     (root)
"""

import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import DIGITS, Cluster  # noqa: E402
from flashing import SITE, change_package, flash, make_packages, path_with, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

BOARD = "board-1"
JOB = {"rounds": 8, "local_steps": 5, "quorum": 1}
RECIPE = os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", "full")
FIRMWARE = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"
SECONDS = 600  # for each of the long waits

UNIT = """\
[Unit]
Description=Updates this board in the middle of a run
After=cairn-update-keep.service

[Service]
ExecStart=/bin/sh /data/ab.sh
"""
WANTED = "[Unit]\nWants=ab.service\n"


def undisturbed(host_bin):
    """The digest of the last version of the same run on this machine."""
    with Cluster(host_bin, {"gate": [BOARD]}, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest()


def make_signer(cluster):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=plant", "-keyout",
                    cluster.path("plant.key"), "-out", cluster.path("plant.pem")], check=True, capture_output=True)


def make_bundle(cluster, host_bin, base, package, adds):
    """The disk with the bundle, which the guest mounts."""
    os.mkdir(cluster.path("disk"))
    subprocess.run([os.path.join(host_bin, "cairn-flash"), "bundle", "--base", base, "--deb", package, "--version", "9.0.0",
                    "--cert", "plant.pem", "--key", "plant.key", "--slot", "512",
                    *(word for source, to in adds.items() for word in ("--add", f"{source}:{to}")),
                    "-o", "disk/fleet.raucb"], check=True, cwd=cluster.directory, env=path_with(host_bin))
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", cluster.path("disk"), cluster.path("disk.ext4"), "512M"], check=True)
    return cluster.path("disk.ext4")


def main(host_bin, guest_build):
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    wanted = undisturbed(host_bin)
    with Cluster(host_bin, {}, **JOB) as cluster:
        packages = make_packages(guest_build, cluster.path("packages"), "cairn-node", "cairn-update")
        newer = change_package(packages["cairn-node"], cluster.path("newer.deb"), "9.0.0")
        base = cluster.path("base.img")
        subprocess.run([RECIPE, "--two", base, *packages.values()], check=True, stderr=subprocess.DEVNULL)
        make_signer(cluster)
        cluster.write("ab.service", UNIT)
        cluster.write("wanted.conf", WANTED)
        adds = {cluster.path("plant.pem"): "/etc/rauc/keyring.pem", os.path.join(HERE, "ab.sh"): "/data/ab.sh",
                cluster.path("ab.service"): "/etc/systemd/system/ab.service",
                cluster.path("wanted.conf"): "/etc/systemd/system/multi-user.target.d/ab.conf"}
        image = flash(cluster, host_bin, base, BOARD, SITE.format(source=SOURCE, port=cluster.port),
                      [packages["cairn-node"]], "gate", adds)
        say("image made")
        samples = {os.path.join(DIGITS, f"{BOARD}-{kind}.npy"): f"/data/{kind}.npy" for kind in ("images", "labels")}
        disk = make_bundle(cluster, host_bin, base, newer, {**adds, **samples})
        say(f"bundle made, {os.path.getsize(cluster.path('disk', 'fleet.raucb')) >> 20} MiB")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log"), memory=1024, firmware=FIRMWARE) as guest:
            guest.start(devices=["-drive", f"file={disk},if=none,id=bundle,format=raw,readonly=on",
                                 "-device", "virtio-blk-pci,drive=bundle"])
            wait_until_joined(cluster, host_bin, BOARD, SECONDS)
            say("joined")
            guest.wait_for_line("ab: slot A asks", timeout=SECONDS)
            say("asked for the update")
            guest.wait_for_line("cairn: slot B,", timeout=SECONDS)
            version = cluster.status()["version"]
            say(f"slot B is started at version {version}")
            assert version < JOB["rounds"], "the run was over before the update"
            guest.wait_for_line("ab: end of status", timeout=SECONDS)
            say("decided")
            cluster.wait_for_end(SECONDS, ["gateway"])
            guest.cut_power()
            log = guest.log().replace("\r", "")
        assert re.search(r"ab: slot B decided, node 9\.0\.0", log), guest.tail()
        assert re.search(r"slot B  version 9\.0\.0, good, running", log), guest.tail()
        assert "last result: good:9.0.0" in log, guest.tail()
        assert re.findall(r"cairn: slot ([AB]),", log) == ["A", "B"], "another slot was started"
        assert cluster.digest() == wanted, "the run did not end as an undisturbed one does"
        say(f"the last version is that of an undisturbed run on this machine; {cluster.replay()[-1]}")


if __name__ == "__main__":
    missing = missing_tools("mmdebstrap", "rauc", "mksquashfs", "openssl", "mkimage", "mkenvimage", "mcopy")
    missing += [FIRMWARE] * (not os.path.exists(FIRMWARE))
    if os.getuid() != 0 or missing:
        print(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
