"""`train` keeps the best model beside the last, whole after a kill at any moment.

    best.py BUILD [SCENARIO...]
"""

import json
import os
import struct
import subprocess

from bad_input import npy, write_train
from cluster import Cluster
from scenarios import Scenarios

STEPS = 5  # of a round

scenario = Scenarios()


def read(cluster, state, name):
    path = cluster.path(state, name)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def change_job(cluster, old, new):
    with open(cluster.path("train.yaml")) as file:
        text = file.read()
    assert old in text, text
    cluster.write("train.yaml", text.replace(old, new))


def train(cluster, *options):
    result = cluster.command(cluster.node, "train", *options, "alone.yaml")
    return result.stdout.splitlines(), result.stderr


def models_of_rounds(cluster, count):
    """What each round of an undisturbed run published, from round 1 on."""
    write_train(cluster, "state/single")
    found = []
    for number in range(1, count + 1):
        train(cluster, "--steps", str(number * STEPS))
        found.append(read(cluster, "state/single", "model.current.onnx"))
    return found


def best_round(lines):
    """The highest accuracy, and of equal ones the lowest loss."""
    rounds = [json.loads(line) for line in lines]
    return max(rounds, key=lambda one: (one["held_out_accuracy"], -one["held_out_loss"]))["round"]


@scenario
def other_samples_make_another_best(build):
    """A best that other samples measured would stand for ever."""
    with Cluster(build, rounds=6, local_steps=STEPS) as cluster:
        files = [cluster.path("x.npy"), cluster.path("y.npy")]

        def samples(count, labels):
            npy(files[0], "<f4", (count, 8, 8), struct.pack(f"<{count * 64}f", *(i % 7 / 7 for i in range(count * 64))))
            npy(files[1], "|u1", (count,), bytes(labels(i) for i in range(count)))

        samples(40, lambda i: 3)  # learnt at once
        write_train(cluster, "state/samples", *files)
        train(cluster, "--steps", str(3 * STEPS))
        before = read(cluster, "state/samples", "model.best.onnx")
        samples(50, lambda i: i * i % 10)  # and this hardly ever
        lines, said = train(cluster, "--json")
        assert "and the best round is sought anew" in said, said
        rounds = [json.loads(line) for line in lines]
        assert all(one["held_out_accuracy"] < 1 for one in rounds), rounds
        assert read(cluster, "state/samples", "model.best.onnx") not in (None, before)
        assert f"round {best_round(lines)}" in said, (said, rounds)


@scenario
def the_best_of_all_rounds_is_kept(build):
    with Cluster(build, rounds=6, local_steps=STEPS) as cluster:
        models = models_of_rounds(cluster, 6)
        write_train(cluster, "state/whole")
        lines, said = train(cluster, "--json")
        best = best_round(lines)
        assert read(cluster, "state/whole", "model.best.onnx") == models[best - 1], f"not the model of round {best}"
        assert f"best: state/whole/model.best.onnx, of round {best} (held-out accuracy 0." in said, said


@scenario
def the_metric_decides_and_its_target_ends_the_run(build):
    with Cluster(build, rounds=12, local_steps=STEPS) as cluster:
        write_train(cluster, "state/free")
        lines, _ = train(cluster, "--json")
        losses = [json.loads(line)["held_out_loss"] for line in lines]
        write_train(cluster, "state/aimed")
        aim = losses[5]
        with open(cluster.path("train.yaml"), "a") as file:
            file.write(f"stop: {{metric: loss, target: {aim + 1e-5}}}\n")
        lines, said = train(cluster, "--json")
        first = next(i for i, loss in enumerate(losses) if loss <= aim + 1e-5)
        assert len(lines) == first + 1 < len(losses), (lines, losses)
        lowest = min(range(first + 1), key=lambda i: losses[i])
        assert f"of round {lowest + 1} (held-out" in said, (said, losses)


@scenario
def another_metric_seeks_the_best_anew(build):
    """An accuracy is not compared with a loss, so patience does not end a run that gets better."""
    with Cluster(build, rounds=20, local_steps=STEPS) as cluster:
        write_train(cluster, "state/changed")
        train(cluster, "--steps", str(4 * STEPS))
        with open(cluster.path("train.yaml"), "a") as file:
            file.write("stop: {metric: loss, patience: 8}\n")
        lines, said = train(cluster, "--json")
        assert "stop.metric is another one: the best round is sought anew" in said, said
        assert len(lines) == 16, lines
        losses = [json.loads(line)["held_out_loss"] for line in lines]
        lowest = min(range(16), key=lambda i: losses[i])
        assert f"of round {lowest + 5} (held-out loss" in said, (said, losses)
        cluster.edit("train.yaml", ("metric: loss", "metric: f1"))
        refused = cluster.command(cluster.node, "train", "alone.yaml", check=False)
        assert refused.returncode == 3 and "training alone compares by accuracy or loss" in refused.stderr, refused


