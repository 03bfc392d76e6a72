"""Power cuts at any write: a gateway and a board train in a virtual machine whose disk of state logs every
write. The log is replayed to many states in which a cut could have left the disk; each is mounted, which
recovers its journal, and the aggregator and the checkpoint of the board are read from it.

A disk keeps what was flushed. Of the writes after the last flush any part may be there, in pieces of 4 KiB: all,
none, those up to some moment, any others. When the node says that its update of a round was accepted, witness.c
writes that to the same log, so of each state it is known what had been promised before: the aggregator must
still hold that update, and the board must be past the round's training. On some of the states the run is
taken up again, to its end.

With --omit the guest's programs leave out syncs, and the test passes when that is found.

usage: powerloss.py HOST_BIN GUEST_BUILD STATES [--omit directory|all]     (root)
"""

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import DIGITS, Cluster  # noqa: E402
from flashing import make_base, make_packages  # noqa: E402
from guest import Guest, missing_tools  # noqa: E402

BOARD = "board-1"
PIECE = 8  # sectors of 512 bytes
FLUSH, FUA, DISCARD = 1, 2, 4
ROUNDS = 6
PHASES = {0: 0, 2: 1, 3: 2, 1: 3}  # empty, training, sending, over
SENDING = PHASES[3]
PROMISE = b"cairn-promise"
DISK_SIZE, STATE_SIZE = 24 << 20, 20 << 20  # behind the file system: the promises
PICKS = 4
MODEL = os.path.join(DIGITS, "digits-mlp.onnx")
COMPILER = "aarch64-linux-gnu-gcc"

SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
aggregator: {{address: "127.0.0.1:5684"}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""
GATEWAY = """\
schema: cairn/site/v1
name: gateway
state: {state}
threads: 1
storage: {{reserve: 1 MiB}}
gateway: {{listen: "127.0.0.1:{port}"}}
job:
  name: digits
  model: {model}
  data: {{set: digits, scale: 0.0625, held_out: 10 %}}
  train: {{batch: 32, local_steps: 5, learning_rate: 0.05}}
  update: {{up: {{mode: topk, density: 10 %}}, down: {{mode: q8}}}}
  rounds: {{count: {rounds}, quorum: 1, over_select: 1, deadline: 60 s}}
"""


def read_log(path):
    """Writes of a log in the format of dm-log-writes: (sector, flags, data), in pieces."""
    entries = []
    with open(path, "rb") as log:
        magic, _, count, sector = struct.unpack("<QQQI", log.read(28))
        assert magic == 0x6A736677736872 and sector == 512
        at = sector
        for _ in range(count):
            log.seek(at)
            first, sectors, flags, _ = struct.unpack("<QQQQ", log.read(32))
            at += sector
            if flags & DISCARD:
                entries.append((first, flags, bytes(sectors * sector)))
                continue
            log.seek(at)
            data = log.read(sectors * sector)
            at += sectors * sector
            for piece in range(0, max(sectors, 1), PIECE):
                last = piece + PIECE >= sectors
                part = data[piece * sector : (piece + PIECE) * sector]
                entries.append((first + piece, flags if last else flags & ~FLUSH, part))
    return entries


def put(image, entry):
    image[entry[0] * 512 : entry[0] * 512 + len(entry[2])] = entry[2]


def promise_in(entries):
    """The last round whose acceptance the node announced there; 0 for none."""
    return max((struct.unpack_from("<I", entry[2], 16)[0] for entry in entries if entry[2].startswith(PROMISE)),
               default=0)


def picks_of(pending, choice):
    """(name, what of the pending writes is on the disk, how many of them came before the cut)."""
    count, moment = len(pending), choice.randrange(len(pending))
    yield "all", pending, count
    yield "up to a moment", pending[:moment], moment
    yield "some", [entry for entry in pending if choice.random() < 0.5], count
    yield "none", [], count


def crash_states(base, entries, seed):
    """Yields (flushes before, pick, image, last round promised before the cut)."""
    choice = random.Random(seed)
    durable, pending, flushes, promised = bytearray(base), [], 0, 0

    for entry in entries:
        if entry[1] & FLUSH and pending:
            for name, picked, cut in picks_of(pending, choice):
                image = bytearray(durable)
                for one in picked:
                    put(image, one)
                yield flushes, name, image, max(promised, promise_in(pending[:cut]))
            for one in pending:
                put(durable, one)
            promised = max(promised, promise_in(pending))
            pending = []
        if entry[1] & FLUSH:
            flushes += 1
        if entry[2]:
            if entry[1] & FUA:
                put(durable, entry)
            pending.append(entry)


def read_checkpoint(folder):
    """(round, how far in it, steps) of the newest whole slot; None without one (runtime/round/CHECKPOINT.md)."""
    best = None
    for slot in ("checkpoint.a", "checkpoint.b"):
        try:
            with open(os.path.join(folder, slot), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        if len(content) < 336 or content[:7] != b"cairnck" or struct.unpack_from("<Q", content, 8)[0] != len(content):
            continue
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            continue
        counter, = struct.unpack_from("<Q", content, 16)
        phase, number, steps = struct.unpack_from("<III", content, 36)
        if best is None or counter > best[0]:
            best = (counter, number, PHASES[phase], steps)
    return best and best[1:]


class Explorer:
    """Mounts states and asks the programs what they find. with_gateway: its state is on that disk, too."""

    def __init__(self, cluster, with_gateway):
        self.cluster, self.with_gateway = cluster, with_gateway
        self.mount = cluster.path("mount")
        os.mkdir(self.mount)
        self.looked = 0
        self.durable, self.durable_at = ((0, 0, 0), None), 0  # found where nothing was missing, at an earlier flush
        state = os.path.join(self.mount, "aggregator")
        cluster.write("gateway.yaml", GATEWAY.format(state=state, port=cluster.port, model=MODEL, rounds=ROUNDS))
        cluster.write("board-1.yaml", f"""\
schema: cairn/site/v1
name: board-1
state: {self.mount}
aggregator: {{address: "127.0.0.1:{cluster.port}", key: keys/board-1.key}}
data: {{digits: {{inputs: {DIGITS}/board-1-images.npy, labels: {DIGITS}/board-1-labels.npy}}}}
""")

    def ask_gateway(self):
        status = self.cluster.command(self.cluster.aggregator, "status", "--json", "gateway.yaml")
        run = json.loads(status.stdout.splitlines()[0])
        if run["version"] > 0:
            self.cluster.command(self.cluster.aggregator, "replay", "gateway.yaml")
        return run["version"], run["round"], run["accepted"]

    def look(self, image, go_on):
        """What both programs find: (versions, round, its updates), checkpoint."""
        # A new file each time: a mount namespace made meanwhile by others keeps the one before mounted for a while.
        self.looked += 1
        path = self.cluster.path(f"crash-{self.looked}.img")
        with open(path, "wb") as file:
            file.write(image)
        subprocess.run(["mount", "-o", "loop,noatime", path, self.mount], check=True, capture_output=True)
        os.unlink(path)
        try:
            found = self.ask_gateway() if self.with_gateway else (0, 0, 0), read_checkpoint(self.mount)
            if go_on and found[0][0] < ROUNDS:  # the gateway of a run that is over may be gone: DESIGN.md, limits
                self.go_on()
            return found
        finally:
            self.cluster.stop_all()
            subprocess.run(["umount", self.mount], check=True)

    def go_on(self):
        """The run is taken up and ends with all versions."""
        self.cluster.start("gateway")
        self.cluster.start("board-1")
        self.cluster.wait_for_end(60)
        assert self.cluster.status()["version"] == ROUNDS

    def complaint(self, flush, pick, image, promised, go_on):
        """What is wrong with a state, or None."""
        try:
            found = self.look(image, go_on)
        except (AssertionError, subprocess.CalledProcessError) as error:
            return f"refused: {error}"
        (version, number, accepted), checkpoint = found
        if promised and (checkpoint or (0, 0)) < (promised, SENDING):
            return f"the update of round {promised} was accepted, and the board is at {checkpoint}"
        if self.with_gateway and version < promised and not (number == promised and accepted > 0):
            return f"the update of round {promised} was accepted, and the gateway holds {found[0]}"
        if flush > self.durable_at and not (found[0] >= self.durable[0] and
                                            (checkpoint or (0,)) >= (self.durable[1] or (0,))):
            return f"{found}, though {self.durable} had been flushed"
        if pick == "all" and not go_on:
            self.durable, self.durable_at = found, flush
        return None


def make_witness(cluster):
    library = cluster.path("witness.so")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library,
                    os.path.join(HERE, "witness.c")], check=True)
    return library


