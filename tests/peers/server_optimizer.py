"""The server's optimizers, from the formulas of aggregator/merge/server_optimizer.h.

Each operation of float32 is one of doubles, rounded to float32: a double has more than twice the digits, so
sums, products, quotients and roots come out as if they were rounded once.
"""

import math
import sys
from array import array
from typing import NamedTuple

from update import LARGEST, Refused, floats, refuse

RATES = {"fedavg": 1, "nesterov": 0.7, "fedadagrad": 0.1, "fedadam": 0.03, "fedyogi": 0.03}


def narrow(value):
    """The nearest float32."""
    return floats([value])[0]


class Server(NamedTuple):
    optimizer: str = "fedavg"
    learning_rate: float = 0  # 0: the optimizer's own
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 0.001

    def begin(self, count):
        """The rows before the first round."""
        epsilon = narrow(self.epsilon)
        moments = floats([0.0]) * count
        squares = floats([epsilon * epsilon]) * count
        return {"fedavg": [], "fedavgm": [moments], "nesterov": [moments], "fedadagrad": [squares],
                "fedadam": [moments, squares], "fedyogi": [moments, squares]}[self.optimizer]

    def rate(self):
        return narrow(self.learning_rate or RATES.get(self.optimizer, 1 - self.momentum))

    def asynchronous(self, buffer, quorum):
        """That of an asynchronous run: the optimizer's own learning rate is for as many updates as the quorum."""
        if self.learning_rate or buffer >= quorum:
            return self
        return self._replace(learning_rate=RATES.get(self.optimizer, 1 - self.momentum) * buffer / quorum)

    def step(self, mean, rows, statistics):
        """The step, and the rows after it. Statistics take the mean and leave their part of the rows alone."""
        refuse(len(rows) != len(self.begin(0)), "rows of the server's optimizer")
        rate, rows, step, kept = self.rate(), [array("f", row) for row in rows], array("f", mean), set(statistics)
        move = getattr(self, "_" + self.optimizer)
        for at, d in enumerate(mean):
            if at in kept:
                continue
            state = [row[at] for row in rows]
            moved, state = move(rate, d, *state)
            step[at] = max(-LARGEST, min(LARGEST, moved))
            for row, value in zip(rows, state):
                row[at] = value
        return step, rows

    def _fedavg(self, rate, d):
        return narrow(rate * d), []

    def _fedavgm(self, rate, d, m):
        m = narrow(narrow(narrow(self.momentum) * m) + d)
        return narrow(rate * m), [m]

    def _nesterov(self, rate, d, m):
        b = narrow(self.momentum)
        m = narrow(narrow(b * m) + d)
        return narrow(rate * narrow(narrow(b * m) + d)), [m]

    def _quotient(self, rate, above, v):
        return narrow(narrow(rate * above) / narrow(narrow(math.sqrt(v)) + narrow(self.epsilon)))

    def _fedadagrad(self, rate, d, v):
        v = narrow(v + narrow(d * d))
        return self._quotient(rate, d, v), [v]

    def _mean(self, d, m):
        return narrow(narrow(narrow(self.beta1) * m) + narrow(narrow(1 - self.beta1) * d))

    def _fedadam(self, rate, d, m, v):
        m = self._mean(d, m)
        v = narrow(narrow(narrow(self.beta2) * v) + narrow(narrow(1 - self.beta2) * narrow(d * d)))
        return self._quotient(rate, m, v), [m, v]

    def _fedyogi(self, rate, d, m, v):
        m, square = self._mean(d, m), narrow(d * d)
        v = narrow(v - narrow(narrow(1 - self.beta2) * square) * ((v > square) - (v < square)))
        return self._quotient(rate, m, v), [m, v]


# Test vectors


def from_bits(words):
    return array("f", b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words))


def main(path):
    """Computes the vectors, with one value more than these have: that of a statistic, which takes the mean."""
    with open(path) as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    means, count = [from_bits(words) for kind, *words in lines if kind == "mean"], 0
    for kind, *words in (line for line in lines if line[0] != "mean"):
        if kind == "optimizer":
            name, server = words[0], Server(words[0], float(words[1]))
            rows, steps, left = server.begin(len(means[0]) + 1), iter(means), 0
        elif kind == "step":
            mean = next(steps)
            step, rows = server.step([*mean, mean[0]], rows, [len(mean)])
            refuse(step[:-1] != from_bits(words), "a step of %s" % name)
            refuse(step[-1] != mean[0], "the statistic's step of %s" % name)
            count += 1
        else:
            refuse(kind != "row" or rows[left][:-1] != from_bits(words), "row %d of %s" % (left, name))
            left, count = left + 1, count + 1
    refuse(not count, "no vectors")
    print("%d steps and rows computed" % count)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Refused as error:
        sys.exit("server_optimizer: %s" % error)
