"""An emulated board with two systems (U-Boot, Debian with systemd, RAUC, cairn-update, an ssh server), its gateway on this
machine, and bundles of cairn-flash, for the tests that update it.

    with Plant(host_bin, guest_build) as plant:
        plant.make_image()
        plant.make_bundle("9.0.0", plant.packages["cairn-node"])
        plant.start_guest()
        plant.wait_until_trained()
        plant.wait_for_ssh()
        plant.install("9.0.0")
        plant.wait_for_update("good", "9.0.0", "B", "9.0.0")
        plant.end_as_undisturbed()
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import DIGITS, ENDLESS, Cluster, free_ports, wait_until  # noqa: E402
from flashing import SITE, change_package, flash, make_packages, path_with, wait_until_joined  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402
from undisturbed import EMULATOR, undisturbed  # noqa: E402

BOARD = "board-1"
JOB = {"rounds": ENDLESS, "local_steps": 20, "quorum": 1}
RECIPE = os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", "full")
FIRMWARE = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"
SECONDS = 600  # for each of the long waits
FAILED = "the installation failed"
BUNDLES = "/run/bundle"  # in the guest

SSH_CONFIG = """\
Host {board}
    HostName 127.0.0.1
    Port {port}
    User root
    IdentityFile {folder}/person
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""


def skip_without_tools():
    missing = missing_tools("mmdebstrap", "rauc", "mksquashfs", "openssl", "mkimage", "mkenvimage", "mcopy", "ssh", EMULATOR[0])
    missing += [FIRMWARE] * (not os.path.exists(FIRMWARE))
    if os.getuid() != 0 or missing:
        print(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)


