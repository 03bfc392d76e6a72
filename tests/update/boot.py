"""cairn-boot against doubles of nvbootctrl, of a Raspberry Pi's firmware and of U-Boot's tools, wrong answers included.

usage: boot.py [CASE...]
"""

import os
import sys

from doubles import PARTUUID, VENDOR, Board, add_partition, jetson, raspberry, run_cases, start, uboot

TABLE = """\
Current rootfs slot: A
Active rootfs slot: B
num_slots: 2
slot: 0,             retry_count: 3,             status: normal
slot: 1,             retry_count: 0,             status: unbootable
"""


def status_variable(slot):
    return f"sys/firmware/efi/efivars/RootfsStatusSlot{slot}-{VENDOR}"


def jetson_answers_what_nvbootctrl_says(folder):
    board = jetson(folder)
    board.break_program("nvbootctrl", TABLE)
    assert board.boot("get-current") == "A" and board.boot("get-primary") == "B"
    assert board.boot("get-state", "A") == "good" and board.boot("get-state", "B") == "bad"
    board.break_program("nvbootctrl", TABLE.replace("\n", "\r\n"))
    assert board.boot("get-primary") == "B"


def jetson_makes_a_slot_primary_that_was_unbootable(folder):
    board = jetson(folder)
    board.boot("set-state", "B", "bad")
    assert board.boot("get-state", "B") == "bad"
    board.boot("set-primary", "B")
    assert board.boot("get-primary") == "B" and board.boot("get-state", "B") == "good"
    assert "nvbootctrl set-active-boot-slot 1" in board.calls("nvbootctrl")
    with open(board.path(status_variable("B")), "rb") as file:
        assert file.read() == b"\x07\0\0\0\0\0\0\0"
    assert board.calls("chattr") == [f"chattr -i {board.path(status_variable('B'))}"] * 2, "Linux keeps the variable immutable"


def jetson_ends_the_tries_of_the_running_slot_only(folder):
    board = jetson(folder, current="B", active="B")
    board.boot("set-state", "A", "good")
    assert not [call for call in board.calls("nvbootctrl") if "verify" in call]
    board.boot("set-state", "B", "good")
    assert [call for call in board.calls("nvbootctrl") if "verify" in call] == ["nvbootctrl verify"]


def jetson_that_does_not_switch_is_an_error(folder):
    """As seen with a capsule that the firmware passes over."""
    board = jetson(folder)
    board.write("state/stuck", "")
    board.refuses("did not make B the active slot", "set-primary", "B")


EXTLINUX = """\
TIMEOUT 30
DEFAULT primary
# APPEND root=/dev/sda1
LABEL primary
      LINUX /boot/Image
      APPEND ${{cbootargs}} {root}rw rootwait noroot=1 ${{extra}}
LABEL backup
\tAPPEND ${{cbootargs}} quiet{end}
"""
CONF = "run/cairn-update/slot/boot/extlinux/extlinux.conf"


