"""An update of a whole emulated board with two systems, in the middle of a run: U-Boot, Debian with systemd, RAUC,
cairn-update, and a bundle of cairn-flash. The run ends as one that nothing disturbed.

usage: ab.py HOST_BIN GUEST_BUILD     (root)
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE]

from two_systems import SECONDS, Plant, skip_without_tools  # noqa: E402

JOB = {"rounds": 8, "local_steps": 5}

UNIT = """\
[Unit]
Description=Updates this board in the middle of a run
After=cairn-update-keep.service

[Service]
ExecStart=/bin/sh /data/ab.sh
"""
WANTED = "[Unit]\nWants=ab.service\n"


def main(host_bin, guest_build):
    with Plant(host_bin, guest_build, **JOB) as plant:
        plant.write("ab.service", UNIT)
        plant.write("wanted.conf", WANTED)
        plant.make_image({os.path.join(HERE, "ab.sh"): "/data/ab.sh",
                          plant.path("ab.service"): "/etc/systemd/system/ab.service",
                          plant.path("wanted.conf"): "/etc/systemd/system/multi-user.target.d/ab.conf"})
        plant.make_bundle("9.0.0", plant.make_package("9.0.0"))
        guest = plant.start_guest()
        plant.wait_until_trained(0)
        guest.wait_for_line("ab: slot A asks", timeout=SECONDS)
        plant.say("asked for the update")
        guest.wait_for_line("cairn: slot B,", timeout=SECONDS, unless="ab: the installation failed")
        version = plant.status()["version"]
        plant.say(f"slot B is started at version {version}")
        assert version < JOB["rounds"], "the run was over before the update"
        guest.wait_for_line("ab: end of status", timeout=SECONDS)
        plant.say("decided")
        plant.wait_for_end(SECONDS, ["gateway"])
        guest.cut_power()
        log = guest.log().replace("\r", "")
        assert re.search(r"ab: slot B decided, node 9\.0\.0", log), guest.tail()
        assert re.search(r"slot B  version 9\.0\.0, good, running", log), guest.tail()
        assert "last result: good:9.0.0" in log, guest.tail()
        assert plant.slots_started() == "AB", "another slot was started"
        plant.compare_with_undisturbed(JOB["rounds"])


if __name__ == "__main__":
    skip_without_tools()
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
