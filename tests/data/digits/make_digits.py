#!/usr/bin/env python3
"""Writes the UCI optical digits (8x8, 1797 images) as .npy files beside this script.

Needs numpy and scikit-learn, which carries the data set. The result is the same on every machine.
A fifth of each class is held out. The rest goes to four boards whose labels differ: each has most
images of three or four digits, some of three others, none of the rest, as boards in different places
would. Boards 1 and 2 are group A, boards 3 and 4 group B.
"""
import pathlib

import numpy
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).parent
# For each label the boards that have it and their parts.
SHARES = {
    0: [(1, 7), (3, 3)],
    1: [(1, 7), (4, 3)],
    2: [(1, 6), (2, 4)],
    3: [(2, 7), (3, 3)],
    4: [(2, 7), (4, 3)],
    5: [(3, 7), (1, 3)],
    6: [(3, 7), (2, 3)],
    7: [(3, 5), (4, 5)],
    8: [(4, 7), (1, 3)],
    9: [(4, 7), (2, 3)],
}


def save(name, images, labels):
    numpy.save(HERE / f"{name}-images.npy", images.astype(numpy.uint8))
    numpy.save(HERE / f"{name}-labels.npy", labels.astype(numpy.uint8))
    print(f"{name}: {len(labels)} images, per label {numpy.bincount(labels, minlength=10).tolist()}")


def main():
    digits = load_digits()
    images, labels = digits.images, digits.target
    random = numpy.random.RandomState(20)
    held_out, boards = [], {board: [] for board in (1, 2, 3, 4)}
    for label, shares in SHARES.items():
        indices = random.permutation(numpy.flatnonzero(labels == label))
        cut = len(indices) // 5
        held_out.extend(indices[:cut])
        rest = indices[cut:]
        total = sum(parts for _, parts in shares)
        start = 0
        for position, (board, parts) in enumerate(shares):
            last = position == len(shares) - 1
            end = len(rest) if last else start + len(rest) * parts // total
            boards[board].extend(rest[start:end])
            start = end
    held_out = random.permutation(held_out)
    save("held-out", images[held_out], labels[held_out])
    for board, indices in boards.items():
        indices = random.permutation(indices)
        save(f"board-{board}", images[indices], labels[indices])


if __name__ == "__main__":
    main()
