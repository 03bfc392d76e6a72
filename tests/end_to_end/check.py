"""What `check` says is wrong before anything runs: on a board, on one that trains alone, on a gateway."""

import os
import socket
import subprocess
import sys
import time

from bad_input import expect, npy, write_train
from cluster import DIGITS, Cluster, free_ports
from scenarios import chosen

GROUPS = {"lab-a": ["board-1", "board-2"]}


def fine(result):
    expect(result, 0)
    assert result.stdout.splitlines()[-1] == "ok", result.stdout + result.stderr


def wrong(result, *words, code=1):
    expect(result, code, *words)
    assert "ok" not in result.stdout.splitlines(), result.stdout


def not_ok(result, profile, *words, code=1):
    """The last line of cairn-node's check says it, too."""
    wrong(result, *words, code=code)
    assert result.stdout.splitlines()[-1] == f"{profile}: not ok: mend what the error lines above say", result.stdout


def refuses_memory(cluster, profile, command):
    """A program that may take more memory than there is does not begin."""
    with open(cluster.path(profile)) as file:
        text = file.read()
    cluster.write(profile, text + "memory: {train_max: 60000 GiB}\n")
    said = "memory.train_max: 60000.0 GiB, but this machine has"
    for arguments, code in ((["check"], 1), ([command], 3)):
        wrong(cluster.command(cluster.node, *arguments, profile, check=False), said, code=code)
    cluster.write(profile, text)


def a_board_alone(cluster):
    """Model and data are opened as train does; nothing is written."""
    check = [cluster.node, "check", "alone.yaml"]
    write_train(cluster, "state/alone")
    fine(cluster.command(*check))
    fine(cluster.command(*check, "--origin"))
    npy(cluster.path("x.npy"), "|u1", (20, 8, 8), bytes(20 * 64))
    npy(cluster.path("y.npy"), "|u1", (20,), bytes([10] * 20))
    write_train(cluster, "state/alone", cluster.path("x.npy"), cluster.path("y.npy"))
    not_ok(cluster.command(*check, check=False), "alone.yaml", "y.npy", "10")
    write_train(cluster, "state/alone", cluster.path("absent.npy"))
    wrong(cluster.command(*check, check=False), "error: " + cluster.path("absent.npy"))
    result = cluster.command(*check, "--profile-only")
    expect(result, 0, "warning: data: " + cluster.path("absent.npy"))
    write_train(cluster, "state/alone", cluster.path("absent.npy"), cluster.path("absent-too.npy"))
    for path in ("absent.npy", "absent-too.npy"):  # each that is missing is named
        wrong(cluster.command(*check, check=False), f"error: data: {cluster.path(path)}: No such file")
    write_train(cluster, "state/alone")
    refuses_memory(cluster, "alone.yaml", "train")
    model = os.path.join(DIGITS, "digits-cnn.onnx")
    for token in (127, 128):  # the model knows 128 characters
        npy(cluster.path("x.npy"), "|u1", (20, 32), bytes([1] * 639 + [token]))
        npy(cluster.path("y.npy"), "|u1", (20, 32), bytes(640))
        write_train(cluster, "state/alone", cluster.path("x.npy"), cluster.path("y.npy"))
        cluster.edit("train.yaml", (model, os.path.join(os.path.dirname(DIGITS), "text", "char-gpt.onnx")))
        if token < 128:
            fine(cluster.command(*check))
    wrong(cluster.command(*check, check=False),
          "x.npy: sample 19 has the value 128; the model's table has a row for 0 to 127")
    write_train(cluster, "state/alone")
    cluster.edit("train.yaml", (model, "absent.onnx"))
    wrong(cluster.command(*check, check=False), "absent.onnx", "not found")
    cluster.edit("train.yaml", ("absent.onnx", "job.yaml"))
    wrong(cluster.command(*check, check=False), "job.yaml: error")
    cluster.edit("train.yaml", ("batch: 32", "batch: none"))
    not_ok(cluster.command(*check, check=False), "alone.yaml", "train.batch", code=3)
    assert not cluster.command(*check, "--profile-only", check=False).stdout  # this never says ok either
    not_ok(cluster.command(cluster.node, "check", "absent.yaml", check=False), "absent.yaml", code=3)
    assert not os.path.exists(cluster.path("state/alone")), "check made a state directory"


def a_board_of_a_group(cluster):
    """The files of its data sets and its key are opened; the model is the gateway's."""
    check = [cluster.node, "check", "board-1.yaml"]
    fine(cluster.command(*check))
    refuses_memory(cluster, "board-1.yaml", "run")
    images = os.path.join(DIGITS, "board-1-images.npy")
    profile = cluster.edit("board-1.yaml", (images, "job.yaml"))
    wrong(cluster.command(*check, check=False), "job.yaml")
    cluster.write("board-1.yaml", profile.replace("board-1-labels", "absent-labels"))
    wrong(cluster.command(*check, check=False), "absent-labels.npy")
    cluster.write("board-1.yaml", profile.replace("board-1.key", "board-2.key"))
    wrong(cluster.command(*check, check=False), "the key is that of 'board-2'")
    cluster.write("board-1.yaml", profile.replace("board-1.key", "absent.key"))
    wrong(cluster.command(*check, check=False), "absent.key")
    expect(cluster.command(*check, "--profile-only"), 0)
    cluster.write("board-1.yaml", profile)
    os.chmod(cluster.path("keys/board-1.key"), 0o644)
    wrong(cluster.command(*check, check=False), "board-1.key")


