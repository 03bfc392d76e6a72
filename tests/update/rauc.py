"""RAUC of the distribution installs with cairn-update and cairn-boot, and is killed at each 5 % of an installation.

usage: rauc.py

The slots are files, U-Boot's environment is one, too; RAUC's service has a bus and mounts of its own. The bundle is of
the format "plain", since "verity" needs the kernel's device mapper. A kill is no power cut: what was written stays.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from doubles import PARTS, Board, start

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
device={folder}/slot.A
type=raw
bootname=A

[slot.rootfs.1]
device={folder}/slot.B
type=raw
bootname=B
"""
BACKEND = "#!/bin/sh\necho \"$*\" >>'{folder}/backend.calls'\nCAIRN_SYSROOT='{root}' exec '{parts}/cairn-boot' \"$@\"\n"
STATUS = '{"board":"board-1","link":{"state":"up"},"residuals_lost":0,"pid":70,"pause":"the system is updated"}'
SIZE = 48 << 20
TOOLS = ["rauc", "mksquashfs", "openssl", "fw_setenv", "mkenvimage", "dbus-run-session", "unshare"]
INSIDE = "CAIRN_TEST_INSIDE"


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Machine:
    def __init__(self, folder):
        self.folder = folder
        self.board = Board(os.path.join(folder, "board"), "uboot")
        for name in ("fw_printenv", "fw_setenv", "rauc"):
            os.remove(self.board.path("bin", name))
        self.write("system.conf", CONF.format(folder=folder))
        self.write("backend", BACKEND.format(folder=folder, root=self.board.root, parts=PARTS), 0o755)
        self.board.write("bin/rauc", f"#!/bin/sh\nexec {shutil.which('rauc')} -c '{folder}/system.conf' \"$@\"\n")
        os.chmod(self.board.path("bin/rauc"), 0o755)
        self.board.write("etc/fw_env.config", f"{folder}/environment 0x0 0x200\n")
        self.board.write("state/status.json", STATUS)
        for name, text in (("ActiveState", "active"), ("MainPID", "70"), ("ExecMainStatus", "0")):
            self.board.write(f"state/unit.{name}", text)
        for name in ("rauc", "mnt"):
            os.mkdir(self.path(name))
        self.make_bundle()
        self.renew()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def make_bundle(self):
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=plant", "-keyout",
            self.path("ca.key"), "-out", self.path("ca.pem"))
        os.mkdir(self.path("content"))
        with open(self.path("content", "rootfs.img"), "wb") as file:
            file.write(os.urandom(SIZE))
        self.write("content/manifest.raucm", "[update]\ncompatible=plant\nversion=1.4.0\n\n[bundle]\nformat=plain\n\n"
                                             "[image.rootfs]\nfilename=rootfs.img\n")
        run("rauc", "--cert", self.path("ca.pem"), "--key", self.path("ca.key"), "--keyring", self.path("ca.pem"), "bundle",
            self.path("content"), self.path("fleet.raucb"))
        self.wanted = digest(self.path("content", "rootfs.img"))

    def renew(self):
        """As before any update; A runs."""
        for slot in "AB":
            with open(self.path(f"slot.{slot}"), "wb") as file:
                file.truncate(SIZE)
        for note in (self.board.path("var/lib/private/cairn-update"), self.board.path("run")):
            shutil.rmtree(note, ignore_errors=True)
        os.mkdir(self.board.path("run"))
        run("mkenvimage", "-s", "512", "-o", self.path("environment"), "-", input="BOOT_ORDER=A B\nBOOT_A_LEFT=3\nBOOT_B_LEFT=0\n")
        start(self.board, "A")

    def install(self, kill_after=None):
        """cairn-update install; the code, or None when all was killed after so many seconds."""
        subprocess.run(["umount", "-l", self.path("mnt", "bundle")], capture_output=True)
        environment = {**os.environ, "DBUS_STARTER_BUS_TYPE": "session", "CAIRN_SYSROOT": self.board.root,
                       "PATH": f"{self.board.path('bin')}:{os.environ['PATH']}"}
        with open(self.path("log"), "ab") as log:
            service = subprocess.Popen([self.board.path("bin/rauc"), "--override-boot-slot=A", "service"], stdout=log, stderr=log, env=environment,
                                       start_new_session=True)
            time.sleep(0.3)  # its name on the bus; it is started by the bus otherwise
            begun = time.monotonic()
            update = subprocess.Popen([os.path.join(PARTS, "cairn-update"), "install", self.path("fleet.raucb")], stdout=log,
                                      stderr=log, env=environment, start_new_session=True)
        try:
            code = update.wait(60 if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            code = None
        self.took = time.monotonic() - begun
        for process in (update, service):  # a power cut ends both at once: the update must not see the service end
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in (update, service):
            process.wait()
        return code

    def next_boot(self):
        """What U-Boot starts; the folder for run-time files is empty then."""
        shutil.rmtree(self.board.path("run"))
        os.mkdir(self.board.path("run"))
        slot = self.board.boot("get-primary")
        start(self.board, slot)
        return slot

    def check(self):
        result = self.board.run("cairn-update", "check")
        assert result.returncode == 0, result
        return self.board.read("run/cairn-update/report").split()


def an_update_is_installed(machine):
    code = machine.install()
    with open(machine.path("log")) as file:
        log = file.read()
    if code and re.search("(?i)loop|mount", log):
        print("skipped: RAUC cannot mount a bundle here")
        sys.exit(77)
    assert code == 0, log
    with open(machine.path("backend.calls")) as file:
        calls = file.read().split("\n")
    assert calls.index("set-state B bad") < calls.index("set-primary B"), calls
    assert digest(machine.path("slot.B")) == machine.wanted, "the slot does not hold the system"
    assert machine.board.calls("systemctl reboot") or "systemctl reboot" in machine.board.read("state/calls")
    assert machine.next_boot() == "B" and machine.check() == ["B", "1.4.0", "good:1.4.0"]
    print(f"installed in {machine.took:.2f} s, kept")
    return machine.took


def killed_at_each_20th_it_is_there_or_not(machine, seconds):
    seen = {}
    for part in range(1, 21):
        machine.renew()
        code = machine.install(kill_after=seconds * part / 20)
        slot = machine.next_boot()
        whole = digest(machine.path("slot.B")) == machine.wanted
        assert slot == "A" or whole, f"at {5 * part} %: a slot that is written in part is started"
        report = machine.check()
        assert report[0] == slot and report[2] in ("none", "interrupted:1.4.0", "good:1.4.0"), (part, slot, report)
        assert (report[2] == "good:1.4.0") == (slot == "B"), (part, slot, report)
        assert not os.path.exists(machine.board.path("var/lib/private/cairn-update/pending")), "a boot decides"
        seen.setdefault(report[2], []).append(f"{5 * part} %" + ("" if code is None else " (done)"))
    for result, parts in seen.items():
        print(f"{result}: {', '.join(parts)}")
    assert "interrupted:1.4.0" in seen, "no kill fell into the installation"
    machine.renew()
    assert machine.install() == 0 and machine.next_boot() == "B", "after kills no update can be installed"
    assert machine.check() == ["B", "1.4.0", "good:1.4.0"]


def main():
    folder = tempfile.mkdtemp(prefix="cairn-rauc-")
    try:
        machine = Machine(folder)
        seconds = an_update_is_installed(machine)
        killed_at_each_20th_it_is_there_or_not(machine, seconds)
    finally:
        subprocess.run(["umount", "-l", os.path.join(folder, "mnt", "bundle")], capture_output=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing or os.geteuid():
        print(f"skipped: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    if INSIDE not in os.environ:
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            print("skipped: needs mounts of its own")
            sys.exit(77)
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-m", "dbus-run-session", "--", sys.executable, "-B", *sys.argv])
    main()
