"""RAUC of the distribution on a board whose kernel is started with root=PARTUUID=..., as a Jetson's is: does it know the
running slot, and does each slot get a root of its own? nvbootctrl is a double; the slots are loop devices.

usage: root.py

/dev and the kernel's command line are this process's own.
"""

import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from doubles import PARTS, PARTUUID, add_partition, jetson
from rauc import BACKEND, STATUS, run

LABELS = {"A": "APP", "B": "APP_b"}
CONF = """\
[system]
compatible=plant
bootloader=custom
data-directory={folder}/rauc
mountprefix={folder}/mnt

[handlers]
bootloader-custom-backend={folder}/backend

[keyring]
path={folder}/ca.pem

[slot.rootfs.0]
device=/dev/disk/by-partlabel/APP
type=ext4
bootname=A

[slot.rootfs.1]
device=/dev/disk/by-partlabel/APP_b
type=ext4
bootname=B
"""
EXTLINUX = "TIMEOUT 30\nLABEL primary\n  LINUX /boot/Image\n  APPEND ${{cbootargs}} root=PARTUUID={uuid} rw rootwait quiet\n"
TOOLS = ["rauc", "mksquashfs", "openssl", "dbus-run-session", "dbus-send", "unshare", "losetup", "mke2fs"]
INSIDE = "CAIRN_TEST_INSIDE"
SIZE = 8 << 20


class Jetson:
    def __init__(self, folder):
        self.folder = folder
        self.board = jetson(os.path.join(folder, "board"))
        for name in ("rauc", "mount", "umount"):
            os.remove(self.board.path("bin", name))
        self.devices = {}
        for name in ("rauc", "mnt", "content", "tree/boot/extlinux"):
            os.makedirs(self.path(name))
        self.write("system.conf", CONF.format(folder=folder))
        self.write("backend", BACKEND.format(folder=folder, root=self.board.root, parts=PARTS), 0o755)
        self.board.write("bin/rauc", f"#!/bin/sh\nexec {shutil.which('rauc')} -c '{folder}/system.conf' \"$@\"\n")
        os.chmod(self.board.path("bin/rauc"), 0o755)
        self.board.write("state/status.json", STATUS)
        for name, text in (("ActiveState", "active"), ("MainPID", "70"), ("ExecMainStatus", "0")):
            self.board.write(f"state/unit.{name}", text)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def make_system(self):
        """The root of a bundle; its extlinux.conf is that of slot A, as flash.sh writes it."""
        self.write("tree/boot/extlinux/extlinux.conf", EXTLINUX.format(uuid=PARTUUID["A"]))
        with open(self.path("content/rootfs.ext4"), "wb") as file:
            file.truncate(SIZE)
        run("mke2fs", "-q", "-t", "ext4", "-d", self.path("tree"), self.path("content/rootfs.ext4"))

    def make_bundle(self, version):
        self.write("content/manifest.raucm", f"[update]\ncompatible=plant\nversion={version}\n\n[bundle]\nformat=plain\n\n"
                                             "[image.rootfs]\nfilename=rootfs.ext4\n")
        run("rauc", "--cert", self.path("ca.pem"), "--key", self.path("ca.key"), "--keyring", self.path("ca.pem"), "bundle",
            self.path("content"), self.path(f"{version}.raucb"))

    def attach(self):
        """A loop device for each slot; slot A has the system."""
        for slot in "AB":
            shutil.copy(self.path("content/rootfs.ext4"), self.path(f"slot.{slot}"))
            if slot == "B":
                os.truncate(self.path("slot.B"), 0)
                os.truncate(self.path("slot.B"), SIZE)
            self.devices[slot] = run("losetup", "--show", "-f", self.path(f"slot.{slot}")).stdout.strip()

    def detach(self):
        for device in self.devices.values():
            subprocess.run(["losetup", "-d", device], capture_output=True)

    def make_dev(self):
        """A /dev with these links only; links of the same kind lie below the board's root, for cairn-boot."""
        nodes = [(path, os.stat(path)) for path in glob.glob("/dev/loop*") + ["/dev/null", "/dev/urandom", "/dev/random"]
                 if not stat.S_ISDIR(os.stat(path).st_mode)]
        run("mount", "-t", "tmpfs", "tmpfs", "/dev")
        for path, info in nodes:
            os.mknod(path, info.st_mode, info.st_rdev)
        os.symlink("/proc/self/fd", "/dev/fd")
        shutil.rmtree(self.board.path("dev/disk"))
        for slot, device in self.devices.items():
            for kind, name in (("partlabel", LABELS[slot]), ("partuuid", PARTUUID[slot])):
                for root in ("/", self.board.root):
                    folder = os.path.join(root, "dev/disk", f"by-{kind}")
                    os.makedirs(folder, exist_ok=True)
                    os.symlink(device, os.path.join(folder, name))
        os.makedirs("/dev/disk/by-uuid")
        for device in self.devices.values():
            number = os.stat(device).st_rdev
            add_partition(self.board, device, f"{os.major(number)}:{os.minor(number)}", "disk")
        shutil.copy(self.board.path("state/number." + os.path.basename(self.devices["A"])),
                    self.board.path("state/number.root"))

    def start(self, slot, line):
        """The kernel was started with this line; UEFI says that the slot runs."""
        self.write("cmdline", line + "\n")
        subprocess.run(["umount", "/proc/cmdline"], capture_output=True)
        run("mount", "--bind", self.path("cmdline"), "/proc/cmdline")
        self.board.write("state/current", slot)
        self.board.write("state/active", slot)

    def with_service(self, *command):
        environment = {**os.environ, "DBUS_STARTER_BUS_TYPE": "session", "CAIRN_SYSROOT": self.board.root,
                       "PATH": f"{self.board.path('bin')}:{os.environ['PATH']}"}
        with open(self.path("log"), "w") as log:
            service = subprocess.Popen([self.board.path("bin/rauc"), "service"], stdout=log, stderr=log, env=environment,
                                       start_new_session=True)
            try:
                wait_for_service()
                result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            finally:
                os.killpg(service.pid, signal.SIGKILL)
                service.wait()
        with open(self.path("log")) as file:
            self.said = result.stdout + result.stderr + file.read()
        return result

    def running(self):
        """The slot that RAUC takes for the running one, or None when it knows none."""
        result = self.with_service(self.board.path("bin/rauc"), "status", "--output-format=shell")
        states = dict(zip(re.findall(r"^RAUC_SLOT_BOOTNAME_\d+='?(.)", result.stdout, re.M),
                          re.findall(r"^RAUC_SLOT_STATE_\d+='?(\w+)", result.stdout, re.M)))
        booted = [name for name, state in states.items() if state == "booted"]
        return booted[0] if len(booted) == 1 else None

    def line_of(self, slot):
        """What UEFI starts the kernel of the slot with."""
        text = run("debugfs", "-R", "cat /boot/extlinux/extlinux.conf", self.devices[slot]).stdout
        line, = re.findall(r"^ *APPEND \$\{cbootargs\} (.*)$", text, re.M)
        assert text == EXTLINUX.format(uuid=PARTUUID["A"]).replace(PARTUUID["A"], PARTUUID[slot]), text
        return line


