"""cairn-flash write and verify against cards: loop devices whose old bytes are 0xA5.

usage: cards.py BIN

Cards need root; without it, or without a tool, a case says so and is left out.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import flash_bench
from flash_bench import ROOT_AT, flip

OLD = b"\xa5"
TAIL = 1 << 20  # of the card, cleared


class Card:
    """A loop device of a size in MiB that was used before: every byte is OLD."""

    def __init__(self, file, size):
        self.file = file
        with open(file, "wb", buffering=0) as backing:
            with contextlib.suppress(OSError):  # the card that fails lies on a full disk
                for _ in range(size):
                    backing.write(OLD * (1 << 20))
            backing.truncate(size << 20)

    @classmethod
    def above(cls, device):
        card = cls.__new__(cls)
        card.file = device
        return card

    def __enter__(self):
        result = subprocess.run(["losetup", "--show", "-f", self.file], capture_output=True, text=True)
        self.device = result.stdout.strip() if result.returncode == 0 else None
        return self.device

    def __exit__(self, *_):
        if self.device:
            subprocess.run(["losetup", "-d", self.device])


@contextlib.contextmanager
def mounted(device, point, *options):
    os.makedirs(point, exist_ok=True)
    subprocess.run(["mount", *options, device, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def free_blocks(image):
    """Extents that the root of an image has not allocated, as dumpe2fs lists them."""
    said = subprocess.run(["dumpe2fs", f"{image}?offset={ROOT_AT}"], check=True, capture_output=True, text=True).stdout
    size = int(re.search(r"^Block size: +(\d+)", said, re.M)[1])
    for line in re.findall(r"^  Free blocks: (.+)$", said, re.M):
        for run in line.split(", "):
            first, last = (run.split("-") + [run])[:2]
            yield ROOT_AT + int(first) * size, ROOT_AT + (int(last) + 1) * size


def make_base(bench):
    """A vendor's image with zeros inside of its files and tables: ext4, and a FAT partition."""
    image, size = bench.path("vendor.img"), 32
    content = bench.make_root(size=size)
    with open(image, "wb") as file:
        file.seek(ROOT_AT)
        file.write(content)
        file.seek(ROOT_AT + len(content))
        file.write(bench.make_fat())
        file.truncate(ROOT_AT + len(content) + (18 << 20))
    bench.write_table("vendor.img", f"label: gpt\nstart=1MiB, size={size}MiB, name=APP\n"
                                    f"start={1 + size}MiB, size=16MiB, name=esp\n")
    files = {"zeros.bin": bytes(6 << 20), "mixed.bin": os.urandom(1 << 20) + bytes(4 << 20) + os.urandom(1 << 20)}
    # The kernel allocates blocks for zeros, as a vendor's tools do; mke2fs and debugfs leave holes.
    with mounted(image, bench.path("filling"), "-o", f"loop,offset={ROOT_AT},sizelimit={size << 20}") as point:
        for name, data in files.items():
            with open(os.path.join(point, name), "wb") as file:
                file.write(data)
    return image, files


def what_a_used_card_held_is_in_no_file_and_no_table(bench):
    plain = bench.path("used-card")
    with Card(plain, 64) as device:
        if not device:
            return print("left out: cards need root and loop devices")
        base, files = make_base(bench)
        bench.expect(bench.image("used", base=base), 0)
        bench.expect(bench.run("write", "used.img", device, "--yes", "--fixed"), 0, "is ready for used")
        bench.expect(bench.run("verify", "used.img", device), 0)
        image, card = read(bench.path("used.img")), read(device)
        free = list(free_blocks(bench.path("used.img")))
        differ = [at for at in range(0, len(image), 4096) if image[at:at + 4096] != card[at:at + 4096]]
        wrong = [at for at in differ if not any(begin <= at and at + 4096 <= end for begin, end in free)]
        assert not wrong, f"{len(wrong)} blocks are not the image's, the first at {wrong[0]}"
        assert differ, "all that is free was written, too: large images would take hours"
        assert not card[len(card) - TAIL:].strip(b"\0"), "an old table may be at the card's end"
        root, fat = f"{device}?offset={ROOT_AT}", f"{device}@@{ROOT_AT + (32 << 20)}"
        for name, data in files.items():
            kept = subprocess.run(["debugfs", "-R", f"cat {name}", root], capture_output=True).stdout
            assert kept == data, f"{name} is not what the vendor wrote"
        assert subprocess.run(["e2fsck", "-fn", root], capture_output=True).returncode == 0
        assert subprocess.run(["mtype", "-i", fat, "::/cmdline.txt"], capture_output=True).stdout == b"as it was\n"
        both_fats_are_equal(card[ROOT_AT + (32 << 20):])
        old_bytes_in_place_of_zeros_are_found(bench, device, files)


def both_fats_are_equal(part):
    """Microsoft's fatgen103, 3.1: the second FAT repeats the first."""
    sector, reserved, count, size = (int.from_bytes(part[at:at + length], "little")
                                     for at, length in ((11, 2), (14, 2), (16, 1), (22, 2)))
    first = part[reserved * sector:(reserved + size) * sector]
    assert count == 2 and first == part[(reserved + size) * sector:(reserved + 2 * size) * sector]
    assert not first[64:].strip(b"\0"), "old bytes lie in the FAT"


