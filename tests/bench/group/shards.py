"""What a member of a group holds when the model's state is shared out: planned, measured, and how far it reaches.

    shards.py BUILD held [WIDTH [STEPS]] memory of each stage for 2 shards, beside none
    shards.py BUILD planned [WIDTH]      bytes of the plan, and the largest model that it says fits into 2 GiB
    shards.py BUILD largest [MIB]        the largest model that trains in so much memory a member (96)
    shards.py BUILD steps [RATE [WIDTH]] times of a step on a thin link, beside none (namespaces)

Perceptrons with 17 hidden layers of one width, Adam, boards as processes on this machine, one thread each. Measured is
Private_Dirty of /proc/PID/smaps_rollup, the median of a round. The
limit of `largest` is RLIMIT_DATA (all memory that a process could write, touched or not), the same for every member.
"""

import json
import os
import re
import resource
import statistics
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import cluster as clusters  # noqa: E402
import lan  # noqa: E402
import overlap  # noqa: E402
import wide_model  # noqa: E402

MIB = 1 << 20
ADAM = "0.9, optimizer: adam"


DEPTH = 17
EVERY = ((1, 1), (2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (4, 3))  # shards, stage


def parameters(hidden):
    return 64 * hidden + (DEPTH - 1) * hidden * hidden + 10 * hidden + DEPTH * hidden + 10


def write_model(path, hidden):
    wide_model.main(path, "1,8,8", *[hidden] * DEPTH, 10)


def private_dirty(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"Private_Dirty:\s+(\d+) kB", file.read()).group(1)) << 10


class Limited(clusters.Cluster):
    """Boards that may have so much memory."""

    limit = None

    def start(self, name, *options, environment=None):
        environment = {**(environment or {}), "MALLOC_ARENA_MAX": "1"}
        process = super().start(name, *options, environment=environment)
        if self.limit and name != "gateway":
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (self.limit, self.limit))
        return process


def settings_of(boards, shards, stage, **more):
    parallel = f"parallel: {{shard: {shards}, stage: {stage}}}" if shards > 1 else ""
    return {"groups": {"lab": [f"board-{i + 1}" for i in range(boards)]}, "mixed": True, "quorum": 1, "batch": 8,
            "momentum": ADAM, "learning_rate": 1e-4, "rounds": 1, "form": "60 s", "timeout": "60 s",
            "up": "{mode: sign}", "down": "{mode: q8}", "central": False, "extra": parallel, **more}