def jetson_writes_the_root_of_a_slot_before_it_is_started(folder):
    board = jetson(folder)
    board.boot("set-primary", "B")  # without extlinux.conf
    for root in ("root=PARTUUID=" + PARTUUID["A"], "root=PARTUUID=" + PARTUUID["B"], "root=/dev/mmcblk0p1", "root=UUID=1-2"):
        board.write("state/active", "A")
        board.write("state/calls", "")
        board.write(CONF, EXTLINUX.format(root=root + " ", end=""))
        board.boot("set-primary", "B")
        own = "root=PARTUUID=" + PARTUUID["B"]
        assert board.read(CONF) == EXTLINUX.format(root=own + " ", end=" " + own), board.read(CONF)
        calls = board.read("state/calls").splitlines()
        kinds = [call.split()[0] for call in calls if call.startswith(("mount ", "umount", "nvbootctrl set"))]
        assert kinds == ["umount", "mount", "umount", "nvbootctrl"], calls
        assert f"mount {board.path('dev/disk/by-partlabel/APP_b')} {board.path('run/cairn-update/slot')}" in calls
    assert os.listdir(os.path.dirname(board.path(CONF))) == ["extlinux.conf"]
    board.write(CONF, "APPEND quiet\r\n")
    board.boot("set-primary", "B")
    assert board.read(CONF) == f"APPEND quiet root=PARTUUID={PARTUUID['B']}\n"
    right = "APPEND root=PARTUUID=" + PARTUUID["B"]  # without an end of line
    board.write(CONF, right)
    board.write(CONF + ".sig", "signed")
    board.boot("set-primary", "B")
    assert board.read(CONF) == right, "a signed file is changed"
    os.remove(board.path(CONF + ".sig"))
    board.write("other", "")
    os.symlink(board.path("other"), board.path(CONF + ".new"))
    board.write(CONF, "APPEND quiet\n")
    board.boot("set-primary", "B")
    assert board.read("other") == "" and not os.path.islink(board.path(CONF)), "written through a link of the bundle"
    board.write("state/calls", "")
    board.boot("set-primary", "A")
    assert not board.calls("mount"), "the running slot is changed"


def jetson_does_not_start_a_slot_whose_root_it_cannot_write(folder):
    board = jetson(folder)
    wrong = EXTLINUX.format(root="root=/dev/sda1 ", end="")

    def refused(words):
        board.refuses(words, "set-primary", "B")
        assert board.boot("get-primary") == "A" and not os.path.exists(board.path(CONF + ".new"))

    board.write(CONF, wrong)
    board.write(CONF + ".sig", "signed")
    refused("extlinux.conf is signed")
    os.remove(board.path(CONF + ".sig"))
    board.break_program("mount", "mount: wrong fs type\n", 32)
    result = board.run("cairn-boot", "set-primary", "B")
    assert result.returncode == 1 and "cannot be mounted" in result.stderr and board.boot("get-primary") == "A", result
    board.mend_program("mount")
    board.break_program("umount", "umount: target is busy\n", 32)
    result = board.run("cairn-boot", "set-primary", "B")
    assert result.returncode == 1 and "cannot be unmounted" in result.stderr and board.boot("get-primary") == "A", result
    board.mend_program("umount")
    board.write(CONF, "LABEL primary\n  LINUX /boot/Image\n")
    refused("has no APPEND line")
    board.write(CONF, wrong)
    os.rename(board.path(CONF), board.path("conf"))
    os.symlink(board.path("conf"), board.path(CONF))
    refused("is behind a link")
    assert board.read("conf") == wrong, "a file of the running system is changed"
    os.remove(board.path("dev/disk/by-partuuid", PARTUUID["B"]))
    refused("has no PARTUUID")
    os.remove(board.path("dev/disk/by-partlabel/APP_b"))
    refused("CAIRN_ROOT_B names the partition")


def jetson_does_not_take_a_slot_of_another_disk(folder):
    """An SD card or USB disk that another Jetson was flashed to has partitions of the same names."""
    board = jetson(folder)
    add_partition(board, "part.B", "259:1", "sda")
    board.refuses("is not on the disk of the running root", "set-primary", "B")
    assert not board.calls("mount") and board.boot("get-primary") == "A"
    board.write("state/number.root", "0:21\n")  # no disk
    board.refuses("the disk of the running root is not known", "set-primary", "B")
    with open(board.path("etc/default/cairn-update"), "a") as file:
        file.write("CAIRN_ROOT_B=/dev/part.B\n")
    board.boot("set-primary", "B")


