"""On the full image, in the middle of a run: the package is upgraded, then a package that cannot read the state is
refused. The run ends as one that nothing disturbed.

usage: upgrade.py HOST_BIN GUEST_BUILD     (root)
"""

import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import Cluster  # noqa: E402
from flashing import SITE, change_package, flash, make_base, make_packages, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402
from undisturbed import EMULATOR, undisturbed  # noqa: E402

BOARD = "board-1"
ROUNDS = 6
JOB = {"rounds": ROUNDS, "local_steps": 5, "quorum": 1}

UNIT = """\
[Unit]
Description=Upgrades cairn-node in the middle of a run
After=cairn-firstboot.service

[Service]
Type=oneshot
ExecStart=/bin/sh /data/upgrade.sh
"""


def main(host_bin, guest_build):
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    wanted = undisturbed(host_bin, guest_build, BOARD, **JOB)
    with Cluster(host_bin, {}, **JOB) as cluster:
        package = make_packages(guest_build, cluster.path("packages"), "cairn-node")["cairn-node"]
        newer = change_package(package, cluster.path("newer.deb"), "9.0.0")
        older = change_package(package, cluster.path("older.deb"), "0.0.1", ("preinst", r"^newest=\d+", "newest=0"))
        cluster.write("upgrade.service", UNIT)
        base = make_base("full", cluster.path("base.img"))
        image = flash(cluster, host_bin, base, BOARD, SITE.format(source=SOURCE, port=cluster.port), [package], "gate",
                      {newer: "/data/newer.deb", older: "/data/older.deb", os.path.join(HERE, "upgrade.sh"):
                       "/data/upgrade.sh", cluster.path("upgrade.service"): "/etc/systemd/system/upgrade.service"})
        say("image made")
        cluster.start("gateway")
        with Guest(image, cluster.path("logs", "guest.log"), "systemd.show_status=1 systemd.wants=upgrade.service",
                   1024) as guest:
            guest.start()
            wait_until_joined(cluster, host_bin, BOARD, 400)
            say("joined")
            guest.wait_for_line("upgrade: upgraded", timeout=400)
            say("upgraded")
            guest.wait_for_line("upgrade: kept", timeout=400)
            cluster.wait_for_end(400, ["gateway"])
            guest.cut_power()
            said = re.findall(r"upgrade: (.*)", guest.log())
        print("\n".join(said))
        found = re.findall(r"(\w+): version (\S+), pid (\d+)", "\n".join(said))
        facts = {word: (version, pid) for word, version, pid in found}
        assert facts["upgraded"][0] == facts["kept"][0] == "9.0.0" != facts["before"][0], said
        assert facts["before"][1] != facts["upgraded"][1], "the service was not restarted by the upgrade"
        assert "the downgrade is refused" in said, said
        assert cluster.digest() == wanted, "the run did not end as an undisturbed one does"
        say(f"the last version is that of an undisturbed run; {cluster.replay()[-1]}")


if __name__ == "__main__":
    if os.getuid() != 0 or missing_tools("mmdebstrap", EMULATOR[0]):
        print("skipped: the full image needs root and mmdebstrap")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
