"""cairn-flash against images, cards, folders and boards, good and bad ones.

usage: flash.py BIN

Cards are loop devices and need root; without it, or without a tool, a case says so and is left out.
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import Cluster  # noqa: E402
import machine  # noqa: E402
from machine import Machine  # noqa: E402

ROOT_AT = 1 << 20
SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
aggregator: {{address: "10.7.0.1:5684"}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""
STATUS = "Package: libc6\nStatus: install ok installed\nArchitecture: {arch}\nVersion: {libc}\n\n"


class Bench:
    """A gateway, a site, a package and a vendor's image; commands run beside them."""

    def __init__(self, cluster, build):
        self.cluster, self.build = cluster, build
        self.folder = cluster.directory
        self.write("site.yaml", SITE.format(source=SOURCE))
        self.package = self.make_package("arm64")
        self.base = self.make_base("base.img")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def make_package(self, architecture):
        tree = self.path("package-" + architecture)
        os.makedirs(os.path.join(tree, "DEBIAN"))
        os.makedirs(os.path.join(tree, "usr/share/cairn-test"))
        with open(os.path.join(tree, "usr/share/cairn-test/noise"), "wb") as file:
            file.write(os.urandom(50000))
        with open(os.path.join(tree, "DEBIAN/control"), "w") as file:
            file.write(f"Package: cairn-test\nVersion: 1\nArchitecture: {architecture}\n"
                       "Maintainer: nobody <nobody@cairn.invalid>\nDescription: a test\nInstalled-Size: 60\n")
        package = self.path(f"cairn-test_{architecture}.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
        return package

    def make_root(self, extra=(), arch="arm64", libc="2.36-9", size=16):
        """An ext4 file system with a package database and the (path, text) of extra; its bytes."""
        tree, root = tempfile.mkdtemp(dir=self.folder), self.path("root.ext4")
        files = [("var/lib/dpkg/status", STATUS.format(arch=arch, libc=libc)), ("etc/hostname", "board\n"), *extra]
        for path, text in files:
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w") as file:
                file.write(text)
        with open(root, "wb") as file:
            file.truncate(size << 20)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, root], check=True)
        with open(root, "rb") as file:
            return file.read()

    def make_base(self, name, partitioned=True, **root):
        """A vendor's image with a GPT, or without any table."""
        content = self.make_root(**root)
        with open(self.path(name), "wb") as file:
            file.seek(ROOT_AT if partitioned else 0)
            file.write(content)
            file.truncate(len(content) + (2 << 20))
        if partitioned:
            self.write_table(name, f"label: gpt\nstart=1MiB, size={len(content) >> 20}MiB, name=APP\n")
        return self.path(name)

    def make_card(self, name, parts):
        """An image with an MBR and 16 MiB for each (kind, content); FAT gets a cmdline.txt."""
        table = "label: dos\n"
        with open(self.path(name), "wb") as file:
            for number, (kind, content) in enumerate(parts):
                file.seek((1 + 16 * number) << 20)
                file.write(content or self.make_fat())
                table += f"start={1 + 16 * number}MiB, size=16MiB, type={'c' if kind == 'fat' else '83'}\n"
            file.truncate((2 + 16 * len(parts)) << 20)
        self.write_table(name, table)
        return self.path(name)

    def make_fat(self):
        image = self.path("part.fat")
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.vfat", image], check=True, capture_output=True)
        subprocess.run(["mcopy", "-i", image, self.write("cmdline", "as it was\n"), "::/cmdline.txt"], check=True)
        with open(image, "rb") as file:
            return file.read()

    def write_table(self, name, text):
        subprocess.run(["sfdisk", "-q", self.path(name)], check=True, capture_output=True, text=True, input=text)

    def run(self, *arguments, tools=None, text=None):
        path = f"{tools + ':' if tools else ''}{self.build}:{os.environ['PATH']}:/usr/sbin:/sbin"
        result = subprocess.run([os.path.join(self.build, "cairn-flash"), *arguments], cwd=self.folder,
                                env={**os.environ, "PATH": path}, capture_output=True, text=True, input=text)
        self.said = result.stdout + result.stderr
        return result.returncode

    def order(self, name="node-1"):
        return ["--site", "site.yaml", "--name", name, "--deb", self.package, "--gateway", "gateway.yaml"]

    def image(self, name="node-1", out=None, base=None, tools=None, more=()):
        out = out or self.path(f"{name}.img")
        return self.run("image", "--base", base or self.base, *self.order(name), "-o", out, *more, tools=tools)

    def broken_tools(self, others=None):
        """A folder for PATH whose debugfs writes nothing and says nothing."""
        tools = tempfile.mkdtemp(dir=self.folder)
        self.make_tool(tools, "debugfs", '[ "$1" != -w ] || exit 0')
        return f"{tools}:{others}" if others else tools

    def make_tool(self, folder, name, lines):
        """A script before the real program: its lines, then the program."""
        real = shutil.which(name, path=f"{self.build}:{os.environ['PATH']}:/usr/sbin:/sbin")
        with open(os.path.join(folder, name), "w") as file:
            file.write(f'#!/bin/sh\n{lines}\nexec {real} "$@"\n')
        os.chmod(os.path.join(folder, name), 0o755)

    def expect(self, code, wanted, *words):
        assert code == wanted, f"exit code {code}, expected {wanted}\n{self.said}"
        for word in words:
            assert word in self.said, f"'{word}' was not said\n{self.said}"

    def enrolled(self, name):
        """Not at all, or 'revoked', or 'enrolled'."""
        result = subprocess.run([os.path.join(self.build, "cairn-aggregator"), "status", "--json", "gateway.yaml"],
                                cwd=self.folder, capture_output=True, text=True)
        for line in result.stdout.splitlines():
            board = json.loads(line)
            if board.get("board") == name:
                return "revoked" if board["revoked"] else "enrolled"
        return None


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def debugfs(image, command):
    return subprocess.run(["debugfs", "-R", command, f"{image}?offset={ROOT_AT}"], capture_output=True,
                          text=True).stdout


