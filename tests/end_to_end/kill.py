"""Kill -9 of random processes at random moments: the final model is that of the undisturbed run.

    kill.py BUILD RUNS [SEED]

Each run kills processes (members, leaders, the aggregator; one, several or all at once), once or several
times, starts them again at once, and compares the digest of the last version. Some runs kill within the
first 200 ms or at the very end. One run in four leaves a board dead for good: then the membership
changes, so the promise is that replay agrees and the accuracy is within a point.
"""

import random
import sys
import time

from cluster import Cluster

# Long enough that "no deadline expired" holds on a busy machine.
# Gradients in ten buckets: a kill may find some of them reduced.
KILLED = {"rounds": 8, "local_steps": 40, "rejoin": "30 s", "form": "30 s", "group": ", bucket: 16 KiB"}
# Every board has samples of all digits: what a dead board knew is not lost with it.
LOST = {"rounds": 8, "local_steps": 40, "rejoin": "500 ms", "form": "10 s", "mixed": True}

NAMES = ["gateway", "board-1", "board-2", "board-3", "board-4"]


def undisturbed(build, settings):
    with Cluster(build, **settings) as cluster:
        begun = time.monotonic()
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest(), cluster.accuracy(), time.monotonic() - begun


def moments(generator, took):
    kind = generator.choice(["any", "any", "any", "early", "late"])
    if kind == "early":
        return [generator.uniform(0, 0.2)]
    if kind == "late":
        return [generator.uniform(took - 4, took)]
    return sorted(generator.uniform(0.05, took) for _ in range(generator.choice([1, 1, 2, 3])))


def kill_and_start(cluster, victims):
    running = [name for name in victims if cluster.processes[name].poll() is None]
    for name in running:
        cluster.kill(name)
    for name in running:
        cluster.start(name)


def run_killed(build, generator, took, expected):
    victims = generator.sample(NAMES, generator.choice([1, 1, 1, 2, 3, 5]))
    times = moments(generator, took)
    where = f"{', '.join(victims)} at {', '.join(f'{t:.2f}' for t in times)} s"
    print(f"  {where}", flush=True)
    with Cluster(build, **KILLED) as cluster:
        cluster.start_all()
        begun = time.monotonic()
        for moment in times:
            time.sleep(max(0, begun + moment - time.monotonic()))
            kill_and_start(cluster, victims)
        cluster.wait_for_end(150)
        cluster.replay()
        digest = cluster.digest()
        assert digest == expected, f"killed {where}: digest {digest}, undisturbed {expected}"
        return f"same digest, {time.monotonic() - begun:.1f} s"


def run_lost(build, generator, took, accuracy):
    """Not in the last rounds: what is left has to settle."""
    victim = generator.choice(NAMES[1:])
    moment = generator.uniform(0.05, 0.7 * took)
    with Cluster(build, **LOST) as cluster:
        cluster.start_all()
        time.sleep(moment)
        if cluster.processes[victim].poll() is None:
            cluster.kill(victim)
        cluster.wait_for_end(150, [name for name in cluster.processes if name != victim])
        cluster.replay()
        reached = cluster.accuracy()
        assert reached >= accuracy - 0.0101, f"lost {victim} at {moment:.2f} s: accuracy {reached}, was {accuracy}"
        return f"lost {victim} at {moment:.2f} s: accuracy {reached}, undisturbed {accuracy}"


def main(build, runs, seed):
    digest, accuracy, took = undisturbed(build, {**KILLED, "group": ""})
    print(f"undisturbed: {took:.1f} s, accuracy {accuracy}, digest {digest[:16]}", flush=True)
    lost = None
    for number in range(runs):
        generator = random.Random(seed + number)
        if number % 4 == 2:
            lost = lost or undisturbed(build, LOST)
            line = run_lost(build, generator, lost[2], lost[1])
        else:
            line = run_killed(build, generator, took, digest)
        print(f"{number + 1}/{runs} seed {seed + number}: {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
