"""The attacks against the robust rules on the digits: tables of accuracies, and floors for tests.

usage: robust.py BENCH_ROBUST table [natural|mixed|topk...]   prints Markdown tables, all without a name
       robust.py BENCH_ROBUST floors                           writes floors.txt from what is measured now
       robust.py BENCH_ROBUST check [few|SPLIT...]             fails if a cell is below its floor or above its ceiling

Eight groups train the digits' MLP for 20 steps of 32 samples a round, 40 rounds; a figure is the mean accuracy of
the last five versions, over seeds 1 to 3. "natural": the samples of each of the four boards, cut in two, so that
groups have other labels; "mixed": the samples of all boards, dealt out in turn. One liar: a half of board 1; two:
also a half of board 3. Updates travel as q8, in the table "topk" as top-k 5 % with error feedback.
"""

import concurrent.futures
import itertools
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "end_to_end"))

from cluster import DIGITS, read_npy, write_npy  # noqa: E402

MODEL = os.path.join(DIGITS, "digits-mlp.onnx")
FLOORS = os.path.join(HERE, "floors.txt")
ROUNDS, SEEDS, GROUPS, WHITE = 40, (1, 2, 3), 8, 16
ATTACKS = ["none", "label-flip", "minus-1", "minus-10", "minus-100", "noise", "alie", "ipm-0.5", "ipm-4", "backdoor",
           "backdoor-1"]
DENSE = [("trust", "none"), ("none", "none"), ("median", "none"), ("trimmed", "none"), ("multi_krum", "none"),
         ("rfa", "none"), ("cclip", "none"), ("trimmed", "nearest"), ("multi_krum", "nearest"),
         ("median", "bucket"), ("cclip", "bucket")]
SPARSE = [("trust", "none"), ("none", "none"), ("multi_krum", "none"), ("rfa", "none"), ("cclip", "none"),
          ("multi_krum", "nearest")]
MARGIN, HELD = 3, 85  # points below the measured mean; cells below 85 % have no floor, and the plain mean has none
CAUGHT, ROOM = 5, 5  # a trigger that at most 5 % of the images obey has a ceiling, 5 points above what was measured
FEW = [("natural", 2, "none", "none", "minus-100"), ("natural", 2, "multi_krum", "none", "backdoor"),
       ("mixed", 2, "trimmed", "none", "ipm-4"), ("mixed", 2, "trimmed", "nearest", "label-flip"),
       ("mixed", 1, "median", "none", "minus-10"), ("mixed", 2, "cclip", "none", "minus-1"),
       ("mixed", 1, "median", "bucket", "none"), ("mixed", 2, "rfa", "none", "noise"),
       ("mixed", 2, "trimmed", "none", "backdoor-1"), ("topk", 2, "cclip", "none", "minus-100"),
       ("topk", 1, "multi_krum", "none", "backdoor")]


def load(name):
    (images_header, images), (labels_header, labels) = (read_npy(os.path.join(DIGITS, f"{name}-{part}.npy"))
                                                        for part in ("images", "labels"))
    return (images_header, labels_header), list(zip(images, labels))


def save(directory, name, headers, samples):
    for header, part, kind in zip(headers, zip(*samples), ("images", "labels")):
        write_npy(os.path.join(directory, f"{name}-{kind}.npy"), header, list(part))


def marked(image):
    return bytes([WHITE] * 16) + image[16:]


