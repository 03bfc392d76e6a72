"""Power cuts at any write: a gateway and a board train in a virtual machine whose disk of state logs every
write. The log is replayed to many states in which a cut could have left the disk; each is mounted, which
recovers its journal, and the aggregator and the checkpoint of the board are read from it.

A disk keeps what was flushed. Of the writes after the last flush any subset may be there, in pieces of
4 KiB. Nothing that a flush had made durable may be missing later: what was acknowledged was flushed
before. On some of the states the run is taken up again, to its end.

usage: powerloss.py HOST_BIN GUEST_BUILD [STATES]     (root)
"""

import glob
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
from guest import Guest, missing_tools  # noqa: E402

BOARD = "board-1"
PIECE = 8  # sectors of 512 bytes
FLUSH, FUA, DISCARD = 1, 2, 4
ROUNDS = 6

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


def crash_states(base, entries, seed):
    """Yields (number of flushes before, image, whether everything pending is in it)."""
    choice = random.Random(seed)
    durable, pending, flushes = bytearray(base), [], 0

    def put(image, entry):
        image[entry[0] * 512 : entry[0] * 512 + len(entry[2])] = entry[2]

    for entry in entries:
        if entry[1] & FLUSH and pending:
            for pick in ("all", "some", "none"):
                image = bytearray(durable)
                for one in pending:
                    if pick == "all" or (pick == "some" and choice.random() < 0.5):
                        put(image, one)
                yield flushes, image, pick
            for one in pending:
                put(durable, one)
            pending = []
        if entry[1] & FLUSH:
            flushes += 1
        if entry[2]:
            if entry[1] & FUA:
                put(durable, entry)
            pending.append(entry)


def read_checkpoint(folder):
    """(round, steps) of the newest whole slot; None without one."""
    best = None
    for slot in ("checkpoint.a", "checkpoint.b"):
        try:
            with open(os.path.join(folder, slot), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        if len(content) < 296 or content[:7] != b"cairnck" or struct.unpack_from("<Q", content, 8)[0] != len(content):
            continue
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            continue
        counter, = struct.unpack_from("<Q", content, 16)
        round_number, steps = struct.unpack_from("<II", content, 40)
        if best is None or counter > best[0]:
            best = (counter, round_number, steps)
    return best and best[1:]


class Explorer:
    def __init__(self, cluster):
        self.cluster = cluster
        self.mount = cluster.path("mount")
        os.mkdir(self.mount)
        self.image = cluster.path("crash.img")
        state = os.path.join(self.mount, "aggregator")
        model = os.path.join(DIGITS, "digits-mlp.onnx")
        cluster.write("gateway.yaml", GATEWAY.format(state=state, port=cluster.port, model=model, rounds=ROUNDS))
        cluster.write("board-1.yaml", f"""\
schema: cairn/site/v1
name: board-1
state: {self.mount}
aggregator: {{address: "127.0.0.1:{cluster.port}", key: keys/board-1.key}}
data: {{digits: {{inputs: {DIGITS}/board-1-images.npy, labels: {DIGITS}/board-1-labels.npy}}}}
""")

    def look(self, image, go_on):
        """What both programs find in a state: (versions, updates, checkpoint)."""
        with open(self.image, "wb") as file:
            file.write(image)
        subprocess.run(["mount", "-o", "loop,noatime", self.image, self.mount], check=True, capture_output=True)
        try:
            status = self.cluster.command(self.cluster.aggregator, "status", "--json", "gateway.yaml")
            run = json.loads(status.stdout.splitlines()[0])
            if run["version"] > 0:
                self.cluster.command(self.cluster.aggregator, "replay", "gateway.yaml")
            found = (run["version"], run["round"], run["accepted"]), read_checkpoint(self.mount)
            if go_on:
                self.go_on()
            return found
        finally:
            subprocess.run(["umount", self.mount], check=True)

    def go_on(self):
        """The run is taken up and ends with all versions."""
        self.cluster.start("gateway")
        self.cluster.start("board-1")
        self.cluster.wait_for_end(60)
        assert self.cluster.status()["version"] == ROUNDS


def record(cluster, host_bin, guest_build):
    """Trains in a guest; returns the disk of state as it was, and the log of its writes."""
    base, image, data = cluster.path("base.img"), cluster.path("board.img"), cluster.path("data.img")
    log, tree = cluster.path("writes.log"), cluster.path("tree")
    subprocess.run([os.path.join(SOURCE, "boards", "qemu-virt-arm64", "image", "small"), base], check=True)
    packages = cluster.path("packages")
    subprocess.run(["cpack", "--config", os.path.join(guest_build, "CPackConfig.cmake"), "-B", packages], check=True,
                   capture_output=True)
    cluster.write("site.yaml", SITE.format(source=SOURCE))
    cluster.write("guest-gateway.yaml", GATEWAY.format(state="/var/lib/cairn/aggregator", port=5684,
                                                       model="/data/model.onnx", rounds=ROUNDS))
    os.mkdir(tree)
    cluster.write("enrol.yaml", GATEWAY.format(state=os.path.join(tree, "aggregator"), port=cluster.port,
                                               model=os.path.join(DIGITS, "digits-mlp.onnx"), rounds=ROUNDS))
    cluster.command(cluster.aggregator, "enroll", "enrol.yaml", BOARD, "-o", f"keys/{BOARD}.key")
    debs = [path for path in glob.glob(os.path.join(packages, "*.deb"))
            if "cairn-node" in path or "cairn-aggregator" in path]
    adds = {f"{DIGITS}/board-1-images.npy": "/data/images.npy", f"{DIGITS}/board-1-labels.npy": "/data/labels.npy",
            f"{DIGITS}/digits-mlp.onnx": "/data/model.onnx",
            cluster.path("guest-gateway.yaml"): "/etc/cairn/gateway.yaml"}
    cluster.command(os.path.join(host_bin, "cairn-flash"), "image", "--base", base, "--site", "site.yaml", "--name",
                    BOARD, "--key", f"keys/{BOARD}.key", "-o", image,
                    *(word for deb in debs for word in ("--deb", deb)),
                    *(word for source, to in adds.items() for word in ("--add", f"{source}:{to}")))
    os.rename(base + ".kernel", image + ".kernel")
    with open(data, "wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", tree, data],
                   check=True)
    shutil.copy(data, data + ".before")
    with open(log, "wb") as file:
        file.truncate(2 << 30)
    with Guest(image, cluster.path("logs", "guest.log")) as guest:
        guest.start("cairn.poweroff cairn.data=/dev/vda cairn.options=--until-end", [
            "-blockdev", f"driver=file,filename={data},node-name=data",
            "-blockdev", f"driver=file,filename={log},node-name=log",
            "-blockdev", "driver=blklogwrites,file=data,log=log,log-sector-size=512,node-name=logged",
            "-device", "virtio-blk-pci,drive=logged,romfile="])
        guest.wait_for_power_off(180)
    with open(data + ".before", "rb") as file:
        return file.read(), read_log(log)


