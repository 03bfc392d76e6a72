"""Bytes and rounds to a target accuracy on digits, for rules of the codec: a table and a figure.

usage: learning.py BENCH_LEARNING OUTPUT_DIRECTORY [TARGET]

Runs every rule with three seeds at equal local steps; a run whose file is complete is not repeated, so a
stopped script goes on. Writes learning.md and learning.svg. Bytes are those of frames, up and down, of one
client; headers of CoAP, DTLS and IP are not in them.
"""

import math
import os
import subprocess
import sys

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "digits")
SEEDS, STEPS, ROUNDS = (1, 2, 3), 20, 120
RULES = [
    ("fp32 FedAvg", "raw32", "raw32"),
    ("q8 both ways", "q8", "q8"),
    ("sign both ways", "sign", "sign"),
    ("top 5 % up, 10 % down, 2 bits", "topk:0.05:2", "topk:0.1:2"),
    ("top 1 % up, 5 % down, 2 bits", "topk:0.01:2", "topk:0.05:2"),
    ("ternary 5 % both ways", "topk:0.05:0", "topk:0.05:0"),
    ("ternary 1 % both ways", "topk:0.01:0", "topk:0.01:0"),
]
COLOURS = ["#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#0072b2"]


def run(program, directory, target, index, seed):
    name, up, down = RULES[index]
    path = os.path.join(directory, f"{up}-{down}-{seed}.txt".replace(":", "_"))
    if not os.path.exists(path):
        print(f"{name}, seed {seed}", flush=True)
        result = subprocess.run([program, DATA, str(seed), str(STEPS), str(ROUNDS), str(target), up, down],
                                check=True, capture_output=True, text=True)
        with open(path + ".part", "w") as file:
            file.write(result.stdout)
        os.replace(path + ".part", path)
    with open(path) as file:
        return [(int(a), float(b), int(c) + int(d)) for a, b, c, d in map(str.split, file)]


def middle(values):
    return sorted(values)[len(values) // 2]


def table(results, target):
    lines = [f"| rule | rounds to {100 * target:g} % (each seed) | bytes of a client (median) | of fp32 |", "|---|---|---|---|"]
    base = middle([curve[-1][2] for curve in results[0]])
    for (name, _, _), curves in zip(RULES, results):
        reached = all(curve[-1][1] >= target for curve in curves)
        rounds = ", ".join(str(curve[-1][0]) if curve[-1][1] >= target else "not reached" for curve in curves)
        size = middle([curve[-1][2] for curve in curves])
        share = f"1/{base / size:.0f}" if reached else "–"
        lines.append(f"| {name} | {rounds} | {size / 1000:.1f} kB | {share} |")
    return "\n".join(lines) + "\n"


def figure(results):
    """Accuracy against bytes, both ways, of the first seed; a logarithmic axis."""
    low, high, width, height = 3.0, 8.0, 640, 400

    def x(size):
        return 50 + (math.log10(size) - low) / (high - low) * (width - 70)

    def y(accuracy):
        return height - 40 - accuracy * (height - 60)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="11"><rect width="100%" height="100%" fill="white"/>']
    for power in range(int(low), int(high) + 1):
        parts.append(f'<path d="M{x(10**power):.0f} 20V{height - 40}" stroke="#ddd"/>'
                     f'<text x="{x(10**power):.0f}" y="{height - 25}" text-anchor="middle">10^{power}</text>')
    for tenth in range(0, 11, 2):
        parts.append(f'<path d="M50 {y(tenth / 10):.0f}H{width - 20}" stroke="#ddd"/>'
                     f'<text x="45" y="{y(tenth / 10) + 4:.0f}" text-anchor="end">{tenth * 10} %</text>')
    for index, ((name, _, _), curves) in enumerate(zip(RULES, results)):
        points = " ".join(f"{x(size):.1f},{y(accuracy):.1f}" for _, accuracy, size in curves[0])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" stroke-width="1.5"/>'
                     f'<text x="60" y="{40 + 14 * index}" fill="{COLOURS[index]}">{name}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">bytes of a client, up and down</text></svg>')
    return "\n".join(parts) + "\n"


def main(program, directory, target=0.97):
    os.makedirs(directory, exist_ok=True)
    results = [[run(program, directory, target, index, seed) for seed in SEEDS] for index in range(len(RULES))]
    with open(os.path.join(directory, "learning.md"), "w") as file:
        file.write(table(results, target))
    with open(os.path.join(directory, "learning.svg"), "w") as file:
        file.write(figure(results))
    print(table(results, target), end="")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
