"""cairn-flash against images, folders and boards, good and bad ones.

usage: flash.py BIN

Without root or a tool that it needs a case says so and is left out.
"""

import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import flash_bench
import machine
from flash_bench import ROOT_AT, SITE, SOURCE, STATUS, debugfs, flip
from machine import Machine


def an_image_holds_what_was_ordered(bench):
    bench.expect(bench.image(more=["--add", bench.package + ":/data/noise"]), 0, "node-1 is enrolled", "is ready")
    image = bench.path("node-1.img")
    assert os.stat(image).st_mode & 0o777 == 0o600
    assert bench.enrolled("node-1") == "enrolled"
    assert debugfs(image, "cat /etc/cairn/node.key").startswith("cairn-key-1 node-1 ")
    assert "0600" in debugfs(image, "stat /etc/cairn/node.key")
    assert "name: node-1" in debugfs(image, "cat /etc/cairn/node.yaml")
    assert not bench.left_in_memory(), "a key stays on the flashing machine"
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
    assert "JetPack" not in bench.said, "no Jetson was ordered"


def a_plan_says_what_the_gpu_needs(bench):
    with open(bench.path("orin.yaml"), "w") as file:
        with open(bench.path("site.yaml")) as site:
            file.write(re.sub("^extends: .*", f"extends: {SOURCE}/boards/jetson-orin-nano-8gb/board.yaml", site.read(),
                              flags=re.MULTILINE))
    order = ["--site", "orin.yaml", *bench.order("orin")[2:]]
    bench.expect(bench.run("plan", *order), 0, "needs JetPack 7.2 or later (CUDA 13)")
    order[order.index("--deb") + 1] = bench.make_package("arm64", 2, provides="cairn-node-cuda (= 12.6.85)")
    bench.expect(bench.run("plan", *order), 0, "needs JetPack 6.1 or later (CUDA 12.6)")


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


def what_is_no_raw_image_is_named(bench):
    for start, kind, remedy in ((b"PK\x03\x04", "a zip archive", "unzip"),
                                (b"\x3a\xff\x26\xed\x01\x00", "a sparse image of Android", "simg2img"),
                                (b"QFI\xfb\x00\x00\x00\x03", "a qcow2 image", "qemu-img convert"),
                                (b"\xfd7zXZ\x00", "packed with xz", ".xz"),
                                (b"\x1f\x8b\x08", "packed with gzip", ".gz"),
                                (b"\x28\xb5\x2f\xfd", "packed with zstd", ".zst")):
        base = bench.path("kind.img")
        with open(base, "wb") as file:
            file.write(start + bytes(4096))
        bench.expect(bench.image("odd", base=base), 1, kind, remedy)
        bench.expect(bench.run("plan", *bench.order("odd"), "--base", base), 1, kind, remedy)
        assert bench.enrolled("odd") is None
    packed = bench.path("kind.img.gz")
    with gzip.open(packed, "wb") as file:
        file.write(b"\x3a\xff\x26\xed\x01\x00" + bytes(4096))
    bench.expect(bench.image("odd", base=packed), 1, "a sparse image of Android")
    assert not os.path.exists(bench.path("odd.img.json")) and bench.enrolled("odd") is None


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
    long = "# a comment\n" * 700 + "LABEL=var /var ext4 defaults 0 2\n"
    var = bench.make_card("var.img", [("ext4", bench.make_root([("etc/fstab", long)]))])
    bench.expect(bench.image("hidden", base=var), 1, "/etc/fstab", "more than 8191 bytes")
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
        assert not os.path.exists(bench.path(name + ".img")) and not bench.left_in_memory()

    interrupted("early", "e2fsck", "kill -INT $PPID", 130, "interrupted")
    assert bench.enrolled("early") is None
    interrupted("closed", "debugfs", '[ "$1" != -w ] || { kill -HUP $PPID; exit 129; }', 130, "taken back")
    assert bench.enrolled("closed") == "revoked"
    interrupted("late", "debugfs", '[ "$1" != -w ] || { kill -TERM $PPID; exit 130; }', 130, "interrupted", "taken back")
    assert bench.enrolled("late") == "revoked"
    program = os.path.join(bench.build, "cairn-aggregator")
    interrupted("middle", "cairn-aggregator", f'[ "$1" != enroll ] || {{ {program} "$@"; kill -KILL $$; }}', 1,
                "not enrolled", "taken back")
    assert bench.enrolled("middle") == "revoked"
    subprocess.run([program, "enroll", "gateway.yaml", "healthy", "-o", "healthy.key"], cwd=bench.folder, check=True,
                   capture_output=True)
    interrupted("healthy", "cairn-aggregator", '[ "$1" != enroll ] || kill -KILL $$', 1, "not enrolled", "stays so")
    assert bench.enrolled("healthy") == "enrolled", "a board that was enrolled before is revoked"


