"""cairn-update over boots, with doubles of the boot chains: a new system that works stays; one that does not is given
up after three tries; power cuts in between decide nothing by themselves.

usage: life.py [CASE...]
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys

from doubles import PARTS, VENDOR, jetson, raspberry, run_cases, start, uboot

KINDS = {"uboot": uboot, "tryboot": raspberry, "nvbootctrl": jetson}


class Life:
    """A board over its boots. running is the slot that the boot chain started last."""

    def __init__(self, folder, kind):
        self.kind, self.board = kind, KINDS[kind](f"{folder}.{kind}")
        with open(self.board.path("etc/default/cairn-update"), "a") as file:
            file.write("CAIRN_PATIENCE=3\n")
        self.board.write("state/target", "B")
        self.board.write("etc/cairn/node.yaml", "name: board-1\n")
        self.tries = {"A": 3, "B": 3}  # of UEFI, which has no file for them
        self.seen = len(self.board.read("state/calls").splitlines())
        self.running = "A"
        self.node_works()

    def node(self, active, status, code, lost=0, pid=70):
        self.board.write("state/unit.ActiveState", active)
        self.board.write("state/unit.MainPID", "70")
        self.board.write("state/unit.ExecMainStatus", code)
        self.board.write("state/status.json", json.dumps({"board": "board-1", "link": {"state": status}, "residuals_lost": lost,
                                                          "pid": pid, "pause": "the system is updated"}, separators=(",", ":")))

    def node_works(self):
        self.node("active", "up", "0")

    def new_calls(self):
        calls = self.board.read("state/calls").splitlines()
        new, self.seen = calls[self.seen:], len(calls)
        return new

    def reboots(self):
        """The arguments of the reboot since the last look, or None."""
        found = [call for call in self.new_calls() if call.startswith("systemctl reboot")]
        assert len(found) <= 1, found
        return found[0] if found else None

    def choose(self, reboot):
        """What the boot chain starts after this reboot; a power cut has no words."""
        if self.kind == "tryboot":
            part = "tryboot" if reboot and "0 tryboot" in reboot else "all"
            text = self.board.read("boot/autoboot/autoboot.txt")
            return "AB"[int(re.search(rf"\[{part}\][^\[]*boot_partition=(\d)", text).group(1)) - 2]
        if self.kind == "uboot":
            text = self.board.read("state/environment")
            values = dict(line.split("=") for line in text.splitlines())
            slot = next(slot for slot in values["BOOT_ORDER"].split() if int(values[f"BOOT_{slot}_LEFT"]))
            values[f"BOOT_{slot}_LEFT"] = int(values[f"BOOT_{slot}_LEFT"]) - 1
            self.board.write("state/environment", "".join(f"{name}={value}\n" for name, value in values.items()))
            return slot
        slot = self.board.read("state/active").strip()
        name = f"sys/firmware/efi/efivars/RootfsStatusSlot{slot}-{VENDOR}"
        if self.tries[slot] == 0:
            self.board.write(name, b"\x07\0\0\0\xff\0\0\0")
        with open(self.board.path(name), "rb") as file:
            if file.read()[4] == 0xff:
                slot = "AB"["BA".index(slot)]
                self.board.write("state/active", slot)
        self.tries[slot] -= 1
        return slot

    def boot(self, reboot=None):
        """The board starts; the folder for run-time files is empty."""
        self.running = self.choose(reboot)
        shutil.rmtree(self.board.path("run"))
        os.makedirs(self.board.path("run"))
        start(self.board, self.running)
        self.board.write("state/current", self.running)

    def check(self):
        """cairn-update check after a boot; returns the reboot that it asked for."""
        result = self.board.run("cairn-update", "check")
        assert result.returncode == 0, result
        calls = self.new_calls()
        if "nvbootctrl verify" in calls:
            self.tries[self.running] = 3
        found = [call for call in calls if call.startswith("systemctl reboot")]
        assert len(found) <= 1, found
        self.said = result.stdout
        return found[0] if found else None

    def install(self, version="1.4.0", *more, code=0):
        self.board.write("fleet.raucb", version)
        result = self.board.run("cairn-update", "install", *more, self.board.path("fleet.raucb"))
        assert result.returncode == code, result
        self.said = result.stdout + result.stderr
        return self.reboots()

    def report(self):
        return self.board.read("run/cairn-update/report").split()

    def note(self, name):
        path = f"var/lib/private/cairn-update/{name}"
        return self.board.read(path).strip() if os.path.exists(self.board.path(path)) else None


def each_kind(case):
    def run(folder):
        for kind in KINDS:
            case(Life(folder, kind))
    run.__name__ = case.__name__
    return run


@each_kind
def a_system_that_works_stays(life):
    life.boot()
    assert life.check() is None and life.report() == ["A", "unknown", "none"]
    reboot = life.install()
    assert reboot and os.path.exists(life.board.path("state/held")), "the node was not held while RAUC wrote"
    life.boot(reboot)
    assert life.running == "B", "the new system is not tried"
    assert life.check() is None
    assert life.report() == ["B", "1.4.0", "good:1.4.0"] and life.note("pending") is None
    for _ in range(5):  # the boots of a board that is switched off and on count nothing
        life.boot()
        assert life.running == "B" and life.check() is None and life.report() == ["B", "1.4.0", "good:1.4.0"]
    life.board.write("state/target", "A")
    life.boot(life.install("1.5.0"))
    assert life.running == "A" and life.check() is None and life.report() == ["A", "1.5.0", "good:1.5.0"]


@each_kind
def a_system_whose_node_does_not_register_is_given_up(life):
    life.boot()
    life.check()
    reboot, tried = life.install(), 0
    life.node("active", "registering", "0")
    while True:
        life.boot(reboot)
        if life.running == "A":
            break
        tried += 1
        reboot = life.check()
        assert reboot, "a new system that does not work stays"
        assert life.report() == ["B", "1.4.0", "trying:1.4.0"]
        assert tried <= 3, "it is tried without end"
    assert tried == 3, f"it was tried {tried} times"
    assert life.check() is None, "the old system is not started again, whatever its node does"
    assert life.report() == ["A", "unknown", "rolled-back:1.4.0"] and life.note("pending") is None
    assert life.board.boot("get-state", "B") == "bad" and life.board.boot("get-state", "A") == "good"
    for _ in range(4):
        life.boot()
        assert life.running == "A" and life.check() is None and life.report() == ["A", "unknown", "rolled-back:1.4.0"]
    life.node_works()
    life.tries["B"] = 3  # UEFI's register, after the board was switched off once
    life.boot(life.install("1.4.1"))  # the slot can be used again
    assert life.running == "B" and life.check() is None, (life.kind, life.running, life.said)
    assert life.report() == ["B", "1.4.1", "good:1.4.1"], (life.kind, life.report(), life.said)


@each_kind
def a_system_that_never_comes_up_is_given_up(life):
    """It hangs or panics, and a watchdog restarts the board: cairn-update does not run in it."""
    life.boot()
    life.check()
    reboot, tried = life.install(), 0
    for _ in range(12):
        life.boot(reboot)
        reboot = None
        if life.running == "B":
            tried += 1
            continue
        reboot = life.check()  # on a Raspberry Pi the old system starts it again
        if life.note("pending") is None:
            break
    assert tried == 3, f"it was tried {tried} times"
    assert life.running == "A" and life.report() == ["A", "unknown", "rolled-back:1.4.0"]


def tries_are_counted_where_the_boot_chain_forgets(folder):
    """A Jetson that is switched off and on in each try: UEFI begins to count again."""
    life = Life(folder, "nvbootctrl")
    life.boot()
    life.check()
    reboot, tried = life.install(), 0
    life.node("active", "registering", "0")
    while tried < 10:
        life.tries = {"A": 3, "B": 3}
        life.boot(reboot)
        reboot = life.check()
        if life.running == "A":
            break
        tried += 1
    assert tried == 3 and reboot is None, f"it was tried {tried} times"
    assert life.report() == ["A", "unknown", "rolled-back:1.4.0"]


def a_boot_chain_that_never_starts_the_slot_is_not_asked_for_ever(folder):
    """As seen where nvbootctrl says B, and UEFI starts A."""
    life = Life(folder, "nvbootctrl")
    life.boot()
    life.check()
    reboot, asked = life.install(), 0
    while reboot and asked < 10:
        life.board.write("state/active", "A")
        life.boot(reboot)
        life.board.write("state/active", "B")
        reboot = life.check()
        asked += 1
    assert asked == 4 and life.report() == ["A", "unknown", "rolled-back:1.4.0"], (asked, life.report())
    assert life.board.boot("get-primary") == "A" and life.board.boot("get-state", "B") == "bad"


@each_kind
def lost_state_is_no_working_system(life):
    life.boot()
    life.check()
    life.node("active", "up", "0", lost=2)
    life.boot(life.install())
    assert life.check() is None, "what was lost before the update is not the update's fault"
    assert life.report()[2] == "good:1.4.0"
    life.board.write("state/target", "A")
    reboot = life.install("1.5.0")
    life.node("active", "up", "0", lost=3)
    life.boot(reboot)
    assert life.check(), "the new system lost the node's state and stays"


@each_kind
def the_status_of_an_earlier_boot_says_nothing(life):
    life.boot()
    life.check()
    reboot = life.install()
    life.node("active", "up", "0", pid=4711)
    life.boot(reboot)
    assert life.check(), "the status file of another process counts"


@each_kind
def state_of_a_later_release_ends_a_try_at_once(life):
    life.boot()
    life.check()
    reboot = life.install()
    life.node("failed", "down", "7")
    life.boot(reboot)
    before = len(life.board.calls("sleep"))
    assert life.check() and len(life.board.calls("sleep")) == before, "it waits for a node that has ended for good"


@each_kind
def the_node_of_the_base_image_says_nothing(life):
    """Until the first boot has installed the bundle's packages, the node is that of the base image."""
    life.boot()
    life.check()
    reboot = life.install()
    life.board.write("var/lib/cairn-seed/SHA256SUMS", "digest  cairn-node_arm64.deb\n")
    life.boot(reboot)
    reboot = life.check()
    assert reboot and life.note("pending"), "a system is kept whose packages are not installed"
    life.node("failed", "down", "7")
    life.boot(reboot)
    before = len(life.board.calls("sleep"))
    reboot = life.check()
    assert len(life.board.calls("sleep")) > before, "a node that is about to be replaced ends the try"
    life.node_works()
    os.remove(life.board.path("var/lib/cairn-seed/SHA256SUMS"))
    life.boot(reboot)
    assert not life.check() and life.report() == ["B", "1.4.0", "good:1.4.0"], life.report()