class Plant(Cluster):
    """The gateway of a run without end, and the board."""

    def __init__(self, host_bin, guest_build, **job):
        super().__init__(host_bin, {}, **{**JOB, **job})
        self.host_bin, self.guest_build = host_bin, guest_build
        self.begun = time.monotonic()
        (self.ssh_port,) = free_ports(1)
        self.guest, self.shown = None, None

    def say(self, text):
        print(f"{time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    # What the board is made of

    def make_image(self, adds=None):
        """Packages, the signer's and a person's key, and the board's image. adds: more files of image and bundles."""
        for tool in (["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=plant",
                      "-keyout", "plant.key", "-out", "plant.pem"],
                     ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "person"]):
            subprocess.run(tool, check=True, capture_output=True, cwd=self.directory)
        self.adds = {self.path("plant.pem"): "/etc/rauc/keyring.pem", self.path("person.pub"): "/root/.ssh/authorized_keys",
                     **(adds or {})}
        self.packages = make_packages(self.guest_build, self.path("packages"), "cairn-node", "cairn-update")
        self.base = self.path("base.img")
        subprocess.run([RECIPE, "--two", self.base, *self.packages.values()], check=True, stderr=subprocess.DEVNULL)
        self.image = flash(self, self.host_bin, self.base, BOARD, SITE.format(source=SOURCE, port=self.port),
                           [self.packages["cairn-node"]], "gate", self.adds)
        self.say("image made")
        os.mkdir(self.path("disk"))
        os.mkdir(self.path("bin"))
        self.write("ssh_config", SSH_CONFIG.format(board=BOARD, port=self.ssh_port, folder=self.directory))
        self.write("bin/ssh", f"#!/bin/sh\nexec /usr/bin/ssh -F {self.path('ssh_config')} \"$@\"\n")
        os.chmod(self.path("bin", "ssh"), 0o755)

    def make_package(self, version, *changes, files=()):
        return change_package(self.packages["cairn-node"], self.path(f"{version}.deb"), version, *changes, files=files)

    def make_bundle(self, version, package, adds=None):
        """A bundle with this package, on the disk that the guest mounts."""
        samples = {os.path.join(DIGITS, f"{BOARD}-{kind}.npy"): f"/data/{kind}.npy" for kind in ("images", "labels")}
        files = {**self.adds, **samples, **(adds or {})}
        path = self.path("disk", f"{version}.raucb")
        subprocess.run([os.path.join(self.host_bin, "cairn-flash"), "bundle", "--base", self.base, "--deb", package, "--version",
                        version, "--cert", "plant.pem", "--key", "plant.key", "--slot", "512",
                        *(word for source, to in files.items() for word in ("--add", f"{source}:{to}")), "-o", path],
                       check=True, cwd=self.directory, env=path_with(self.host_bin), stdout=subprocess.DEVNULL)
        self.say(f"bundle {version} made, {os.path.getsize(path) >> 20} MiB")
        return path

    # The board

    def start_guest(self):
        """Starts the gateway and the board, with all bundles on a second disk."""
        disk = self.path("disk.ext4")
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", self.path("disk"), disk, "1G"], check=True, capture_output=True)
        self.devices = ["-drive", f"file={disk},if=none,id=bundle,format=raw,readonly=on", "-device",
                        "virtio-blk-pci,drive=bundle"]
        self.start("gateway")
        self.guest = Guest(self.image, self.path("logs", "guest.log"), memory=1024, firmware=FIRMWARE)
        self.power_on()
        return self.guest

    def power_on(self):
        self.guest.start(devices=self.devices, ssh_port=self.ssh_port)

    def wait_until_trained(self, versions=2):
        wait_until_joined(self, self.host_bin, BOARD, SECONDS)
        self.say("joined")
        self.wait_for_version(versions, SECONDS)

    def ssh_command(self, script):
        return [self.path("bin", "ssh"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", BOARD, script]

    def ssh_start(self, script, log):
        """Runs a script on the board as root; its process here."""
        return subprocess.Popen(self.ssh_command(script), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ssh(self, script, check=True, timeout=SECONDS):
        """Runs a script on the board as root; its output. With check=False the connection may break."""
        result = subprocess.run(self.ssh_command(script), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        assert not check or result.returncode == 0, f"{script}: {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def wait_for_ssh(self):
        wait_until(lambda: "ready" in self.ssh("echo ready", check=False), "the board's ssh server", SECONDS)

    def install(self, version, *options):
        """cairn-update install on the board. It ends when the board restarts; a failure ends the test at once."""
        words = " ".join(map(shlex.quote, options))
        said = self.ssh(f"mkdir -p {BUNDLES}; mountpoint -q {BUNDLES} || mount -o ro /dev/vda {BUNDLES}; "
                        f"cairn-update install {words} {BUNDLES}/{version}.raucb || echo '{FAILED}'", check=False)
        assert FAILED not in said and f"version {version} is in slot" in said, said
        return said

    # What the gateway says of it

    def board_facts(self, name=BOARD):
        lines = self.command(self.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()
        return next(fact for fact in map(json.loads, lines) if fact.get("board") == name)

    def wait_for_update(self, result, version, slot, slot_version, timeout=SECONDS):
        """Until the gateway says so of the board's last update. Prints each change on the way."""
        wanted = {"update": result, "update_version": version, "slot": slot, "slot_version": slot_version}

        def is_there():
            assert self.guest.process.poll() is None, f"QEMU has ended\n{self.guest.tail()}"
            facts = self.board_facts()
            seen = {key: facts.get(key, "") for key in wanted}
            if seen != self.shown:
                self.say("gateway: slot {slot}, version {slot_version}; update to {update_version}: {update}".format(**seen))
                self.shown = seen
            return seen == wanted

        wait_until(is_there, f"{wanted} at the gateway\n{self.guest.tail()}", timeout)

    def table_of_boards(self):
        return self.command(self.aggregator, "status", "gateway.yaml").stdout

    def slots_started(self):
        return "".join(re.findall(r"cairn: slot ([AB]),", self.guest.log().replace("\r", "")))

    # The run

    def end_as_undisturbed(self):
        """Ends the run, and compares it."""
        last = self.end_run()
        self.wait_for_end(SECONDS, ["gateway"])
        self.guest.cut_power()
        self.say(f"the run has ended at version {last}")
        self.compare_with_undisturbed(last)

    def compare_with_undisturbed(self, rounds):
        """The last version must be that of a run that nothing disturbed."""
        wanted = undisturbed(self.host_bin, self.guest_build, BOARD, **{**self.job, "rounds": rounds})
        assert self.digest() == wanted, f"the run did not end as an undisturbed one does, with {wanted}"
        self.say(f"the last version is that of an undisturbed run; {self.replay()[-1]}")

    def __exit__(self, kind, value, trace):
        if self.guest:
            self.guest.cut_power()
        super().__exit__(kind, value, trace)
