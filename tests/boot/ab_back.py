"""The way back: systems that do not work are installed on an emulated board in the middle of a run. After three tries
the old one runs again by itself, the board trains on, and the run ends as one that nothing disturbed.

usage: ab_back.py HOST_BIN GUEST_BUILD [KIND...]     (root)

dead: the new cairn-node is no program of this processor. later: it finds a state of a later format than it can read,
and ends with 7; the old system's state stays as it was.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE]

from two_systems import Plant, skip_without_tools  # noqa: E402

# Seconds that a dead node has in a try; its first boot installs packages meanwhile. A node that ends with 7 needs no
# patience: its systems have the 300 s of cairn-update, so a try that waited for them would be noticed.
PATIENCE = 30

# Before the first start of the new node: a copy of the state, marked as format 9, is mounted over the state. By a unit of
# its own, since the commands of the node's unit have mounts of their own.
LATER = """\
#!/bin/sh
set -e
cp -a /var/lib/private/cairn /run/later
for file in /run/later/checkpoint.*; do printf 9 | dd of="$file" bs=1 seek=7 conv=notrunc status=none; done
mount --bind /run/later /var/lib/private/cairn
"""
LATER_UNIT = """\
[Unit]
RequiresMountsFor=/var/lib/private

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /usr/lib/cairn/later
"""
FILES = {
    "dead": [("usr/bin/cairn-node", "\x7fELF\x02\x01\x01" + "\0" * 9 + "\x02\0\x3e\0" + "\0" * 44)],
    "later": [("usr/lib/cairn/later", LATER), ("lib/systemd/system/later.service", LATER_UNIT),
              ("lib/systemd/system/cairn-node.service.d/later.conf", "[Unit]\nRequires=later.service\nAfter=later.service\n")],
}
VERSIONS = {"dead": "9.0.1", "later": "9.0.2"}
ENDED = {"dead": "status=203/EXEC", "later": "status=7/"}  # systemd's words of the node's end


def go_and_come_back(plant, kind):
    version, begun, boots = VERSIONS[kind], len(plant.guest.log()), len(plant.slots_started())
    plant.install(version)
    plant.say(f"{kind}: version {version} is installed")
    plant.wait_for_update("rolled-back", version, "A", "", timeout=900)  # unknown before a first update
    assert plant.slots_started()[boots:] == "BBBA", f"other slots were started: {plant.slots_started()}"
    tries = re.findall("cairn: slot .*left.*", plant.guest.log().replace("\r", ""))[boots:]
    assert all("A has 3 tries left" in line for line in tries[:3]), f"the old system was not marked as good: {tries}"
    assert f"slot A, version unknown; update to {version}: rolled-back" in plant.table_of_boards(), plant.table_of_boards()
    log = plant.guest.log()[begun:]
    assert len(re.findall(f"cairn-node.service: Main process exited.*{ENDED[kind]}", log)) >= 3, plant.guest.tail()
    plant.wait_for_ssh()
    said = plant.ssh("cairn-update status")
    assert "slot A  version unknown, good, running" in said and f"slot B  version {version}, bad" in said, said
    assert f"last result: rolled-back:{version}" in said, said
    plant.wait_for_version(plant.version() + 2)
    plant.say(f"{kind}: the board trains on")


def main(host_bin, guest_build, kinds):
    with Plant(host_bin, guest_build) as plant:
        plant.make_image()
        plant.write("patience", f"CAIRN_BOOT=uboot\nCAIRN_PATIENCE={PATIENCE}\n")
        for kind in kinds:
            package = plant.make_package(VERSIONS[kind], files=FILES[kind])
            plant.make_bundle(VERSIONS[kind], package, {plant.path("patience"): "/etc/default/cairn-update"} if kind == "dead" else {})
        plant.start_guest()
        plant.wait_until_trained()
        plant.wait_for_ssh()
        for kind in kinds:
            go_and_come_back(plant, kind)
        plant.end_as_undisturbed()


if __name__ == "__main__":
    skip_without_tools()
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:] or list(FILES))