def what_a_killed_program_left_in_memory_is_wiped(bench):
    tools = tempfile.mkdtemp(dir=bench.folder)
    bench.make_tool(tools, "debugfs", '[ "$1" != -w ] || { kill -KILL $PPID; exit 1; }')
    assert bench.image("killed", tools=tools) == -signal.SIGKILL
    left, = bench.left_in_memory()
    assert os.path.exists(os.path.join(left, "node.key"))
    foreign = f"/dev/shm/cairn-flash-{os.getpid()}-abcdef"  # of a process that lives
    os.mkdir(foreign)
    try:
        bench.expect(bench.run("plan", *bench.order("planned")), 0)
        assert not bench.left_in_memory(), "a key of a killed program stays"
        assert os.path.exists(foreign), "the folder of a program that runs is gone"
    finally:
        os.rmdir(foreign)


def a_root_without_a_table_is_found(bench):
    base = bench.make_base("no-table.img", partitioned=False)
    bench.expect(bench.image("plain", base=base), 0, "partition 0")


def data_without_labels_may_have_a_file_for_each_input(bench):
    own = SITE.format(source=SOURCE).replace("{inputs: /data/images.npy, labels: /data/labels.npy}",
                                             "{inputs: {x: /data/x.npy, value: /data/value.npy}}")
    bench.write("own.yaml", own)
    bench.expect(bench.run("plan", *bench.order("own"), "--base", bench.base, "--site", "own.yaml"), 0)
    for name in "x", "value":
        bench.write("own.yaml", own.replace(f"/data/{name}", f"data/{name}"))
        bench.expect(bench.image("own", more=["--site", "own.yaml"]), 3, f"data/{name}.npy", "absolute")
    assert bench.enrolled("own") is None


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
    unusable_places_are_refused(bench, cut)
    unusable_results_are_refused(bench)
    bench.expect(bench.image("x", more=["--deb", bench.package]), 2, "is the place of another file")
    assert bench.enrolled("x") is None
    bench.expect(bench.image("node-1", out=bench.path("again.img")), 1, "enrolled already")
    assert not os.path.exists(bench.path("again.img")) and bench.enrolled("node-1") == "enrolled"
    bench.expect(bench.image("y", out=bench.path("node-1.img")), 1, "File exists")
    assert bench.enrolled("y") is None


def unusable_results_are_refused(bench):
    bench.expect(bench.image("x", out="missing/x.img"), 1, "missing/x.img.part: No such file")
    assert "remove it" not in bench.said
    bench.expect(bench.image("x", out="-x.img"), 2, "no '-' at its start")
    bench.expect(bench.image("x", out="x" * 481), 2, "at most 480 bytes")
    bench.write("x.img.part", "")
    bench.expect(bench.image("x", out="x.img"), 1, "x.img.part: Not a directory", "remove it")
    os.unlink(bench.path("x.img.part"))


