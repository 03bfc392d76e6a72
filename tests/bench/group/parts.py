"""What a board holds in memory of a model that is cut into parts: planned, measured, and how far it reaches.

    parts.py BUILD held [WIDTH [STEPS]]    memory of each member of 1, 2 and 4 boards
    parts.py BUILD largest [MIB [PARTS=WIDTH...]]
                                           the largest model that trains in so much memory a board (256)
    parts.py BUILD bubble                  the share of a step in which parts of equal work rest, beside the formula
    parts.py BUILD caged MIB PARTS=WIDTH...
                                           whether models train in control groups of so much memory a board, pages of
                                           files included (root)

Perceptrons with 17 hidden layers of one width, Adam, boards as processes on this machine, one thread each. `held` shows
anonymous memory (RssAnon of /proc/PID/status, looked at every 10 ms): what no disk can take the place of. A round of
STEPS steps is trained, the update is sent and the next version taken; it has to take more than 5 s, so that a state is
stored in it. `largest` limits RLIMIT_DATA, as shards.py.
"""

import json
import os
import re
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import shards  # noqa: E402
import wide_model  # noqa: E402
from scenarios import usage  # noqa: E402
from sets import share_samples  # noqa: E402

MIB = 1 << 20


def settings_of(parts, **more):
    settings = shards.settings_of(parts, 1, 1, **more)
    settings.update(held_out="10 %, scope: shared", batch="8, accumulate: 1",
                    extra=f"parallel: {{pipeline: {parts}}}" if parts > 1 else "")
    return settings


