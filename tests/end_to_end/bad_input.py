"""Bad input as a user would meet it: one clear line, a non-zero exit, no state changed."""

import contextlib
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time

from cluster import DIGITS, SOURCE, Cluster
from scenarios import chosen

TRAIN_TEXT = """\
schema: cairn/site/v1
extends: {source}/boards/generic-x86-64/board.yaml
name: alone
state: {state}
threads: 1
data:
  digits: {{inputs: {inputs}, labels: {labels}}}
job: train.yaml
"""


def expect(result, code, *words):
    text = result.stdout + result.stderr
    assert result.returncode == code, f"exit {result.returncode}, wanted {code}:\n{text}"
    for word in words:
        assert word in text, f"'{word}' is not in:\n{text}"
    assert len(result.stderr.splitlines()) <= 18, f"too many lines:\n{text}"
    assert "Traceback" not in text and "Assertion" not in text, text


def npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data)


def write_train(cluster, state, inputs=None, labels=None):
    job = open(cluster.path("job.yaml")).read()
    cluster.write("train.yaml", "\n".join(line for line in job.splitlines() if not line.startswith("central")))
    cluster.write("alone.yaml", TRAIN_TEXT.format(
        source=SOURCE, state=state,
        inputs=inputs or f"{DIGITS}/board-1-images.npy", labels=labels or f"{DIGITS}/board-1-labels.npy"))