def unusable_places_are_refused(bench, file):
    for place in ("etc/x", "/etc/../x", "/data/..", "/data/.", "/data/", "/data//x", "/", "", "/data/a b"):
        bench.expect(bench.image("x", more=["--add", f"{file}:{place}"]), 2, f"'{place}'")
    for place in ("/etc/cairn/node.yaml", "/etc/cairn/node.key", "/etc/cairn/node.key.new", "/etc/cairn/node.yaml/x",
                  "/etc/cairn", "/var/lib/cairn-seed", "/var/lib/cairn-seed/firstboot", "/var/lib/cairn-seed/own",
                  "/etc/systemd/system/cairn-firstboot.service", "/etc/systemd/system/basic.target.wants"):
        bench.expect(bench.image("x", more=["--add", f"{file}:{place}"]), 2, f"'{place}' is in the way of the files")
    for one, other, words in (("/data/a", "/data/a", "is the place of another file"),
                              ("/data/a", "/data/a/b", "lies below another file"),
                              ("/data/a/b", "/data/a", "is the folder of another file"),
                              ("/data/a", "/data/a.new", "is where another file is written before it gets its name")):
        more = ["--add", f"{file}:{one}", "--add", f"{file}:{other}"]
        bench.expect(bench.image("x", more=more), 2, f"'{other}' {words}")


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