@each_kind
def a_power_cut_in_the_installation_changes_nothing(life):
    life.boot()
    life.check()
    life.board.write("state/cut", "")
    life.board.write("fleet.raucb", "1.4.0")
    assert life.board.run("cairn-update", "install", life.board.path("fleet.raucb")).returncode == -9
    life.new_calls()
    life.boot()
    assert life.running == "A" and life.check() is None
    assert life.report() == ["A", "unknown", "interrupted:1.4.0"] and life.board.boot("get-state", "B") == "bad"
    os.remove(life.board.path("state/cut"))
    life.boot(life.install())
    assert life.running == "B" and life.check() is None and life.report() == ["B", "1.4.0", "good:1.4.0"]


@each_kind
def a_power_cut_before_the_note_is_a_try(life):
    """RAUC has made the slot primary, but "installed" was not stored."""
    life.boot()
    life.check()
    reboot = life.install()
    pending = life.note("pending").replace("installed", "installing")
    life.board.write("var/lib/private/cairn-update/pending", pending + "\n")
    life.boot(reboot)
    assert life.running == "B" and life.check() is None and life.report() == ["B", "1.4.0", "good:1.4.0"]


@each_kind
def damaged_notes_keep_the_system_that_runs(life):
    life.boot()
    life.check()
    for text in ("", "1.4.0 B", "1.4.0 C installed 0 0 0", "1.4.0 B installed x 0 0", "1.4.0 B installed 0 0 -", "$(reboot) B installed 0 0 0",
                 "1.4.0 B installed 0 0 0 more", "\0\0\0\0", "x" * 5000, "1.4.0 B installed 0 0 0x"):
        life.board.write("var/lib/private/cairn-update/pending", text)
        assert life.check() is None and life.note("pending") is None, text[:40]
        assert "damaged" in life.said and life.report()[:2] == ["A", "unknown"], text[:40]
    for text in ("", "1.4.0", "1.4.0 B better", "; B good"):
        life.board.write("var/lib/private/cairn-update/result", text)
        assert life.check() is None and life.report() == ["A", "unknown", "none"], text


