"""The boot chain of the emulated board: U-Boot runs boot.cmd on an image with two slots, and cairn-boot changes its
environment with the real fw_setenv. No slot has a kernel that starts, so each boot is a try that fails.

usage: chain.py
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from doubles import SOURCE, Board, start

RECIPE = os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", "ab")
FIRMWARE = "/usr/lib/u-boot/qemu_arm64/u-boot.bin"
QEMU = ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a57", "-m", "512", "-nographic", "-nodefaults", "-serial", "stdio",
        "-bios", FIRMWARE]
TOOLS = ["qemu-system-aarch64", "mkimage", "mkenvimage", "fw_setenv", "mkfs.vfat", "mcopy", "mke2fs", "sfdisk", "debugfs"]
SECONDS = 240  # for all boots; each takes some seconds


def make_image(folder):
    tree, root, image = (os.path.join(folder, name) for name in ("tree", "root.ext4", "ab.img"))
    os.makedirs(os.path.join(tree, "boot"))
    with open(os.path.join(tree, "boot", "vmlinuz"), "wb") as file:
        file.write(b"no kernel" * 1000)
    subprocess.run(["truncate", "-s", "8M", root], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, root], check=True)
    subprocess.run([RECIPE, root, image, "8"], check=True)
    return image


def environment_at(image):
    for line in subprocess.run(["sfdisk", "-d", image], capture_output=True, text=True, check=True).stdout.splitlines():
        if 'name="boot-env"' in line:
            return int(re.search(r"start= *(\d+)", line).group(1)) * 512
    raise AssertionError("the image has no partition boot-env")


def boots(image, count, folder):
    """The slots that U-Boot starts, one boot after the other, and what it says beside."""
    log = os.path.join(folder, "console")
    disk = ["-drive", f"file={image},if=none,id=disk,format=raw", "-device", "nvme,drive=disk,serial=cairn"]
    deadline = time.monotonic() + SECONDS
    with open(log, "wb") as out:
        board = subprocess.Popen([*QEMU, *disk], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            while True:
                with open(log, errors="replace") as file:
                    said = re.findall(r"cairn: (.*?)\r?\n", file.read())
                if sum("cannot be started" in line for line in said) >= count:
                    return said, [line[5] for line in said if re.match("slot [AB],", line)][:count]
                assert board.poll() is None and time.monotonic() < deadline, f"no {count} boots: {said}"
                time.sleep(0.1)
        finally:
            board.kill()
            board.wait()


def main(folder):
    image = make_image(folder)
    board = Board(os.path.join(folder, "board"), "uboot")
    for name in ("fw_printenv", "fw_setenv"):
        os.remove(board.path("bin", name))
    board.write("etc/fw_env.config", f"{image} 0x{environment_at(image):x} 0x200\n")
    start(board, "A")
    assert board.boot("get-primary") == "A" and board.boot("get-state", "B") == "bad", "a new board has slot A only"

    board.boot("set-primary", "B")  # as after an installation
    _, slots = boots(image, 4, folder)
    assert slots == ["B", "B", "B", "A"], f"three tries of B, then A again: {slots}"
    print("tries of an update that does not start:", *slots)
    assert board.boot("get-primary") == "A" and board.boot("get-state", "B") == "bad"

    with open(image, "r+b") as disk:  # a sector that reads as garbage
        disk.seek(environment_at(image))
        disk.write(b"\x5a" * 512)
    said, slots = boots(image, 1, folder)
    assert slots == ["A"] and "the environment is damaged and begins again" in said, said
    assert board.boot("get-primary") == "A", "U-Boot has written it again"


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if not shutil.which(tool)] + [FIRMWARE] * (not os.path.exists(FIRMWARE))
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    work = tempfile.mkdtemp(prefix="cairn-chain-")
    try:
        main(work)
    finally:
        shutil.rmtree(work)
