"""Robust rules over the updates of a round, from aggregator/merge/robust.h and the headers it names.

usage: robust.py VECTORS.txt   (computes every vector again)

An update is (group, weight, whole numbers in units of 2^-27). Distances are whole numbers. Shares are doubles, one
operation at a time in the order of groups, and become whole numbers before they multiply values.
"""

import hashlib
import math
import sys
from typing import NamedTuple

from update import Refused, floats, refuse

RULES = ("none", "median", "trimmed", "multi_krum", "rfa", "cclip")
STEPS, ALL, NEAREST, FIX = 3, 1 << 30, 128.0, 1 << 27


def product(a, b):
    return sum(x * y for x, y in zip(a, b))


def distances_of(rows, places):
    """Squares of distances, by the coordinates at places."""
    rows = [[row[at] for at in places] for row in rows]
    return [[product(d, d) for d in ([x - y for x, y in zip(a, b)] for b in rows)] for a in rows]


def quotient(numerator, denominator):
    """The nearest float32 to a quotient of whole numbers, ties to even; results stay above 2^-126."""
    if not numerator:
        return 0.0
    size = abs(numerator)
    shift = 25 - (size.bit_length() - denominator.bit_length())
    size, denominator = size << max(shift, 0), denominator << max(-shift, 0)
    digits, rest = divmod(size, denominator)
    drop = digits.bit_length() - 24
    low = digits & ((1 << drop) - 1)
    digits >>= drop
    half = 1 << (drop - 1)
    if low > half or low == half and (rest or digits & 1):
        digits += 1
    return math.copysign(math.ldexp(digits, drop - shift), numerator)


def chosen(distances, tolerate):
    """The rows of multi-Krum."""
    n = len(distances)
    scores = [sum(sorted(each for s, each in enumerate(row) if s != r)[:max(0, n - tolerate - 2)])
              for r, row in enumerate(distances)]
    return set(sorted(range(n), key=lambda r: (scores[r], r))[:n - tolerate])


def spread(distances, shares):
    total = 0.0
    for h, row in enumerate(distances):
        for k, each in enumerate(row):
            total += shares[h] * shares[k] * float(each)
    return total / 2


def far(distances, shares):
    """The distance of each row from the mean by shares."""
    around, found = spread(distances, shares), []
    for row in distances:
        total = 0.0
        for h, each in enumerate(row):
            total += shares[h] * float(each)
        total -= around
        found.append(math.sqrt(total) if total > 0 else 0.0)
    return found


def normalized(values):
    total = 0.0
    for value in values:
        total += value
    return [value / total for value in values]


def weighed(distances, weights, nearest):
    """The shares of RFA."""
    shares = normalized([float(weight) for weight in weights])
    for _ in range(STEPS):
        apart = far(distances, shares)
        shares = normalized([float(weight) / max(each, nearest) for weight, each in zip(weights, apart)])
    return shares


