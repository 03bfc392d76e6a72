"""Rounds and bytes to a target on the digits for each job of tests/examples/strategies, in real runs.

usage: strategies.py BUILD/bin [ROUNDS [STRATEGY...]]

Runs each strategy, or those that are named, on two splits with `cairn-aggregator try`: five boards, each a group
of its own (`bucket`: six). Writes strategies.csv, in which the rows of strategies that were not run stay, and strategies.svg. Prints
a Markdown table.
"""

import csv
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.append(os.path.join(SOURCE, "tests", "end_to_end"))
from lora import add_adapters  # noqa: E402

EXAMPLES = os.path.join(SOURCE, "tests", "examples", "strategies")
DIGITS = os.path.join(SOURCE, "tests", "data", "digits")
TABLE = os.path.join(HERE, "strategies.csv")
SPLITS = {"labels": "each group has two digits of its own", "iid": "each group has digits of all kinds"}
TARGET = 0.9
GROUPS = {"bucket": 6}  # of strategies that need more than 5
RANK = 4  # of the branches of the MLP that `adapters` trains
LAST = 5  # versions whose mean accuracy is the final one
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
          "#393b79", "#637939", "#843c39", "#7b4173", "#3182bd", "#e6550d", "#006d2c", "#a50f15", "#54278f", "#8c6d31",
          "#00441b", "#ce6dbd", "#636363", "#08306b")


def strategies():
    return sorted(name[:-5] for name in os.listdir(EXAMPLES) if name.endswith(".yaml") and name != "base.yaml")


def job_of(strategy):
    """The file of a strategy, which may also be given itself."""
    return strategy if strategy.endswith(".yaml") else os.path.join(EXAMPLES, f"{strategy}.yaml")


def groups_of(strategy):
    return GROUPS.get(strategy, 5)


def model_of(strategy, folder):
    """The MLP, or what a strategy needs in its place: a file with low-rank branches, or one with normalization."""
    mlp, made = os.path.join(DIGITS, "digits-mlp.onnx"), f"{folder}-adapters.onnx"
    if strategy == "adapters":
        add_adapters(mlp, made, RANK)
        return made
    return os.path.join(DIGITS, "digits-norm.onnx") if strategy == "fedbn" else mlp


def arguments(strategy, split, rounds, folder):
    groups = str(groups_of(strategy))
    return ["try", model_of(strategy, folder), "--boards", groups, "--groups", groups, "--split", split,
            "--data", os.path.join(DIGITS, "board-*-images.npy"), os.path.join(DIGITS, "board-*-labels.npy"),
            "--test", os.path.join(DIGITS, "held-out-images.npy"), os.path.join(DIGITS, "held-out-labels.npy"),
            "--scale", "0.0625", "--rounds", str(rounds), "--job", job_of(strategy),
            "--keep", folder, "--json"]


def run(build, strategy, split, rounds):
    """(version, accuracy, payload in bytes up to there) of each version"""
    program = os.path.join(build, "cairn-aggregator")
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as place:
        folder = os.path.join(place, "run")
        subprocess.run([program, *arguments(strategy, split, rounds, folder)], check=True, stdout=subprocess.DEVNULL,
                       timeout=1200)
        text = subprocess.run([program, "report", "--csv", os.path.join(folder, "gateway.yaml")], check=True,
                              capture_output=True, text=True, timeout=60).stdout
    with open(job_of(strategy), encoding="utf-8") as file:
        parts = 2 if "correction: scaffold" in file.read() else 1  # a control variate is as large as a version in q8
    payload, result = 0, []
    for row in csv.DictReader(text.splitlines()):
        if row["version"] != "0":  # each group sends an update and gets the version
            payload += int(row["update_bytes"] or 0) + groups_of(strategy) * parts * int(row["delta_size"] or 0)
            result.append((int(row["version"]), float(row["accuracy"]), payload))
    return result


def read_table():
    """{(split, strategy): versions} of earlier runs"""
    found = {}
    if os.path.exists(TABLE):
        with open(TABLE, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found.setdefault((row["split"], row["strategy"]), []).append(
                    (int(row["version"]), float(row["accuracy"]), int(row["payload"])))
    return found


def write_table(found):
    with open(TABLE, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("split", "strategy", "version", "accuracy", "payload"))
        for split in SPLITS:
            for strategy in strategies():
                table.writerows((split, strategy, *row) for row in found.get((split, strategy), ()))


def cell(versions):
    """Rounds and bytes to the target, and the final accuracy."""
    reached = next(((number, payload) for number, accuracy, payload in versions if accuracy >= TARGET), None)
    final = sum(accuracy for _, accuracy, _ in versions[-LAST:]) / LAST
    return f"{reached[0]}, {reached[1] / 1e3:.0f} kB, {final:.3f}" if reached else f"–, –, {final:.3f}"


def panel(found, split, top):
    left, width, height = 45, 480, 240
    lines = [f'<text x="{left}" y="{top - 8}">{split}: {SPLITS[split]}</text>']
    for tick in range(0, 11, 2):
        y = top + height * (1 - tick / 10)
        lines.append(f'<path d="M{left} {y:.0f}H{left + width}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{tick / 10:.1f}</text>')
    for place, strategy in enumerate(strategies()):
        versions = found.get((split, strategy))
        if not versions:
            continue
        color, last = COLORS[place % len(COLORS)], versions[-1][0]
        points = " ".join(f"{left + width * number / last:.1f},{top + height * (1 - accuracy):.1f}"
                          for number, accuracy, _ in versions)
        y = top + 8 + 11.5 * place
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.3"/>'
                     f'<path d="M{left + width + 14} {y - 4}h18" stroke="{color}" stroke-width="3"/>'
                     f'<text x="{left + width + 38}" y="{y}">{strategy}</text>')
        lines.append(f'<text x="{left + width}" y="{top + height + 14}" text-anchor="end">round {last}</text>')
    return "\n".join(dict.fromkeys(lines))


def write_figure(found):
    with open(os.path.join(HERE, "strategies.svg"), "w", encoding="utf-8") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="680" height="600" font-family="sans-serif" '
                   'font-size="11"><rect width="100%" height="100%" fill="white"/>\n'
                   + "\n".join(panel(found, split, 30 + 290 * place) for place, split in enumerate(SPLITS))
                   + "\n</svg>\n")


def main(build, rounds="60", *names):
    found = read_table()
    for strategy in names or strategies():
        for split in SPLITS:
            found[split, strategy] = run(os.path.abspath(build), strategy, split, int(rounds))
            print(f"{strategy}, {split}: {cell(found[split, strategy])}", file=sys.stderr, flush=True)
            write_table(found)
            write_figure(found)
    print("| strategy | " + " | ".join(SPLITS) + " |\n" + "|---" * (1 + len(SPLITS)) + "|")
    for strategy in strategies():
        cells = [cell(found[split, strategy]) if (split, strategy) in found else "" for split in SPLITS]
        print(f"| `{strategy}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