def an_image_holds_what_was_ordered(bench):
    bench.expect(bench.image(more=["--add", bench.package + ":/data/noise"]), 0, "node-1 is enrolled", "is ready")
    image = bench.path("node-1.img")
    assert os.stat(image).st_mode & 0o777 == 0o600
    assert bench.enrolled("node-1") == "enrolled"
    assert debugfs(image, "cat /etc/cairn/node.key").startswith("cairn-key-1 node-1 ")
    assert "0600" in debugfs(image, "stat /etc/cairn/node.key")
    assert "name: node-1" in debugfs(image, "cat /etc/cairn/node.yaml")
    assert not glob.glob("/dev/shm/cairn-flash-*"), "a key stays on the flashing machine"
    bench.expect(bench.run("verify", "node-1.img"), 0, "for node-1")


def relative_paths_are_those_of_the_caller(bench):
    order = ["--site", "site.yaml", "--name", "near", "--deb", os.path.basename(bench.package)]
    bench.expect(bench.run("image", "--base", "base.img", *order, "--gateway", "gateway.yaml", "-o", "near.img"), 0)
    with open(bench.path("given.key"), "w") as file:
        file.write(debugfs(bench.path("near.img"), "cat /etc/cairn/node.key"))
    bench.expect(bench.run("image", "--base", "base.img", *order, "--key", "given.key", "-o", "given.img"), 0)
    bench.expect(bench.run("verify", "given.img"), 0)


def a_plan_writes_nothing(bench):
    before = sorted(os.listdir(bench.folder))
    bench.expect(bench.run("plan", *bench.order("planned"), "--base", bench.base), 0, "/etc/cairn/node.yaml")
    assert sorted(os.listdir(bench.folder)) == before and bench.enrolled("planned") is None
    bench.expect(bench.run("plan", *bench.order("planned"), "--json"), 0)
    assert all(json.loads(line)["event"] for line in bench.said.splitlines())


