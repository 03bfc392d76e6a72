"""cairn-flash bundle: a signed update of the root of an image, and what is refused. RAUC of the distribution reads it.

usage: bundle.py BIN
"""

import glob
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(os.path.dirname(HERE), "flash")]

import flash_bench  # noqa: E402
from flash_bench import flip  # noqa: E402

CONF = """\
[system]
compatible = plant-board
bootloader=custom
bundle-formats=-plain

[keyring]
path=/etc/rauc/keyring.pem

[slot.rootfs.0]
device=/dev/disk/by-partlabel/APP
bootname=A
"""
SECRET = b"a word that was deleted from the base image"


def make_signer(bench, name):
    if not os.path.exists(bench.path(f"{name}.key")):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", f"/CN={name}",
                        "-keyout", bench.path(f"{name}.key"), "-out", bench.path(f"{name}.pem")], check=True,
                       capture_output=True)


def make_base(bench, name="ab-base.img", conf=CONF, extra=(), **root):
    """A vendor's image whose system knows RAUC; it trusts the signer "plant"."""
    make_signer(bench, "plant")
    with open(bench.path("plant.pem")) as file:
        keyring = file.read()
    files = [("etc/rauc/keyring.pem", keyring), *extra]
    if conf:
        files.append(("etc/rauc/system.conf", conf))
    return bench.make_base(name, extra=files, **root)


def bundle(bench, base, *more, signer="plant", version="1.4.0", out="fleet.raucb", tools=None):
    return bench.run("bundle", "--base", base, "--deb", bench.package, "--version", version, "--cert", f"{signer}.pem",
                     "--key", f"{signer}.key", "-o", out, *more, tools=tools)


