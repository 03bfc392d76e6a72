"""cairn-flash is ended by SIGKILL, SIGTERM or SIGHUP at random moments, then run again: nothing but the whole result is
there under its name, no key stays anywhere, and no person has to help.

usage: killed.py BIN [MOMENTS [SEED]]

Cards need root, bundles need RAUC; without it a case says so and is left out.
"""

import fcntl
import glob
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(os.path.dirname(HERE), "update")]

import bundle  # noqa: E402
import flash_bench  # noqa: E402
from cards import OLD, Card, free_blocks, read  # noqa: E402
from flash_bench import ROOT_AT  # noqa: E402
from many import Shelf, expect_card_of, remove  # noqa: E402

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
moments = 8
chance = random.Random()


class Killer:
    """Runs cairn-flash, undisturbed once and then with a signal at random moments of that time."""

    def __init__(self, bench, *arguments, code=0):
        self.bench, self.arguments, self.what = bench, arguments, "undisturbed\n"
        begun = time.monotonic()
        self.bench.expect(self.run(), code)
        self.took = time.monotonic() - begun

    def run(self):
        return self.bench.run(*self.arguments)

    def disturbed(self, prepare):
        """Yields (signal, exit code) of disturbed runs, each prepared; the code is negative if the signal ended it."""
        codes, number = set(), 0
        while number < moments or (not codes - {0} and number < 5 * moments):  # other runs may have slowed down the first
            sent, delay = SIGNALS[number % len(SIGNALS)], self.took * chance.uniform(0.02, 0.98)
            prepare()
            # Only the program itself gets the signal: what it started must not go on.
            begun = time.monotonic()
            code = self.bench.run(*self.arguments, signals=((delay, sent),))
            if code == 0:
                self.took = min(self.took, time.monotonic() - begun)
            number += 1
            self.what = f"{sent.name} after {delay:.3f} s of {self.took:.3f} s: {code}\n{self.bench.said}"
            assert code in (0, -sent) or (code == 130 and sent != signal.SIGKILL), self.what
            codes.add(code)
            yield sent, code
        assert codes - {0}, "no signal fell into a run"

    def again(self, *words, code=0):
        got = self.run()
        self.bench.said = f"{self.what}\nagain:\n{self.bench.said}"
        self.bench.expect(got, code, *words)


def left(bench, out):
    return sorted(os.path.basename(path) for path in glob.glob(bench.path(out + "*")))


def enrolled_key(bench, name):
    """The key that the gateway has for a board that is enrolled."""
    with sqlite3.connect(bench.path("state/gateway/ledger.sqlite")) as ledger:
        row = ledger.execute("SELECT secret FROM board WHERE name=? AND revoked=0", (name,)).fetchone()
    return row and row[0].hex()


def content(image, offset=ROOT_AT):
    """What is in a root: each path with mode, owner and bytes."""
    folder = tempfile.mkdtemp()
    try:
        subprocess.run(["debugfs", "-R", f"rdump / {folder}", f"{image}?offset={offset}"], check=True, capture_output=True)
        found = {}
        for place, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(place, name)
                info = os.lstat(path)
                what = os.readlink(path) if os.path.islink(path) else read(path) if os.path.isfile(path) else None
                found[os.path.relpath(path, folder)] = (info.st_mode, info.st_uid, info.st_gid, what)
        return found
    finally:
        shutil.rmtree(folder)


def expect_same(found, wanted, what):
    assert found.keys() == wanted.keys(), f"{what}: {sorted(found.keys() ^ wanted.keys())}"
    differ = [path for path in wanted if found[path] != wanted[path]]
    assert not differ, f"{what}: {differ}"


def the_first_board_of_a_gateway_is_noted(bench):
    """Its gateway has no ledger before, so it has no status either."""
    assert bench.enrolled("k-0") is None and not os.path.exists(bench.path("state/gateway/ledger.sqlite"))
    tools = tempfile.mkdtemp(dir=bench.folder)
    bench.make_tool(tools, "debugfs", '[ "$1" != -w ] || { kill -KILL $PPID; exit 1; }')
    assert bench.image("k-0", tools=tools) == -signal.SIGKILL and bench.enrolled("k-0") == "enrolled"
    bench.expect(bench.image("k-0"), 0, "the enrolment of k-0 is taken back")


