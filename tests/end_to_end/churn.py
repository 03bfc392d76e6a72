"""A member is killed every few seconds and started again: nothing leaks, and all hold the same model in the end.

    churn.py BUILD SECONDS [SEED [LOG.csv]]

Four boards of one group; any of three dies each PAUSE seconds, the leader as likely as the others. The fourth and the
gateway live on through all epochs: their resident memory, descriptors and threads must not grow. The log has a line
for each process and second, and one for each kill.
"""

import csv
import json
import os
import random
import statistics
import sys
import time

from cluster import Cluster

GROUP = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
LIVES_ON = ("board-4", "gateway")
SETTINGS = {"rounds": 1_000_000, "local_steps": 60, "quorum": 1, "mixed": True, "rejoin": "300 ms", "timeout": "10 s"}
PAUSE = 5      # seconds between two kills
SETTLED = 0.3  # of the time: from then on nothing grows
GROWTH = 1.05  # of resident memory, and
SLACK = 512    # KiB, for what an allocator keeps
COMING = 2     # descriptors or threads, of one that connects just then
COLUMNS = ("seconds", "event", "process", "epoch", "round", "step", "rss_kib", "descriptors", "threads")


def figures(pid):
    """Resident KiB, descriptors and threads of a process."""
    with open(f"/proc/{pid}/status") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    return int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def progress(cluster, name):
    """Epoch, round and step of a board, as it told its status file last."""
    try:
        with open(cluster.path("state", name, "status.json")) as file:
            status = json.load(file)
        return status["group"]["epoch"], status["round"]["number"], status["round"]["step"]
    except (OSError, ValueError, KeyError):
        return "", "", ""


class Churn:
    def __init__(self, cluster, seed, path):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.begun = time.monotonic()
        self.kills = 0
        self.samples = {name: [] for name in LIVES_ON}
        self.file = open(path, "w", newline="")
        self.rows = csv.writer(self.file)
        self.rows.writerow(COLUMNS)

    def seconds(self):
        return time.monotonic() - self.begun

    def sample(self):
        for name, process in self.cluster.processes.items():
            try:
                row = figures(process.pid)
            except (OSError, KeyError):  # on its way out
                continue
            self.rows.writerow([f"{self.seconds():.1f}", "", name, *progress(self.cluster, name), *row])
            if name in LIVES_ON:
                self.samples[name].append((self.seconds(), *row))
        self.file.flush()

    def kill(self):
        victim = self.random.choice([name for name in self.cluster.boards if name not in LIVES_ON])
        self.rows.writerow([f"{self.seconds():.1f}", "killed", victim, *progress(self.cluster, victim), "", "", ""])
        self.cluster.kill(victim)
        time.sleep(self.random.uniform(0, 1.5))
        self.cluster.start(victim)
        self.kills += 1

    def run(self, seconds, pause):
        next_kill = pause
        while self.seconds() < seconds:
            for name in LIVES_ON:
                assert self.cluster.processes[name].poll() is None, f"{name} ended"
            self.sample()
            if self.seconds() >= next_kill:
                next_kill += pause
                self.kill()
            time.sleep(1)

    def handles(self, name):
        """Descriptors and threads, for a second: they come and go with the members."""
        found = []
        for _ in range(10):
            found.append(figures(self.cluster.processes[name].pid)[1:])
            time.sleep(0.1)
        return list(zip(*found))

    def check_handles(self, name, begun):
        """After all the kills what it was at the beginning, when all members were there as well."""
        for what, first, last in zip(("descriptors", "threads"), begun, self.handles(name)):
            assert min(last) <= max(first) + COMING, f"{name}: {what} grew from {first} to {last}"

    def check_growth(self, name, seconds):
        """The last fifth against what it was when all was settled. A line for people."""
        samples = self.samples[name]
        before = [s for s in samples if SETTLED * seconds <= s[0] < (SETTLED + 0.2) * seconds]
        after = [s for s in samples if s[0] >= 0.8 * seconds]
        said = []
        for index, what in ((1, "KiB"), (2, "descriptors"), (3, "threads")):
            first, last = (statistics.median(s[index] for s in part) for part in (before, after))
            assert index > 1 or last <= GROWTH * first + SLACK, f"{name}: {what} grew from {first} to {last}"
            said.append(f"{what} {first:.0f} -> {last:.0f} (most {max(s[index] for s in samples)})")
        return f"{name}: {', '.join(said)}"


def newest(cluster, name):
    """The last version that a board said it has."""
    said = [line for line in cluster.log(name).splitlines() if " epoch: version " in line]
    return int(said[-1].split(" version ")[1].split()[0].rstrip(":")) if said else 0


def go_on(cluster):
    """All are one group and go on."""
    begun = {name: newest(cluster, name) for name in cluster.boards}
    deadline = time.monotonic() + 240
    while min(newest(cluster, name) for name in cluster.boards) < max(begun.values()) + 1:
        assert time.monotonic() < deadline, f"not all boards went on: {begun}"
        time.sleep(0.2)


def settle(cluster):
    """No new version comes, and they hold the same one."""
    deadline = time.monotonic() + 240
    cluster.kill("gateway")
    while len({newest(cluster, name) for name in cluster.boards}) > 1:
        assert time.monotonic() < deadline, "the boards hold different versions"
        time.sleep(0.2)
    while len({cluster.current_model(name) for name in cluster.boards}) > 1:  # the file is written after the line
        assert time.monotonic() < deadline, "the boards hold different models"
        time.sleep(0.2)


def main(build, seconds, seed=1, path=os.devnull):
    os.environ["CAIRN_CORE_DUMPS"] = "1"  # else only root may look at a program's descriptors
    with Cluster(build, GROUP, **SETTINGS) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-4", "version 1: held-out")
        churn = Churn(cluster, seed, path)
        begun = {name: churn.handles(name) for name in LIVES_ON}
        churn.run(seconds, PAUSE if seconds > 60 else PAUSE / 2)
        epochs = cluster.log("board-4").count("group: epoch ")
        go_on(cluster)
        for name in LIVES_ON:
            churn.check_handles(name, begun[name])
        settle(cluster)
        assert cluster.replay()[-1].split(", ")[1] == "0 differ", cluster.replay()[-1]
        assert epochs > churn.kills, f"{epochs} epochs, {churn.kills} kills"
        for name in LIVES_ON:
            print(churn.check_growth(name, seconds))
        print(f"{seconds:.0f} s, {churn.kills} kills, {epochs} epochs of board-4, version {newest(cluster, 'board-4')}; "
              "all hold the same model, replay agrees")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:4]), *sys.argv[4:5])