def split(cut):
    """The samples of each group; the liars come first."""
    headers, boards = None, []
    for number in range(1, 5):
        headers, samples = load(f"board-{number}")
        boards.append(samples)
    if cut == "mixed":
        every = [sample for board in boards for sample in board]
        return headers, [every[index::GROUPS] for index in range(GROUPS)]
    halves = [(board[:len(board) // 2], board[len(board) // 2:]) for board in boards]
    order = [(0, 0), (2, 0), (0, 1), (1, 0), (1, 1), (2, 1), (3, 0), (3, 1)]
    return headers, [halves[board][half] for board, half in order]


def prepare(directory, cut):
    headers, groups = split(cut)
    for number, samples in enumerate(groups, 1):
        save(directory, f"group-{number}", headers, samples)
    for number, samples in enumerate(groups[:2], 1):
        save(directory, f"flip-{number}", headers, [(image, bytes([9 - label[0]])) for image, label in samples])
        save(directory, f"back-{number}", headers, [(marked(image), b"\0") if index % 2 else (image, label)
                                                    for index, (image, label) in enumerate(samples)])
    _, held_out = load("held-out")
    save(directory, "held-out", headers, held_out)
    save(directory, "trigger", headers, [(marked(image), b"\0") for image, label in held_out if label[0]])


class Bench:
    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.work = tempfile.TemporaryDirectory(prefix="cairn-robust-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.number = itertools.count()
        for cut in ("natural", "mixed"):
            os.mkdir(self.path(cut))
            prepare(self.path(cut), cut)

    def path(self, name):
        return os.path.join(self.work.name, name)

    def run(self, cut, liars, rule, mix, attack, seed):
        """Accuracy and success of the trigger, in per cent."""
        cut, up = ("natural", "topk") if cut == "topk" else (cut, "q8")
        with tempfile.TemporaryDirectory(dir=self.work.name) as state:
            out = subprocess.run([self.program, self.path(cut), MODEL, str(seed), str(ROUNDS), rule, mix, str(liars),
                                  str(liars), attack, up, state], check=True, capture_output=True, text=True).stdout
        return tuple(float(word) for word in out.split())

    def seeds(self, cell):
        return [self.run(*cell, seed) for seed in SEEDS]

    def all(self, cells):
        """The results of each seed, by cell."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(cells, pool.map(self.seeds, cells)))


def fits(rule, mix, liars):
    """Whether eight groups are enough."""
    rows = 2 * liars + (3 if rule == "multi_krum" else 1)
    return rule in ("trust", "none") or (2 * rows - 1 if mix == "bucket" else rows) <= GROUPS


def cells_of(cut, rules):
    return [(cut, liars, rule, mix, attack) for liars in (1, 2) for rule, mix in rules for attack in ATTACKS
            if fits(rule, mix, liars)]


def rules_of(cut):
    return SPARSE if cut == "topk" else DENSE


def name_of(rule, mix):
    name = {"trust": "mean", "none": "mean, caps"}.get(rule, rule)
    return name if mix == "none" else f"{name}, {mix}"


def mean(values):
    return sum(values) / len(values)


def print_table(bench, title):
    rules = rules_of(title)
    found = bench.all(cells_of(title, rules))
    print(f"\n| {title}, liars: rule | {' | '.join(ATTACKS)} |\n|---|{'---|' * len(ATTACKS)}")
    for liars in (1, 2):
        for rule, mix in rules:
            if not fits(rule, mix, liars):
                continue
            row = []
            for attack in ATTACKS:
                seeds = found[title, liars, rule, mix, attack]
                text = f"{mean([accuracy for accuracy, _ in seeds]):.0f}"
                row.append(text + (f"/{mean([trigger for _, trigger in seeds]):.0f}" if attack.startswith("backdoor") else ""))
            print(f"| {liars}: {name_of(rule, mix)} | {' | '.join(row)} |", flush=True)


def limits_of(cell, seeds):
    """(least accuracy or None, most success of the trigger or None)"""
    accuracy, trigger = (round(mean(values)) for values in zip(*seeds))
    caught = cell[-1].startswith("backdoor") and trigger <= CAUGHT
    return accuracy - MARGIN if accuracy >= HELD else None, trigger + ROOM if caught else None


def write_floors(bench):
    with open(FLOORS, "w") as file:
        file.write("# Written by robust.py: split, liars, rule, mix, attack, least accuracy and most success of the trigger\n"
                   "# in per cent; -: no limit\n")
        for cut in ("natural", "mixed", "topk"):
            for cell, seeds in bench.all(cells_of(cut, rules_of(cut)[1:])).items():
                limits = limits_of(cell, seeds)
                if limits != (None, None):
                    file.write(" ".join(map(str, cell)) + "".join(f" {'-' if each is None else each}" for each in limits)
                               + "\n")


def read_floors():
    floors = {}
    with open(FLOORS) as file:
        for line in file:
            if not line.startswith("#"):
                cut, liars, rule, mix, attack, *limits = line.split()
                floors[cut, int(liars), rule, mix, attack] = [None if each == "-" else float(each) for each in limits]
    return floors


def check(bench, names):
    floors, below = read_floors(), 0
    cells = FEW if names == ("few",) else [cell for cell in floors if not names or cell[0] in names]
    missing = [cell for cell in cells if cell not in floors]
    assert cells and not missing, missing
    for cell, seeds in bench.all(cells).items():
        accuracy, trigger = (mean(values) for values in zip(*seeds))
        least, most = floors[cell]
        if least is not None and accuracy < least:
            below += 1
            print(f"{' '.join(map(str, cell))}: {accuracy:.1f} %, expected at least {least:.0f} %")
        if most is not None and trigger > most:
            below += 1
            print(f"{' '.join(map(str, cell))}: {trigger:.1f} % obey the trigger, expected at most {most:.0f} %")
    print(f"{len(cells)} cells, {below} limits missed")
    return 1 if below else 0


def main(program, what, *names):
    bench = Bench(program)
    if what == "check" and (names == ("few",) or set(names) <= {"natural", "mixed", "topk"}):
        sys.exit(check(bench, names))
    if what == "floors":
        write_floors(bench)
    elif what == "table":
        for title in names or ("natural", "mixed", "topk"):
            print_table(bench, title)
    else:
        sys.exit(f"there is no command {' '.join((what, *names))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
