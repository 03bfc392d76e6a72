"""Whether the direction of an update tells who lies: its cosine with the sum of the others' updates.

usage: directions.py [SEEDS]

Prints a Markdown table. Groups, model, rounds and caps are those of caps.py, "own" with rounds of 5 steps. The liar
sends what it learned times -1, the same at the median norm of the others ("-1, their norm"), or the last version's
step times -1 (step back). Columns: the median and the smallest cosine of the honest groups, the median of the liar, and
the part of the liar's updates whose cosine is below all those of honest groups when nobody lies.
"""

import sys

import numpy as np

from caps import Caps, first_weights, split, train

ROUNDS, LIES = 30, ("nobody", "-1", "-1, their norm", "step back")


def cosines(changes):
    others = changes.sum(0) - changes
    lengths = np.linalg.norm(changes, axis=1) * np.linalg.norm(others, axis=1)
    return (changes * others).sum(1) / np.maximum(lengths, 1e-12)


def told(lie, own, others, step):
    if lie == "step back":
        return -step
    scale = 1 if lie == "-1" else np.median(np.linalg.norm(others, axis=1)) / np.linalg.norm(own)
    return -own * scale


def run(cut, lie, seed):
    """The cosines of the honest groups and of the liar in each round but the first."""
    draw, groups = np.random.default_rng(seed), split(cut)
    liar = None if lie == "nobody" else seed % len(groups)
    weights, caps, found = first_weights(draw), Caps("the caps: N > 7/4 R", len(groups)), []
    step = np.zeros_like(weights)
    settings = (5, 0.1, 0) if cut == "own" else (20, 0.05, 0.9)
    for _ in range(ROUNDS):
        changes = np.stack([train(weights, data, *settings, draw) for data in groups])
        if liar is not None:
            changes[liar] = told(lie, changes[liar], np.delete(changes, liar, 0), step)
        found.append(cosines(changes))
        step = caps.mean(changes).astype(np.float32)
        weights = weights + step
    found = np.array(found[1:])
    return (found, None) if liar is None else (np.delete(found, liar, 1), found[:, liar])


def main(count="4"):
    print("| cut | the liar sends | honest: median, least | the liar: median | below all honest ones, % |\n" + "|---" * 5 + "|")
    for cut in ("natural", "disjoint", "own"):
        least = None
        for lie in LIES:
            honest, liar = zip(*(run(cut, lie, seed) for seed in range(1, int(count) + 1)))
            honest = np.concatenate([each.ravel() for each in honest])
            least = honest.min() if least is None else least
            cells = f"{np.median(honest):.2f}, {honest.min():.2f}"
            if lie == "nobody":
                print(f"| {cut} | nobody lies | {cells} | | |", flush=True)
                continue
            liar = np.concatenate(liar)
            print(f"| {cut} | {lie} | {cells} | {np.median(liar):.2f} | {100 * (liar < least).mean():.0f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
