"""Bytes and rounds to a target for rules of the codec, on digits and on text: two tables and a figure.

usage: learning.py BENCH_LEARNING OUTPUT_DIRECTORY [horizons]

Runs every rule with three seeds at equal local steps; a run whose file is complete is not repeated, so a
stopped script goes on. Digits: four clients with mostly some of the digits each. Text: four clients with the
licences of one family each, from Debian's base-files; a tenth of each licence is held out. Writes learning.md
and learning.svg. Payload is the frames of one client, up and down; wire adds the headers and messages of
CoAP, DTLS, UDP and IP, by what they were measured to take (WIRE).

horizons: another table instead, of text to two targets. Clients keep Adam's state (train.keep_optimizer: true), and
there is one seed.
"""

import dataclasses
import math
import os
import subprocess
import sys

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data")
LICENCES = "/usr/share/common-licenses"
FAMILIES = [["GPL-1", "GPL-2", "GPL-3"], ["LGPL-2", "LGPL-2.1", "LGPL-3"], ["GFDL-1.2", "GFDL-1.3"],
            ["MPL-1.1", "MPL-2.0", "Apache-2.0", "Artistic"]]
SEEDS, STEPS = (1, 2, 3), 20
RULES = [
    ("fp32 FedAvg", "raw32", "raw32"),
    ("q8 both ways", "q8", "q8"),
    ("sign both ways", "sign", "sign"),
    ("top 5 % up, 10 % down, 2 bits", "topk:0.05:2", "topk:0.1:2"),
    ("top 1 % up, 5 % down, 2 bits", "topk:0.01:2", "topk:0.05:2"),
    ("ternary 5 % both ways", "topk:0.05:0", "topk:0.05:0"),
    ("ternary 1 % both ways", "topk:0.01:0", "topk:0.01:0"),
    ("ternary 5 %, small as signs", "topk:0.05:0:signs", "topk:0.05:0"),
    ("ternary 1 %, small as signs", "topk:0.01:0:signs", "topk:0.01:0"),
]
COLOURS = ["#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#0072b2", "#8a6d00", "#555555"]
# On the wire: bytes for each 1024 of a frame beside them, and for a round, of a board alone. By wire.py.
WIRE = (168, 2513)


@dataclasses.dataclass
class Task:
    name: str
    model: str
    target: float
    rounds: int
    measure: str
    falls: bool  # the measure is better when it is smaller

    def reached(self, value):
        return value <= self.target if self.falls else value >= self.target


TASKS = [
    Task("digits", "digits/digits-cnn.onnx", 0.97, 120, "97 % right", False),
    Task("text", "text/char-gpt.onnx", 2.9, 200, "2.9 bits a character", True),
]


# Rules for text to two targets, the further one last.
HORIZONS = (2.9, 2.6)
FAR = [
    ("fp32 FedAvg", "raw32", "raw32"),
    ("sign both ways", "sign", "sign"),
    ("top 5 % up, 10 % down, 2 bits", "topk:0.05:2", "topk:0.1:2"),
    ("ternary 5 %, small as signs", "topk:0.05:0:signs", "topk:0.05:0"),
    ("ternary 10 %, small as signs", "topk:0.1:0:signs", "topk:0.1:0"),
]


def prepare_digits(directory):
    for part in ("images", "labels"):
        for name, source in [(f"client-{i}", f"board-{i}") for i in range(1, 5)] + [("held-out", "held-out")]:
            path = os.path.join(directory, f"{name}-{part}.npy")
            if not os.path.exists(path):
                os.symlink(os.path.abspath(os.path.join(DATA, "digits", f"{source}-{part}.npy")), path)


def prepare_text(directory):
    held_out = ""
    for index, family in enumerate(FAMILIES):
        train = ""
        for licence in family:
            with open(os.path.join(LICENCES, licence), encoding="ascii") as file:
                text = file.read()
            cut = len(text) * 9 // 10
            train += text[:cut]
            held_out += text[cut:]
        with open(os.path.join(directory, f"client-{index + 1}.txt"), "w") as file:
            file.write(train)
    with open(os.path.join(directory, "held-out.txt"), "w") as file:
        file.write(held_out)


def run(program, directory, task, rule, seed, keeps=False):
    """Rows of (round, measure, payload up, payload down)."""
    name, up, down = rule
    kind = f"{task.target}-kept-" if keeps else ""
    path = os.path.join(directory, f"{task.name}-{kind}{up}-{down}-{seed}.txt".replace(":", "_"))
    if not os.path.exists(path):
        print(f"{task.name}: {name}, seed {seed}", flush=True)
        result = subprocess.run([program, task.name, os.path.join(DATA, task.model), os.path.join(directory, task.name),
                                 str(seed), str(STEPS), str(task.rounds), str(task.target), up, down,
                                 *(["0", "1"] if keeps else [])],
                                check=True, capture_output=True, text=True)
        with open(path + ".part", "w") as file:
            file.write(result.stdout)
        os.replace(path + ".part", path)
    with open(path) as file:
        return [(int(a), float(b), int(c), int(d)) for a, b, c, d in map(str.split, file)]


def wire(curve):
    """Bytes on the wire of one client."""
    total, before = 0, (0, 0)
    for _, _, up, down in curve:
        total += WIRE[1]
        for size in (up - before[0], down - before[1]):
            total += size + math.ceil(size / 1024) * WIRE[0]
        before = (up, down)
    return total