def sample(cluster):
    """Private memory of a board, every 50 ms, while its only round is trained and after a state was stored."""
    found = []
    process = cluster.processes["board-1"]
    while process.poll() is None and "accepted" not in cluster.log("board-1"):
        try:
            found.append(private_dirty(process.pid))
        except (OSError, AttributeError):
            break
        time.sleep(0.05)
    # A state is gathered and stored after 5 s, and the end of the round is another matter.
    return found[len(found) * 6 // 10 : len(found) * 9 // 10]


def held(build, hidden="320", steps="130"):
    hidden = int(hidden)
    count = parameters(hidden)
    rows = []
    for shards, stage in ((1, 1), (2, 1), (2, 2), (2, 3)):
        with clusters.Cluster(build, **settings_of(2, shards, stage, local_steps=int(steps))) as cluster:
            write_model(cluster.path("wide.onnx"), hidden)
            cluster.set_model("wide.onnx")
            cluster.start_all()
            cluster.wait_for_line("board-1", "version 0", timeout=120)
            memory = sample(cluster)
            cluster.wait_for_end(300)
            log = cluster.log("board-1")
        planned = re.findall(r"(\d+) bytes of the optimizer's state, stage \d, (\d+) bytes in all", log)
        rows.append((shards, stage, planned[-1] if planned else (8 * count, None), statistics.median(memory)))
    print(f"perceptron, {DEPTH} layers of {hidden}, {count} parameters ({4 * count / MIB:.1f} MiB), Adam; "
          f"load {os.getloadavg()[0]:.1f}")
    print("| shards, stage | optimizer's state, planned | trainer, planned | process, measured | against none |")
    print("|---|---|---|---|---|")
    for shards, stage, (state, trainer), measured in rows:
        name = f"{shards}, stage {stage}" if shards > 1 else "none"
        trainer = f"{int(trainer) / MIB:.1f} MiB" if trainer else "–"
        print(f"| {name} | {int(state) / MIB:.1f} MiB | {trainer} | {measured / MIB:.1f} MiB | "
              f"{(measured - rows[0][3]) / MIB:+.1f} MiB |")


def planned(build, hidden="256"):
    hidden = int(hidden)
    count = parameters(hidden)
    print(f"perceptron, {DEPTH} layers of {hidden}, {count} parameters, Adam, batch 8, one thread")
    print("| shards | stage | planned, bytes a parameter | parameters in 2 GiB by the plan |\n|---|---|---|---|")
    for shards, stage in EVERY:
        with clusters.Cluster(build, **settings_of(max(shards, 2), shards, stage, local_steps=20)) as cluster:
            write_model(cluster.path("wide.onnx"), hidden)
            cluster.set_model("wide.onnx")
            cluster.start_all()
            cluster.wait_for_end(300)
            status = json.loads(cluster.command(cluster.node, "status", "--json", "board-1.yaml").stdout)
        size = status["memory"]["planned"]
        print(f"| {shards if shards > 1 else 'none'} | {stage if shards > 1 else ''} | {size / count:.2f} | "
              f"{2048 * MIB / size * count / 1e6:.0f} M |", flush=True)


def trains(build, limit, boards, shards, stage, model):
    """Whether a group with that limit ends a round of three steps."""
    Limited.limit = limit
    try:
        with Limited(build, **settings_of(boards, shards, stage, local_steps=3)) as cluster:
            os.symlink(model, cluster.path("wide.onnx"))
            cluster.set_model("wide.onnx")
            cluster.start_all()
            deadline = time.monotonic() + 60
            running = list(cluster.processes.values())
            while any(process.poll() is None for process in running):
                logs = [cluster.log(board) for board in cluster.boards]
                if any("out of memory" in log for log in logs) or time.monotonic() > deadline:
                    return False
                time.sleep(0.1)
            return all(process.returncode == 0 for process in running)
    except AssertionError:
        return False


def largest_for(build, folder, limit, boards, shards, stage):
    """The largest width, in steps of 16, by bisection."""
    low, high = 11, 27  # in steps; low trains, high does not
    while high - low > 1:
        middle = (low + high) // 2
        model = os.path.join(folder, f"{middle}.onnx")
        if not os.path.exists(model):
            write_model(model, 16 * middle)
        if trains(build, limit, boards, shards, stage, model):
            low = middle
        else:
            high = middle
    return 16 * low


def largest(build, mib="96"):
    limit = int(mib) * MIB
    print(f"largest perceptron that trains with {mib} MiB a member, Adam, batch 8, one thread a board")
    print("| shards | stage | width | parameters |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for shards, stage in EVERY:
            hidden = largest_for(build, folder, limit, max(shards, 2), shards, stage)
            print(f"| {shards if shards > 1 else 'none'} | {stage if shards > 1 else ''} | {hidden} | "
                  f"{parameters(hidden) / 1e6:.2f} M |", flush=True)


def steps(build, rate="100mbit", width="256"):
    if not lan.allowed():
        print("skipped: network namespaces are not allowed here")
        return
    found = {}
    for _ in range(2):
        for shards, stage, wire in ((1, 1, "float32"), (2, 1, "float32"), (2, 2, "float32"), (2, 3, "float32"),
                                    (1, 1, "bfloat16"), (2, 2, "bfloat16")):
            job = settings_of(2, shards, stage, local_steps=60, batch=256, group=f", wire: {wire}")
            job.pop("groups")
            job.pop("mixed")
            with overlap.Thin(build, rate, **job) as cluster:
                write_model(cluster.path("wide.onnx"), int(width))
                cluster.set_model("wide.onnx")
                cluster.start("gateway")
                cluster.start("board-1", "--timeline", "timeline.json")
                cluster.start("board-2")
                cluster.wait_for_end(300)
                found.setdefault((shards, stage, wire), []).extend(overlap.times_of(cluster.path("timeline.json"))[0])
    print(f"two boards, links of {rate}, perceptron of {DEPTH} layers of {width}, batch 256; load {os.getloadavg()[0]:.1f}")
    print("| shards, stage | wire | step ms, median |\n|---|---|---|")
    for (shards, stage, wire), times in found.items():
        name = f"{shards}, stage {stage}" if shards > 1 else "none"
        print(f"| {name} | {wire} | {statistics.median(times):.1f} |")


if __name__ == "__main__":
    {"held": held, "largest": largest, "planned": planned, "steps": steps}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