def facts(bench, name="fleet.raucb"):
    result = subprocess.run(["rauc", "--keyring", bench.path("plant.pem"), "info", "--output-format=shell", bench.path(name)],
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return dict(re.findall(r"^RAUC_(\w+)='?(.*?)'?$", result.stdout, flags=re.MULTILINE))


def extract(bench, name, to):
    shutil.rmtree(bench.path(to), ignore_errors=True)
    result = subprocess.run(["rauc", "--keyring", bench.path("plant.pem"), "extract", bench.path(name), bench.path(to)],
                            capture_output=True, text=True)
    return result.returncode, result.stderr


def nothing_is_left(bench, out="fleet.raucb"):
    left = glob.glob(bench.path(out + "*"))
    assert not left, f"left behind: {left}"
    assert not bench.left_in_memory()


def a_bundle_is_signed_and_has_the_packages(bench):
    base = make_base(bench)
    bench.expect(bundle(bench, base, "--slot", "16"), 0, "version 1.4.0 for plant-board", "a slot of 16 MiB")
    assert facts(bench)["MF_COMPATIBLE"] == "plant-board" and facts(bench)["MF_VERSION"] == "1.4.0"
    code, said = extract(bench, "fleet.raucb", "out")
    assert code == 0, said
    root = bench.path("out", "rootfs.ext4")
    os.rename(root, bench.path("slot.ext4"))
    assert subprocess.run(["e2fsck", "-fn", bench.path("slot.ext4")], capture_output=True).returncode == 0
    listing = subprocess.run(["debugfs", "-R", "ls -p /var/lib/cairn-seed", bench.path("slot.ext4")], capture_output=True, text=True)
    assert "cairn-test_arm64.deb" in listing.stdout and "firstboot" in listing.stdout, listing.stdout
    assert glob.glob(bench.path("fleet.raucb*")) == [bench.path("fleet.raucb")], "the folder of the work stays"
    bench.expect(bundle(bench, base), 1, "fleet.raucb: File exists")
    print(f"    {os.path.getsize(bench.path('fleet.raucb'))} bytes for a slot of 16 MiB")
    os.unlink(bench.path("fleet.raucb"))


def the_root_of_an_image_without_a_table_will_do(bench):
    base = make_base(bench, "plain.img", partitioned=False)
    bench.expect(bundle(bench, base), 0, "is ready")
    os.unlink(bench.path("fleet.raucb"))


def settings_may_come_from_add(bench):
    base = bench.make_base("bare.img")
    bench.expect(bundle(bench, base), 1, "the root has no /etc/rauc/system.conf", "--add")
    nothing_is_left(bench)
    bench.write("system.conf", CONF)
    bench.expect(bundle(bench, base, "--add", "system.conf:/etc/rauc/system.conf"), 1, "the root has no keyring /etc/rauc/keyring.pem")
    nothing_is_left(bench)
    bench.expect(bundle(bench, base, "--add", "system.conf:/etc/rauc/system.conf", "--add", "plant.pem:/etc/rauc/keyring.pem"),
                 0, "for plant-board")
    os.unlink(bench.path("fleet.raucb"))


def what_was_deleted_is_not_in_it(bench):
    """The free blocks of a file system keep the bytes of deleted files."""
    base = make_base(bench, "used.img", extra=[("etc/secret", SECRET.decode() * 2000)])
    subprocess.run(["debugfs", "-w", "-R", "rm /etc/secret", f"{base}?offset={flash_bench.ROOT_AT}"], check=True, capture_output=True)
    with open(base, "rb") as file:
        assert SECRET in file.read(), "the test has to begin with an image that has it"
    bench.expect(bundle(bench, base), 0)
    assert extract(bench, "fleet.raucb", "out")[0] == 0
    with open(bench.path("out", "rootfs.ext4"), "rb") as file:
        assert SECRET not in file.read(), "a deleted file travels in the bundle"
    os.unlink(bench.path("fleet.raucb"))


def no_board_is_in_it(bench):
    for path in ("etc/cairn/node.key", "etc/cairn/node.yaml", "etc/cairn/gateway.yaml", "var/lib/private/cairn/checkpoint.a",
                 "var/lib/cairn/checkpoint.b", "etc/ssh/ssh_host_ed25519_key"):
        base = make_base(bench, "board.img", extra=[(path, "of one board\n")])
        bench.expect(bundle(bench, base), 1, f"the root has /{path}", "a bundle is for all")
        nothing_is_left(bench)
    bench.write("added.key", "a key\n")
    bench.expect(bundle(bench, make_base(bench), "--add", "added.key:/etc/cairn/node.key"), 2, "in the way of the files")
    nothing_is_left(bench)


def a_root_of_one_slot_is_warned_of(bench):
    """The files of a Jetson that was flashed with ROOTFS_AB=1 and of one that names no slot."""
    extlinux = "TIMEOUT 30\nLABEL primary\n      LINUX /boot/Image\n      APPEND ${{cbootargs}} {root} rw rootwait\n"
    for root, fstab, words in (
            ("root=PARTUUID=a08cd0ca-4707-4e72-bc04-8691205bb435", "/dev/root / ext4 defaults 0 1\n", ["extlinux.conf of"]),
            ("root=/dev/mmcblk0p1", "/dev/root / ext4 defaults 0 1\n", ["extlinux.conf of"]),
            ("quiet", "# UUID=1 / ext4\nUUID=11-22 / ext4 defaults 0 1\n", ["warning: /etc/fstab of"]),
            ("root=UUID=11-22", "PARTUUID=1-02  /  ext4 defaults\n", ["extlinux.conf and /etc/fstab of"]),
            ("quiet", "/dev/root / ext4 defaults 0 1\nUUID=11-22 /boot/efi vfat defaults 0 1\n", [])):
        base = make_base(bench, "slot.img", extra=[("boot/extlinux/extlinux.conf", extlinux.format(root=root)),
                                                   ("etc/fstab", fstab)])
        bench.expect(bundle(bench, base, out="slot.raucb"), 0, *words)
        assert ("warning" in bench.said) == bool(words), bench.said
        os.unlink(bench.path("slot.raucb"))


def the_signing_key_stays_here(bench):
    bench.expect(bundle(bench, make_base(bench), "--add", "plant.key:/usr/share/thing"), 1, "plant.key is the signing key")
    os.link(bench.path("plant.key"), bench.path("harmless"))
    bench.expect(bundle(bench, make_base(bench), "--add", "harmless:/usr/share/thing"), 1, "harmless is the signing key")
    os.unlink(bench.path("harmless"))
    nothing_is_left(bench)


def a_signer_whom_boards_would_not_trust_is_refused(bench):
    make_signer(bench, "stranger")
    bench.expect(bundle(bench, make_base(bench), signer="stranger"), 1, "the bundle cannot be signed")
    nothing_is_left(bench)
    bench.write("broken.key", "no key\n")
    shutil.copy(bench.path("plant.pem"), bench.path("broken.pem"))
    bench.expect(bundle(bench, make_base(bench), signer="broken"), 1, "the bundle cannot be signed")
    nothing_is_left(bench)


def bad_orders_are_refused(bench):
    base = make_base(bench)
    for version in ("", "-1", "1 4", "1\n[update]", "1.4.0/..", "x" * 64, "$(id)"):
        bench.expect(bundle(bench, base, version=version), 2, "--version")
    for size in ("0", "-1", "16M", "99999999999", ""):
        bench.expect(bundle(bench, base, "--slot", size), 2, "--slot")
    bench.expect(bundle(bench, base, "--slot", "15"), 1, "the root has 16 MiB, the smallest slot 15 MiB")
    bench.expect(bundle(bench, base, "thing"), 2, "'thing' is not an option")
    bench.expect(bench.run("bundle", "--base", base, "--deb", bench.package, "--version", "1", "-o", "fleet.raucb"), 2, "--cert is missing")
    nothing_is_left(bench)
    for conf in (CONF.replace("plant-board", "two words"), CONF.replace("compatible", "compatibel"), CONF.replace("[system]", "[systems]"),
                 CONF.replace("/etc/rauc/keyring.pem", "keyring.pem"), "\0\0\0", "[system]\n" * 1000):
        bench.expect(bundle(bench, make_base(bench, "odd.img", conf=conf)), 1, "with 'compatible' and a keyring")
        nothing_is_left(bench)


def damage_is_noticed(bench):
    """RAUC's own "info" checks the signature only; what cairn-flash writes it extracts again."""
    base = make_base(bench)
    bench.expect(bundle(bench, base), 0)
    flip(bench.path("fleet.raucb"), os.path.getsize(bench.path("fleet.raucb")) // 3)
    assert extract(bench, "fleet.raucb", "out")[0] != 0, "RAUC takes a damaged bundle"
    os.unlink(bench.path("fleet.raucb"))
    tools = bench.path("tools")
    os.makedirs(tools, exist_ok=True)
    bench.make_tool(tools, "rauc", 'case $* in *" bundle "*) real "$@" || exit; for out; do :; done\n'
                    'printf x | dd of="$out" bs=1 seek=$(($(stat -c %s "$out") / 3)) conv=notrunc 2>/dev/null; exit;; esac')
    with open(os.path.join(tools, "rauc")) as file:
        text = file.read().replace("real ", shutil.which("rauc") + " ")
    with open(os.path.join(tools, "rauc"), "w") as file:
        file.write(text)
    bench.expect(bundle(bench, base, tools=tools), 5, "cannot be read again")
    nothing_is_left(bench)
    shutil.rmtree(tools)


def an_interruption_leaves_nothing(bench):
    base = make_base(bench)
    tools = bench.path("slow")
    os.makedirs(tools, exist_ok=True)
    bench.make_tool(tools, "rauc", "touch %s; sleep 5" % bench.path("begun"))
    process = subprocess.Popen([os.path.join(bench.build, "cairn-flash"), "bundle", "--base", base, "--deb", bench.package, "--version", "1",
                                "--cert", "plant.pem", "--key", "plant.key", "-o", "fleet.raucb"], cwd=bench.folder,
                               env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(200):
        if os.path.exists(bench.path("begun")):
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(30) == 130, process.returncode
    nothing_is_left(bench)


PIECE = 32  # blocks in one block of squashfs, 128 KiB


def changed_blocks(bench, old, new):
    """The 4 KiB blocks of the new root that the old one has nowhere: what RAUC would fetch by its index of hashes. Also the
    blocks of squashfs that they lie in, and all blocks."""
    blocks = []
    for name in (old, new):
        assert extract(bench, name, "out")[0] == 0
        with open(bench.path("out", "rootfs.ext4.block-hash-index"), "rb") as file:
            index = file.read()
        blocks.append([index[at:at + 32] for at in range(0, len(index), 32)])
    had, zeros = set(blocks[0]), hashlib.sha256(bytes(4096)).digest()
    missing = [at for at, block in enumerate(blocks[1]) if block not in had and block != zeros]
    return len({blocks[1][at] for at in missing}), len({at // PIECE for at in missing}), len(blocks[1])


def an_update_of_one_package_changes_few_blocks(bench):
    noise = "".join(chr(33 + byte % 90) for byte in os.urandom(6 << 20))
    base = make_base(bench, extra=[("usr/lib/large", noise)], size=32)
    bench.expect(bundle(bench, base, out="old.raucb"), 0)
    bench.package = bench.make_package("arm64", 2)
    bench.expect(bundle(bench, base, version="1.4.1", out="new.raucb"), 0)
    changed, pieces, count = changed_blocks(bench, "old.raucb", "new.raucb")
    print(f"    a package of {os.path.getsize(bench.package) >> 10} KiB changes {changed} of {count} blocks of 4 KiB, in {pieces} "
          "of 128 KiB; "
          f"the bundle has {os.path.getsize(bench.path('new.raucb')) >> 10} KiB")
    assert 0 < changed < 100, changed


CASES = [a_bundle_is_signed_and_has_the_packages, the_root_of_an_image_without_a_table_will_do, settings_may_come_from_add,
         what_was_deleted_is_not_in_it, no_board_is_in_it, a_root_of_one_slot_is_warned_of, the_signing_key_stays_here,
         a_signer_whom_boards_would_not_trust_is_refused, bad_orders_are_refused, damage_is_noticed,
         an_interruption_leaves_nothing, an_update_of_one_package_changes_few_blocks]

if __name__ == "__main__":
    missing = [tool for tool in ("rauc", "mksquashfs", "openssl") if not shutil.which(tool)]
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    flash_bench.run(sys.argv[1], CASES)
