"""Time to a target accuracy, synchronous against asynchronous: ten groups, three of them four times slower.

    asynchronous.py virtual             needs numpy; no program runs, a round of a fast group takes 1
    asynchronous.py shares              as virtual, for other buffers and other numbers of slow groups
    asynchronous.py processes BUILD_BIN the shipped programs; seconds

Both train the digits' MLP (64-64-10) on samples dealt out in turn; the target is an accuracy on held-out samples.
virtual: the rules of aggregator/merge/stale.h in float64, without what the codec leaves out. processes: each board
is stopped most of the time: fast ones run for 10 of 200 ms, slow ones for 10 of 800 ms, so ten of them need less than
the processors of a small machine.
"""

import heapq
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "end_to_end"))
import cluster as clusters  # noqa: E402

GROUPS, SLOW, TARGET, STEPS, BATCH, RATE, MOMENTUM = 10, 3, 0.9, 10, 32, 0.05, 0.9
STALE = [256, 181, 148, 128, 114, 105, 97, 91, 85]
BUFFERS = (7, 8)  # the default, which is the groups that are equally fast; and one more
SHARES = ("1/2", 5), ("5/8", 7), ("3/4", 8)  # of the quorum, rounded up


def speed_of(group, slow=SLOW):
    """The time of a round. Without slow groups the times differ by a tenth up and down."""
    if not slow:
        return 0.9 + 0.2 * group / (GROUPS - 1)
    return 4 if group >= GROUPS - slow else 1


class Digits:
    """The digits' MLP, its samples, and local training."""

    def __init__(self, seed):
        import numpy
        self.np = numpy
        parts = [[numpy.load(os.path.join(clusters.DIGITS, f"board-{n}-{part}.npy")) for n in range(1, 5)]
                 for part in ("images", "labels")]
        images, labels = (numpy.concatenate(each) for each in parts)
        self.data = [(images[g::GROUPS].reshape(-1, 64) / 16.0, labels[g::GROUPS].astype(int)) for g in range(GROUPS)]
        held = [numpy.load(os.path.join(clusters.DIGITS, f"held-out-{part}.npy")) for part in ("images", "labels")]
        self.held = held[0].reshape(-1, 64) / 16.0, held[1].astype(int)
        self.random = numpy.random.default_rng(seed)
        draw = lambda fan, shape: self.random.uniform(-fan ** -0.5, fan ** -0.5, shape)
        self.start = [draw(64, (64, 64)), draw(64, 64), draw(64, (64, 10)), draw(64, 10)]

    def gradients(self, weights, x, y):
        np, (a, b, c, d) = self.np, weights
        hidden = np.maximum(x @ a + b, 0)
        scores = hidden @ c + d
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        chances[np.arange(len(y)), y] -= 1
        chances /= len(y)
        back = (chances @ c.T) * (hidden > 0)
        return [x.T @ back, back.sum(0), hidden.T @ chances, chances.sum(0)]

    def train(self, base, group):
        """The change of a round."""
        (x, y), weights = self.data[group], [each.copy() for each in base]
        speeds = [0 * each for each in base]
        for _ in range(STEPS):
            chosen = self.random.integers(0, len(y), BATCH)
            for at, gradient in enumerate(self.gradients(weights, x[chosen], y[chosen])):
                speeds[at] = MOMENTUM * speeds[at] + gradient
                weights[at] -= RATE * speeds[at]
        return [now - before for now, before in zip(weights, base)]

    def accuracy(self, weights):
        a, b, c, d = weights
        return float((((self.np.maximum(self.held[0] @ a + b, 0)) @ c + d).argmax(1) == self.held[1]).mean())


def virtual_run(seed, buffer, slow=SLOW, most=8):
    """(time to the target, versions, largest staleness, late updates); buffer GROUPS is the synchronous run."""
    digits = Digits(seed)
    weights, number, taken, behind, late = digits.start, 0, {}, 0, 0
    events, order, idle = [], 0, set()

    def begin(group, now):
        nonlocal order
        order += 1
        heapq.heappush(events, (now + speed_of(group, slow), order, group, number, digits.train(weights, group)))

    for group in range(GROUPS):
        begin(group, 0)
    while number < 2000:
        now, _, group, base, change = heapq.heappop(events)
        stale = number - base
        if stale > most:
            late += 1
            begin(group, now)
            continue
        taken[group] = stale, change
        behind = max(behind, stale)
        idle.add(group)  # one update in a version
        if len(taken) < buffer:
            continue
        share = buffer / GROUPS / len(taken)
        weights = [w + sum(share * STALE[s] / 256 * change[at] for s, change in taken.values())
                   for at, w in enumerate(weights)]
        number, taken = number + 1, {}
        if digits.accuracy(weights) >= TARGET:
            return now, number, behind, late
        for each in sorted(idle):
            begin(each, now)
        idle.clear()
    raise SystemExit("the target was not reached")


