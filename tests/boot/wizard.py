"""A board whose system starts with a wizard, as a fresh JetPack does: its default target is one that excludes
multi-user.target. The first boot installs the packages and the board joins, while the wizard waits for a person. The power
is cut. When the wizard is over, the board registers again and the run goes on to its end.

usage: wizard.py HOST_BIN GUEST_BUILD     (root)

The units are made after descriptions of NVIDIA's. What its wizard does to the network is not imitated.
"""

import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import ENDLESS, Cluster  # noqa: E402
from flashing import SITE, flash, make_base, make_packages, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

BOARD = "node-17"
ROOT_AT = 1 << 20  # of boards/qemu-virt-arm64/image/full
SYSTEM, LOCAL = "/usr/lib/systemd/system", "/etc/systemd/system"
DEFAULT = f"{LOCAL}/default.target"
TARGET = """\
[Unit]
Description=Wizard target
Requires=basic.target
After=basic.target
Conflicts=rescue.service rescue.target multi-user.target
AllowIsolate=yes
"""
WIZARD = """\
[Unit]
Description=Wizard
After=basic.target
[Service]
ExecStart=/bin/sh -c 'echo "wizard: waits for a person" >/dev/console; exec sleep infinity'
"""


def change(image, *lines):
    with tempfile.NamedTemporaryFile("w") as script:
        script.write("\n".join(lines) + "\n")
        script.flush()
        result = subprocess.run(["debugfs", "-w", "-f", script.name, f"{image}?offset={ROOT_AT}"], capture_output=True,
                                text=True, check=True)
    assert result.stderr.count("\n") == 1, result.stderr  # its version


def add_wizard(cluster, base):
    cluster.write("target", TARGET)
    cluster.write("wizard", WIZARD)
    wants = f"{LOCAL}/nv-oem-config.target.wants"
    change(base, f"write {cluster.path('target')} {SYSTEM}/nv-oem-config.target",
           f"write {cluster.path('wizard')} {SYSTEM}/nv-oem-config.service", f"mkdir {wants}",
           f"symlink {wants}/nv-oem-config.service /lib/systemd/system/nv-oem-config.service",
           f"symlink {DEFAULT} /lib/systemd/system/nv-oem-config.target")


def end_wizard(image):
    """The person has filled in the form: the default target is that of the system again."""
    subprocess.run(["e2fsck", "-fp", f"{image}?offset={ROOT_AT}"], capture_output=True)  # the power was cut
    change(image, f"rm {DEFAULT}")


def main(host_bin, guest_build):
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with Cluster(host_bin, {}, rounds=ENDLESS, local_steps=5, quorum=1) as cluster:
        base = make_base("full", cluster.path("base.img"))
        add_wizard(cluster, base)
        packages = make_packages(guest_build, cluster.path("packages"), "cairn-node")
        image = flash(cluster, host_bin, base, BOARD, SITE.format(source=SOURCE, port=cluster.port), packages.values(), "gate")
        say("image made")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log"), "systemd.show_status=1", 1024) as guest:
            guest.start()
            guest.wait_for_line("wizard: waits for a person", timeout=600)
            guest.wait_for_line("cairn-firstboot: installed", timeout=600)
            say("installed while the wizard waits")
            wait_until_joined(cluster, host_bin, BOARD, 600)
            say("joined while the wizard waits")
            assert "Reached target multi-user.target" not in guest.log(), guest.tail()
            guest.cut_power()
            end_wizard(image)
            registered = guest.log().count("registered in group")
            guest.start()
            guest.wait_for_line("registered in group", registered + 1, timeout=600)
            say("registered after the wizard")
            assert "Reached target multi-user.target" in guest.log(), guest.tail()
            cluster.end_run()
            cluster.wait_for_end(600, ["gateway"])
            say("the run has ended")
            guest.cut_power()
        assert guest.log().count("cairn-firstboot: installed") == 1, "it was installed twice"


if __name__ == "__main__":
    if os.getuid() != 0 or missing_tools("mmdebstrap"):
        print("skipped: needs root and mmdebstrap")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