def anonymous(pid):
    """Anonymous bytes now; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"RssAnon:\s+(\d+) kB", file.read()).group(1)) << 10
    except (OSError, AttributeError):
        return 0


def watch(cluster):
    """The most anonymous memory of each board until all programs have ended."""
    most, running = {}, list(cluster.processes.values())
    while any(process.poll() is None for process in running):
        for board in cluster.boards:
            most[board] = max(most.get(board, 0), anonymous(cluster.processes[board].pid))
        time.sleep(0.01)
    return most


def held(build, width="512", steps="500"):
    width = int(width)
    row = 4 * shards.parameters(width) / MIB
    print(f"perceptron, {shards.DEPTH} layers of {width}: a row of its weights is {row:.0f} MiB; Adam; "
          f"load {os.getloadavg()[0]:.1f}")
    print("| boards | planned, MiB | anonymous memory at most, MiB | of one board |\n|---|---|---|---|")
    alone = None
    for parts in (1, 2, 4):
        with shards.Limited(build, **settings_of(parts, local_steps=int(steps))) as cluster:
            share_samples(cluster)
            shards.write_model(cluster.path("wide.onnx"), width)
            cluster.set_model("wide.onnx")
            cluster.start_all()
            most = watch(cluster)
            status = [json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)
                      for board in cluster.boards]
        planned = [one["memory"]["planned"] / MIB for one in status]
        found = [most[board] / MIB for board in cluster.boards]
        alone = alone or max(found)
        print(f"| {parts} | {', '.join(f'{one:.0f}' for one in planned)} | {', '.join(f'{one:.0f}' for one in found)} | "
              f"{max(found) / alone:.2f} |", flush=True)


# What a board takes for each parameter, about: where `largest` begins.
BYTES = {1: 42, 2: 14, 4: 8}


def largest(build, mib="256", *wanted):
    limit = int(mib) * MIB
    begin = {parts: int((limit / taken / (shards.DEPTH - 1)) ** 0.5) for parts, taken in BYTES.items()}
    if wanted:
        begin = {int(parts): int(width) for parts, width in (one.split("=") for one in wanted)}
    print(f"largest perceptron that trains with {mib} MiB a board, Adam, batch 8, one thread a board; "
          f"load {os.getloadavg()[0]:.1f}")
    print("| boards | width | parameters | of one board | bytes of the limit a parameter | next width | what it says |")
    print("|---|---|---|---|---|---|---|")
    alone = None
    with tempfile.TemporaryDirectory() as folder:
        for parts, width in begin.items():
            best, _, above, said = shards.largest_for(build, folder, limit, f"{parts} boards", settings_of(parts), width,
                                                      prepare=share_samples, memory=anonymous)
            count = shards.parameters(best)
            alone = alone or count
            print(f"| {parts} | {best} | {count / 1e6:.2f} M | {count / alone:.2f} | {limit / count:.1f} | {above} | "
                  f"`{said}` |", flush=True)


PACE = 2e8  # additions and multiplications a second of a board: a pass takes far longer than a message


def bubble(build):
    """Of boards that sleep until a board of this pace would be ready (tests/support/paced_port.c), over loopback."""
    os.environ["CAIRN_PACE"] = str(PACE)
    print(f"perceptron, 16 layers of 64, micro-batches of 64, boards of {PACE:.0e} FLOP/s; load {os.getloadavg()[0]:.1f}")
    print("| parts | micro-batches | by formula | for parts of these times | measured |\n|---|---|---|---|---|")
    for parts in (2, 4, 8):
        for times in (1, 2, 4):
            settings = settings_of(parts, local_steps=8)
            settings.update(batch=f"64, accumulate: {times}", up="{mode: topk, density: 1 %, value_bits: 2}")
            with shards.Limited(build, **settings) as cluster:
                share_samples(cluster)
                cluster.node = os.path.join(build, "..", "tests", "support", "node_paced")
                wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[64] * 15, 64)
                cluster.set_model("wide.onnx")
                cluster.start_all()
                cluster.wait_for_end(300)
                said = json.loads(cluster.command(cluster.node, "status", "--json", "board-1.yaml").stdout)
                text = cluster.command(cluster.node, "status", "board-1.yaml").stdout
            chain = said["group"]["chain"]
            own = re.search(r"([\d.]+) % for parts of these times", text)
            print(f"| {parts} | {chain['micro_batches']} | {100 * chain['bubble']:.1f} % | {own.group(1) if own else '–'} % | "
                  f"{100 * chain['bubble_measured']:.1f} % |", flush=True)


class Caged(shards.Limited):
    """Boards in control groups of version 1 or 2: the kernel ends one that needs more than it can be given."""

    cage = 0

    def start(self, name, *options, environment=None):
        process = super().start(name, *options, environment=environment)
        if name != "gateway":
            folder = cage_of(name)
            os.makedirs(folder, exist_ok=True)
            write(folder, "memory.max" if os.path.exists(f"{folder}/memory.max") else "memory.limit_in_bytes", self.cage)
            write(folder, "cgroup.procs", process.pid)
        return process


def cage_of(name):
    root = "/sys/fs/cgroup/memory" if os.path.exists("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
    return f"{root}/cairn-bench-{os.getpid()}-{name}"


def write(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(value))


def caged(build, mib, *wanted):
    Caged.cage = int(mib) * MIB
    print(f"control groups of {mib} MiB a board, Adam, batch 8, one thread a board; load {os.getloadavg()[0]:.1f}")
    print("| boards | parameters | a row, MiB | result | s |\n|---|---|---|---|---|")
    for parts, width in ((int(one) for one in each.split("=")) for each in wanted):
        with Caged(build, **settings_of(parts, local_steps=3, timeout="600 s")) as cluster:
            share_samples(cluster)
            shards.write_model(cluster.path("wide.onnx"), width)
            cluster.set_model("wide.onnx")
            begun, said = time.monotonic(), None
            cluster.start_all()
            running = list(cluster.processes.values())
            while not said and any(process.poll() is None for process in running) and time.monotonic() < begun + 900:
                said = shards.complaint(cluster)
                time.sleep(0.1)
            result = said or ("trained" if all(one.returncode == 0 for one in running) else "not done in time")
        for board in cluster.boards:
            os.rmdir(cage_of(board))
        count = shards.parameters(width)
        print(f"| {parts} | {count / 1e6:.1f} M | {4 * count / MIB:.0f} | {result} | {time.monotonic() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    usage(__doc__)
    os.environ["CAIRN_CORE_DUMPS"] = "1"  # else only root may look at a program's memory
    {"held": held, "largest": largest, "bubble": bubble, "caged": caged}[sys.argv[2]](os.path.abspath(sys.argv[1]),
                                                                                       *sys.argv[3:])
