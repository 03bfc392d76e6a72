"""Training alone: kill -9 at random moments and started again, the model is that of the undisturbed run."""

import random
import subprocess
import sys
import time

from bad_input import write_train
from cluster import Cluster

ROUNDS = 30


def model(cluster, state):
    with open(cluster.path(state, "model.current.onnx"), "rb") as file:
        return file.read()


def train_to_the_end(cluster):
    cluster.command(cluster.node, "train", "alone.yaml")


def add_patience(cluster):
    with open(cluster.path("train.yaml"), "a") as file:
        file.write("stop: {patience: 4}\n")


def kill_and_go_on(cluster, took, generator):
    kills = 0
    for _ in range(6):
        process = subprocess.Popen([cluster.node, "train", "alone.yaml"], cwd=cluster.directory,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(generator.uniform(0.02, took / 6))
        kills += process.poll() is None
        process.kill()
        process.wait()
    train_to_the_end(cluster)
    return kills


def main(build):
    generator = random.Random(11)
    with Cluster(build, rounds=ROUNDS, local_steps=20) as cluster:
        write_train(cluster, "state/whole")
        begun = time.monotonic()
        train_to_the_end(cluster)
        took = time.monotonic() - begun
        write_train(cluster, "state/killed")
        kills = kill_and_go_on(cluster, took, generator)
        assert kills >= 3, f"only {kills} kills hit a running process"
        assert model(cluster, "state/killed") == model(cluster, "state/whole"), \
            "the model differs from the undisturbed run's"
        print(f"{kills} kills in a run of {took:.1f} s: the same model")

        # A stop rule counts across restarts, and a run that it ended stays ended.
        write_train(cluster, "state/patient")
        add_patience(cluster)
        train_to_the_end(cluster)
        ended = model(cluster, "state/patient")
        assert ended != model(cluster, "state/whole"), "the stop rule never held"
        train_to_the_end(cluster)
        assert model(cluster, "state/patient") == ended, "started again, an ended run went on"
        write_train(cluster, "state/patient-killed")
        add_patience(cluster)
        kill_and_go_on(cluster, took, generator)
        assert model(cluster, "state/patient-killed") == ended, "kills moved the end of the run"


if __name__ == "__main__":
    main(*sys.argv[1:])