def an_image_is_there_whole_or_not_at_all(bench):
    name, image = "k-1", bench.path("k-1.img")
    killer = Killer(bench, "image", "--base", bench.base, *bench.order(name), "-o", "k-1.img")
    whole, key = content(image), "etc/cairn/node.key"
    secret = whole.pop(key)
    for sent, code in killer.disturbed(lambda: forget(bench, name)):
        if sent != signal.SIGKILL and code:
            assert not left(bench, "k-1.img") and bench.enrolled(name) != "enrolled", killer.what
            assert not bench.left_in_memory(), killer.what
        if os.path.exists(image):  # it was killed when all was done
            killer.again("File exists", code=1)
        else:
            killer.again("k-1.img is ready")
        assert left(bench, "k-1.img") == ["k-1.img", "k-1.img.json"], bench.said
        assert not bench.left_in_memory(), killer.what
        bench.expect(bench.run("verify", "k-1.img"), 0)
        found = content(image)
        mode, user, group, text = found.pop(key)
        expect_same(found, whole, bench.said)
        assert (mode, user, group) == secret[:3] and text != secret[3]
        assert text.decode().split()[1:3] == [name, enrolled_key(bench, name)], "the key of another enrolment"


def forget(bench, *names):
    for name in names:
        for path in glob.glob(bench.path(f"{name}.img*")):
            os.unlink(path)
        if bench.enrolled(name) == "enrolled":
            bench.revoke(name)


def wear(device):
    """The card has been used before: it is full of old bytes."""
    with open(device, "r+b", buffering=0) as card:
        size = card.seek(0, os.SEEK_END)
        card.seek(0)
        for at in range(0, size, 1 << 20):
            card.write(OLD * min(1 << 20, size - at))


def has_no_table(device):
    return not read(device)[:4096].strip(b"\0") or not read(device)[:4096].strip(OLD)


def a_card_boots_when_it_is_whole_only(bench):
    with Card(bench.path("killed.card"), 24) as device:
        if not device:
            return print("left out: cards need root and loop devices")
        bench.expect(bench.image("k-2"), 0)
        image = read(bench.path("k-2.img"))
        free = list(free_blocks(bench.path("k-2.img")))
        killer = Killer(bench, "write", "k-2.img", device, "--yes", "--fixed")
        for sent, code in killer.disturbed(lambda: wear(device)):
            assert has_no_table(device) or bench.run("verify", "k-2.img", device) == 0, killer.what
            killer.again("is ready for k-2")
            bench.expect(bench.run("verify", "k-2.img", device), 0)
            card = read(device)
            wrong = [at for at in range(0, len(image), 4096) if image[at:at + 4096] != card[at:at + 4096]
                     and not any(begin <= at and at + 4096 <= end for begin, end in free)]
            assert not wrong, f"{killer.what}: {len(wrong)} blocks differ, the first at {wrong[0]}"
            assert not bench.left_in_memory(), killer.what


def many_cards_are_taken_up_again(bench):
    names, key = ["k-3", "k-4"], "etc/cairn/node.key"
    with Shelf(bench, names) as shelf:
        if not shelf:
            return
        killer = Killer(bench, "cards", "list.txt", "--base", bench.base, "--site", "site.yaml", "--deb", bench.package,
                        "--gateway", "gateway.yaml", "-o", "hall.img", "--fixed", "--yes")
        whole = {name: content(shelf.devices[name]) for name in names}
        for files in whole.values():
            files.pop(key)

        def prepare():
            remove(bench, "hall.img")
            forget(bench, *names)
            for device in shelf.devices.values():
                wear(device)

        for sent, code in killer.disturbed(prepare):
            for name, device in shelf.devices.items():
                assert has_no_table(device) or expect_card_of(bench, device, name), killer.what
                if sent != signal.SIGKILL and has_no_table(device):
                    assert bench.enrolled(name) != "enrolled", killer.what
            for name in names:  # a person does this, as boards/flash/README.md says
                if last_state(bench, name) == "table":
                    bench.revoke(name)
            killer.again("2 of 2 cards are written")
            assert left(bench, "hall.img") == ["hall.img", "hall.img.cards", "hall.img.json"], bench.said
            assert not bench.left_in_memory(), killer.what
            for name, device in shelf.devices.items():
                assert expect_card_of(bench, device, name).split()[2] == enrolled_key(bench, name), bench.said
                found = content(device)
                found.pop(key)
                expect_same(found, whole[name], killer.what)
        remove(bench, "hall.img")