def wait_for_service():
    for _ in range(100):
        answer = subprocess.run(["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/",
                                 "org.freedesktop.DBus.NameHasOwner", "string:de.pengutronix.rauc"], capture_output=True,
                                text=True)
        if "true" in answer.stdout:
            return
        time.sleep(0.1)
    sys.exit("RAUC's service did not start")


def rauc_knows_the_running_slot_by_its_root(machine):
    found = {}
    for slot in "AB":
        for kind, root in (("PARTUUID", f"PARTUUID={PARTUUID[slot]}"), ("PARTLABEL", f"PARTLABEL={LABELS[slot]}"),
                           ("device", machine.devices[slot]), ("rauc.slot", f"/dev/sda9 rauc.slot={slot}")):
            machine.start(slot, f"console=ttyTCU0 root={root} rw rootwait")
            found.setdefault(kind, []).append(machine.running())
    print("   ", found)
    assert all(slots == ["A", "B"] for slots in found.values()), found


def rauc_installs_nothing_when_it_does_not_know_it(machine):
    for root in ("PARTUUID=00000000-0000-0000-0000-000000000000", "PARTUUID=" + PARTUUID["A"].upper(), "UUID=1-2"):
        machine.start("A", f"root={root} rw")
        assert machine.running() is None, root
        before = open(machine.path("slot.B"), "rb").read()
        result = machine.with_service(os.path.join(PARTS, "cairn-update"), "install", machine.path("1.4.0.raucb"))
        assert result.returncode == 1 and open(machine.path("slot.B"), "rb").read() == before, machine.said
        assert "Did not find booted slot" in machine.said, machine.said
        assert machine.board.read("state/active") == "A"


def each_slot_gets_a_root_of_its_own(machine):
    machine.start("A", machine.line_of("A"))
    for version, slot in (("1.4.0", "B"), ("1.5.0", "A"), ("1.6.0", "B")):
        if not os.path.exists(machine.path(f"{version}.raucb")):
            machine.make_bundle(version)
        result = machine.with_service(os.path.join(PARTS, "cairn-update"), "install", machine.path(f"{version}.raucb"))
        assert result.returncode == 0, machine.said
        assert machine.board.read("state/active").strip() == slot, machine.said
        run("e2fsck", "-fn", machine.devices[slot])
        machine.start(slot, machine.line_of(slot))
        assert machine.running() == slot, machine.said
        shutil.rmtree(machine.board.path("var/lib/private/cairn-update"))  # as decided


def main():
    folder = tempfile.mkdtemp(prefix="cairn-root-")
    machine = Jetson(folder)
    try:
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=plant", "-keyout",
            machine.path("ca.key"), "-out", machine.path("ca.pem"))
        machine.make_system()
        machine.make_bundle("1.4.0")
        machine.attach()
        machine.make_dev()
        for case in (rauc_knows_the_running_slot_by_its_root, rauc_installs_nothing_when_it_does_not_know_it,
                     each_slot_gets_a_root_of_its_own):
            print(case.__name__.replace("_", " "), flush=True)
            case(machine)
    finally:
        for point in (machine.path("mnt/bundle"), machine.board.path("run/cairn-update/slot")):
            subprocess.run(["umount", "-l", point], capture_output=True)
        machine.detach()
        shutil.rmtree(folder)


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing or os.geteuid():
        print(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    if INSIDE not in os.environ:
        if subprocess.run(["unshare", "-m", "losetup", "-f"], capture_output=True).returncode:
            print("skipped: needs mounts of its own and loop devices")
            sys.exit(77)
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-m", "dbus-run-session", "--", sys.executable, "-B", *sys.argv])
    main()
