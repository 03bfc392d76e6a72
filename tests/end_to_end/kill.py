"""Kill -9 of a random process at a random moment: the final model is that of the undisturbed run.

    kill.py BUILD RUNS [SEED]

Each run kills one process (a member, a leader or the aggregator), once or several times, starts it again
at once, and compares the digest of the last version. One run in four leaves a board dead for good: then
the membership changes, so the promise is that replay agrees and the accuracy is within a point.
"""

import random
import sys
import time

from cluster import Cluster

SETTINGS = {"rounds": 8, "local_steps": 40}


def undisturbed(build):
    with Cluster(build, **SETTINGS) as cluster:
        begun = time.monotonic()
        cluster.start_all()
        cluster.wait_for_end(120)
        took = time.monotonic() - begun
        return final_digest(cluster), cluster.accuracy(), took


def final_digest(cluster):
    return cluster.status()["digest"]


def run_killed(build, generator, took, expected):
    victim = generator.choice(["gateway", "board-1", "board-2", "board-3", "board-4"])
    times = sorted(generator.uniform(0.05, took) for _ in range(generator.choice([1, 1, 2, 3])))
    with Cluster(build, **SETTINGS) as cluster:
        cluster.start_all()
        begun = time.monotonic()
        for moment in times:
            time.sleep(max(0, begun + moment - time.monotonic()))
            if cluster.processes[victim].poll() is not None:
                break
            cluster.kill(victim)
            cluster.start(victim)
        cluster.wait_for_end(150)
        cluster.replay()
        digest = final_digest(cluster)
        where = f"{victim} at {', '.join(f'{t:.2f}' for t in times)} s"
        assert digest == expected, f"killed {where}: digest {digest}, undisturbed {expected}"
        return f"killed {where}: same digest"


def run_lost(build, generator, took, accuracy):
    victim = generator.choice(["board-1", "board-2", "board-3", "board-4"])
    moment = generator.uniform(0.05, took)
    with Cluster(build, **SETTINGS) as cluster:
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
    digest, accuracy, took = undisturbed(build)
    print(f"undisturbed: {took:.1f} s, accuracy {accuracy}, digest {digest[:16]}", flush=True)
    for number in range(runs):
        generator = random.Random(seed + number)
        if number % 4 == 3:
            line = run_lost(build, generator, took, accuracy)
        else:
            line = run_killed(build, generator, took, digest)
        print(f"{number + 1}/{runs} seed {seed + number}: {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