def last_state(bench, name):
    """What the file of progress says of a board in its last whole line."""
    path = bench.path("hall.img.cards")
    lines = read(path).decode().split("\n")[:-1] if os.path.exists(path) else []
    return ([line.split()[0] for line in lines if line.split()[1] == name] or [None])[-1]


def a_bundle_is_there_whole_or_not_at_all(bench):
    if not shutil.which("rauc") or not shutil.which("mksquashfs"):
        return print("left out: bundles need rauc and squashfs-tools")
    base = bundle.make_base(bench)
    killer = Killer(bench, "bundle", "--base", base, "--deb", bench.package, "--version", "1.4.0", "--cert", "plant.pem",
                    "--key", "plant.key", "-o", "killed.raucb")

    def extract():
        code, said = bundle.extract(bench, "killed.raucb", "out")
        assert code == 0, f"{killer.what}{said}"
        shutil.move(bench.path("out", "rootfs.ext4"), bench.path("slot.ext4"))
        return content(bench.path("slot.ext4"), 0)

    whole = extract()
    for sent, code in killer.disturbed(lambda: os.unlink(bench.path("killed.raucb"))):
        if sent != signal.SIGKILL and code:
            assert not left(bench, "killed.raucb"), killer.what
        if os.path.exists(bench.path("killed.raucb")):
            killer.again("File exists", code=1)
        else:
            killer.again("killed.raucb is ready")
        assert left(bench, "killed.raucb") == ["killed.raucb"], bench.said
        assert not bench.left_in_memory(), killer.what
        expect_same(extract(), whole, killer.what)


def a_root_folder_is_written_again(bench):
    """Here a person revokes the board, as boards/flash/README.md says."""
    name, root = "k-10", bench.path("root-k")

    def prepare():
        forget(bench, name)
        shutil.rmtree(root, ignore_errors=True)
        bench.write_tree(root, [("var/lib/dpkg/status", flash_bench.STATUS.format(arch="arm64", libc="2.35"))])

    prepare()
    killer = Killer(bench, "rootfs", root, "--replace", *bench.order(name))
    whole = listing(root)
    for sent, code in killer.disturbed(prepare):
        if sent != signal.SIGKILL and code:
            assert bench.enrolled(name) != "enrolled" and not bench.left_in_memory(), killer.what
            assert not [path for path in listing(root) if path.endswith(".new")], killer.what
        forget(bench, name)
        killer.again("is ready")
        assert listing(root) == whole and not bench.left_in_memory(), killer.what
        assert read(os.path.join(root, "etc/cairn/node.key")).split()[2].decode() == enrolled_key(bench, name)


def listing(folder):
    return sorted(os.path.join(place, name) for place, _, files in os.walk(folder) for name in files)


