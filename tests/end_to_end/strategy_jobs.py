"""The job of each strategy in tests/examples/strategies learns digits split by label, and is made again to the bit.

    strategy_jobs.py BIN [ROUNDS [STRATEGY...]]        without names all of them
"""

import json
import os
import subprocess
import sys
import tempfile

from cluster import SOURCE

sys.path.append(os.path.join(SOURCE, "tests", "bench", "learning"))
import strategies as bench  # noqa: E402

PATIENCE = 600  # seconds
# Accuracy after 20 rounds, some points below what was measured. With fewer rounds: better than chance.
FLOORS = {
    "cclip": 0.60, "diloco": 0.50, "fedadagrad": 0.70, "fedadam": 0.70, "fedadam-caps": 0.70, "fedavg": 0.60,
    "fedavg-long": 0.70, "fednova": 0.60, "scaffold": 0.85,
    "adapters": 0.30, "bucket": 0.40, "fedbn": 0.55, "fedbuff": 0.30, "nearest": 0.45, "ssp": 0.30,
    "fedavgm": 0.65, "fedprox": 0.60, "fedyogi": 0.70, "gate": 0.75, "median": 0.40, "multi_krum": 0.50,
    "nesterov": 0.70, "rfa": 0.60, "trimmed": 0.50,
}
CHANCE = 0.1


def run(build, strategy, rounds):
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as place:
        folder = os.path.join(place, "run")
        program = os.path.join(build, "cairn-aggregator")
        said = subprocess.run([program, *bench.arguments(strategy, "labels", rounds, folder)], capture_output=True,
                              text=True, timeout=PATIENCE)
        assert said.returncode == 0, f"{strategy}: {said.returncode}\n{said.stdout}{said.stderr}"
        result = json.loads(said.stdout)
        replayed = subprocess.run([program, "replay", os.path.join(folder, "gateway.yaml")], capture_output=True,
                                  text=True, timeout=PATIENCE).stdout.splitlines()
        assert replayed[-1] == f"{rounds + 1} versions, 0 differ, 0 not checked", replayed[-1]
        return result


def main(build, rounds="20", *names):
    rounds, known = int(rounds), bench.strategies()
    missing = [name for name in names if name not in known]
    assert not missing, f"there is no strategy {', '.join(missing)}; there are: {', '.join(known)}"
    for strategy in names or known:
        result = run(os.path.abspath(build), strategy, rounds)
        floor = FLOORS.get(strategy, CHANCE) if rounds >= 20 else CHANCE
        assert result["rounds"] == rounds and result["accuracy"] > floor, f"{strategy}: {result}, floor {floor}"
        print(f"{strategy}: accuracy {result['accuracy']:.3f} after {rounds} rounds", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