def old_bytes_in_place_of_zeros_are_found(bench, device, files):
    with open(bench.path("used.img.json")) as file:
        manifest = json.load(file)
    said = subprocess.run(["debugfs", "-R", "bmap zeros.bin 100", f"{device}?offset={ROOT_AT}"], capture_output=True,
                          text=True).stdout
    zero = ROOT_AT + int(said) * (1024 if manifest["size"] < 512 << 20 else 4096)
    assert not any(at <= zero < at + size for at, size, _ in manifest["ranges"]), "the test hits data"
    flip(device, zero)
    bench.expect(bench.run("verify", "used.img", device), 5, "are not zero")
    flip(device, zero)
    bench.expect(bench.run("verify", "used.img", device), 0)
    begin, size = manifest["unused"][0]
    flip(device, begin + size // 2)
    bench.expect(bench.run("verify", "used.img", device), 0)
    manifest.pop("unused")  # what the format before had not: all zeros are written and read then
    with open(bench.path("used.img.json"), "w") as file:
        json.dump({**manifest, "format": "cairn-flash-image/1"}, file)
    bench.expect(bench.run("verify", "used.img", device), 5, "are not zero")
    bench.expect(bench.run("write", "used.img", device, "--yes", "--fixed"), 0)
    image = read(bench.path("used.img"))
    assert read(device)[:len(image)] == image


def wrong_lists_of_what_is_unused_are_refused(bench):
    with open(bench.path("node-1.img.json")) as file:
        manifest = json.load(file)
    offset, size, _ = manifest["ranges"][0]
    try:
        for unused in ([[offset, 4096]], [[manifest["size"], 4096]], [[0, 0]], [[-4096, 4096]], None, [7],
                       [[manifest["size"] - 4096, 4096], [manifest["size"] - 8192, 4096]]):
            with open(bench.path("node-1.img.json"), "w") as file:
                json.dump({**manifest, "unused": unused}, file)
            bench.expect(bench.run("verify", "node-1.img"), 5, "not a manifest")
    finally:
        with open(bench.path("node-1.img.json"), "w") as file:
            json.dump(manifest, file)


def cards_are_written_and_read_back(bench):
    bench.expect(bench.image(), 0)
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
            assert not file.read().strip(OLD), "something was written"
        with open(plain, "r+b") as file:
            file.seek(-512, 2)
            file.write(b"EFI PART of another time")
        bench.expect(bench.run("write", image, device, "--yes", "--fixed", "--json"), 0, '"done"')
        bench.expect(bench.run("verify", image, device), 0)
        with open(plain, "rb") as file:
            content = file.read()
        assert b"another time" not in content
        flip(device, ROOT_AT + 70000)
        bench.expect(bench.run("verify", image, device), 5)
        flip(bench.path(image), ROOT_AT + 70000)
        bench.expect(bench.run("write", image, device, "--yes", "--fixed"), 5, "nothing was written")
        flip(bench.path(image), ROOT_AT + 70000)


# The second write of data stops until a signal ends the program or goes on after it.
SLOW_CARD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    static int count;
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    if (++count == 2) {
        close(open(getenv("CARD_MARK"), O_CREAT | O_WRONLY, 0600));
        sleep(120);
    }
    return real(file, data, size, offset);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) { return pwrite(file, data, size, offset); }
"""


def an_interrupted_card_is_said_to_be_incomplete(bench):
    if "asan" in bench.build or not shutil.which("gcc"):
        return print("left out: a slow card needs gcc and no sanitizer")
    library, mark = bench.path("slow.so"), bench.path("mark")
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SLOW_CARD, text=True, check=True)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
        with Card(bench.path("slow-card"), 24) as device:
            if not device:
                return
            process = subprocess.Popen(
                [os.path.join(bench.build, "cairn-flash"), "write", "node-1.img", device, "--yes", "--fixed"],
                cwd=bench.folder, env={**os.environ, "LD_PRELOAD": library, "CARD_MARK": mark},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(1200):
                if os.path.exists(mark) or process.poll() is not None:
                    break
                time.sleep(0.1)
            process.send_signal(number)
            bench.said = process.stdout.read()
            if number == signal.SIGKILL:
                assert process.wait() == -signal.SIGKILL
            else:
                bench.expect(process.wait(), 130, "the card is incomplete and will not boot")
            assert not read(device)[:4096].strip(b"\0"), "a card that was written in part has a table"
            bench.expect(bench.run("verify", "node-1.img", device), 5)
            os.unlink(mark)


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
        with mounted(device, point):
            bench.expect(bench.run("write", "node-1.img", device, "--yes", "--fixed"), 4, f"{point} is mounted")
        with Card.above(device) as above:
            bench.expect(bench.run("write", "node-1.img", device, "--yes", "--fixed"), 4,
                         f"{os.path.basename(above)} is made of")
            bench.expect(bench.run("write", "node-1.img", device, "--fixed", "--dry-run"), 4)
        if shutil.which("unshare"):
            keeper = subprocess.Popen(["unshare", "-m", "sh", "-c", f"mount {device} {point} && echo && read _"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert keeper.stdout.readline()  # mounted, where only the keeper sees it
            bench.expect(bench.run("write", "node-1.img", device, "--fixed", "--dry-run"), 4, "nothing was written")
            keeper.communicate(b"\n")


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


def the_manifest_is_not_written_through_a_link(bench):
    victim = bench.write("victim", "mine\n")
    os.symlink(victim, bench.path("linked.img.json"))
    bench.expect(bench.image("linked"), 1, "linked.img.json: File exists")
    assert read(victim) == b"mine\n" and bench.enrolled("linked") is None
    assert not os.path.exists(bench.path("linked.img"))


CASES = [
    what_a_used_card_held_is_in_no_file_and_no_table,
    the_manifest_is_not_written_through_a_link,
    cards_are_written_and_read_back,
    wrong_lists_of_what_is_unused_are_refused,
    an_interrupted_card_is_said_to_be_incomplete,
    unsafe_cards_are_refused,
    a_card_that_fails_is_said_to_be_incomplete,
]

if __name__ == "__main__":
    flash_bench.run(sys.argv[1], CASES)