def middle(values):
    return sorted(values)[len(values) // 2]


def table(task, results):
    lines = [f"| {task.name}: rule | rounds to {task.measure} (each seed) | payload (median) | of fp32 | wire | of fp32 |",
             "|---|---|---|---|---|---|"]
    base = None
    for (name, _, _), curves in zip(RULES, results):
        reached = all(task.reached(curve[-1][1]) for curve in curves)
        rounds = ", ".join(str(curve[-1][0]) if task.reached(curve[-1][1]) else f"not in {task.rounds}" for curve in curves)
        sizes = [middle([curve[-1][2] + curve[-1][3] for curve in curves]), middle([wire(curve) for curve in curves])]
        base = base or sizes
        share = [f"1/{base[i] / sizes[i]:.0f}" if reached else "–" for i in range(2)]
        lines.append(f"| {name} | {rounds} | {sizes[0] / 1000:.1f} kB | {share[0]} | {sizes[1] / 1000:.1f} kB | {share[1]} |")
    return "\n".join(lines) + "\n"


def panel(task, results, top):
    """The measure against payload, both ways, of the first seed; a logarithmic axis."""
    low, high, width, height = 3.0, 8.0, 640, 320
    best, worst, ticks = (2.0, 7.0, range(2, 8)) if task.falls else (1.0, 0.0, [i / 5 for i in range(6)])

    def x(size):
        return 50 + (math.log10(size) - low) / (high - low) * (width - 70)

    def y(value):
        return top + 20 + (best - value) / (best - worst) * (height - 60)

    bottom = y(worst)
    parts = []
    for power in range(int(low), int(high) + 1):
        parts.append(f'<path d="M{x(10**power):.0f} {top + 20}V{bottom:.0f}" stroke="#ddd"/>'
                     f'<text x="{x(10**power):.0f}" y="{bottom + 14:.0f}" text-anchor="middle">10^{power}</text>')
    for tick in ticks:
        text = f"{tick} bit" if task.falls else f"{100 * tick:.0f} %"
        parts.append(f'<path d="M50 {y(tick):.0f}H{width - 20}" stroke="#ddd"/>'
                     f'<text x="45" y="{y(tick) + 4:.0f}" text-anchor="end">{text}</text>')
    for index, ((name, _, _), curves) in enumerate(zip(RULES, results)):
        points = " ".join(f"{x(up + down):.0f},{y(value):.0f}" for _, value, up, down in curves[0])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" stroke-width="1.5"/>')
        if top == 0:
            parts.append(f'<text x="{width - 200}" y="{170 + 14 * index}" fill="{COLOURS[index]}">{name}</text>')
    parts.append(f'<text x="{width / 2}" y="{bottom + 28:.0f}" text-anchor="middle">'
                 f'{task.name}: payload bytes of a client, up and down</text>')
    return "\n".join(parts)


def figure(results):
    panels = "\n".join(panel(task, curves, 320 * index) for index, (task, curves) in enumerate(zip(TASKS, results)))
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="640" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>\n{panels}\n</svg>\n')


def until(curve, target):
    """The part of a curve until it is at most the target; None if it never is."""
    end = next((at for at, row in enumerate(curve, 1) if row[1] <= target), None)
    return curve[:end] if end else None


def horizons(program, directory):
    task = dataclasses.replace(TASKS[1], target=HORIZONS[-1])
    print("| text, state kept | %s |" % " | ".join(
        f"rounds to {target} bits | payload | of fp32 | wire | of fp32" for target in HORIZONS))
    print("|---|" + "---|" * 5 * len(HORIZONS))
    base = {}
    for rule in FAR:
        curve, cells = run(program, directory, task, rule, SEEDS[0], keeps=True), []
        for target in HORIZONS:
            part = until(curve, target)
            if not part:
                cells += [f"not in {len(curve)}", "–", "–", "–", "–"]
                continue
            sizes = part[-1][2] + part[-1][3], wire(part)
            shares = [above / size for above, size in zip(base.setdefault(target, sizes), sizes)]
            cells += [str(len(part)), f"{sizes[0] / 1000:.0f} kB", f"1/{shares[0]:.0f}", f"{sizes[1] / 1000:.0f} kB",
                      f"1/{shares[1]:.0f}"]
        print(f"| {rule[0]} | {' | '.join(cells)} |", flush=True)


def main(program, directory, what="rules"):
    if what == "horizons":
        os.makedirs(os.path.join(directory, "text"), exist_ok=True)
        prepare_text(os.path.join(directory, "text"))
        horizons(program, directory)
        return
    results = []
    for task, prepare in zip(TASKS, (prepare_digits, prepare_text)):
        os.makedirs(os.path.join(directory, task.name), exist_ok=True)
        prepare(os.path.join(directory, task.name))
        results.append([[run(program, directory, task, rule, seed) for seed in SEEDS] for rule in RULES])
    tables = "\n".join(table(task, curves) for task, curves in zip(TASKS, results))
    with open(os.path.join(directory, "learning.md"), "w") as file:
        file.write(tables)
    with open(os.path.join(directory, "learning.svg"), "w") as file:
        file.write(figure(results))
    print(tables, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