def only_one_works_in_a_draft(bench):
    """And what is no draft of this user stays."""
    tools = tempfile.mkdtemp(dir=bench.folder)
    bench.make_tool(tools, "e2fsck", "touch started; while [ ! -e go-on ]; do sleep 0.1; done")
    order = ["image", "--base", bench.base, *bench.order("k-5"), "-o", "k-5.img"]
    first = subprocess.Popen([os.path.join(bench.build, "cairn-flash"), *order], cwd=bench.folder,
                             env={**os.environ, "PATH": f"{tools}:{bench.build}:{os.environ['PATH']}"},
                             stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(bench.path("started")):
            assert first.poll() is None, "it ended before it was held up"
            time.sleep(0.05)
        bench.expect(bench.run(*order), 1, "another cairn-flash works in it")
        bench.write("go-on", "")
        assert first.wait(60) == 0
    finally:
        bench.write("go-on", "")  # for its tool, too
        first.kill()
        first.wait()
    bench.expect(bench.run("verify", "k-5.img"), 0)
    os.symlink(bench.path("state"), bench.path("k-6.img.part"))
    bench.expect(bench.image("k-6"), 1, "k-6.img.part")
    assert os.listdir(bench.path("state")) and bench.enrolled("k-6") is None
    os.unlink(bench.path("k-6.img.part"))
    os.mkdir(bench.path("k-6.img.part"), 0o700)
    bench.write("k-6.img.part/enrolment", "mine\n")
    bench.expect(bench.image("k-6"), 1, "k-6.img.part: it is no folder of cairn-flash")
    assert os.listdir(bench.path("k-6.img.part")) == ["enrolment"] and bench.enrolled("k-6") is None
    os.unlink(bench.path("k-6.img.part/enrolment"))
    os.chmod(bench.path("k-6.img.part"), 0o777)
    bench.expect(bench.image("k-6"), 1, "k-6.img.part: others own it or can write to it")
    os.chmod(bench.path("k-6.img.part"), 0o700)  # a program was killed before it had marked the folder
    bench.expect(bench.image("k-6"), 0)
    assert left(bench, "k-6.img") == ["k-6.img", "k-6.img.json"]


def fill(pipe):
    """Takes all room of a pipe: who writes to it waits. The pipe is opened again, so that only we never wait."""
    end = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(end, b".")
    except BlockingIOError:
        os.close(end)


def kill_after_its_name(bench, name):
    """Kills cairn-flash when the image has its name and its draft is not removed: it waits to say that it is done."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    said = b""
    process = bench.begin("image", "--base", bench.base, *bench.order(name), "-o", f"{name}.img", stdout=writer)
    try:
        while b"read back and compared" not in said:
            assert process.poll() is None, said
            if select.select([reader], [], [], 0.1)[0]:
                said += os.read(reader, 4096)
        fill(writer)
        while not os.path.exists(bench.path(f"{name}.img")) and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)
    assert left(bench, f"{name}.img") == [f"{name}.img", f"{name}.img.json", f"{name}.img.part"], left(bench, f"{name}.img")


def the_board_of_an_image_that_is_whole_stays_enrolled(bench):
    kill_after_its_name(bench, "k-11")
    for ending in (".img", ".img.json"):
        os.rename(bench.path("k-11" + ending), bench.path("moved" + ending))
    bench.expect(bench.image("k-12", out=bench.path("k-11.img")), 0, "what a killed cairn-flash left")
    assert bench.enrolled("k-11") == "enrolled", "the board of a whole image is revoked"
    bench.expect(bench.run("verify", "moved.img"), 0)
    assert left(bench, "k-11.img") == ["k-11.img", "k-11.img.json"]
    kill_after_its_name(bench, "k-13")
    bench.expect(bench.image("k-13", out="k-13.img"), 1, "File exists")
    assert bench.enrolled("k-13") == "enrolled" and left(bench, "k-13.img") == ["k-13.img", "k-13.img.json"]


def an_enrolment_that_is_not_taken_back_stays_noted(bench):
    tools = tempfile.mkdtemp(dir=bench.folder)
    bench.make_tool(tools, "debugfs", '[ "$1" != -w ] || exit 1')
    bench.make_tool(tools, "cairn-aggregator", '[ "$1" != revoke ] || { echo "not now" >&2; exit 1; }')
    bench.expect(bench.image("k-14", out="k-14.img", tools=tools), 1, "revoke it by hand", "a board may be enrolled")
    assert bench.enrolled("k-14") == "enrolled" and left(bench, "k-14.img") == ["k-14.img.part"]
    bench.write("list.txt", "k-15 /dev/null\n")
    bench.expect(bench.run("cards", "list.txt", "--base", bench.base, "--site", "site.yaml", "--deb", bench.package,
                           "--gateway", "gateway.yaml", "-o", "k-14.img", "--yes"), 1, "may have enrolled a board")
    bench.write("k-14.img", "")
    bench.expect(bench.image("k-14", out="k-14.img"), 1, "File exists", "a board may be enrolled")
    os.unlink(bench.path("k-14.img"))
    bench.expect(bench.image("k-14", out="k-14.img"), 0, "the enrolment of k-14 is taken back", "k-14.img is ready")
    assert left(bench, "k-14.img") == ["k-14.img", "k-14.img.json"]


def a_board_that_was_enrolled_by_others_stays_enrolled(bench):
    """A killed run notes a board only if it was not enrolled; one that was heard has its key."""
    tools = tempfile.mkdtemp(dir=bench.folder)
    bench.expect(bench.image("k-7"), 0)
    bench.make_tool(tools, "cairn-aggregator", '[ "$1" != enroll ] || { kill -KILL $PPID; exit 1; }')
    assert bench.image("k-7", out="other.img", tools=tools) == -signal.SIGKILL
    bench.expect(bench.image("k-7", out="other.img"), 1, "enrolled already")
    assert bench.enrolled("k-7") == "enrolled" and not left(bench, "other.img")
    bench.make_tool(tools, "debugfs", '[ "$1" != -w ] || { kill -KILL $PPID; exit 1; }')
    bench.make_tool(tools, "cairn-aggregator", "")
    assert bench.image("k-8", tools=tools) == -signal.SIGKILL and bench.enrolled("k-8") == "enrolled"
    bench.make_tool(tools, "cairn-aggregator", """[ "$1" != status ] || { echo '{"board":"k-8","revoked":false,"silent_s":1}'; exit; }""")
    bench.expect(bench.image("k-8", tools=tools), 1, "enrolled already")
    assert bench.enrolled("k-8") == "enrolled", "the enrolment of a board that works is revoked"
    bench.make_tool(tools, "cairn-aggregator", "")
    assert bench.image("k-9", tools=tools) == -signal.SIGKILL
    bench.make_tool(tools, "cairn-aggregator", '[ "$1" != status ] || { echo "not now" >&2; exit 1; }')
    bench.expect(bench.image("k-16", tools=tools), 1, "not enrolled: the aggregator: not now")
    assert bench.enrolled("k-16") is None and not left(bench, "k-16.img"), "enrolled without a note"
    bench.expect(bench.image("k-9", tools=tools), 1, "not now", "may have enrolled k-9")
    os.mkdir(bench.path("other"))
    bench.write("other/gateway.yaml", "no profile\n")  # the next program starts in another folder
    order = ["--site", bench.path("site.yaml"), "--name", "k-9", "--deb", bench.package, "--gateway",
             bench.path("gateway.yaml"), "-o", bench.path("k-9.img")]
    bench.expect(bench.run("image", "--base", bench.base, *order, cwd=bench.path("other")), 0,
                 "the enrolment of k-9 is taken back", "k-9.img is ready")


CASES = [
    the_first_board_of_a_gateway_is_noted,
    an_image_is_there_whole_or_not_at_all,
    a_card_boots_when_it_is_whole_only,
    many_cards_are_taken_up_again,
    a_bundle_is_there_whole_or_not_at_all,
    a_root_folder_is_written_again,
    only_one_works_in_a_draft,
    the_board_of_an_image_that_is_whole_stays_enrolled,
    an_enrolment_that_is_not_taken_back_stays_noted,
    a_board_that_was_enrolled_by_others_stays_enrolled,
]

if __name__ == "__main__":
    moments = int(sys.argv[2]) if len(sys.argv) > 2 else moments
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chance.seed(seed)
    flash_bench.run(sys.argv[1], CASES)
