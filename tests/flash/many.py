"""cairn-flash cards: the cards of many boards from one base image. Cards are loop devices that were used before.

usage: many.py BIN

Cards need root; without it a case says so and is left out.
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import flash_bench
from cards import OLD, Card, read
from flash_bench import ROOT_AT, debugfs, flip

SIZE = 24  # MiB of a card


class Shelf:
    """Cards of several boards, and the list that names them."""

    def __init__(self, bench, names, sizes=None):
        self.bench, self.names = bench, names
        self.cards = {name: Card(bench.path(f"{name}.card"), (sizes or {}).get(name, SIZE)) for name in names}
        self.devices = {}

    def __enter__(self):
        for name, card in self.cards.items():
            self.devices[name] = card.__enter__()
        self.list("list.txt")
        return self if all(self.devices.values()) else None

    def __exit__(self, *_):
        for card in self.cards.values():
            card.__exit__()
            os.unlink(card.file)

    def list(self, name, group=""):
        self.bench.write(name, "# the boards of a hall\n\n" + "".join(
            f"{board}\t{device} {group}  # a card\n" for board, device in self.devices.items()))


def write(bench, *more, out="common.img", tools=None, base=None, text=None):
    return bench.run("cards", "list.txt", "--base", base or bench.base, "--site", "site.yaml", "--deb", bench.package,
                     "--gateway", "gateway.yaml", "-o", out, "--fixed", *more, tools=tools, text=text)


def remove(bench, out="common.img"):
    for path in glob.glob(bench.path(out) + "*"):
        os.unlink(path)


def expect_card_of(bench, device, name):
    """The card has the packages, and the profile and the key of this board."""
    key = debugfs(device, "cat /etc/cairn/node.key")
    assert key.startswith(f"cairn-key-1 {name} "), key[:40]
    assert f"name: {name}" in debugfs(device, "cat /etc/cairn/node.yaml")
    assert "0600" in debugfs(device, "stat /etc/cairn/node.key")
    assert "firstboot" in debugfs(device, "ls /var/lib/cairn-seed")
    assert subprocess.run(["e2fsck", "-fn", f"{device}?offset={ROOT_AT}"], capture_output=True).returncode == 0
    assert b"EFI PART" in read(device)[512:520], "the card has no partition table"
    assert bench.enrolled(name) == "enrolled"
    return key


def each_card_has_the_identity_of_its_board(bench):
    with Shelf(bench, ["one", "two", "three"]) as shelf:
        if not shelf:
            return print("left out: cards need root and loop devices")
        bench.expect(write(bench, "--yes", "--dry-run"), 0, "3 of 3 cards can be written")
        assert not glob.glob(bench.path("common.img*")) and bench.enrolled("one") is None
        assert not read(shelf.devices["one"]).strip(OLD), "a dry run writes"
        bench.expect(write(bench, "--yes"), 0, "card 2 of 3: two on", "3 of 3 cards are written")
        keys = [expect_card_of(bench, device, name) for name, device in shelf.devices.items()]
        assert len(set(keys)) == 3
        common = read(bench.path("common.img"))
        assert b"cairn-key-1" not in common, "the common image holds a key"
        assert sorted(os.path.basename(path) for path in glob.glob(bench.path("common*"))) == [
            "common.img", "common.img.cards", "common.img.json"], "the image was copied"
        assert not bench.left_in_memory()
        one, two = (read(shelf.devices[name]) for name in ("one", "two"))
        differ = sum(one[at:at + 4096] != two[at:at + 4096] for at in range(0, len(common), 4096))
        assert differ < 40, f"{differ} blocks differ between two cards"
        bench.expect(write(bench, "--yes"), 0, "3 cards were written earlier", "3 of 3")
        assert [expect_card_of(bench, device, name) for name, device in shelf.devices.items()] == keys
    remove(bench)


def a_card_that_fails_does_not_stop_the_others(bench):
    with Shelf(bench, ["small", "good", "used"], sizes={"small": 8}) as shelf:
        if not shelf:
            return
        with Card.above(shelf.devices["used"]):
            bench.expect(write(bench, "--yes"), 4, "1 of 3 cards are written",
                         f"small on {shelf.devices['small']} is not written: exit code 4",
                         f"used on {shelf.devices['used']} is not written: exit code 4")
        expect_card_of(bench, shelf.devices["good"], "good")
        assert bench.enrolled("small") is None and bench.enrolled("used") is None
        assert not read(shelf.devices["small"]).strip(OLD)
        bench.expect(write(bench, "--yes"), 4, "1 cards were written earlier", "2 of 3 cards are written")
        expect_card_of(bench, shelf.devices["used"], "used")
        # Another debugfs writes nothing to a card: what is read back differs, and the board has no key.
        with Card(bench.path("late.card"), SIZE) as device:
            bench.write("list.txt", f"late {device} hall\n")
            bench.expect(write(bench, "--yes", tools=bench.broken_tools()), 5, "taken back", "0 of 1",
                         f"late on {device} is not written: exit code 5")
            assert bench.enrolled("late") == "revoked"
            assert not read(device)[:4096].strip(b"\0"), "a card without a key has a partition table"
            bench.expect(write(bench, "--yes"), 0, "late is enrolled in group hall")
            expect_card_of(bench, device, "late")
    remove(bench)


def what_a_killed_run_left_is_taken_back_and_written_again(bench):
    with Shelf(bench, ["first", "second"]) as shelf:
        if not shelf:
            return
        tools, device = tempfile.mkdtemp(dir=bench.folder), shelf.devices["second"]
        bench.make_tool(tools, "debugfs", f'case "$*" in -w*{device}*) kill -KILL $PPID; exit 1 ;; esac')
        assert write(bench, "--yes", tools=tools) == -signal.SIGKILL
        assert bench.enrolled("second") == "enrolled" and not read(device)[:4096].strip(b"\0")
        bench.write("common.img.cards", read(bench.path("common.img.cards")).decode() + "writ")  # cut off
        bench.expect(write(bench, "--yes"), 0, "1 cards were written earlier", "the enrolment of second is taken back",
                     "second is enrolled", "2 of 2 cards are written")
        expect_card_of(bench, device, "second")
        assert not bench.left_in_memory(), "a key of a killed program stays"
    remove(bench)


def a_card_that_may_be_complete_is_not_revoked(bench):
    """The run was killed when it had written the table; a gateway that restarts forgets whom it heard."""
    with Shelf(bench, ["works"]) as shelf:
        if not shelf:
            return
        device, tools = shelf.devices["works"], tempfile.mkdtemp(dir=bench.folder)
        bench.expect(write(bench, "--yes"), 0)
        key, lines = expect_card_of(bench, device, "works"), read(bench.path("common.img.cards")).decode().splitlines(True)
        assert lines[-2].startswith("table works") and lines[-1].startswith("written works"), lines
        bench.write("common.img.cards", "".join(lines[:-1]))
        bench.expect(write(bench, "--yes"), 1, "may have completed the card of works", "works on", "is not written")
        assert expect_card_of(bench, device, "works") == key, "the card of a board that may work is written again"
        bench.make_tool(tools, "cairn-aggregator", """[ "$1" != status ] || { echo '{"board":"works","silent_s":1}'; exit; }""")
        bench.expect(write(bench, "--yes", tools=tools), 0, "works was heard: its card was written", "1 of 1")
        bench.write("common.img.cards", "".join(lines[:-1]))
        bench.revoke("works")
        bench.expect(write(bench, "--yes"), 0, "1 of 1 cards are written")
        assert expect_card_of(bench, device, "works") != key
    remove(bench)


def an_image_of_another_order_is_not_used(bench):
    with Shelf(bench, ["alone"]) as shelf:
        if not shelf:
            return
        bench.expect(write(bench, "--yes"), 0)
        extra = bench.write("extra", "text\n")
        bench.expect(write(bench, "--yes", "--add", f"{extra}:/data/extra"), 1, "another base image or other packages")
        flip(bench.path("common.img"), ROOT_AT + 70000)
        bench.write("list.txt", f"other {shelf.devices['alone']}\n")
        bench.expect(write(bench, "--yes"), 5, "are not those of the manifest")
        assert bench.enrolled("other") is None
        expect_card_of(bench, shelf.devices["alone"], "alone")
        remove(bench)
        bench.expect(write(bench, "--yes", base=bench.make_base("flat.img", partitioned=False)), 1, "no partition table")
        assert not glob.glob(bench.path("common.img*"))


def files_of_others_are_not_believed(bench):
    """In /tmp, anybody may make files that have the names of the common image and of its progress."""
    with Shelf(bench, ["here"]) as shelf:
        if not shelf:
            return
        bench.expect(write(bench, "--yes"), 0)
        text = read(bench.path("common.img.cards")).decode() + "writ"
        bench.write("common.img.cards", text)
        bench.write("list.txt", f"there {shelf.devices['here']}\n")
        bench.expect(write(bench, "--yes", "--dry-run"), 0, "1 of 1 cards can be written")
        assert read(bench.path("common.img.cards")).decode() == text, "a dry run writes"
        for ending in ("", ".cards"):
            os.chown(bench.path("common.img" + ending), 65534, 65534)
            bench.expect(write(bench, "--yes"), 1, f"common.img{ending}", "not a file of this user")
            os.chown(bench.path("common.img" + ending), 0, 0)
        bench.expect(bench.image("single", out="single.img"), 0)
        for ending in ("", ".json"):
            os.rename(bench.path("single.img" + ending), bench.path("common.img" + ending))
        bench.expect(write(bench, "--yes"), 1, "common.img is the image of the board single")
        assert bench.enrolled("there") is None
    remove(bench)


def wrong_lists_are_refused(bench):
    for text, words in (("", "no board is in it"), ("Bad /dev/x\n", "list.txt:1: a name has"),
                        ("# a\na /dev/x\na /dev/y\n", "list.txt:3: a is in line 2, too"),
                        ("a\n", "the place is missing"), ("a /dev/x g more\n", "too many fields"),
                        ("a -x\n", "the place is"), ("a /dev/x G\n", "a group's name"),
                        ("a\0b /dev/x\n", "a name has")):
        bench.write("list.txt", text)
        bench.expect(write(bench, "--yes"), 2, words)
    bench.write("list.txt", "a /dev/null\nb /dev/null\n")
    bench.expect(write(bench, "--yes"), 2, "line 2: /dev/null is the device of another board, too")
    bench.write("list.txt", "a /dev/null\n")
    bench.expect(write(bench, "--yes", "--dry-run"), 4, "no block device", "a on /dev/null is not written: exit code 4")
    bench.expect(write(bench, "--name", "x"), 2, "--name and --key are for one board")
    bench.expect(bench.image("x", more=["--yes"]), 2, "--yes and --fixed are not for this")
    bench.write("wrong.yaml", flash_bench.SITE.format(source=flash_bench.SOURCE) + "powr: 3\n")
    bench.expect(write(bench, "--yes", "--site", "wrong.yaml"), 3, "did you mean 'power'")
    assert bench.enrolled("a") is None and not glob.glob(bench.path("common.img*"))


def one_card_by_two_names_is_noticed(bench):
    with Shelf(bench, ["plain", "alias"]) as shelf:
        if not shelf:
            return
        device = shelf.devices["plain"]
        os.symlink(device, bench.path("by-id"))
        bench.write("list.txt", f"plain {device}\nalias {bench.path('by-id')}\n")
        bench.expect(write(bench, "--yes"), 2, "line 2:", "is the device of another board, too")
        assert bench.enrolled("plain") is None and not read(device).strip(OLD)


def a_person_is_asked_for_each_card(bench):
    with Shelf(bench, ["asked"]) as shelf:
        if not shelf:
            return
        bench.expect(write(bench), 4, "nobody was asked", "asked on")
        assert bench.enrolled("asked") is None and not read(shelf.devices["asked"]).strip(OLD)
        bench.expect(write(bench, "--yes", "--json"), 0)
        events = [json.loads(line)["event"] for line in bench.said.splitlines()]
        assert "done" in events and "ready" in events, events
    assert re.search(r"^written asked /dev/loop", read(bench.path("common.img.cards")).decode(), re.MULTILINE)
    remove(bench)


CASES = [
    each_card_has_the_identity_of_its_board,
    a_card_that_fails_does_not_stop_the_others,
    what_a_killed_run_left_is_taken_back_and_written_again,
    a_card_that_may_be_complete_is_not_revoked,
    an_image_of_another_order_is_not_used,
    files_of_others_are_not_believed,
    wrong_lists_are_refused,
    one_card_by_two_names_is_noticed,
    a_person_is_asked_for_each_card,
]

if __name__ == "__main__":
    flash_bench.run(sys.argv[1], CASES)
