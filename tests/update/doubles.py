"""Doubles of the programs that cairn-boot calls: each keeps its state in a folder and notes how it was called."""

import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PARTS = os.path.join(SOURCE, "boards", "update")
PARTUUID = {"A": "a08cd0ca-4707-4e72-bc04-8691205bb435", "B": "b4d1c6cd-0b3f-4b0a-9b62-1a6f0f5e6c11"}
VENDOR = "781e084c-a330-417c-b678-38e696380cb9"

# What each double does; $state is its folder. A file "broken.NAME" is what NAME prints instead, with its exit code.
COMMON = """\
#!/bin/sh
state=%s
name=$(basename "$0")
echo "$name $*" >>"$state/calls"
if [ -e "$state/broken.$name" ]; then
    cat "$state/broken.$name"
    exit "$(cat "$state/code.$name")"
fi
"""
DOUBLES = {
    "systemctl": """\
if [ "$1" = show ]; then
    if [ -e "$state/unit.$3" ]; then cat "$state/unit.$3"; else echo; fi
fi
""",
    "cairn-node": "cat \"$state/status.json\"",
    "sleep": "",
    # -d is asked of the running root only.
    "mountpoint": """\
case $1 in
-q) grep -qx "$2" "$state/mounts" ;;
-d) cat "$state/number.root" ;;
-x) cat "$state/number.$(basename "$(readlink -f "$2")")" ;;
esac
""",
    "mount": "echo \"$3\" >>\"$state/mounts\"",
    "umount": "",
    "rauc": """\
case $1 in
info) printf "RAUC_MF_COMPATIBLE='plant'\\nRAUC_MF_VERSION='%s'\\n" "$(cat "$3")" ;;
status) if [ -e "$state/noted" ]; then cat "$state/noted"; fi ;;
install)
    if [ "$2" = --help ]; then cat "$state/help"; exit; fi
    cp "$state/../run/cairn-update/hold" "$state/held"
    slot=$(cat "$state/target")
    "$state/backend" set-state "$slot" bad
    if [ -e "$state/cut" ]; then kill -9 $PPID; exit; fi
    if [ -e "$state/ended" ]; then kill -9 $$; fi
    echo " 50% Copying image to rootfs"
    "$state/backend" set-primary "$slot"
    ;;
esac
""",
    "chattr": "test -e \"$2\"",
    "nvbootctrl": """\
slot() { case $1 in 0) echo A ;; *) echo B ;; esac }
status()
{
    byte=$(od -An -t u1 -j 4 -N 1 "$state/../sys/firmware/efi/efivars/RootfsStatusSlot$1-%s")
    if [ "$byte" -eq 255 ]; then echo unbootable; else echo normal; fi
}
case $* in
"-t rootfs dump-slots-info")
    echo "Current rootfs slot: $(cat "$state/current")"
    echo "Active rootfs slot: $(cat "$state/active")"
    echo "num_slots: 2"
    echo "slot: 0,             retry_count: 3,             status: $(status A)"
    echo "slot: 1,             retry_count: 3,             status: $(status B)"
    ;;
"set-active-boot-slot "[01]) if [ ! -e "$state/stuck" ]; then slot "$2" >"$state/active"; fi ;;
verify) ;;
*) echo "nvbootctrl: unknown: $*"; exit 1 ;;
esac
""" % VENDOR,
    "fw_printenv": """\
test "$1" = -c || exit 1
shift 2
for variable; do
    grep "^$variable=" "$state/environment" || { echo "## Error: \\"$variable\\" not defined" >&2; exit 1; }
done
""",
    "fw_setenv": """\
test "$1 $3 $4" = "-c --script -" || exit 1
while IFS= read -r line; do
    case $line in *=*) ;; *) continue ;; esac
    grep -v "^${line%%=*}=" "$state/environment" >"$state/new"
    echo "$line" >>"$state/new"
    mv "$state/new" "$state/environment"
done
""",
}


