"""FedNova, from the formulas of aggregator/merge/normalize.h: a second implementation."""

import math
from typing import NamedTuple

from robust import quotient
from update import floats

UNIT = 256
LARGEST_WEIGHT = 2**31
FIX = 1 << 27


class Normalize(NamedTuple):
    """Values of the job; learning_rate and proximal of train."""
    momentum: float = 0.0
    learning_rate: float = 0.0
    proximal: float = 0.0
    nesterov: bool = False

    def distance(self, steps):
        """How far the steps go along a constant gradient of 1."""
        pull, distance, velocity = self.learning_rate * self.proximal, 0.0, 0.0
        for _ in range(steps):
            gradient = 1 - pull * distance
            velocity = self.momentum * velocity + gradient
            distance += gradient + self.momentum * velocity if self.nesterov else velocity
        return distance if distance >= 1 else 1.0

    def mean(self, counted, steps, norms, statistics):
        """(mean, sum of the weights) of (group, weight, whole numbers); steps by group, with those left out.

        norms: after the caps, of all groups in the order of counted; None where the round has no caps.
        """
        count = len(steps)
        most = max(1, LARGEST_WEIGHT // UNIT // count)
        weights = [min(weight, most) for _, weight, _ in counted]
        distances = [self.distance(steps[group]) for group, _, _ in counted]
        least, far, longest, lengths = min(distances), math.inf, math.inf, {}
        if norms is not None:
            middle = lambda numbers: sorted(numbers)[(len(numbers) - 1) // 2]
            lengths = {group: norm * (least / self.distance(steps[group])) for group, norm in norms.items()}
            far = 2 * middle([self.distance(each) for each in steps.values()])
            moving = [lengths[group] for group, norm in norms.items() if norm]
            longest = 1.25 * middle(moving) if len(moving) >= 3 else math.inf
        parts = [w * UNIT * least / a for w, a in zip(weights, distances)]
        parts = [n * longest / lengths[group] if lengths.get(group, 0) > longest else n
                 for n, (group, _, _) in zip(parts, counted)]
        trained = [max(1, math.floor(n)) for n in parts]
        whole = [w * UNIT for w in weights]
        total, kept = sum(whole), set(statistics)
        sums = [sum(n * each for n, each in zip(whole if at in kept else trained, values))
                for at, values in enumerate(zip(*(fixes for _, _, fixes in counted)))]
        all_distances = all_weights = 0.0
        for w, a in zip(weights, distances):
            all_distances += w * min(a, far)
            all_weights += w
        factor = floats([all_distances / all_weights / least])[0]
        mean = floats(quotient(each, total * FIX) for each in sums)
        return floats(m if at in kept else m * factor for at, m in enumerate(mean)), total // UNIT
