"""The demo in network namespaces, undisturbed and with kill -9 of a random member every 2 s.

    random_kills.py BUILD [SEED...]

Prints both accuracies; they lie within a point. What is killed is started again at once.
"""

import random
import sys
import time

from cluster import same_model_everywhere
from lan import Lan, allowed
from scenarios import SKIPPED

# Model, samples, groups and rules of tests/examples/digits.
DEMO = {"rounds": 20, "local_steps": 30, "up": "{mode: topk, density: 5 %, value_bits: 2}",
        "down": "{mode: topk, density: 10 %, value_bits: 2}", "timeout": "60 s", "rejoin": "2 s"}
PAUSE = 2
POINT = 0.0101


def kill_one(lan, generator):
    running = [name for name in lan.boards if lan.processes[name].poll() is None]
    victim = generator.choice(running)
    lan.kill(victim)
    lan.start(victim)
    return victim


def train(build, seed):
    """Accuracy of the demo's run, who was killed, seconds. Nobody is without a seed."""
    generator = random.Random(seed)
    killed = []
    with Lan(build, **DEMO) as lan:
        lan.start_all()
        begun = time.monotonic()
        while lan.processes["gateway"].poll() is None:
            assert time.monotonic() < begun + 300, "the run does not end"
            left = begun + PAUSE * (len(killed) + 1) - time.monotonic()
            if seed is None or left > 0:
                time.sleep(0.05)
            elif any(lan.processes[name].poll() is None for name in lan.boards):
                killed.append(kill_one(lan, generator))
        lan.wait_for_end(60)
        took = time.monotonic() - begun
        assert "0 differ" in lan.replay()[-1]
        same_model_everywhere(lan)
        return lan.accuracy(), killed, took


def main(build, seeds):
    wanted, _, took = train(build, None)
    print(f"undisturbed: accuracy {wanted}, {took:.1f} s", flush=True)
    for seed in seeds:
        reached, killed, took = train(build, seed)
        print(f"seed {seed}: accuracy {reached}, {took:.1f} s, {len(killed)} killed: {' '.join(killed)}", flush=True)
        assert len(killed) >= 3, "the run was over too soon"
        assert reached >= wanted - POINT, f"seed {seed}: accuracy {reached}, undisturbed {wanted}"


if __name__ == "__main__":
    chosen = [int(text) for text in sys.argv[2:]] or [1]
    if not allowed():
        sys.exit(SKIPPED)
    main(sys.argv[1], chosen)