def main(host_bin, guest_build, wanted):
    with Cluster(host_bin, {}) as cluster:
        base, entries = record(cluster, host_bin, guest_build)
        flushes = sum(1 for entry in entries if entry[1] & FLUSH)
        print(f"{len(entries)} pieces of 4 KiB written, {flushes} flushes", flush=True)
        explorer = Explorer(cluster)
        total = sum(1 for _ in crash_states(base, entries, 1))
        step = max(1, total // wanted)
        tried = bad = resumed = 0
        durable = ((0, 0, 0), None)  # of the last state with everything, at an earlier flush
        durable_at = 0
        begun = time.monotonic()
        for number, (flush, image, pick) in enumerate(crash_states(base, entries, 1)):
            if number % step and pick != "all":
                continue
            if number % step > 2:
                continue
            go_on = tried % 25 == 24
            try:
                found = explorer.look(image, go_on)
                resumed += go_on
                if flush > durable_at and not (found[0] >= durable[0] and (found[1] or (0, 0)) >= (durable[1] or (0, 0))):
                    bad += 1
                    print(f"flush {flush}, {pick}: {found} after {durable}", flush=True)
            except (AssertionError, subprocess.CalledProcessError) as error:
                bad += 1
                print(f"flush {flush}, {pick}: {error}", flush=True)
                found = None
            if pick == "all" and found and not go_on:
                durable, durable_at = found, flush
            tried += 1
        print(f"of {total} states {tried} tried, {bad} bad, {resumed} taken up to the end, "
              f"{time.monotonic() - begun:.0f} s; last {durable}")
        assert bad == 0 and durable[0][0] >= 1


if __name__ == "__main__":
    if os.getuid() != 0 or missing_tools("losetup"):
        print("skipped: needs root, " + ", ".join(missing_tools("losetup")))
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int((sys.argv[3:] or ["300"])[0]))