def a_gateway(cluster):
    """Model, central set, state directory, boards and addresses; also beside the aggregator that runs."""
    check = [cluster.aggregator, "check", "gateway.yaml"]
    result = cluster.command(*check)
    fine(result)
    for line in ("parameters", "central set: digits-held-out", "boards: 2 in 1 group,", f"listen: 127.0.0.1:{cluster.port}"):
        assert line in result.stdout, result.stdout
    cluster.edit("job.yaml", ("quorum: 1", "quorum: 2"))
    result = cluster.command(*check)
    fine(result)
    assert "the quorum is 2 groups and 1 is enrolled" in result.stderr, result.stderr
    cluster.edit("job.yaml", ("quorum: 2", "quorum: 1"))

    profile = open(cluster.path("gateway.yaml")).read()
    cluster.write("gateway.yaml", profile.replace("state/gateway", "state/new/gateway"))
    fine(cluster.command(*check))
    assert not os.path.exists(cluster.path("state/new")), "check made a state directory"
    cluster.write("gateway.yaml", profile.replace("state/gateway", "job.yaml/state"))
    wrong(cluster.command(*check, check=False), "error: state: ", "job.yaml")
    cluster.write("gateway.yaml", profile.replace("held-out-images", "absent"))
    wrong(cluster.command(*check, check=False), "absent.npy")
    fine(cluster.command(*check, "--profile-only"))
    cluster.write("gateway.yaml", profile + "storage: {reserve: 60 TiB}\n")
    wrong(cluster.command(*check, check=False), "storage.reserve is")
    cluster.write("gateway.yaml", profile + "storage: {rest: 1}\n")
    wrong(cluster.command(*check, check=False), "storage.rest", code=3)
    cluster.write("gateway.yaml", profile + "hooks: {on_event: absent-hook}\n")
    wrong(cluster.command(*check, check=False), "error: hooks.on_event: ", "absent-hook cannot be run: No such file")
    cluster.write("absent-hook", "#!/bin/sh\n")
    wrong(cluster.command(*check, check=False), "absent-hook cannot be run: it is not executable")
    os.chmod(cluster.path("absent-hook"), 0o700)
    fine(cluster.command(*check))
    cluster.write("gateway.yaml", profile)
    job = cluster.edit("job.yaml", ("digits-cnn", "absent"))
    wrong(cluster.command(*check, check=False), "absent.onnx")
    wide = cluster.path("wide.onnx")
    subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "wide_model.py"), wide, "1,8,8", "4000", "10"],
                   check=True, timeout=60)
    cluster.write("job.yaml", job.replace(os.path.join(DIGITS, "digits-cnn.onnx"), wide))
    cluster.write("gateway.yaml", profile.replace("gateway: {", "gateway: {spool: 1 MiB, "))
    result = cluster.command(*check)
    fine(result)
    assert "warning: gateway.spool is 1048576 bytes, and an update of this model may have 1201415" in result.stderr, result.stderr
    cluster.write("gateway.yaml", profile)
    cluster.write("job.yaml", job.replace("update: {", "update: {densities: ['absent.*=20%'], "))
    wrong(cluster.command(*check, check=False), "absent.*")
    cluster.write("job.yaml", job)

    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as taken:
            taken.bind(("127.0.0.1", cluster.port))
            if kind == socket.SOCK_STREAM:
                taken.listen()
            wrong(cluster.command(*check, check=False), f"127.0.0.1:{cluster.port}: cannot listen")

    cluster.start("gateway")
    cluster.wait_for_line("gateway", "listening")
    end = time.monotonic() + 60
    while not os.path.exists(cluster.path("state/gateway/status.json")):
        assert time.monotonic() < end, "the aggregator wrote no status in 60 s"
        time.sleep(0.05)
    result = cluster.command(*check)
    fine(result)
    assert "held by the aggregator that runs here" in result.stdout, result.stdout
    port, = free_ports(1)
    listen = f'"127.0.0.1:{cluster.port}"'
    cluster.edit("gateway.yaml", (f"listen: {listen}", f'listen: [{listen}, "127.0.0.1:{port}"]'))
    result = cluster.command(*check)
    fine(result)
    assert f"listen: 127.0.0.1:{port}\n" in result.stdout, result.stdout
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        wrong(cluster.command(*check, check=False), f"127.0.0.1:{port}: cannot listen")
    cluster.write("gateway.yaml", profile)
    cluster.edit("job.yaml", ("learning_rate: 0.05", "learning_rate: 0.06"))
    wrong(cluster.command(*check, check=False), "train.learning_rate: 0.05 in the run, 0.06 in the profile")
    cluster.kill("gateway")


CASES = (a_board_alone, a_board_of_a_group, a_gateway)


def main(build, *names):
    for case in chosen(CASES, names):
        with Cluster(build, GROUPS, rounds=2, quorum=1) as cluster:
            case(cluster)
        print(f"{case.__name__}: {case.__doc__.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