def an_installation_waits_for_the_round(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    life.board.write("state/status.json", '{"pause":"","pid":70,"residuals_lost":0}')
    assert life.install("1.4.0", "--wait", "5", code=1) is None
    assert "round has not ended in 5 s" in life.said and not life.board.calls("rauc install")
    assert len(life.board.calls("sleep")) == 5 and life.note("pending") is None
    assert not os.path.exists(life.board.path("run/cairn-update/hold")), "the node rests for nothing"
    life.board.write("state/unit.ActiveState", "inactive")  # nothing trains
    assert life.install()


def what_rauc_refuses_is_reported(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    life.board.break_program("rauc", "signature verification failed\n", 1)
    assert life.install(code=1) is None and "RAUC does not take it" in life.said
    life.board.mend_program("rauc")
    life.board.write("bin/rauc", life.board.read("bin/rauc").replace("install)", "install) exit 1"))
    assert life.install(code=1) is None
    assert life.report() == ["A", "unknown", "failed:1.4.0"] and life.note("pending") is None
    assert not os.path.exists(life.board.path("run/cairn-update/hold"))


def a_bundle_that_changed_since_it_was_checked_is_not_started(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    noted = "RAUC_SLOT_BOOTNAME_1='A'\nRAUC_SLOT_STATUS_BUNDLE_VERSION_1='1.3.0'\nRAUC_SLOT_BOOTNAME_2='B'\n"
    life.board.write("state/noted", noted + "RAUC_SLOT_STATUS_BUNDLE_VERSION_2='1.2.0'\n")
    assert life.install(code=1) is None
    assert "it was version 1.4.0 and then 1.2.0, which is not started" in life.said, life.said
    assert life.report() == ["A", "unknown", "failed:1.4.0"] and life.note("pending") is None
    assert life.note("version.B") is None
    life.boot()
    assert life.running == "A" and life.check() is None
    life.board.write("state/noted", noted + "RAUC_SLOT_STATUS_BUNDLE_VERSION_2='1.4.0'\n")
    assert life.install()


def over_http_anybody_could_serve_the_bundle(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    life.new_calls()
    result = life.board.run("cairn-update", "install", "http://gate/fleet.raucb")
    assert result.returncode == 1 and "use https, or --insecure" in result.stderr, result
    assert not [call for call in life.new_calls() if call.startswith("rauc")], "it asked for the bundle"
    life.board.write("state/help", "  --tls-cert=PEMFILE\n")
    assert "--insecure" not in life.board.run("cairn-update", "install", "--insecure", "http://gate/fleet.raucb").stderr


def a_url_needs_a_rauc_that_streams(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()

    def install():
        life.new_calls()
        return life.board.run("cairn-update", "install", "--no-reboot", "https://gate/fleet.raucb")

    life.board.write("state/help", "Usage:\n  --progress   show progress bar\n")
    result = install()
    assert result.returncode == 1 and "without streaming" in result.stderr, result
    assert [call for call in life.new_calls() if call.startswith("rauc")] == ["rauc install --help"], "it fetched the bundle"
    life.board.write("state/help", "Usage:\n  --tls-cert=PEMFILE   TLS client certificate file\n")
    assert "without streaming" not in install().stderr
    assert [call for call in life.new_calls() if call.startswith("rauc info")], "it did not go on"


def a_connection_that_breaks_ends_no_installation(folder):
    """cairn-flash rollout starts it by ssh. Nobody reads any more what it and RAUC print."""
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    life.board.write("fleet.raucb", "1.4.0")
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "CAIRN_SYSROOT": life.board.root, "PATH": f"{life.board.path('bin')}:{os.environ['PATH']}"}
    result = subprocess.run([os.path.join(PARTS, "cairn-update"), "install", life.board.path("fleet.raucb")],
                            stdout=writing, stderr=writing, env=environment, timeout=60)
    os.close(writing)
    assert result.returncode == 0 and life.note("pending") == "1.4.0 B installed 0 0 0", (result, life.note("pending"))
    life.boot(life.reboots())
    assert life.running == "B" and life.check() is None and life.report() == ["B", "1.4.0", "good:1.4.0"]


@each_kind
def what_rauc_does_without_its_program_is_tried_first(life):
    """The program that asks RAUC's service is killed; the service writes the slot to its end."""
    life.boot()
    life.check()
    life.board.write("state/ended", "")
    assert life.install(code=1) is None and "the next boot decides" in life.said
    assert not os.path.exists(life.board.path("run/cairn-update/hold"))
    life.board.boot("set-primary", "B")
    life.node("active", "registering", "0")
    assert life.board.run("cairn-boot", "reboot").returncode == 0
    life.boot(life.reboots())
    assert life.running == "B" and life.check(), "a system that nobody has tried stays"


def two_installations_at_a_time_are_refused(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    with open(life.board.path("run/cairn-update/lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert life.install(code=1) is None and "another installation runs" in life.said
        assert life.note("pending") is None and not life.board.calls("rauc install")
    assert life.install()


@each_kind
def a_full_disk_keeps_no_system_that_does_not_work(life):
    life.boot()
    life.check()
    reboot = life.install()
    life.node("active", "registering", "0")
    life.boot(reboot)
    pending = life.note("pending")
    life.board.add_program("sync", "exit 1")
    reboot = life.check()
    assert reboot and life.note("pending") == pending, (life.kind, life.said)
    os.remove(life.board.path("bin/sync"))
    life.boot(reboot)
    assert life.running == "A" and life.check() is None, (life.kind, life.running)
    assert life.report() == ["A", "unknown", "rolled-back:1.4.0"], life.report()


def versions_and_orders_are_checked(folder):
    life = Life(folder, "uboot")
    life.boot()
    life.check()
    for version in ("", "1 4", "-1", "1.4;reboot", "x" * 64):
        assert life.install(version, code=1) is None and "its version is" in life.said
    life.boot(life.install("1.4.0"))
    life.check()
    life.board.write("state/target", "A")
    assert life.install("1.4.0", code=1) is None and "runs already" in life.said
    assert life.install("1.3.9", code=1) is None and "--older" in life.said
    assert life.install("1.3.9", "--older", "--no-reboot") is None and "when the board is restarted" in life.said
    assert not os.path.exists(life.board.path("run/cairn-update/hold"))
    assert life.install("1.5.0", code=1) is None and "is not decided yet" in life.said
    result = life.board.run("cairn-update", "status")
    assert result.stdout.splitlines() == ["slot A  version 1.3.9, good", "slot B  version 1.4.0, good, running",
                                          "version 1.3.9 in slot A is installed; boots of it so far: 0",
                                          "last result: good:1.4.0"], result.stdout
    for words in ((), ("install",), ("install", "--wait", "x", "b"), ("install", "--fast", "b"), ("status", "x"), ("check", "x"), ("boot",)):
        result = life.board.run("cairn-update", *words)
        assert result.returncode == 2 and result.stderr.startswith("usage: cairn-update install"), (words, result)


def the_identity_moves_to_the_data_partition(folder):
    life = Life(folder, "uboot")
    board, slot, kept = life.board, "etc/cairn", "var/lib/private/cairn-etc"
    board.write(f"{slot}/node.key", "a key\n")
    os.chmod(board.path(slot, "node.key"), 0o600)

    def keep():
        return board.run("cairn-update", "keep")

    def boot():
        board.write("state/mounts", board.path("var/lib/private") + "\n")

    assert keep().returncode == 0
    assert board.read(f"{kept}/node.key") == "a key\n" and os.stat(board.path(kept, "node.key")).st_mode & 0o777 == 0o600
    assert not os.path.exists(board.path(slot, "node.key")), "the key stays in the slot, which the next update copies nowhere"
    assert board.calls("mount")[-1] == f"mount --bind {board.path(kept)} {board.path(slot)}"
    before = len(board.calls("mount"))
    assert keep().returncode == 0 and len(board.calls("mount")) == before, "mounted twice"
    boot()
    board.write(f"{slot}/node.key", "a key\n")  # as after a power cut in between
    assert keep().returncode == 0 and not os.path.exists(board.path(slot, "node.key"))
    boot()
    board.write(f"{slot}/node.key", "another\n")
    result = keep()
    assert "is not the one on the data partition" in result.stdout and board.read(f"{kept}/node.key") == "a key\n"
    board.write("state/mounts", "")
    result = keep()
    assert result.returncode == 1 and "no partition is mounted" in result.stderr


@each_kind
def a_new_system_has_the_host_keys_of_the_old_one(life):
    board, key = life.board, "etc/ssh/ssh_host_ed25519_key"

    def boot(reboot, own):
        """Each slot has the key that its first boot made."""
        life.boot(reboot)
        board.write(key, own)
        os.chmod(board.path(key), 0o600)
        assert board.run("cairn-update", "keep").returncode == 0
        return board.read(key)

    assert boot(None, "of A\n") == "of A\n"
    board.write(key + ".pub", "of A, public\n")
    life.check()
    reboot = life.install()
    os.remove(board.path(key + ".pub"))
    life.node("active", "registering", "0")
    assert boot(reboot, "of B\n") == "of A\n" and board.read(key + ".pub") == "of A, public\n"
    assert os.stat(board.path(key)).st_mode & 0o777 == 0o600
    reboot = life.check()
    life.node_works()
    assert boot(reboot, "of B\n") == "of A\n", "each try has them"
    assert life.check() is None
    assert boot(None, "changed on purpose\n") == "changed on purpose\n", "after the decision they are left alone"
    board.write("state/target", "A")
    assert boot(life.install("1.5.0"), "of A\n") == "changed on purpose\n", "an older copy is taken"


CASES = [a_system_that_works_stays, a_system_whose_node_does_not_register_is_given_up,
         a_system_that_never_comes_up_is_given_up, tries_are_counted_where_the_boot_chain_forgets,
         a_boot_chain_that_never_starts_the_slot_is_not_asked_for_ever, lost_state_is_no_working_system,
         the_status_of_an_earlier_boot_says_nothing, state_of_a_later_release_ends_a_try_at_once,
         the_node_of_the_base_image_says_nothing, a_power_cut_in_the_installation_changes_nothing, a_power_cut_before_the_note_is_a_try,
         damaged_notes_keep_the_system_that_runs, an_installation_waits_for_the_round, what_rauc_refuses_is_reported,
         a_url_needs_a_rauc_that_streams, over_http_anybody_could_serve_the_bundle,
         a_bundle_that_changed_since_it_was_checked_is_not_started,
         a_connection_that_breaks_ends_no_installation, what_rauc_does_without_its_program_is_tried_first,
         two_installations_at_a_time_are_refused, a_full_disk_keeps_no_system_that_does_not_work,
         versions_and_orders_are_checked, the_identity_moves_to_the_data_partition,
         a_new_system_has_the_host_keys_of_the_old_one]

if __name__ == "__main__":
    run_cases(CASES, sys.argv[1:])