def jetson_refuses_tables_that_it_does_not_know(folder):
    board = jetson(folder)
    wrong = {"nothing": "", "one slot": TABLE.replace("num_slots: 2", "num_slots: 1"),
             "no second slot": TABLE[:TABLE.index("slot: 1")], "slot twice": TABLE.replace("slot: 1", "slot: 0"),
             "other state": TABLE.replace("unbootable", "maybe"), "slot C": TABLE.replace("slot: B", "slot: C"),
             "r32": "magic:0x43424E00, version: 5 features: 3 num_slots: 2\nslot: 0, priority: 15, suffix: _a\n",
             "words": "sh: nvbootctrl: $(reboot); `reboot`\n", "current twice": TABLE + TABLE, "zeros": "\0" * 100}
    for text in wrong.values():
        board.break_program("nvbootctrl", text)
        for words in (("get-primary",), ("get-state", "A"), ("set-primary", "B"), ("set-state", "B", "good")):
            board.refuses("table of slots is not understood", *words)
    board.break_program("nvbootctrl", TABLE, 1)
    board.refuses("dump-slots-info failed", "get-primary")
    board.mend_program("nvbootctrl")
    os.remove(board.path(status_variable("B")))
    board.write("state/calls", "")
    board.refuses("ROOTFS_AB=1", "set-state", "B", "bad")


def raspberry_tries_a_slot_three_times(folder):
    board = raspberry(folder)
    assert board.boot("get-current") == "A" == board.boot("get-primary")
    board.boot("set-primary", "B")
    assert board.boot("get-primary") == "B" and board.boot("get-state", "B") == "good"
    assert "[all]\ntryboot_a_b=1\nboot_partition=2\n" in board.read("boot/autoboot/autoboot.txt"), "A stays the default"
    for _ in range(3):  # each ends with a reset, and the firmware starts A
        assert board.boot("get-primary") == "B"
        board.boot("reboot")
    assert board.calls("systemctl") == ["systemctl reboot --reboot-argument=0 tryboot"] * 3
    assert board.boot("get-primary") == "A" and board.boot("get-state", "B") == "bad"
    board.boot("reboot")
    assert board.calls("systemctl")[-1] == "systemctl reboot"


def raspberry_keeps_a_slot_that_is_good(folder):
    board = raspberry(folder)
    board.boot("set-primary", "B")
    board.boot("set-state", "B", "good")  # it does not run yet: nothing is kept
    assert "[all]\ntryboot_a_b=1\nboot_partition=2\n" in board.read("boot/autoboot/autoboot.txt")
    board.boot("reboot")
    start(board, "B")
    board.boot("set-state", "B", "good")
    assert board.read("boot/autoboot/autoboot.txt") == \
        "[all]\ntryboot_a_b=1\nboot_partition=3\n[tryboot]\nboot_partition=2\n"
    assert board.boot("get-primary") == "B" == board.boot("get-current") and board.boot("get-state", "A") == "good"
    board.boot("set-state", "A", "bad")
    assert board.boot("get-state", "A") == "bad"
    board.boot("set-primary", "A")
    assert board.boot("get-state", "A") == "good" and board.boot("get-primary") == "A"


def raspberry_refuses_what_it_does_not_know(folder):
    board = raspberry(folder)
    for text in ("", "[all]\n", "[all]\nboot_partition=7\n", "[all]\nboot_partition=2;reboot\n", "\0\0\0"):
        board.write("boot/autoboot/autoboot.txt", text)
        for words in (("get-primary",), ("set-primary", "B"), ("set-state", "A", "good")):
            board.refuses("autoboot.txt names boot partition", *words)
        assert board.read("boot/autoboot/autoboot.txt") == text, "a file that is not understood is left alone"
    os.remove(board.path("boot/autoboot/autoboot.txt"))
    board.refuses("cannot be read", "get-primary")
    for number in (b"", b"\0\0\0", b"\0\0\0\x09", b"\0\0\0\x02\0\0\0\x02"):
        board.write("proc/device-tree/chosen/bootloader/partition", number)
        board.refuses("the firmware names boot partition", "get-current")


def raspberry_passes_over_a_damaged_trial(folder):
    board = raspberry(folder)
    for text in ("", "B", "C 3", "B 333", "B x", "B 3 $(reboot)", "\n\n"):
        board.write("var/lib/private/cairn-update/trial", text)
        assert board.boot("get-primary") == "A", text


