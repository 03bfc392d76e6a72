"""cairn-flash against images, cards, folders and boards, good and bad ones.

usage: flash.py BIN

Cards are loop devices and need root; without it, or without a tool, a case says so and is left out.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(SOURCE, "tests", "end_to_end"))

from cluster import Cluster  # noqa: E402

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

    def make_base(self, name, arch="arm64", libc="2.36-9", size=16, extra=(), partitioned=True):
        tree, image = tempfile.mkdtemp(dir=self.folder), self.path(name)
        os.makedirs(os.path.join(tree, "var/lib/dpkg"))
        os.makedirs(os.path.join(tree, "etc"))
        with open(os.path.join(tree, "var/lib/dpkg/status"), "w") as file:
            file.write(STATUS.format(arch=arch, libc=libc))
        for path, text in extra:
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w") as file:
                file.write(text)
        root = self.path("root.ext4")
        with open(root, "wb") as file:
            file.truncate(size << 20)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, root], check=True)
        with open(root, "rb") as file:
            content = file.read()
        with open(image, "wb") as file:
            file.truncate((size + 2) << 20)
            file.seek(ROOT_AT if partitioned else 0)
            file.write(content)
        if partitioned:
            subprocess.run(["sfdisk", "-q", image], check=True, capture_output=True, text=True,
                           input=f"label: gpt\nstart=1MiB, size={size}MiB, name=APP\n")
        return image

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
    tools = bench.path("tools")
    os.makedirs(tools)
    real = shutil.which("debugfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    with open(os.path.join(tools, "debugfs"), "w") as file:
        file.write(f'#!/bin/sh\n[ "$1" != -w ] || exit 0\nexec {real} "$@"\n')  # writes nothing, says nothing
    os.chmod(os.path.join(tools, "debugfs"), 0o755)
    bench.expect(bench.image("lost", tools=tools), 5, "is not what was written", "taken back")
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
    """The board is this machine's root under an overlay."""
    board = bench.path("board")
    for part in ("upper", "work", "root", "ssh"):
        os.makedirs(os.path.join(board, part))
    mounted = os.getuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", os.path.join(board, "root")], capture_output=True).returncode == 0
    if not mounted:
        return print("left out: the board by ssh needs root")
    try:
        for part in ("upper", "work", "merged"):
            os.makedirs(os.path.join(board, "root", part))
        merged = os.path.join(board, "root/merged")
        options = f"lowerdir=/,upperdir={board}/root/upper,workdir={board}/root/work"
        if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged]).returncode:
            return print("left out: the board by ssh needs overlayfs")
        with open(os.path.join(board, "ssh/ssh"), "w") as file:
            file.write(f'#!/bin/sh\nwhile [ "$1" = -o ]; do shift 2; done\nexec chroot {merged} sh -c "$2"\n')
        os.chmod(os.path.join(board, "ssh/ssh"), 0o755)
        native = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
        tools = os.path.join(board, "ssh")
        if native != "arm64":
            bench.expect(bench.run("ssh", "user@board", *bench.order("far"), tools=tools), 1, f"is {native}")
            assert bench.enrolled("far") is None
        package, bench.package = bench.package, bench.path(f"cairn-test_{native}.deb")
        bench.expect(bench.run("ssh", "user@board", *bench.order("far"), tools=tools), 0, "runs as far")
        bench.package = package
        assert os.path.exists(os.path.join(merged, "usr/share/cairn-test/noise")), "the package is not installed"
        assert os.stat(os.path.join(merged, "etc/cairn/node.key")).st_mode & 0o777 == 0o600
        assert not os.path.exists("/etc/cairn/node.key"), "the test wrote to this machine"
        subprocess.run(["umount", merged])
    finally:
        subprocess.run(["umount", "-R", os.path.join(board, "root")], capture_output=True)


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
    a_root_without_a_table_is_found,
    unusable_orders_are_refused,
    what_fails_after_the_enrolment_takes_it_back,
    a_flipped_byte_is_found,
    links_in_a_root_folder_stay_in_it,
    a_running_board_is_reached_by_ssh,
    cards_are_written_and_read_back,
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