def packed_images_are_unpacked(bench):
    for tool, ending in (("xz", "xz"), ("zstd", "zst"), ("gzip", "gz")):
        if not shutil.which(tool):
            print(f"left out: no {tool}")
            continue
        packed = f"{bench.base}.{ending}"
        with open(packed, "wb") as file:
            subprocess.run([tool, "-c", bench.base], stdout=file, check=True)
        bench.expect(bench.image("by-" + tool, base=packed), 0)
        bench.expect(bench.run("verify", f"by-{tool}.img"), 0)
        os.truncate(packed, os.path.getsize(packed) * 2 // 3)
        bench.expect(bench.image("cut-" + tool, base=packed), 1, "not a whole file")
        assert bench.enrolled("cut-" + tool) is None and not os.path.exists(bench.path(f"cut-{tool}.img"))


def unusable_images_are_refused(bench):
    cases = [
        (dict(arch="amd64"), "for amd64"),
        (dict(libc="2.31-0ubuntu9"), "glibc 2.31"),
        (dict(size=5), "MiB free"),
        (dict(extra=[("etc/cairn/node.key", "cairn-key-1 other 00\n")]), "a board already"),
    ]
    for number, (how, words) in enumerate(cases):
        base = bench.make_base(f"bad-{number}.img", **how)
        bench.expect(bench.image("refused", base=base), 1, words)
    cut = bench.path("cut.img")
    shutil.copy(bench.base, cut)
    os.truncate(cut, 6 << 20)
    bench.expect(bench.image("refused", base=cut), 1, "cut off")
    empty = bench.path("empty.img")
    with open(empty, "wb") as file:
        file.truncate(4 << 20)
    bench.expect(bench.image("refused", base=empty), 1, "no ext4 partition")
    bench.expect(bench.image("refused", more=["--partition", "boot"]), 1, "choose one with --partition")
    damaged = bench.path("damaged.img")
    shutil.copy(bench.base, damaged)
    flip(damaged, 512 + 60)  # of the GPT's header
    bench.expect(bench.image("refused", base=damaged), 1, "table is damaged")
    unclean = bench.path("unclean.img")
    shutil.copy(bench.base, unclean)
    subprocess.run(["debugfs", "-w", "-R", "ssv state 0", f"{unclean}?offset={ROOT_AT}"], capture_output=True)
    bench.expect(bench.image("refused", base=unclean), 1, "not unmounted cleanly")
    assert bench.enrolled("refused") is None and not os.path.exists(bench.path("refused.img"))


def a_fat_partition_is_written_where_the_board_mounts_it(bench):
    """As Raspberry Pi OS has it: an MBR, FAT mounted on /boot/firmware, then the root."""
    if not shutil.which("mcopy"):
        return print("left out: no mtools")
    fstab = "proc /proc proc defaults 0 0\nPARTUUID=1-01 /boot/firmware vfat defaults 0 2\n" \
            "PARTUUID=1-02 / ext4 defaults,noatime 0 1\ntmpfs /run/models tmpfs size=1m 0 0\n"
    base = bench.make_card("pi-os.img", [("fat", None), ("ext4", bench.make_root([("etc/fstab", fstab)]))])
    config = bench.write("config.txt", "dtparam=pciex1\n")
    bench.expect(bench.image("pi", base=base, more=["--add", f"{config}:/boot/firmware/config.txt", "--add",
                                                    f"{config}:/boot/firmware/overlays/own/a.txt"]), 0, "is ready")
    image = bench.path("pi.img")
    fat = f"{image}@@{1 << 20}"
    for name, text in (("config.txt", "dtparam=pciex1\n"), ("overlays/own/a.txt", "dtparam=pciex1\n"),
                       ("cmdline.txt", "as it was\n")):
        result = subprocess.run(["mtype", "-i", fat, "::/" + name], capture_output=True, text=True)
        assert result.stdout == text, f"{name}: {result}"
    with open(image, "rb") as file:
        root = file.read()[17 << 20:33 << 20]
    bench.write("pi-root", "")
    with open(bench.path("pi-root"), "wb") as file:
        file.write(root)
    listing = subprocess.run(["debugfs", "-R", "ls /boot", bench.path("pi-root")], capture_output=True, text=True)
    assert "firmware" not in listing.stdout, "it was put below the mount point"
    assert "name: pi" in subprocess.run(["debugfs", "-R", "cat /etc/cairn/node.yaml", bench.path("pi-root")],
                                        capture_output=True, text=True).stdout
    bench.expect(bench.image("hidden", base=base, more=["--add", f"{config}:/run/models/a.txt"]), 1,
                 "mounts another file system over /run/models/a.txt")
    var = bench.make_card("var.img", [("ext4", bench.make_root([("etc/fstab", "LABEL=var /var ext4 defaults 0 2\n")]))])
    bench.expect(bench.image("hidden", base=var), 1, "mounts another file system over /var/lib/cairn-seed")
    large = bench.write("large", "x" * (17 << 20))
    bench.expect(bench.image("full-fat", base=base, more=["--add", f"{large}:/boot/firmware/large"]), 1)
    assert bench.enrolled("hidden") is None and bench.enrolled("full-fat") in (None, "revoked")
    assert not os.path.exists(bench.path("full-fat.img"))
    only_fat = bench.make_card("only-fat.img", [("fat", None)])
    bench.expect(bench.image("fat-root", base=only_fat), 1, "no ext4 partition was found, only FAT")
    plain = bench.path("plain-fat.img")
    with open(plain, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.vfat", plain], check=True, capture_output=True)
    bench.expect(bench.image("fat-root", base=plain), 1, "only FAT")
    assert bench.enrolled("fat-root") is None


def an_interruption_leaves_nothing_half_done(bench):
    def interrupted(name, tool, lines, code, *words):
        tools = tempfile.mkdtemp(dir=bench.folder)
        bench.make_tool(tools, tool, lines)
        bench.expect(bench.image(name, tools=tools), code, *words)
        assert not os.path.exists(bench.path(name + ".img")) and not glob.glob("/dev/shm/cairn-flash-*")

    interrupted("early", "e2fsck", "kill -INT $PPID", 130, "interrupted")
    assert bench.enrolled("early") is None
    interrupted("late", "debugfs", '[ "$1" != -w ] || { kill -TERM $PPID; exit 130; }', 130, "interrupted", "taken back")
    assert bench.enrolled("late") == "revoked"
    program = os.path.join(bench.build, "cairn-aggregator")
    interrupted("middle", "cairn-aggregator", f'[ "$1" != enroll ] || {{ {program} "$@"; kill -KILL $$; }}', 1,
                "not enrolled", "taken back")
    assert bench.enrolled("middle") == "revoked"


def a_root_without_a_table_is_found(bench):
    base = bench.make_base("no-table.img", partitioned=False)
    bench.expect(bench.image("plain", base=base), 0, "partition 0")


def unusable_orders_are_refused(bench):
    bench.expect(bench.image("Bad Name"), 2, "--name")
    bench.expect(bench.image("x", more=["--board", "jetson-orin-nano-8gb"]), 3, "qemu-virt-arm64")
    bench.write("relative.yaml", SITE.format(source=SOURCE).replace("/data/labels", "data/labels"))
    bench.expect(bench.image("x", more=["--site", "relative.yaml"]), 3, "data/labels.npy", "absolute")
    bench.write("wrong.yaml", SITE.format(source=SOURCE) + "powr: 3\n")
    bench.expect(bench.image("x", more=["--site", "wrong.yaml"]), 3, "wrong.yaml:6:1", "did you mean 'power'")
    cut = bench.path("cut.deb")
    shutil.copy(bench.package, cut)
    os.truncate(cut, 20000)
    bench.expect(bench.image("x", more=["--deb", cut]), 5, "not a whole package")
    foreign = bench.make_package("amd64")
    bench.expect(bench.image("x", more=["--deb", foreign]), 1, "for amd64")
    bench.expect(bench.image("x", more=["--add", f"{cut}:/etc/../x"]), 2)
    assert bench.enrolled("x") is None
    bench.expect(bench.image("node-1", out=bench.path("again.img")), 1, "enrolled already")
    assert not os.path.exists(bench.path("again.img")) and bench.enrolled("node-1") == "enrolled"
    bench.expect(bench.image("y", out=bench.path("node-1.img")), 1, "File exists")
    assert bench.enrolled("y") is None


def what_fails_after_the_enrolment_takes_it_back(bench):
    bench.expect(bench.image("lost", tools=bench.broken_tools()), 5, "is not what was written", "taken back")
    assert bench.enrolled("lost") == "revoked" and not os.path.exists(bench.path("lost.img"))
    bench.expect(bench.image("lost"), 0)


def a_flipped_byte_is_found(bench):
    bench.expect(bench.image("flipped"), 0)
    image = bench.path("flipped.img")
    with open(image + ".json") as file:
        manifest = json.load(file)
    offset, size, _ = manifest["ranges"][-1]
    flip(image, offset + size // 2)
    bench.expect(bench.run("verify", "flipped.img"), 5, "not those of the manifest")
    for ranges in ([[0, 1 << 40, "00" * 32]], [[8192, 4096, "00" * 32], [0, 4096, "00" * 32]], [[0, 4096, "zz"]],
                   [], [[-1, 5, "00" * 32]], "all"):
        with open(image + ".json", "w") as file:
            json.dump({**manifest, "ranges": ranges}, file)
        bench.expect(bench.run("verify", "flipped.img"), 5, "not a manifest")


def links_in_a_root_folder_stay_in_it(bench):
    root, outside = bench.path("rootfs"), bench.path("outside")
    os.makedirs(os.path.join(root, "var/lib/dpkg"))
    os.makedirs(os.path.join(root, "conf"))
    os.makedirs(outside)
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1, "no package database")
    with open(os.path.join(root, "var/lib/dpkg/status"), "w") as file:
        file.write(STATUS.format(arch="amd64", libc="2.35"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1, "for amd64")
    bench.expect(bench.run("rootfs", *bench.order("linked")), 2, "DIR is missing")
    assert bench.enrolled("linked") is None
    with open(os.path.join(root, "var/lib/dpkg/status"), "w") as file:
        file.write(STATUS.format(arch="arm64", libc="2.35"))
    os.symlink("/conf", os.path.join(root, "etc"))
    os.symlink(f"../../../../../../../..{outside}", os.path.join(root, "conf/cairn"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1)
    assert not os.listdir(outside) and bench.enrolled("linked") == "revoked"
    os.unlink(os.path.join(root, "conf/cairn"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 0, "is ready")
    key = os.path.join(root, "conf/cairn/node.key")
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert os.path.islink(os.path.join(root, "conf/systemd/system/multi-user.target.wants/cairn-firstboot.service"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked-2")), 1, "a board already")


def a_running_board_is_reached_by_ssh(bench):
    missing = machine.why_not(SOURCE)
    if missing:
        return print(f"left out: a board by ssh needs {missing}")
    native = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    arm, bench.package = bench.package, bench.path(f"cairn-test_{native}.deb")
    with Machine(bench.path("far"), SOURCE, (bench.build,)) as far:
        def order(name, *more):
            return bench.run("ssh", "root@board", *bench.order(name), *more, tools=far.tools)

        if native != "arm64":
            bench.package = arm
            bench.expect(order("far"), 1, f"is {native}, the packages are for arm64")
            bench.package = bench.path(f"cairn-test_{native}.deb")
        far.use_key("stranger")
        bench.expect(order("far"), 1, "Permission denied", "without a password")
        far.use_key("user")
        bench.expect(order("far", "--dry-run"), 0, "/etc/cairn/node.yaml")
        assert bench.enrolled("far") is None and not os.path.exists(far.path("/etc/cairn/node.yaml"))
        with open(os.path.join(far.folder, "memory/filler"), "wb") as file:
            fill(file)
            bench.expect(order("full"), 1, "No space left", "taken back")
        os.unlink(os.path.join(far.folder, "memory/filler"))
        assert bench.enrolled("full") == "revoked" and not os.path.exists(far.path("/etc/cairn/node.key"))
        bench.expect(order("far"), 0, "runs as far")
        assert os.path.exists(far.path("/usr/share/cairn-test/noise")), "the package is not installed"
        assert os.stat(far.path("/etc/cairn/node.key")).st_mode & 0o777 == 0o600
        bench.expect(order("other"), 1, "has the key of a board already")
        assert bench.enrolled("other") is None
        bench.expect(order("other", "--replace"), 0, "runs as other")
        far.stop()
        bench.expect(order("gone"), 1, "Connection refused")
        assert bench.enrolled("gone") is None
    assert not os.path.exists("/etc/cairn/node.key"), "the test wrote to this machine"
    bench.package = arm


def a_gateway_is_reached_by_ssh(bench):
    missing = machine.why_not(SOURCE)
    if missing:
        return print(f"left out: a gateway by ssh needs {missing}")
    with Machine(bench.path("gate"), SOURCE, (bench.build, bench.folder)) as gate:
        where = f"ssh://root@board{bench.folder}/gateway.yaml"
        by_port = f"ssh://root@127.0.0.1:{gate.port}{bench.folder}/gateway.yaml"

        def image(name, gateway=where, tools=gate.tools):
            return bench.run("image", "--base", bench.base, "--site", "site.yaml", "--name", name, "--deb",
                             bench.package, "--gateway", gateway, "-o", f"{name}.img", tools=tools)

        bench.expect(image("remote"), 0, "remote is enrolled", "is ready")
        assert debugfs(bench.path("remote.img"), "cat /etc/cairn/node.key").startswith("cairn-key-1 remote ")
        assert bench.enrolled("remote") == "enrolled" and not glob.glob(gate.path("/tmp/tmp.*/key"))
        bench.expect(image("remote-2", by_port), 0)
        code = bench.run("wait", "--name", "remote", "--gateway", where, "--timeout", "1 s", tools=gate.tools)
        bench.expect(code, 6, "was not heard")
        os.unlink(bench.path("remote.img"))
        bench.expect(image("remote"), 1, "enrolled already")
        assert bench.enrolled("remote") == "enrolled" and not os.path.exists(bench.path("remote.img"))
        bench.expect(image("remote-3", f"ssh://root@board{bench.folder}/no.yaml"), 1, "not enrolled", "no.yaml")
        bench.expect(image("remote-3", "ssh://root@board;id/x"), 2, "ssh://HOST/PATH")
        bench.expect(image("lost-far", tools=bench.broken_tools(gate.tools)), 5, "taken back")
        assert bench.enrolled("lost-far") == "revoked"
        gate.stop()
        bench.expect(image("remote-3"), 1, "Connection refused", "whether remote-3 is enrolled is not known")
        assert bench.enrolled("remote-3") is None and not os.path.exists(bench.path("remote-3.img"))


def fill(file):
    """Until the file system of file is full."""
    try:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError:
        pass


class Card:
    """A loop device of a size in MiB."""

    def __init__(self, file, size):
        self.file = file
        with open(file, "wb") as backing:
            backing.truncate(size << 20)

    def __enter__(self):
        result = subprocess.run(["losetup", "--show", "-f", self.file], capture_output=True, text=True)
        self.device = result.stdout.strip() if result.returncode == 0 else None
        return self.device

    def __exit__(self, *_):
        if self.device:
            subprocess.run(["losetup", "-d", self.device])


def cards_are_written_and_read_back(bench):
    image = "node-1.img"
    plain = bench.path("card")
    with Card(plain, 24) as device:
        if not device:
            return print("left out: cards need root and loop devices")
        bench.expect(bench.run("write", image, plain, "--yes"), 4, "no block device")
        bench.expect(bench.run("write", image, device, "--yes"), 4, "cannot be taken out")
        bench.expect(bench.run("write", image, device, "--fixed"), 4, "nobody was asked")
        bench.expect(bench.run("write", image, device, "--fixed", "--dry-run"), 0, "can take the image")
        with open(plain, "rb") as file:
            assert not any(file.read()), "something was written"
            file.close()
        with open(plain, "r+b") as file:
            file.seek(-512, 2)
            file.write(b"EFI PART of another time")
        bench.expect(bench.run("write", image, device, "--yes", "--fixed", "--json"), 0, '"done"')
        bench.expect(bench.run("verify", image, device), 0)
        with open(plain, "rb") as file:
            content = file.read()
        assert b"another time" not in content
        with open(bench.path(image), "rb") as file:
            assert content.startswith(file.read())
        flip(device, ROOT_AT + 70000)
        bench.expect(bench.run("verify", image, device), 5)
        flip(bench.path(image), ROOT_AT + 70000)
        bench.expect(bench.run("write", image, device, "--yes", "--fixed"), 5, "nothing was written")
        flip(bench.path(image), ROOT_AT + 70000)


SLOW_CARD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    if (size > 4096) usleep(300000);
    return real(file, data, size, offset);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) { return pwrite(file, data, size, offset); }
"""


def an_interrupted_card_is_said_to_be_incomplete(bench):
    if "asan" in bench.build or not shutil.which("gcc"):
        return print("left out: a slow card needs gcc and no sanitizer")
    library = bench.path("slow.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SLOW_CARD, text=True, check=True)
    with Card(bench.path("slow-card"), 24) as device:
        if not device:
            return
        process = subprocess.Popen(
            [os.path.join(bench.build, "cairn-flash"), "write", "node-1.img", device, "--yes", "--fixed"],
            cwd=bench.folder, env={**os.environ, "LD_PRELOAD": library}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        assert "all that is on it will be lost" in process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        bench.said = process.stdout.read()
        bench.expect(process.wait(), 130, "the card is incomplete and will not boot")
        bench.expect(bench.run("verify", "node-1.img", device), 5)


def unsafe_cards_are_refused(bench):
    with Card(bench.path("small-card"), 4) as device:
        if device:
            bench.expect(bench.run("write", "node-1.img", device, "--yes", "--fixed"), 4, "larger card")
    used, point = bench.path("used-card"), bench.path("mounted")
    os.makedirs(point)
    with Card(used, 24) as device:
        if not device:
            return
        subprocess.run(["mke2fs", "-q", device], check=True)
        subprocess.run(["mount", device, point], check=True)
        try:
            bench.expect(bench.run("write", "node-1.img", device, "--yes", "--fixed"), 4, f"{point} is mounted")
        finally:
            subprocess.run(["umount", point])


def a_card_that_fails_is_said_to_be_incomplete(bench):
    """The backing file lies on a full disk: what a card that dies or is pulled out looks like."""
    point = bench.path("full")
    os.makedirs(point)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", point], capture_output=True).returncode:
        return print("left out: a failing card needs root")
    try:
        with Card(os.path.join(point, "card"), 24) as device:
            if device:
                bench.expect(bench.run("write", "node-1.img", device, "--yes", "--fixed"), 1, "incomplete")
    finally:
        subprocess.run(["umount", point])


def waiting_ends_with_a_reason(bench):
    bench.expect(bench.run("wait", "--name", "nobody", "--gateway", "gateway.yaml"), 1, "not enrolled")
    code = bench.run("wait", "--name", "node-1", "--gateway", "gateway.yaml", "--timeout", "1 s")
    bench.expect(code, 6, "was not heard", "journalctl")
    bench.expect(bench.run("wait", "--name", "node-1", "--gateway", "missing.yaml"), 1)


CASES = [
    an_image_holds_what_was_ordered,
    relative_paths_are_those_of_the_caller,
    a_plan_writes_nothing,
    packed_images_are_unpacked,
    unusable_images_are_refused,
    a_fat_partition_is_written_where_the_board_mounts_it,
    an_interruption_leaves_nothing_half_done,
    a_root_without_a_table_is_found,
    unusable_orders_are_refused,
    what_fails_after_the_enrolment_takes_it_back,
    a_flipped_byte_is_found,
    links_in_a_root_folder_stay_in_it,
    a_running_board_is_reached_by_ssh,
    a_gateway_is_reached_by_ssh,
    cards_are_written_and_read_back,
    an_interrupted_card_is_said_to_be_incomplete,
    unsafe_cards_are_refused,
    a_card_that_fails_is_said_to_be_incomplete,
    waiting_ends_with_a_reason,
]


def main(build):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in ("debugfs", "mke2fs", "e2fsck", "sfdisk", "dpkg-deb") if not shutil.which(tool)]
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    with Cluster(build, {}) as cluster:
        bench = Bench(cluster, os.path.abspath(build))
        for case in CASES:
            print(case.__name__.replace("_", " "), flush=True)
            case(bench)


if __name__ == "__main__":
    main(sys.argv[1])