def content(path):
    with open(path, "rb") as file:
        return file.read()


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
    with open(os.path.join(root, "var/lib/dpkg/status"), "w") as file:
        file.write(STATUS.format(arch="arm64", libc="2.31-0ubuntu9"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1, "glibc 2.31")
    os.unlink(os.path.join(root, "var/lib/dpkg/status"))
    os.mkfifo(os.path.join(root, "var/lib/dpkg/status"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1, "no package database")
    os.unlink(os.path.join(root, "var/lib/dpkg/status"))
    assert bench.enrolled("linked") is None
    with open(os.path.join(root, "var/lib/dpkg/status"), "w") as file:
        file.write(STATUS.format(arch="arm64", libc="2.35"))
    os.symlink("/conf", os.path.join(root, "etc"))
    os.symlink(f"../../../../../../../..{outside}", os.path.join(root, "conf/cairn"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1)
    assert not os.listdir(outside) and bench.enrolled("linked") == "revoked"
    os.unlink(os.path.join(root, "conf/cairn"))
    bench.write("rootfs/var/lib/cairn-seed", "in the way")
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 1, "is removed again", "taken back")
    assert not os.listdir(os.path.join(root, "conf/cairn")), "half a delivery stays"
    os.unlink(os.path.join(root, "var/lib/cairn-seed"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked")), 0, "is ready")
    key = os.path.join(root, "conf/cairn/node.key")
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert os.path.islink(os.path.join(root, "conf/systemd/system/basic.target.wants/cairn-firstboot.service"))
    bench.expect(bench.run("rootfs", root, *bench.order("linked-2")), 1, "a board already")
    before = content(key), content(os.path.join(root, "conf/cairn/node.yaml"))
    unit = os.path.join(root, "conf/systemd/system/cairn-firstboot.service")
    os.unlink(unit)
    os.makedirs(unit)  # no file can take its place
    bench.expect(bench.run("rootfs", root, *bench.order("linked-2"), "--replace"), 1, "is removed again", "taken back")
    assert (content(key), content(os.path.join(root, "conf/cairn/node.yaml"))) == before, "the board lost its files"
    assert not glob.glob(os.path.join(root, "conf/cairn/*.new"))


def a_root_folder_without_room_is_refused(bench):
    point = bench.path("small")
    os.makedirs(point)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", point], capture_output=True).returncode:
        return print("left out: a full folder needs root")
    try:
        os.makedirs(os.path.join(point, "var/lib/dpkg"))
        bench.write("small/var/lib/dpkg/status", STATUS.format(arch="arm64", libc="2.35"))
        bench.expect(bench.run("rootfs", point, *bench.order("small")), 1, "0 MiB free")
        assert bench.enrolled("small") is None and not os.path.exists(os.path.join(point, "etc"))
    finally:
        subprocess.run(["umount", point], check=True)


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
            bench.expect(order("far"), 1, f"holds a system for {native}, the packages are for arm64")
            bench.package = bench.path(f"cairn-test_{native}.deb")
        far.use_key("stranger")
        bench.expect(order("far"), 1, "Permission denied", "without a password")
        far.use_key("user")
        bench.expect(order("far", "--dry-run"), 0, "/etc/cairn/node.yaml")
        assert bench.enrolled("far") is None and not os.path.exists(far.path("/etc/cairn/node.yaml"))
        with open(os.path.join(far.folder, "memory/filler"), "wb") as file:
            fill(file)
            bench.expect(order("full"), 1, "MiB free")
        os.unlink(os.path.join(far.folder, "memory/filler"))
        assert bench.enrolled("full") is None
        with far.program("dpkg-query", "echo 2.31-0ubuntu9"):
            bench.expect(order("old"), 1, "glibc 2.31")
        assert bench.enrolled("old") is None
        with open(far.path("/var/lib/cairn-seed"), "w") as file:
            file.write("in the way")
        bench.expect(order("half"), 1, "is removed again", "taken back")
        assert bench.enrolled("half") == "revoked" and not os.listdir(far.path("/etc/cairn"))
        os.unlink(far.path("/var/lib/cairn-seed"))
        with far.program("dpkg", 'case $1 in --version | --force*) exit 1 ;; esac; exec /usr/bin/dpkg "$@"'):  # busybox's
            bench.expect(order("far"), 0, "runs as far")
        assert os.path.exists(far.path("/usr/share/cairn-test/noise")), "the package is not installed"
        assert os.stat(far.path("/etc/cairn/node.key")).st_mode & 0o777 == 0o600
        bench.expect(order("other"), 1, "has the key of a board already")
        assert bench.enrolled("other") is None
        key, profile = (content(far.path(f"/etc/cairn/node.{kind}")) for kind in ("key", "yaml"))
        with far.program("sha256sum", 'case $1 in *.deb*) echo 00 ;; *) exec /usr/bin/sha256sum "$@" ;; esac'):
            bench.expect(order("third", "--replace"), 5, "is removed again", "taken back")
        assert (content(far.path("/etc/cairn/node.key")), content(far.path("/etc/cairn/node.yaml"))) == (key, profile)
        assert not glob.glob(far.path("/etc/cairn/*.new")) and bench.enrolled("third") == "revoked"
        bench.expect(order("other", "--replace"), 0, "runs as other")
        an_edited_file_stays_and_a_lock_is_waited_for(bench, far, native, order)
        far.stop()
        bench.expect(order("gone"), 1, "Connection refused")
        assert bench.enrolled("gone") is None
    assert not os.path.exists("/etc/cairn/node.key"), "the test wrote to this machine"
    bench.package = arm


# Another program with dpkg's lock, until the first-boot step has slept once.
HOLDER = """
import fcntl, os, sys, time
lock = open(sys.argv[1] + "/var/lib/dpkg/lock-frontend", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
while not os.path.exists(sys.argv[1] + "/tmp/slept"):
    time.sleep(0.1)
"""


# The dpkg of a board whose language is German.
GERMAN = """
[ "${LC_ALL:-}" != C ] || exec /usr/bin/dpkg "$@"
/usr/bin/dpkg "$@" 2>/tmp/english && exit
echo "dpkg: Fehler: Sperre wurde durch einen anderen Prozess gesperrt" >&2
exit 2
"""


def an_edited_file_stays_and_a_lock_is_waited_for(bench, far, native, order):
    bench.package = bench.make_package(native, 2)
    with open(far.path("/etc/cairn-test.conf"), "w") as file:
        file.write("edited\n")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, far.root], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with far.program("sleep", "touch /tmp/slept; exec /bin/sleep 1"), far.program("dpkg", GERMAN):
        bench.expect(order("newer", "--replace"), 0, "runs as newer")
    assert holder.wait() == 0, "nobody waited for the lock"
    with open(far.path("/etc/cairn-test.conf")) as file:
        assert file.read() == "edited\n"
    with open(far.path("/var/lib/dpkg/status")) as file:
        installed = file.read().split("Package: cairn-test\n")[1].split("\n\n")[0]
    assert "install ok installed" in installed and "Version: 2" in installed, installed


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
        os.unlink(bench.path("remote.img.json"))
        bench.expect(image("remote"), 1, "enrolled already")
        assert bench.enrolled("remote") == "enrolled" and not os.path.exists(bench.path("remote.img"))
        bench.expect(image("remote-3", f"ssh://root@board{bench.folder}/no.yaml"), 1, "not enrolled", "no.yaml")
        bench.expect(image("remote-3", "ssh://root@board;id/x"), 2, "ssh://HOST/PATH")
        bench.expect(image("lost-far", tools=bench.broken_tools(gate.tools)), 5, "taken back")
        assert bench.enrolled("lost-far") == "revoked"
        tools = tempfile.mkdtemp(dir=bench.folder)
        with open(os.path.join(tools, "ssh"), "w") as file:
            file.write('#!/bin/sh\ncase "$*" in *" enroll "*) touch lost ;; esac\n'
                       f'[ ! -e lost ] || {{ echo lost >&2; exit 255; }}\nexec {gate.tools}/ssh "$@"\n')
        os.chmod(file.name, 0o755)
        bench.expect(image("remote-3", tools=tools), 1, "whether remote-3 is enrolled is not known", "remote-3.img.part")
        os.unlink(bench.path("lost"))
        bench.expect(image("remote-3"), 0, "what a killed cairn-flash left", "remote-3.img is ready")
        gate.stop()
        code = bench.run("wait", "--name", "remote", "--gateway", where, "--timeout", "2 s", tools=gate.tools)
        bench.expect(code, 6, "Connection refused")
        bench.expect(image("remote-4"), 1, "not enrolled: the aggregator on root@board", "Connection refused")
        assert bench.enrolled("remote-4") is None and not glob.glob(bench.path("remote-4.img*"))


def fill(file):
    """Until the file system of file is full."""
    try:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError:
        pass


def the_wizard_of_a_fresh_jetpack_is_named(bench):
    tree = bench.path("fresh")
    bench.write_tree(tree, [("var/lib/dpkg/status", STATUS.format(arch="arm64", libc="2.35"))])
    bench.expect(bench.run("rootfs", tree, *bench.order("fresh"), "--dry-run"), 0)
    assert "wizard" not in bench.said
    os.makedirs(os.path.join(tree, "etc/systemd/system"))
    os.symlink("/lib/systemd/system/nv-oem-config.target", os.path.join(tree, "etc/systemd/system/default.target"))
    bench.expect(bench.run("rootfs", tree, *bench.order("fresh"), "--dry-run"), 0, "l4t_create_default_user.sh")
    base = bench.path("fresh.img")
    shutil.copy(bench.base, base)
    bench.write("script", "mkdir etc/systemd\nmkdir etc/systemd/system\n"
                "symlink etc/systemd/system/default.target /lib/systemd/system/nv-oem-config.target\n")
    subprocess.run(["debugfs", "-w", "-f", bench.path("script"), f"{base}?offset={ROOT_AT}"], check=True,
                   capture_output=True)
    bench.expect(bench.run("plan", *bench.order("fresh"), "--base", base), 0, "l4t_create_default_user.sh")


def waiting_ends_with_a_reason(bench):
    bench.expect(bench.run("wait", "--name", "nobody", "--gateway", "gateway.yaml"), 1, "not enrolled")
    code = bench.run("wait", "--name", "node-1", "--gateway", "gateway.yaml", "--timeout", "1 s")
    bench.expect(code, 6, "was not heard", "journalctl")
    bench.expect(bench.run("wait", "--name", "node-1", "--gateway", "missing.yaml"), 1)


def waiting_outlasts_a_gateway_that_is_away(bench):
    """A cairn-aggregator whose status cannot be had, always or at the first time."""
    tools = tempfile.mkdtemp(dir=bench.folder)
    away = "echo 'ssh: connect to host gate port 22: Connection refused' >&2; exit 255"
    wait = ["wait", "--name", "node-1", "--gateway", "gateway.yaml", "--timeout"]
    bench.make_tool(tools, "cairn-aggregator", away)
    begun = time.monotonic()
    bench.expect(bench.run(*wait, "2 s", tools=tools), 6, "not heard in 2 s", "Connection refused")
    assert time.monotonic() - begun >= 2, "it did not wait"
    asked = os.path.join(tools, "asked")
    bench.make_tool(tools, "cairn-aggregator", f"[ -e {asked} ] || {{ touch {asked}; {away}; }}\n"
                    """echo '{"board":"node-1","revoked":false,"silent_s":1}'; exit""")
    bench.expect(bench.run(*wait, "20 s", tools=tools), 0, "asks again", "node-1 joined")
    for code in (2, 3, 127):  # what no waiting mends
        bench.make_tool(tools, "cairn-aggregator", f"echo 'so it is' >&2; exit {code}")
        bench.expect(bench.run(*wait, "20 s", tools=tools), 1, "so it is")


def waiting_believes_what_was_heard_with_the_new_key_only(bench):
    """The status of an aggregator that runs, written here: this process lives and the file is new."""
    bench.expect(bench.image("again"), 0)
    with open(bench.path("again.key"), "w") as file:
        file.write(debugfs(bench.path("again.img"), "cat /etc/cairn/node.key"))
    with open(bench.path("again.key")) as file:
        secret = bytes.fromhex(file.read().split()[2])
    state = bench.path("state/gateway")

    def wait(key):
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        with open(os.path.join(state, "status.json"), "w") as file:
            json.dump({"pid": os.getpid(), "written_ms": now, "phase": 0,
                       "boards": {"again": {"heard_ms": now - 1000, "key": key}}}, file)
        return bench.run("wait", "--name", "again", "--gateway", "gateway.yaml", "--timeout", "1 s")

    bench.expect(wait("0123456789abcdef"), 6, "was not heard")  # with the key that it had before
    bench.expect(wait(hashlib.sha256(secret).hexdigest()[:16]), 0, "again joined")
    os.unlink(os.path.join(state, "status.json"))


def the_help_names_all_exit_codes(bench):
    bench.expect(bench.run("--help"), 0, "4 unsafe target", "5 not what was written", "6 not heard in time")


CASES = [
    an_image_holds_what_was_ordered,
    relative_paths_are_those_of_the_caller,
    a_plan_writes_nothing,
    a_plan_says_what_the_gpu_needs,
    packed_images_are_unpacked,
    unusable_images_are_refused,
    what_is_no_raw_image_is_named,
    a_fat_partition_is_written_where_the_board_mounts_it,
    an_interruption_leaves_nothing_half_done,
    what_a_killed_program_left_in_memory_is_wiped,
    a_root_without_a_table_is_found,
    data_without_labels_may_have_a_file_for_each_input,
    unusable_orders_are_refused,
    what_fails_after_the_enrolment_takes_it_back,
    a_flipped_byte_is_found,
    links_in_a_root_folder_stay_in_it,
    a_root_folder_without_room_is_refused,
    a_running_board_is_reached_by_ssh,
    a_gateway_is_reached_by_ssh,
    the_wizard_of_a_fresh_jetpack_is_named,
    waiting_ends_with_a_reason,
    waiting_outlasts_a_gateway_that_is_away,
    waiting_believes_what_was_heard_with_the_new_key_only,
    the_help_names_all_exit_codes,
]


if __name__ == "__main__":
    flash_bench.run(sys.argv[1], CASES)