def record(cluster, host_bin, guest_build, omit):
    """Trains in a guest; returns the disk of state as it was, and the log of its writes."""
    base, data = make_base("small", cluster.path("base.img")), cluster.path("data.img")
    log, tree, image = cluster.path("writes.log"), cluster.path("tree"), cluster.path("board.img")
    debs = make_packages(guest_build, cluster.path("packages"), "cairn-node", "cairn-aggregator")
    state = "/var/lib/aggregator" if omit == "directory" else "/var/lib/cairn/aggregator"
    cluster.write("site.yaml", SITE.format(source=SOURCE))
    cluster.write("guest-gateway.yaml", GATEWAY.format(state=state, port=5684, model="/data/model.onnx", rounds=ROUNDS))
    os.mkdir(tree)
    enrolled = os.path.join(tree, "aggregator")
    cluster.write("enrol.yaml", GATEWAY.format(state=enrolled, port=cluster.port, model=MODEL, rounds=ROUNDS))
    cluster.command(cluster.aggregator, "enroll", "enrol.yaml", BOARD, "-o", f"keys/{BOARD}.key")
    adds = {f"{DIGITS}/board-1-images.npy": "/data/images.npy", f"{DIGITS}/board-1-labels.npy": "/data/labels.npy",
            MODEL: "/data/model.onnx", make_witness(cluster): "/data/witness.so",
            cluster.path("guest-gateway.yaml"): "/etc/cairn/gateway.yaml",
            os.path.join(enrolled, "ledger.sqlite"): "/var/lib/aggregator/ledger.sqlite"}
    cluster.command(os.path.join(host_bin, "cairn-flash"), "image", "--base", base, "--site", "site.yaml", "--name",
                    BOARD, "--key", f"keys/{BOARD}.key", "-o", image,
                    *(word for deb in debs.values() for word in ("--deb", deb)),
                    *(word for source, to in adds.items() for word in ("--add", f"{source}:{to}")))
    os.rename(base + ".kernel", image + ".kernel")
    with open(data, "wb") as file:
        file.truncate(DISK_SIZE)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", tree, data,
                    str(STATE_SIZE >> 10)], check=True)
    shutil.copy(data, data + ".before")
    with open(log, "wb") as file:
        file.truncate(2 << 30)
    options = f"cairn.poweroff cairn.data=/dev/vda cairn.options=--until-end LD_PRELOAD=/data/witness.so " \
              f"WITNESS_DISK=/dev/vda WITNESS_AT={STATE_SIZE + (1 << 20)} OMIT={omit or 'nothing'}"
    with Guest(image, cluster.path("logs", "guest.log"), options) as guest:
        guest.start(devices=[
            "-blockdev", f"driver=file,filename={data},node-name=data",
            "-blockdev", f"driver=file,filename={log},node-name=log",
            "-blockdev", "driver=blklogwrites,file=data,log=log,log-sector-size=512,node-name=logged",
            "-device", "virtio-blk-pci,drive=logged,romfile="])
        guest.wait_for_power_off(300)
    with open(data + ".before", "rb") as file:
        return file.read(), read_log(log)


def explore(explorer, base, entries, wanted):
    """Tries about as many states as wanted, evenly over the run; (tried, bad) of each pick."""
    total = sum(1 for _ in crash_states(base, entries, 1))
    step = max(1, total // PICKS // max(1, wanted // PICKS))
    table, resumed, begun = {}, 0, time.monotonic()
    for number, (flush, pick, image, promised) in enumerate(crash_states(base, entries, 1)):
        if number // PICKS % step:
            continue
        tried = sum(row[0] for row in table.values())
        go_on = explorer.with_gateway and tried % 25 == 24
        complaint = explorer.complaint(flush, pick, image, promised, go_on)
        row = table.setdefault(pick, [0, 0])
        row[0] += 1
        row[1] += complaint is not None
        resumed += go_on
        if complaint:
            print(f"flush {flush}, {pick}: {complaint}", flush=True)
    print(f"of {total} states, {resumed} of those tried taken up to the end, {time.monotonic() - begun:.0f} s")
    print("| pending writes on the disk | states tried | bad |\n|---|---|---|")
    for pick, (tried, bad) in table.items():
        print(f"| {pick} | {tried} | {bad} |")
    return sum(row[0] for row in table.values()), sum(row[1] for row in table.values())


def main(host_bin, guest_build, wanted, omit):
    assert omit in (None, "directory", "all"), f"there is nothing to omit named {omit}"
    with Cluster(host_bin, {}) as cluster:
        base, entries = record(cluster, host_bin, guest_build, omit)
        flushes = sum(1 for entry in entries if entry[1] & FLUSH)
        promises = promise_in(entries)
        print(f"{len(entries)} pieces of 4 KiB written, {flushes} flushes, {promises} rounds promised", flush=True)
        assert promises == ROUNDS, "the witness saw too little"
        explorer = Explorer(cluster, with_gateway=omit != "directory")
        tried, bad = explore(explorer, base, entries, wanted)
        print(f"{tried} states tried, {bad} bad")
        if omit:
            assert bad > 0, f"nobody noticed that syncs were left out ({omit})"
        else:
            assert bad == 0 and explorer.durable[0][0] >= 1


if __name__ == "__main__":
    if os.getuid() != 0 or missing_tools("losetup", COMPILER):
        print("skipped: needs root, " + ", ".join(missing_tools("losetup", COMPILER)))
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3]), (sys.argv[5:] or [None])[0])