class Board:
    """A folder that stands for a board's files, with the doubles before everything else in PATH."""

    def __init__(self, folder, boot, **settings):
        self.root = folder
        self.state = self.path("state")
        os.makedirs(self.path("bin"))
        os.makedirs(self.state)
        for name, body in DOUBLES.items():
            self.add_program(name, body)
        self.write("etc/default/cairn-update", "".join(
            f"{name}={value}\n" for name, value in {"CAIRN_BOOT": boot, **settings}.items()))
        self.write("state/calls", "")
        self.write("state/mounts", self.path("var/lib/private") + "\n")
        os.symlink(os.path.join(PARTS, "cairn-boot"), self.path("state/backend"))
        for folder in ("var/lib/private", "run"):
            os.makedirs(self.path(folder))

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def add_program(self, name, body):
        self.write(f"bin/{name}", COMMON % self.state + body)
        os.chmod(self.path("bin", name), 0o755)

    def break_program(self, name, text, code=0):
        self.write(f"state/broken.{name}", text)
        self.write(f"state/code.{name}", str(code))

    def mend_program(self, name):
        os.remove(self.path(f"state/broken.{name}"))

    def calls(self, name):
        return [line for line in self.read("state/calls").splitlines() if line.startswith(name + " ")]

    def run(self, program, *words, **more):
        environment = {**os.environ, "CAIRN_SYSROOT": self.root, "PATH": f"{self.path('bin')}:{os.environ['PATH']}", **more}
        return subprocess.run([os.path.join(PARTS, program), *words], capture_output=True, text=True, env=environment,
                              timeout=60)

    def boot(self, *words):
        """What cairn-boot prints; it has to succeed."""
        result = self.run("cairn-boot", *words)
        assert result.returncode == 0 and not result.stderr, f"{words}: {result.returncode} {result.stderr}"
        return result.stdout.strip()

    def refuses(self, part, *words):
        """cairn-boot has to fail with one line on standard error that has the part, and print nothing else."""
        result = self.run("cairn-boot", *words)
        assert result.returncode == 1, f"{words}: {result.returncode} {result.stdout}{result.stderr}"
        assert part in result.stderr and not result.stdout, f"{words}: {result.stdout}{result.stderr}"


def add_partition(board, device, number, disk):
    """The kernel knows the device by this number, as a partition of the disk."""
    name, link = os.path.basename(device), board.path("sys/dev/block", number)
    board.write(f"sys/devices/{disk}/{name}/partition", "1\n")
    board.write(f"state/number.{name}", number + "\n")
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if os.path.islink(link):
        os.remove(link)
    os.symlink(f"../../devices/{disk}/{name}", link)


def jetson(folder, current="A", active="A"):
    board = Board(folder, "nvbootctrl")
    os.makedirs(board.path("dev/disk/by-partuuid"))
    os.makedirs(board.path("dev/disk/by-partlabel"))
    for slot, label in (("A", "APP"), ("B", "APP_b")):
        board.write(f"dev/part.{slot}", "")
        for link in (f"by-partlabel/{label}", f"by-partuuid/{PARTUUID[slot]}"):
            os.symlink(board.path(f"dev/part.{slot}"), board.path("dev/disk", link))
        add_partition(board, f"part.{slot}", f"259:{'AB'.index(slot)}", "nvme0n1")
    board.write("state/number.root", "259:0\n")
    board.write("state/current", current)
    board.write("state/active", active)
    for slot in "AB":
        board.write(f"sys/firmware/efi/efivars/RootfsStatusSlot{slot}-{VENDOR}", b"\x07\0\0\0\0\0\0\0")
    return board


def raspberry(folder, current="A"):
    board = Board(folder, "tryboot")
    board.write("boot/autoboot/autoboot.txt", "[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n")
    start(board, current)
    return board


def start(board, slot):
    """The firmware of a Raspberry Pi, or U-Boot, has started this slot."""
    board.write("proc/device-tree/chosen/bootloader/partition", struct.pack(">I", 2 + "AB".index(slot)))
    board.write("proc/cmdline", f"console=ttyAMA0 quiet rauc.slot={slot}\n")


def uboot(folder, current="A"):
    board = Board(folder, "uboot")
    board.write("state/environment", "BOOT_ORDER=A B\nBOOT_A_LEFT=3\nBOOT_B_LEFT=0\n")
    board.write("etc/fw_env.config", "/nowhere 0x0 0x200\n")
    start(board, current)
    return board


def run_cases(cases, words):
    import shutil
    import tempfile

    wanted = words or [case.__name__ for case in cases]
    for case in cases:
        if case.__name__ not in wanted:
            continue
        folder = tempfile.mkdtemp(prefix="cairn-update-")
        try:
            case(os.path.join(folder, "board"))
            print(case.__name__, flush=True)
        finally:
            shutil.rmtree(folder)
    sys.exit(0)