def print_head(unit):
    runs = " | ".join(f"buffer {buffer}: {unit}, versions, largest staleness" for buffer in BUFFERS)
    print(f"| run | synchronous: {unit}, versions | {runs} |\n|---|---|{'---|' * len(BUFFERS)}", flush=True)


def print_row(run, slow, fast):
    cells = " | ".join("%.0f, %d, %d: %.2f" % (*each[:3], each[0] / slow[0]) for each in fast)
    print("| %d | %.0f, %d | %s |" % (run, *slow[:2], cells), flush=True)


def virtual():
    print_head("time")
    for seed in range(1, 6):
        print_row(seed, virtual_run(seed, GROUPS), [virtual_run(seed, buffer) for buffer in BUFFERS])


def shares():
    print("| slow groups | run | synchronous: time | %s |\n|---|---|---|---|---|---|" %
          " | ".join(f"{share} of the quorum: {buffer}" for share, buffer in SHARES), flush=True)
    for slow in 0, 1, 3, 5:
        for seed in range(1, 4):
            whole = virtual_run(seed, GROUPS, slow)[0]
            cells = ["%.0f, %d: %.2f" % (now, number, now / whole)
                     for now, number, *_ in (virtual_run(seed, buffer, slow) for _, buffer in SHARES)]
            print(f"| {slow} | {seed} | {whole:.0f} | {' | '.join(cells)} |", flush=True)


class Paced(clusters.Cluster):
    """Ten boards, each with a tenth of the samples, each stopped most of the time."""

    def write_profiles(self):
        self.job["mixed"] = True
        os.mkdir(self.path("data"))
        for part in ("images", "labels"):
            samples = []
            for number in range(1, 5):
                header, own = clusters.read_npy(os.path.join(clusters.DIGITS, f"board-{number}-{part}.npy"))
                samples += own
            for group, board in enumerate(self.boards):
                clusters.write_npy(self.path("data", f"{board}-{part}.npy"), header, samples[group::GROUPS])
        super().write_profiles()

    def pace(self, group, over):
        process = self.processes[self.boards[group]]
        while not over.is_set() and process.poll() is None:
            time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.2 * speed_of(group) - 0.01)
            process.send_signal(signal.SIGCONT)

    def first_at_target(self):
        """(seconds, version), once there is one."""
        rows = self.ledger("SELECT v.made_ms, v.number FROM version v WHERE v.count > 0 AND "
                           "1.0 * v.correct / v.count >= ? ORDER BY v.number LIMIT 1", TARGET)
        begun = self.ledger("SELECT opened_ms FROM round WHERE number = 1")
        return ((rows[0][0] - begun[0][0]) / 1000, rows[0][1]) if rows else None


def process_run(build, rounds):
    groups = {f"lab-{n:02}": [f"board-{n:02}"] for n in range(1, GROUPS + 1)}
    job = {"rounds": clusters.ENDLESS, "quorum": f"{GROUPS}{rounds}", "local_steps": STEPS, "model": "digits-mlp.onnx",
           "up": "{mode: q8}", "learning_rate": RATE, "deadline": "600 s"}
    over, threads = threading.Event(), []
    with Paced(build, groups, **job) as cluster:
        cluster.start_all()
        for group in range(GROUPS):
            threads.append(threading.Thread(target=cluster.pace, args=(group, over)))
            threads[-1].start()
        try:
            while not cluster.first_at_target():
                time.sleep(0.5)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        behind = cluster.ledger("SELECT max(version - round) FROM contribution")[0][0]
        return (*cluster.first_at_target(), behind)


def processes(build):
    print_head("s")
    for run in range(1, 4):
        print_row(run, process_run(build, ""),
                  [process_run(build, f", mode: asynchronous, async: {{buffer: {buffer}}}") for buffer in BUFFERS])


if __name__ == "__main__":
    if sys.argv[1:] == ["virtual"]:
        virtual()
    elif sys.argv[1:] == ["shares"]:
        shares()
    elif len(sys.argv) == 3 and sys.argv[1] == "processes":
        processes(os.path.abspath(sys.argv[2]))
    else:
        sys.exit(__doc__)
