"""What a member of a group holds when the model's state is shared out: planned, measured, and how far it reaches.

    shards.py BUILD held [WIDTH [STEPS]] memory of each stage for 2 shards, beside none
    shards.py BUILD planned [WIDTH]      bytes of the plan, and the largest model that it says fits into 2 GiB
    shards.py BUILD largest [MIB [SHARDS:STAGE=WIDTH...]]
                                         the largest model that trains in so much memory a member (256), of all
                                         shards and stages or of some, looked for from those widths on
    shards.py BUILD steps [RATE [WIDTH]] times of a step on a thin link, beside none (namespaces)

Perceptrons with 17 hidden layers of one width, Adam, boards as processes on this machine, one thread each. Measured is
Private_Dirty of /proc/PID/smaps_rollup, the median of a round. The
limit of `largest` is RLIMIT_DATA (all private memory that a process may write, touched or not; a program that wants more
is told so, while a control group would end it), the same for every member. A model trains when a group of as many
members as shards, two without, ends a round of three steps, the update sent and the next version taken; else the line is
shown with which a board gave up. Widths go in steps of a 32nd.
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
from scenarios import usage  # noqa: E402

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


def peak(pid):
    """Resident bytes at most, so far; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10
    except (OSError, AttributeError):
        return 0


def complaint(cluster):
    """The line with which the first board gave up; None while none did."""
    for board in cluster.boards:
        process = cluster.processes[board]
        lines = [line for line in cluster.log(board).splitlines() if "out of memory" in line or " error " in line]
        if lines or process.poll() not in (None, 0):
            return lines[-1] if lines else f"{board} ended with {process.returncode}"
    return None


def trains(build, limit, settings, model, prepare=None, memory=peak):
    """Whether a group with that limit ends a round of three steps; the most memory of a member, or why it does not."""
    Limited.limit = limit
    most, seconds = 0, 300 + limit // MIB  # members wait for each other as long: a large model on a busy machine
    with Limited(build, **{**settings, "local_steps": 3, "timeout": f"{seconds} s"}) as cluster:
        if prepare:
            prepare(cluster)
        os.symlink(model, cluster.path("wide.onnx"))
        cluster.set_model("wide.onnx")
        cluster.start_all()
        deadline = time.monotonic() + seconds
        running = list(cluster.processes.values())
        while any(process.poll() is None for process in running):
            most = max(most, *(memory(cluster.processes[board].pid) for board in cluster.boards))
            said = complaint(cluster)
            if said or time.monotonic() > deadline:
                return False, said or "not done in time"
            time.sleep(0.05)
        return all(process.returncode == 0 for process in running), most


def largest_for(build, folder, limit, name, settings, width, **more):
    """The largest width that trains, its memory, the next one and its complaint: up or down from the one given."""
    step = max(width // 32, 1)
    known = {}
    while True:
        model = os.path.join(folder, "wide.onnx")
        write_model(model, width)
        fits, found = trains(build, limit, settings, model, **more)
        known[width] = fits, found
        print(f"  {name}, {width}: {found}", file=sys.stderr, flush=True)
        width += step if fits else -step
        if width in known:
            break
        if width <= 0:
            raise SystemExit("no width trains")
    best = max(known_width for known_width, (trained, _) in known.items() if trained)
    return best, known[best][1], best + step, known[best + step][1]


# What a member takes for each parameter, about: where `largest` begins.
BYTES = {(1, 1): 45, (2, 1): 33, (2, 2): 31, (2, 3): 31, (4, 1): 31, (4, 2): 29, (4, 3): 29}


def largest(build, mib="256", *wanted):
    limit = int(mib) * MIB
    begin = {key: int((limit / BYTES[key] / (DEPTH - 1)) ** 0.5) for key in EVERY}
    if wanted:
        begin = {tuple(map(int, key.split(":"))): int(width) for key, width in (one.split("=") for one in wanted)}
    print(f"largest perceptron that trains with {mib} MiB a member, Adam, batch 8, one thread a board; "
          f"load {os.getloadavg()[0]:.1f}")
    print("| shards, stage | width | parameters | bytes of the limit a parameter | peak resident | next width | what it says |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for (shards, stage), width in begin.items():
            name = f"{shards}, stage {stage}" if shards > 1 else "none"
            hidden, most, above, said = largest_for(build, folder, limit, name,
                                                    settings_of(max(shards, 2), shards, stage), width)
            print(f"| {name} | {hidden} | {parameters(hidden) / 1e6:.2f} M | {limit / parameters(hidden):.1f} | "
                  f"{most / MIB:.0f} MiB | {above} | `{said}` |", flush=True)


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
    usage(__doc__)
    os.environ["CAIRN_CORE_DUMPS"] = "1"  # else only root may look at a program's memory
    {"held": held, "largest": largest, "planned": planned, "steps": steps}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