def uboot_writes_all_of_a_change_at_once(folder):
    board = uboot(folder)
    assert board.boot("get-primary") == "A" and board.boot("get-state", "B") == "bad"
    board.boot("set-primary", "B")
    assert len(board.calls("fw_setenv")) == 1
    assert sorted(board.read("state/environment").split("\n")[:-1]) == ["BOOT_A_LEFT=3", "BOOT_B_LEFT=3", "BOOT_ORDER=B A"]
    assert board.boot("get-primary") == "B" and board.boot("get-current") == "A"
    board.write("state/environment", "BOOT_ORDER=B A\nBOOT_A_LEFT=3\nBOOT_B_LEFT=0\n")  # three tries
    assert board.boot("get-primary") == "A" and board.boot("get-state", "B") == "bad"
    board.boot("set-state", "B", "good")
    assert board.boot("get-state", "B") == "good"
    board.boot("set-state", "B", "bad")
    assert board.boot("get-primary") == "A"
    board.boot("reboot")
    assert board.calls("systemctl") == ["systemctl reboot"]


def uboot_refuses_what_it_does_not_know(folder):
    board = uboot(folder)
    good = "BOOT_ORDER=A B\nBOOT_A_LEFT=3\nBOOT_B_LEFT=3\n"
    for text in (good.replace("A B", "A"), good.replace("A B", "A B C"), good.replace("A B", "$(reboot)"),
                 good.replace("A_LEFT=3", "A_LEFT=33"), good.replace("A_LEFT=3", "A_LEFT="), good.replace("B_LEFT=3", "B_LEFT=x")):
        board.write("state/environment", text)
        board.refuses("of U-Boot's environment", "get-primary")
    board.write("state/environment", "")
    board.refuses("fw_printenv failed", "get-state", "A")
    board.write("state/environment", good.replace("=3", "=0"))
    board.refuses("no slot has a try left", "get-primary")
    board.break_program("fw_setenv", "")  # ends with 0 and writes nothing
    board.refuses("BOOT_B_LEFT=3 was written, and 'BOOT_B_LEFT=0' is read", "set-state", "B", "good")
    for words in ("quiet", "rauc.slot=C", "rauc.slot=AB", "xrauc.slot=A"):
        board.write("proc/cmdline", words + "\n")
        board.refuses("names no slot", "get-current")


def wrong_calls_and_settings_are_refused(folder):
    board = uboot(folder)
    for words in ((), ("get-state",), ("get-state", "C"), ("set-state", "A"), ("set-state", "A", "fine"), ("boot",),
                  ("get-primary", "A"), ("set-primary", "A", "B")):
        result = board.run("cairn-boot", *words)
        assert result.returncode == 2 and result.stderr.startswith("usage: "), f"{words}: {result}"
    other = Board(folder + ".other", "lilo")
    other.refuses("CAIRN_BOOT in", "get-primary")


CASES = [jetson_answers_what_nvbootctrl_says, jetson_makes_a_slot_primary_that_was_unbootable,
         jetson_ends_the_tries_of_the_running_slot_only, jetson_that_does_not_switch_is_an_error,
         jetson_writes_the_root_of_a_slot_before_it_is_started, jetson_does_not_start_a_slot_whose_root_it_cannot_write,
         jetson_does_not_take_a_slot_of_another_disk, jetson_refuses_tables_that_it_does_not_know, raspberry_tries_a_slot_three_times, raspberry_keeps_a_slot_that_is_good,
         raspberry_refuses_what_it_does_not_know, raspberry_passes_over_a_damaged_trial, uboot_writes_all_of_a_change_at_once,
         uboot_refuses_what_it_does_not_know, wrong_calls_and_settings_are_refused]

if __name__ == "__main__":
    run_cases(CASES, sys.argv[1:])
