"""Control variates, from runtime/update/variate.h and aggregator/merge/variate_fold.h: a second implementation."""

import sqlite3
from typing import NamedTuple

import update
from robust import quotient
from update import floats, refuse

LARGEST_WEIGHT = 2**31
UNIT = 2**24
FIX = 1 << 27


class Control(NamedTuple):
    """Values of the job below train. The learning rate is constant: there is no schedule."""
    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    nesterov: bool = False

    def distance(self, steps):
        """How far the steps go along a constant gradient of 1."""
        rate = floats([self.learning_rate])[0]
        distance = velocity = 0.0
        for _ in range(steps):
            gradient = 1 - self.proximal * distance
            velocity = self.momentum * velocity + gradient
            distance += rate * (gradient + self.momentum * velocity if self.nesterov else velocity)
        return distance if distance >= 1e-30 else 1e-30

    def advance(self, own, server, values, steps, has):
        """The variate of a group after an update of these values was accepted."""
        inverse = floats([1 / self.distance(steps)])[0]
        gradients = floats(value * inverse for value in values)
        moved = floats(o - s for o, s in zip(own, server))
        moved = floats(o - g for o, g in zip(moved, gradients))
        return floats(new if here else old for new, old, here in zip(moved, own, has))

    def fold(self, server, sent, updates, groups, has):
        """The server's variate after a round with updates (values, steps) that have values."""
        if not updates:
            return server
        count, distances = len(updates), [self.distance(steps) for _, steps in updates]
        unit, least, groups = min(UNIT, LARGEST_WEIGHT // count), min(distances), max(groups, count)
        times = [max(1, int(unit * least / each)) for each in distances]
        mean = floats(quotient(sum(t * round(v * FIX) for t, v in zip(times, each)), unit * count * FIX)
                      for each in zip(*(values for values, _ in updates)))
        share = count / groups
        part, scale = floats([share, share / least])
        shrunk, gradient = floats(part * s for s in sent), floats(scale * m for m in mean)
        moved = floats(old - s for old, s in zip(server, shrunk))
        moved = floats(new - g for new, g in zip(moved, gradient))
        return floats(new if here else old for new, old, here in zip(moved, server, has))


def has_values(layout):
    """For each value of a row, whether variates have it: of trained tensors that travel."""
    return [kind & ~update.SIGNS == update.PARAM for count, kind in layout for _ in range(count)]


def frame_of(server, run, version, digest, layout):
    """What boards get beside a version."""
    flags = update.LEAVE | update.flags_of(layout) & update.STAY
    limited = floats(max(-update.LARGEST, min(update.LARGEST, each)) for each in server)
    return update.encode(update.Header(update.Q8, 0, "", version, run, 1, 0.0, digest, flags), layout, limited)


def read_epochs(ledger):
    """[(first round, last round, groups)]"""
    try:
        return ledger.execute("SELECT from_round, last_round, groups FROM control_epoch").fetchall()
    except sqlite3.OperationalError:  # an older program's ledger
        return []


def epoch_of(epochs, number):
    """(first round, groups) of the epoch of a round"""
    found = [(first, groups) for first, last, groups in epochs if first <= number <= last]
    refuse(len(found) != 1, "the epoch of round %d" % number)
    return found[0]


class Follower:
    """The server's variate from version to version."""

    def __init__(self, ledger, layout, run):
        self.layout, self.run = layout, run
        self.epochs, self.has = read_epochs(ledger), has_values(layout)
        self.server = floats([0.0]) * len(self.has)

    def begin(self, number, base):
        """Before version `number` is made from a base: an epoch begins with zeros. Returns what the boards had."""
        first, self.groups = epoch_of(self.epochs, number)
        if first == number:
            self.server = floats([0.0]) * len(self.has)
            return self.server
        frame = frame_of(self.server, self.run, number - 1, base.digest, self.layout)
        return update.decode(frame, self.layout)[1]

    def follow(self, job, number, base, updates):
        """updates: (values, steps) of those with values."""
        sent = self.begin(number, base)
        self.server = job.fold(self.server, sent, updates, self.groups, self.has)

    def roll_back(self):
        self.server = floats([0.0]) * len(self.has)