def clipped(distances):
    """The shares of CenteredClip; the last row is the center."""
    updates = len(distances) - 1
    shares = [0.0] * updates + [1.0]
    for _ in range(STEPS):
        apart = far(distances, shares)[:updates]
        radius, total = sorted(apart)[(updates - 1) // 2], 0.0
        kept = [radius / each if each > radius else 1.0 for each in apart]
        for each in kept:
            total += each
        shares = [share * (1 - total / updates) for share in shares]
        shares[:updates] = [share + each / updates for share, each in zip(shares, kept)]
    return shares


class Robust(NamedTuple):
    rule: str = "none"
    mix: str = "none"
    tolerate: int = 1
    seed: int = 1

    def needs(self):
        rows = 2 * self.tolerate + (3 if self.rule == "multi_krum" else 1)
        return 2 * rows - 1 if self.mix == "bucket" else rows

    def begin(self, count):
        """The rows before the first round."""
        return [floats([0.0]) * count] if self.rule == "cclip" else []

    def tolerated(self, updates):
        rows = (updates + 1) // 2 if self.mix == "bucket" else updates
        extra = 3 if self.rule == "multi_krum" else 1
        return min(self.tolerate, max(0, rows - extra) // 2)

    def mixed(self, updates, number, tolerate, places):
        """(for each row how often it has each update, divisor)"""
        count = len(updates)
        if self.mix == "bucket":
            place = lambda i: hashlib.sha256(self.seed.to_bytes(8, "little") + number.to_bytes(4, "little") +
                                             updates[i][0].encode()).digest()
            order, rows = sorted(range(count), key=place), []
            for first in range(0, count, 2):
                pair = order[first:first + 2]
                rows.append([2 // len(pair) if i in pair else 0 for i in range(count)])
            return rows, 2
        if self.mix == "nearest":
            distances, rows = distances_of([fixes for _, _, fixes in updates], places), []
            for r in range(count):
                near = sorted((i for i in range(count) if i != r), key=lambda i: (distances[r][i], i))
                rows.append([int(i == r or i in near[:count - tolerate - 1]) for i in range(count)])
            return rows, count - tolerate
        return [[int(i == r) for i in range(count)] for r in range(count)], 1

    def whole_shares(self, rows, divisor, weights, center, tolerate, places):
        """The shares of the rows, and of the center behind them, as whole numbers."""
        distances = distances_of(rows + ([[divisor * each for each in center]] if center is not None else []), places)
        if self.rule == "multi_krum":
            taken = chosen(distances, tolerate)
            return [weight * (r in taken) for r, weight in enumerate(weights)], 0
        if self.rule == "rfa":
            return [int(share * float(ALL // divisor)) for share in weighed(distances, weights, NEAREST * divisor)], 0
        shares = [int(share * float(ALL // divisor)) for share in clipped(distances)[:len(rows)]]
        return shares, max(0, ALL // divisor - sum(shares))

    def mean(self, updates, number, state, places):
        """(mean, rows after it) of updates in the order of groups. places: the coordinates that are trained."""
        tolerate = self.tolerated(len(updates))
        counts, divisor = self.mixed(updates, number, tolerate, places)
        rows = [[sum(times * each for times, each in zip(row, values) if times)
                 for values in zip(*(fixes for _, _, fixes in updates))] for row in counts]
        if self.rule in ("median", "trimmed"):
            first = (len(rows) - 1) // 2 if self.rule == "median" else tolerate
            middle = lambda values: sum(sorted(values)[first:len(values) - first])
            return floats(quotient(middle(values), (len(rows) - 2 * first) * divisor * FIX)
                          for values in zip(*rows)), []
        weights = [weight if self.mix == "none" else 1 for _, weight, _ in updates][:len(rows)]
        center = [round(value * FIX) for value in state[0]] if state else None
        shares, rest = self.whole_shares(rows, divisor, weights, center, tolerate, places)
        columns = zip(*rows, [divisor * each for each in center]) if state else zip(*rows)
        shares, below = shares + [rest] * bool(state), (sum(shares) + rest) * divisor * FIX
        result = floats(quotient(sum(share * each for share, each in zip(shares, values)), below)
                        for values in columns)
        return result, [result] if state else []


# Test vectors


def main(path):
    with open(path) as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    updates = [(words[1], int(words[2]), [int(word) for word in words[3:]]) for words in lines if words[0] == "update"]
    count = 0
    for words in (words for words in lines if words[0] == "rule"):
        _, rule, mix, tolerate, n, *expected = words
        robust = Robust(rule, mix, int(tolerate), 1)
        mean, _ = robust.mean(updates[:int(n)], 3, robust.begin(len(updates[0][2])), range(len(updates[0][2])))
        bits = ["%08x" % int.from_bytes(floats([value]).tobytes(), sys.byteorder) for value in mean]
        refuse(bits != expected, "%s, %s, %s of %s: %s" % (rule, mix, tolerate, n, " ".join(bits)))
        count += 1
    refuse(not count, "no vectors")
    print("%d vectors computed" % count)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Refused as error:
        sys.exit("robust: %s" % error)
