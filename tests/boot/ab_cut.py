"""Power cuts in an installation: QEMU is killed at several moments while a new system is written. Each boot starts the old
system, or the new one when it was wholly there. A later installation succeeds, and the run ends as an undisturbed one.

usage: ab_cut.py HOST_BIN GUEST_BUILD [CUTS]     (root)

CUTS moments at equal distances (5; 20 is each 5 %), by the bytes that QEMU has written in comparison to the first
installation, which is not disturbed. The last moment is when RAUC has said that it is done.
"""

import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE]

from two_systems import BUNDLES, Plant, skip_without_tools, wait_until  # noqa: E402

VERSIONS = ["9.0.0", "9.0.1"]
OTHER = {"A": "B", "B": "A"}
LABELS = {"A": "APP", "B": "APP_b"}


class Systems:
    """What the board has to run: the slot and its version."""

    def __init__(self, plant):
        self.plant, self.slot, self.version, self.last = plant, "A", "unknown", "none"

    def next_version(self):
        """Another than the one that runs; RAUC and cairn-update then have a reason to write."""
        return VERSIONS[self.version == VERSIONS[0]]

    def update(self):
        """Without a cut. The bytes that QEMU wrote until the board was about to restart."""
        version, before = self.next_version(), self.plant.guest.written()
        self.plant.install(version, "--older")
        written = self.plant.guest.written() - before
        self.slot, self.version, self.last = OTHER[self.slot], version, f"good:{version}"
        self.plant.wait_for_update("good", version, self.slot, version)
        return written

    def install_until(self, version, size):
        """Ends when QEMU has written so much, or RAUC has installed all."""
        before, words = self.plant.guest.written(), self.plant.path("logs", "install.log")
        with open(words, "wb") as log:
            process = self.plant.ssh_start(f"cairn-update install --older {BUNDLES}/{version}.raucb", log)
        while self.plant.guest.written() - before < size:
            assert process.poll() is None, f"the installation has ended\n{open(words).read()}"
            if "Installing done" in open(words).read():
                break
            time.sleep(0.05)
        self.plant.guest.cut_power()
        process.wait()

    def cut(self, size):
        """A power cut when so much is written; says what became of it."""
        plant, version = self.plant, self.next_version()
        plant.wait_for_ssh()
        # A slot that is written in part shall not start by what was there before. RAUC writes no block that is there.
        plant.ssh(f"mkdir -p {BUNDLES}; mount -o ro /dev/vda {BUNDLES} || true; "
                  f"dd if=/dev/zero of=/dev/disk/by-partlabel/{LABELS[OTHER[self.slot]]} bs=4M conv=fsync || sync")
        started = len(plant.slots_started())
        self.install_until(version, size)
        assert len(plant.slots_started()) == started, "the board was restarted before the cut"
        before = len(plant.guest.log())
        plant.power_on()
        plant.wait_for_ssh()
        text = wait_until(self.decided, "a decision", 600)
        log = plant.guest.log()[before:]
        slot = re.search(r"slot ([AB])  .*running", text).group(1)
        boots = plant.slots_started()[started:]
        assert boots == slot, f"the board started {boots}\n{text}"
        if slot != self.slot:
            outcome, self.slot, self.version = "good", slot, version
        else:
            outcome = "interrupted" if f"version {version} in slot {OTHER[slot]}: interrupted" in log else "not begun"
        if outcome != "not begun":
            self.last = f"{outcome}:{version}"
        assert f"last result: {self.last}\n" in text, f"{outcome}, but\n{text}"
        result, _, of = self.last.partition(":")
        plant.wait_for_update(result, of, self.slot, self.version)
        return outcome

    def decided(self):
        """cairn-update's status, when no update is pending and the node is there."""
        text = self.plant.ssh("systemctl is-active cairn-node && cairn-update status", check=False)
        return text if "last result: " in text and "boots of it so far" not in text else None


def main(host_bin, guest_build, cuts):
    with Plant(host_bin, guest_build) as plant:
        plant.make_image()
        for version in VERSIONS:
            plant.make_bundle(version, plant.make_package(version))
        plant.start_guest()
        plant.wait_until_trained()
        plant.wait_for_ssh()
        systems = Systems(plant)
        size = systems.update()
        plant.say(f"an installation writes {size >> 20} MiB")
        outcomes = []
        for number in range(1, cuts + 1):
            outcomes.append(systems.cut(size * number // cuts if number < cuts else float("inf")))
            plant.say(f"cut at {100 * number // cuts} %: {outcomes[-1]}; slot {systems.slot} runs")
        assert "interrupted" in outcomes and outcomes[-1] == "good", f"no cut fell into the installation: {outcomes}"
        plant.wait_for_ssh()
        systems.update()
        plant.say(f"a later installation: slot {systems.slot}, version {systems.version}")
        plant.end_as_undisturbed()


if __name__ == "__main__":
    skip_without_tools()
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int((sys.argv[3:] or ["5"])[0]))