def models(cluster):
    """Truncated, mutated and unsupported ONNX files."""
    whole = open(f"{DIGITS}/digits-cnn.onnx", "rb").read()
    generator = random.Random(5)
    for size in [0, 1, 100, len(whole) // 2, len(whole) - 1]:
        with open(cluster.path("cut.onnx"), "wb") as file:
            file.write(whole[:size])
        expect(cluster.command(cluster.node, "check", "cut.onnx", check=False), 1, "cut.onnx: error")
    for _ in range(40):
        mutated = bytearray(whole)
        for _ in range(4):
            mutated[generator.randrange(min(len(whole), 4000))] = generator.randrange(256)
        with open(cluster.path("mutated.onnx"), "wb") as file:
            file.write(mutated)
        result = cluster.command(cluster.node, "check", "mutated.onnx", check=False)
        assert result.returncode in (0, 1), f"exit {result.returncode}:\n{result.stderr}"
    with open(cluster.path("unsupported.onnx"), "wb") as file:
        file.write(whole.replace(b"Relu", b"Reku"))
    expect(cluster.command(cluster.node, "check", "unsupported.onnx", check=False), 1, "Reku",
           "check --ops' lists")


def data(cluster):
    """Shapes that do not fit, labels out of range, NaN."""
    import struct

    def refuse(*words, **files):
        write_train(cluster, "state/data", **files)
        result = cluster.command(cluster.node, "train", "alone.yaml", check=False)
        expect(result, 1, "error: ", *words)
        assert "digits-cnn" not in result.stderr, f"the model is blamed:\n{result.stderr}"

    good = (cluster.path("x.npy"), cluster.path("y.npy"))
    npy(good[0], "|u1", (20, 8, 8), bytes(20 * 64))
    npy(good[1], "|u1", (20,), bytes(i % 10 for i in range(20)))
    npy(cluster.path("wide.npy"), "|u1", (20, 8, 9), bytes(20 * 72))
    refuse("wide.npy", inputs=cluster.path("wide.npy"), labels=good[1])
    npy(cluster.path("labels.npy"), "|u1", (20,), bytes([10] * 20))
    refuse("labels.npy", "10", inputs=good[0], labels=cluster.path("labels.npy"))
    npy(cluster.path("few.npy"), "|u1", (19,), bytes(19))
    refuse("19", "20", inputs=good[0], labels=cluster.path("few.npy"))
    values = struct.pack("<1280f", *[0.0] * 1279, float("nan"))
    npy(cluster.path("nan.npy"), "<f4", (20, 8, 8), values)
    refuse("nan.npy", inputs=cluster.path("nan.npy"), labels=good[1])
    write_train(cluster, "state/data", inputs=cluster.path("missing.npy"), labels=good[1])
    expect(cluster.command(cluster.node, "check", "alone.yaml", check=False), 1, "error: " + cluster.path("missing.npy"))
    profile = open(cluster.path("alone.yaml")).read()
    cluster.write("alone.yaml", profile.replace("  digits: ", "  letters: "))
    expect(cluster.command(cluster.node, "check", "alone.yaml", check=False), 3, "'digits' is not among the data sets")
    refuse("error: " + cluster.path("missing.npy"), inputs=cluster.path("missing.npy"), labels=good[1])


def ignored(cluster):
    """Samples whose labels are all ignored teach nothing, which is said."""
    write_train(cluster, "state/ignored", inputs=cluster.path("x.npy"), labels=cluster.path("y.npy"))
    npy(cluster.path("x.npy"), "|u1", (20, 8, 8), bytes(20 * 64))
    npy(cluster.path("y.npy"), "|u1", (20,), bytes(20 * [3]))
    job = open(cluster.path("train.yaml")).read()
    assert "loss: cross_entropy" in job, job
    cluster.write("train.yaml", job.replace("loss: cross_entropy", "loss: {kind: cross_entropy, ignore: 3}"))
    result = cluster.command(cluster.node, "train", "alone.yaml")
    expect(result, 0, "no label counts", "its loss is shown as 0")
    assert result.stderr.count("no label counts") == 1, result.stderr


def places(cluster):
    """Files and folders that cannot be written are named with the reason."""
    write_train(cluster, "train.yaml/state")
    expect(cluster.command(cluster.node, "train", "alone.yaml", check=False), 1, "train.yaml/state", "a part of its path is one")
    write_train(cluster, "state/places")
    profile = open(cluster.path("alone.yaml")).read()
    cluster.write("alone.yaml", profile + "storage: {reserve: 60 TiB}\n")
    expect(cluster.command(cluster.node, "train", "alone.yaml"), 0, "less free than storage.reserve")
    cluster.write("alone.yaml", profile)
    for option in ("--trace", "--timeline", "--ops"):
        path = cluster.path("absent", "file")
        result = cluster.command(cluster.node, "train", "--anew", option, path, "alone.yaml", check=False)
        expect(result, 1, "error: ", path)
        assert "model" not in result.stderr.splitlines()[-1], result.stderr


def checkpoint(cluster):
    """A flipped bit in the newest slot: the older one is used, and said so."""
    write_train(cluster, "state/alone")
    cluster.command(cluster.node, "train", "alone.yaml")
    slots = [cluster.path("state/alone", f"checkpoint.{slot}") for slot in "ab"]
    for slot in slots:
        original = open(slot, "rb").read()
        flipped = bytearray(original)
        flipped[len(flipped) // 3] ^= 0x10
        open(slot, "wb").write(flipped)
        result = cluster.command(cluster.node, "train", "alone.yaml")
        assert os.path.basename(slot) in result.stderr, f"the damage of {slot} was not said:\n{result.stderr}"
        open(slot, "wb").write(original)


def changed_values(cluster):
    """What was trained with other values stays until the user says otherwise; the values are named."""
    write_train(cluster, "state/values")
    model = cluster.path("state/values/model.current.onnx")
    train = [cluster.node, "train", "alone.yaml"]
    cluster.command(*train)
    trained = open(model, "rb").read()
    job = open(cluster.path("train.yaml")).read()
    cluster.write("train.yaml", job.replace("learning_rate: 0.05", "learning_rate: 0.04").replace("seed: 1", "seed: 2"))
    expect(cluster.command(*train, check=False), 1, "train.learning_rate was 0.05, is 0.04", "seed was 1, is 2",
           "--anew", "--from")
    assert open(model, "rb").read() == trained, "the trained model was replaced"
    cluster.write("train.yaml", job)
    expect(cluster.command(*train), 0, "resuming")
    cluster.write("train.yaml", job.replace("learning_rate: 0.05", "learning_rate: 0.04"))
    result = cluster.command(*train, "--from", model)
    expect(result, 0, "round 2/2")
    first = float(result.stdout.split("train loss ")[1].split()[0])
    expect(cluster.command(*train), 0, "resuming")
    result = cluster.command(*train, "--anew")
    expect(result, 0, "round 2/2")
    assert first < float(result.stdout.split("train loss ")[1].split()[0]), "--from did not begin with trained weights"
    expect(cluster.command(*train), 0, "resuming")


def lost_state(cluster):
    """A model whose checkpoints are gone or damaged stays until the user says otherwise."""
    write_train(cluster, "state/lost")
    model = cluster.path("state/lost/model.current.onnx")
    slots = [cluster.path(f"state/lost/checkpoint.{slot}") for slot in "ab"]
    train = [cluster.node, "train", "alone.yaml"]
    cluster.command(*train)
    trained = open(model, "rb").read()
    for slot in filter(os.path.exists, slots):
        with open(slot, "r+b") as file:
            file.seek(40)
            file.write(b"damaged")
    expect(cluster.command(*train, check=False), 1, "no checkpoint to go on from", "--anew", "--from")
    for slot in filter(os.path.exists, slots):
        os.unlink(slot)
    expect(cluster.command(*train, check=False), 1, "no checkpoint to go on from", "--anew", "--from")
    assert open(model, "rb").read() == trained, "the trained model was replaced"
    expect(cluster.command(*train, "--from", model), 0, "round 2/2")
    expect(cluster.command(*train), 0, "resuming")


def changed_samples(cluster):
    """Samples that came or went are said."""
    import struct

    def samples(count):
        npy(cluster.path("x.npy"), "<f4", (count, 8, 8), struct.pack(f"<{count * 64}f", *[0.5] * (count * 64)))
        npy(cluster.path("y.npy"), "|u1", (count,), bytes(i % 10 for i in range(count)))

    samples(40)
    write_train(cluster, "state/samples", cluster.path("x.npy"), cluster.path("y.npy"))
    train = [cluster.node, "train", "alone.yaml"]
    cluster.command(*train)
    assert "the samples have changed" not in cluster.command(*train).stderr
    samples(20)
    expect(cluster.command(*train), 0, "resuming", "the samples have changed: now 18 to train on", "before 36")


def other_weights(cluster):
    """Other weights in the same graph are another run: what was trained stays."""
    write_train(cluster, "state/weights")
    train = [cluster.node, "train", "--save", cluster.path("trained.onnx"), "alone.yaml"]
    cluster.command(*train)
    expect(cluster.command(*train), 0, "resuming")
    shutil.copy(cluster.path("trained.onnx"), cluster.path("begin.onnx"))
    job = open(cluster.path("train.yaml")).read()
    cluster.write("train.yaml", job.replace(f"{DIGITS}/digits-cnn.onnx", cluster.path("begin.onnx")))
    expect(cluster.command(*train, check=False), 1, "the model's weights was")
    expect(cluster.command(*train, "--anew"), 0, "starting from the beginning", "round 2/2")
    expect(cluster.command(*train), 0, "resuming")


def keys(cluster):
    """A wrong key, an unknown board, one enrolled twice, one revoked."""
    cluster.start("gateway")
    cluster.wait_for_line("gateway", "listening")
    expect(cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "board-1", "-o", "keys/x.key", check=False),
           1, "board-1")
    cluster.command(cluster.aggregator, "revoke", "gateway.yaml", "board-4")
    time.sleep(1.5)
    run = [cluster.node, "run", "--until-end", "--give-up", "3"]
    expect(cluster.command(*run, "board-4.yaml", check=False), 1, "refuses this board", "giving up")
    key = open(cluster.path("keys/board-1.key")).read()
    last = key.rstrip()[-1]
    wrong = key.rstrip()[:-1] + ("0" if last != "0" else "1") + "\n"
    with open(os.open(cluster.path("keys/board-1.key"), os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(wrong)
    expect(cluster.command(*run, "board-1.yaml", check=False), 1, "refuses this board", "giving up")
    cluster.start("board-1")
    cluster.wait_for_line("board-1", "refuses this board")
    time.sleep(1)
    assert cluster.processes["board-1"].poll() is None, "a board that was refused ended for good"
    cluster.kill("board-1")
    os.chmod(cluster.path("keys/board-2.key"), 0o644)
    expect(cluster.command(*run, "board-2.yaml", check=False), 1, "board-2.key")
    cluster.kill("gateway")


def enrolled(cluster):
    """A board that is enrolled beside the running aggregator is known at once."""
    job = open(cluster.path("job.yaml")).read()
    cluster.write("job.yaml", job.replace("count: 2", "count: 1000000"))
    cluster.start("gateway")
    cluster.wait_for_line("gateway", "listening")
    end = time.monotonic() + 30
    while not os.path.exists(cluster.path("state/gateway/status.json")):
        assert time.monotonic() < end, "the aggregator wrote no status in 30 s"
        time.sleep(0.05)
    for number in range(3):
        name = f"late-{number}"
        profile = open(cluster.path("board-1.yaml")).read().replace("board-1.key", f"{name}.key")
        profile = profile.replace("name: board-1", f"name: {name}").replace("state/board-1", f"state/{name}")
        cluster.write(f"{name}.yaml", "\n".join(line for line in profile.splitlines() if not line.startswith("group:")))
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", name, "-o", f"keys/{name}.key")
        cluster.start(name)
        cluster.wait_for_line(name, "registered in group")
        assert "refuses" not in cluster.log(name), cluster.log(name)
        cluster.kill(name)
    cluster.kill("gateway")


def absent(cluster):
    """Port in use; an aggregator that is not there."""
    cluster.start("gateway")
    cluster.wait_for_line("gateway", "listening")
    text = open(cluster.path("gateway.yaml")).read()
    cluster.write("second.yaml", text.replace("state/gateway", "state/second"))
    expect(cluster.command(cluster.aggregator, "run", "second.yaml", check=False), 1, str(cluster.port))
    cluster.kill("gateway")
    result = cluster.command(cluster.node, "run", "--give-up", "2", "board-3.yaml", check=False)
    expect(result, 1, "not there")


def fill(path):
    """A file that takes all the space that is left."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while True:
            os.write(file, bytes(4096))
    except OSError:
        os.close(file)


def full_disk(cluster):
    """The state directory is full: training keeps the last good checkpoint and says so."""
    state = cluster.path("small")
    os.mkdir(state)
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", state]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        print("full_disk: skipped, mounting a tmpfs is not allowed here")
        return
    try:
        write_train(cluster, state)
        with open(cluster.path("alone.yaml"), "a") as profile:
            profile.write("storage: {reserve: 0 B}\n")  # the default is more than this disk has
        cluster.command(cluster.node, "train", "alone.yaml")
        slots = [os.path.join(state, f"checkpoint.{slot}") for slot in "ab"]
        before = [open(slot, "rb").read() for slot in slots]
        fill(os.path.join(state, "filler"))
        job = open(cluster.path("train.yaml")).read()
        cluster.write("train.yaml", job.replace("count: 2", "count: 3"))
        result = cluster.command(cluster.node, "train", "alone.yaml", check=False)
        assert "full" in result.stderr, result.stderr
        assert before == [open(slot, "rb").read() for slot in slots], "a good checkpoint was touched"
        os.remove(os.path.join(state, "filler"))
        result = cluster.command(cluster.node, "train", "alone.yaml")
        assert "round 3/3" in result.stdout, result.stdout
    finally:
        subprocess.run(["umount", state], check=True)
        shutil.rmtree(state)


def full_gateway(cluster):
    """The gateway's disk is full: it says so once, boards wait, and the run goes on when there is space."""
    state = cluster.path("small")
    os.mkdir(state)
    if not shutil.which("mount") or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", state], capture_output=True).returncode:
        print("full_gateway: skipped, mounting a tmpfs is not allowed here")
        return
    try:
        profile = open(cluster.path("gateway.yaml")).read().replace("state/gateway", state)
        cluster.write("gateway.yaml", profile)
        shutil.rmtree(cluster.path("keys"))
        os.mkdir(cluster.path("keys"))
        cluster.enroll_all()
        cluster.start_all()
        cluster.wait_for_line("gateway", "storage.reserve")
        for command in (["status"], ["events", "--alarms"]):
            said = " ".join(cluster.command(cluster.aggregator, *command, "gateway.yaml").stdout.split())
            assert "are kept in reserve, so no update is taken" in said, said
        cluster.kill("gateway")
        fill(os.path.join(state, "filler"))
        cluster.write("gateway.yaml", profile + "storage: {reserve: 0 B}\n")
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "the disk is full")
        time.sleep(5)
        assert cluster.log("gateway").count("full") <= 4, cluster.log("gateway")
        assert cluster.status()["version"] == 0
        os.remove(os.path.join(state, "filler"))
        cluster.wait_for_end(90)
        assert cluster.replay()[-1].startswith("3 versions, 0 differ"), cluster.replay()
    finally:
        cluster.stop_all()
        subprocess.run(["umount", state], check=True)
        shutil.rmtree(state)


def gateway_state(cluster):
    """A second aggregator on the same state; another job or model on it; versions that are not there."""
    cluster.start_all()
    cluster.wait_for_line("gateway", "listening")
    run = [cluster.aggregator, "run", "gateway.yaml"]
    expect(cluster.command(*run, check=False), 1, "another cairn-aggregator runs here")
    cluster.wait_for_end(60)
    job = open(cluster.path("job.yaml")).read()
    for old, new, *words in (
            ("learning_rate: 0.05", "learning_rate: 0.06", "train.learning_rate: 0.05 in the run, 0.06 in the profile"),
            ("learning_rate:", "optimizer: adam, learning_rate:", "train.optimizer: sgd in the run, adam in the profile"),
            ("digits-cnn", "digits-mlp", "another model than the profile", "digits-mlp.onnx")):
        cluster.write("job.yaml", job.replace(old, new))
        expect(cluster.command(*run, check=False), 1, *words, "init --after state/gateway PROFILE")
    expect(cluster.command(cluster.aggregator, "replay", "gateway.yaml", check=False), 1, "another model")
    # An edited job says nothing about the versions that are there.
    cluster.write("job.yaml", job.replace("learning_rate: 0.05", "learning_rate: 0.06").replace("mode: q8", "mode: raw32"))
    expect(cluster.command(*run, check=False), 1, "train.learning_rate", "update.down.mode: q8", "by itself:",
           "rounds.count", "stop.patience")
    assert cluster.replay()[-1].startswith("3 versions, 0 differ"), cluster.replay()
    # Values that may change hold from the next round on.
    cluster.write("job.yaml", job.replace("count: 2", "count: 3"))
    cluster.start_all()
    cluster.wait_for_end(60)
    with contextlib.closing(sqlite3.connect(cluster.path("state/gateway/ledger.sqlite"))) as ledger:
        rows = ledger.execute("SELECT from_round, job FROM setting ORDER BY from_round").fetchall()
    counts = [(first, re.search("rounds.count: (.*)", text).group(1)) for first, text in rows]
    assert counts == [(1, "2"), (3, "3")], counts
    assert cluster.replay()[-1].startswith("4 versions, 0 differ"), cluster.replay()
    cluster.write("job.yaml", job)
    cluster.command(cluster.aggregator, "export", "gateway.yaml", "-o", "trained")  # the same graph
    cluster.write("job.yaml", job.replace(f"{DIGITS}/digits-cnn.onnx", cluster.path("trained.onnx")))
    expect(cluster.command(*run, check=False), 1, "another model", "trained.onnx has other weights")
    cluster.command(cluster.aggregator, "export", "gateway.yaml", "--version", "0", "-o", "first")  # what it began with
    cluster.write("job.yaml", job)
    for version in ("4", "-1", "x", "18446744073709551617", ""):
        expect(cluster.command(cluster.aggregator, "export", "gateway.yaml", "--version", version, "-o", "m",
                               check=False), 1, "there is none")
    for version in ("0", "last", "best"):
        cluster.command(cluster.aggregator, "export", "gateway.yaml", "--version", version, "-o", version)
        expect(cluster.command(cluster.node, "check", f"{version}.onnx"), 0, "values in")
    files = cluster.path("state/gateway/files")
    update = sorted(name for name in os.listdir(files) if name.startswith("round-3-"))[0]
    damaged = bytearray(open(os.path.join(files, update), "rb").read())
    damaged[50] ^= 1
    os.rename(os.path.join(files, update), cluster.path("kept"))
    result = cluster.command(cluster.aggregator, "replay", "gateway.yaml")
    expect(result, 0, "not checked", "0 differ, 1 not checked")
    with open(os.path.join(files, update), "wb") as file:
        file.write(damaged)
    expect(cluster.command(cluster.aggregator, "replay", "gateway.yaml", check=False), 1, update)


def full_output(cluster):
    """What is printed to a full disk is an error, not half an answer."""
    for command in ([cluster.node, "check", "board-1.yaml"], [cluster.node, "init", "--help"],
                    [cluster.aggregator, "status", "--json", "gateway.yaml"]):
        with open("/dev/full", "w") as full:
            result = subprocess.run(command, cwd=cluster.directory, stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 1 and "standard output" in result.stderr, f"{command}: {result}"


def small_norm(cluster):
    """A limit of updates that cuts honest ones is named, with the group and the norm."""
    job = open(cluster.path("job.yaml")).read()
    cluster.write("job.yaml", job.replace("count: 2", "count: 500") + "limits: {max_norm: 0.01}\n")
    cluster.start_all()
    cluster.wait_for_line("gateway", "scaled down to limits.max_norm 0.01")
    status = [cluster.aggregator, "status", "gateway.yaml"]
    end = time.monotonic() + 20
    while "is scaled down to limits.max_norm 0.01" not in cluster.command(*status).stdout:
        assert time.monotonic() < end, cluster.command(*status).stdout
        time.sleep(0.3)
    cluster.stop_all()


CASES = (models, data, ignored, places, checkpoint, changed_values, lost_state, changed_samples, other_weights, keys, enrolled, absent, full_disk, full_gateway, gateway_state, small_norm, full_output)


def main(build, *names):
    for case in chosen(CASES, names):
        with Cluster(build, rounds=2, quorum=1, local_steps=5) as cluster:
            case(cluster)
        print(f"{case.__name__}: {case.__doc__.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