@scenario
def the_loss_decides_between_equal_rounds_also_after_a_restart(build):
    with Cluster(build, rounds=4, local_steps=STEPS) as cluster:
        write_train(cluster, "state/equal")
        change_job(cluster, "learning_rate: 0.05", "learning_rate: 0.000001")  # no label changes, and the loss a little
        lines, _ = train(cluster, "--json", "--steps", str(2 * STEPS))
        more, said = train(cluster, "--json")
        rounds = [json.loads(line) for line in lines + more]
        assert len(rounds) == 4 and len({one["held_out_accuracy"] for one in rounds}) == 1, rounds
        wanted = min(rounds, key=lambda one: one["held_out_loss"])["round"]
        assert wanted > 1 and f"of round {wanted} (held-out" in said, (said, rounds)
        best = read(cluster, "state/equal", "model.best.onnx")
        _, said = train(cluster)
        assert f"of round {wanted} (held-out" in said, f"forgotten after a restart:\n{said}"
        assert read(cluster, "state/equal", "model.best.onnx") == best


def cut_record(cluster, state, size):
    """The record as an earlier release wrote it."""
    path = cluster.path(state, "best")
    assert os.path.getsize(path) == 36, os.path.getsize(path)
    os.truncate(path, size)


@scenario
def of_equal_rounds_the_first_stays_where_an_earlier_release_wrote_the_record(build):
    with Cluster(build, rounds=4, local_steps=STEPS) as cluster:
        for state, size in ("state/no-loss", 24), ("state/no-file", 20):
            write_train(cluster, state)
            change_job(cluster, "learning_rate: 0.05", "learning_rate: 0.000001")  # the loss falls a little
            lines, _ = train(cluster, "--json", "--steps", str(STEPS))
            first = read(cluster, state, "model.best.onnx")
            cut_record(cluster, state, size)
            if size == 20:  # there was no file then
                os.remove(cluster.path(state, "model.best.onnx"))
                first = None
            more, said = train(cluster, "--json")
            rounds = [json.loads(line) for line in lines + more]
            assert len(rounds) == 4 and len({one["held_out_accuracy"] for one in rounds}) == 1, rounds
            assert min(rounds, key=lambda one: one["held_out_loss"])["round"] > 1, rounds
            assert ("best: " in said) == (size == 24) and ("of round 1 (held-out" in said) == (size == 24), said
            assert read(cluster, state, "model.best.onnx") == first, f"a record of {size} bytes: another model is the best"


@scenario
def a_new_run_and_one_without_held_out_samples_have_no_old_one(build):
    with Cluster(build, rounds=2, local_steps=STEPS) as cluster:
        write_train(cluster, "state/anew")
        train(cluster)
        assert read(cluster, "state/anew", "model.best.onnx")
        change_job(cluster, "held_out: 10 %", "held_out: 0 %")
        _, said = train(cluster, "--anew")
        assert "best: " not in said, said
        assert read(cluster, "state/anew", "model.best.onnx") is None, "that of an earlier run is still there"


def fall(cluster, shim, number):
    """Trains until the process is killed before its n-th fsync. False: it reached the end."""
    environment = {**os.environ, "LD_PRELOAD": shim, "CAIRN_FALL": f"fsync:{number}:{cluster.path('stack')}"}
    result = subprocess.run([cluster.node, "train", "alone.yaml"], cwd=cluster.directory, env=environment,
                            capture_output=True, text=True, timeout=120)
    assert result.returncode in (0, -9), result
    return result.returncode != 0


def check_falls(build, rounds, state, numbers):
    with Cluster(build, rounds=rounds, local_steps=STEPS) as cluster:
        shim = os.path.join(build, "..", "tests", "support", "fall.so")
        models = models_of_rounds(cluster, rounds)
        write_train(cluster, "state/whole")
        train(cluster)
        wanted = read(cluster, "state/whole", "model.best.onnx")
        assert wanted in models, "no best model was kept"
        write_train(cluster, state)
        falls = 0
        for number in numbers:
            if not fall(cluster, shim, number):
                break
            falls += 1
            found = read(cluster, state, "model.best.onnx")
            assert found is None or found in models, f"a torn file after a kill before fsync {number}"
        train(cluster)
        assert read(cluster, state, "model.best.onnx") == wanted, f"another model is the best after {falls} kills"
        assert falls, "nothing was killed"
        return f"{falls} kills"


@scenario
def kills_before_each_sync_leave_it_whole(build):
    return check_falls(build, 3, "state/killed", range(1, 100))


if __name__ == "__main__":
    scenario.main()
