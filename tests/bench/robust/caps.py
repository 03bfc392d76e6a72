"""Rules for which updates the caps leave out: honest groups with labels of their own, and a group that lies.

usage: caps.py [SEEDS]

Prints a Markdown table of accuracies in per cent. The digits' MLP is trained in numpy, without compression, and each
rule decides by the norms of the updates of this and earlier rounds. "own labels": five groups with two digits each,
120 rounds of 5 steps, nobody lies; the mean over the seeds, then the worst. Other columns: four groups, rounds of 20
steps, another group lies in each seed. "natural": each group has one board's files; "disjoint": digits 012, 34, 567,
89. The liar sends what it learned, times -1, -10 or -100, or the last version's step times -100 (step).
"""

import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "data", "digits")
BATCH, HIDDEN, TOTAL = 32, 64, 64 * 64 + 64 + 64 * 10 + 10
LABELS = {"own": ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)), "disjoint": ((0, 1, 2), (3, 4), (5, 6, 7), (8, 9))}
LIES = {"-1": -1, "-10": -10, "-100": -100}


def load(name):
    images, labels = (np.load(os.path.join(DIGITS, f"{name}-{part}.npy")) for part in ("images", "labels"))
    return images.reshape(-1, 64).astype(np.float32) * 0.0625, labels.reshape(-1).astype(int)


BOARDS, HELD_OUT = [load(f"board-{number}") for number in range(1, 5)], load("held-out")


def split(cut):
    if cut == "natural":
        return BOARDS
    images, labels = (np.concatenate(each) for each in zip(*BOARDS))
    return [(images[np.isin(labels, own)], labels[np.isin(labels, own)]) for own in LABELS[cut]]


def parts(weights):
    return weights[:4096].reshape(64, HIDDEN), weights[4096:4160], weights[4160:4800].reshape(HIDDEN, 10), weights[4800:]


def forward(weights, images):
    first, bias, second, last = parts(weights)
    hidden = np.maximum(images @ first + bias, 0)
    return hidden, hidden @ second + last


def accuracy(weights):
    return 100 * (forward(weights, HELD_OUT[0])[1].argmax(1) == HELD_OUT[1]).mean()


def train(start, data, steps, rate, momentum, draw):
    """What a group learned."""
    weights, speed = start.copy(), np.zeros_like(start)
    for _ in range(steps):
        rows = draw.integers(0, len(data[0]), BATCH)
        hidden, scores = forward(weights, data[0][rows])
        error = np.exp(scores - scores.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[np.arange(BATCH), data[1][rows]] -= 1
        error /= BATCH
        inner = (error @ parts(weights)[2].T) * (hidden > 0)
        slope = np.concatenate([(data[0][rows].T @ inner).ravel(), inner.sum(0), (hidden.T @ error).ravel(), error.sum(0)])
        speed = momentum * speed + slope
        weights -= np.float32(rate) * speed
    return weights - start


class Server:
    def __init__(self, kind):
        self.kind, self.mean, self.square = kind, 0, 1e-6

    def step(self, change):
        if self.kind == "fedavg":
            return change
        if self.kind == "nesterov":
            self.mean = 0.9 * self.mean + change
            return 0.7 * (change + 0.9 * self.mean)
        self.mean = 0.9 * self.mean + 0.1 * change
        self.square = 0.99 * self.square + 0.01 * change * change
        return 0.03 * self.mean / (np.sqrt(self.square) + 1e-3)


# --- rules: the largest norm that is not left out; M: medians of the rounds so far, R: largest outside a quarter ---

RULES = {
    "the caps: N > 7/4 R": lambda M, R: 1.75 * R,
    "never, only scaled down": lambda M, R: np.inf,
    "N > 8 R": lambda M, R: 8 * R,
    "N > 7/4 of the larger of R and the median M of 17 rounds": lambda M, R: 1.75 * max(R, np.median(M[-17:])),
    "… of R and the largest M so far": lambda M, R: 1.75 * max(R, *M, 0),
    "… of R and half the largest M so far": lambda M, R: 1.75 * max(R, max(M) / 2),
    "N > 7/4 R; once M is below 1/4 of the largest M, 7/4 of that":
        lambda M, R: 1.75 * (R if M[-1] >= max(M) / 4 else max(R, *M, 0)),
    "the caps, but no group twice in a row": None,
}


def first_weights(draw):
    weights = np.concatenate([draw.uniform(-0.125, 0.125, 4096), np.zeros(64), draw.uniform(-0.125, 0.125, 640),
                              np.zeros(10)]).astype(np.float32)
    assert len(weights) == TOTAL
    return weights


class Caps:
    def __init__(self, rule, groups):
        self.rule, self.medians, self.out = RULES[rule], [], np.zeros(groups, bool)

    def mean(self, changes):
        norms = np.linalg.norm(changes, axis=1)
        order = np.sort(norms)
        self.medians.append(order[(len(order) - 1) // 2])
        above = order[len(order) - 1 - len(order) // 4]
        if self.rule:
            self.out = norms > self.rule(self.medians, above)
        else:
            self.out = (norms > 1.75 * above) & ~self.out
        factors = np.minimum(1, min(1.25 * self.medians[-1], 10) / np.maximum(norms, 1e-12))
        return (changes * factors[:, None])[~self.out].mean(0)


def run(rule, cut, seed, rounds, steps=20, rate=0.05, momentum=0.9, server="fedavg", lie=None):
    draw = np.random.default_rng(seed)
    groups, liar = split(cut), seed % 4
    if lie == "without":
        groups = groups[:liar] + groups[liar + 1:]
    weights = first_weights(draw)
    caps, optimizer, step, found = Caps(rule, len(groups)), Server(server), np.zeros_like(weights), []
    for number in range(rounds):
        changes = np.stack([train(weights, data, steps, rate, momentum, draw) for data in groups])
        if lie in LIES:
            changes[liar] *= LIES[lie]
        elif lie == "step":
            changes[liar] = np.clip(-100 * step, -15, 15)
        step = optimizer.step(caps.mean(changes)).astype(np.float32)
        weights = weights + step
        if number >= rounds - 5:
            found.append(accuracy(weights))
    return np.mean(found)


def own_labels(rule, server, seeds):
    found = [run(rule, "own", seed, 120, 5, 0.1, 0, server) for seed in seeds]
    return f"{np.mean(found):.0f}, {min(found):.0f}"


def attacked(rule, cut, rounds, lies, seeds):
    return ", ".join(f"{np.mean([run(rule, cut, seed, rounds, lie=lie) for seed in seeds]):.0f}" for lie in lies)


def main(count="8"):
    seeds = range(1, int(count) + 1)
    print("| an update is left out | own labels: fedadam | nesterov | fedavg | natural: none, without, −Δ | −10Δ, −100Δ, step "
          "| natural, 80 rounds: without, −Δ | disjoint: without, −Δ, −10Δ, step |\n" + "|---" * 8 + "|")
    for rule in RULES:
        cells = [own_labels(rule, server, seeds) for server in ("fedadam", "nesterov", "fedavg")]
        cells.append(attacked(rule, "natural", 30, (None, "without", "-1"), seeds[:4]))
        cells.append(attacked(rule, "natural", 30, ("-10", "-100", "step"), seeds[:4]))
        cells.append(attacked(rule, "natural", 80, ("without", "-1"), seeds[:4]))
        cells.append(attacked(rule, "disjoint", 30, ("without", "-1", "-10", "step"), seeds[:4]))
        print(f"| {rule} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
