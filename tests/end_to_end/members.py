"""The members of a group stay equal to the bit, whatever they train with, and go on so when they are killed.

    members.py BUILD [CASE...]

Each case is a job for three boards, trained undisturbed, and again while a member, then all of them are killed with
-9. Updates are raw32: a member that did not have the same change of every weight and statistic as the others would not
have the frame that they compare before it is sent, and bits that differ after a step differ for good. What the
optimizer keeps is compared in the checkpoints at the end, and all of it with the undisturbed run.
"""

import os
import re
import sys
import time

from cluster import SOURCE, Cluster, read_npy, write_npy

sys.path.insert(0, os.path.join(SOURCE, "tests", "peers"))
import formats  # noqa: E402

GROUP = {"lab": ["board-1", "board-2", "board-3"]}
COMMON = {"quorum": 1, "up": "{mode: raw32}", "down": "{mode: raw32}", "rejoin": "30 s", "form": "30 s", "batch": 16}
SEQUENCES = "{kind: cross_entropy, ignore: 255, weights: [1, 2, 1, 0.5, 1, 1, 3, 1, 1, 1], smoothing: 0.1}"
CASES = {
    "adam_with_batch_statistics_and_dropout_after_each_step": {
        "model": "digits-norm.onnx", "local_steps": 1, "rounds": 10,
        "learning_rate": "0.01, optimizer: adam, keep_optimizer: true, clip: 0.5, "
                         "schedule: {kind: step, every: 3, factor: 0.5}"},
    "adamw_with_a_proximal_term": {
        "model": "digits-norm.onnx", "local_steps": 3, "rounds": 5,
        "learning_rate": "0.01, optimizer: adamw, keep_optimizer: true, weight_decay: 0.01, proximal: 0.1, "
                         "schedule: {kind: cosine, warm_up: 3, factor: 0.1}"},
    "sgd_on_sequences_with_labels_that_do_not_count": {
        "model": "digits-rows.onnx", "local_steps": 2, "rounds": 6, "central": False, "loss": SEQUENCES,
        "learning_rate": "0.05, keep_optimizer: true, nesterov: true, weight_decay: 0.001, no_decay: '*.bias'"},
}


def label_rows(cluster):
    """A label for each row of pixels: the digit, or 255 where nothing is drawn."""
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 8), }"
    for board in cluster.boards:
        with open(cluster.path(f"{board}.yaml")) as file:
            text = file.read()
        _, images = read_npy(re.search(r"\S*-images.npy", text).group())
        path = re.search(r"\S*-labels.npy", text).group()
        _, labels = read_npy(path)
        rows = [b"".join(label if any(image[8 * row : 8 * row + 8]) else b"\xff" for row in range(8))
                for image, label in zip(images, labels)]
        write_npy(cluster.path(f"{board}-rows.npy"), header, rows)
        cluster.write(f"{board}.yaml", text.replace(path, cluster.path(f"{board}-rows.npy")))


def states(cluster):
    """What each member holds in the end: digest of the version, arrays by name."""
    newest = [formats.read_slots(cluster.path("state", board))[0] for board in cluster.boards]
    return [(state.base, state.updates, {name: values.tobytes() for name, values in state.arrays.items()})
            for state in newest]


def check_members(cluster, wanted=None):
    found = states(cluster)
    assert all(state == found[0] for state in found), "the members hold different states"
    assert "optimizer" in found[0][2] and any(found[0][2]["optimizer"]), "nothing is kept of the optimizer"
    for board in cluster.boards:
        assert "the digest does not match" not in cluster.log(board), f"{board} had another frame"
    assert wanted is None or found[0] == wanted, "another state than that of the undisturbed run"
    return found[0]


def disturb(cluster, rounds):
    cluster.wait_for_line("board-2", "version 1: held-out")
    cluster.kill("board-2")
    cluster.start("board-2")
    cluster.wait_for_line("board-1", f"version {rounds // 2}: held-out")
    for board in cluster.boards:
        cluster.kill(board)
    time.sleep(0.1)
    for board in cluster.boards:
        cluster.start(board)


def check_exports(cluster):
    """Batch normalization trains in the job's form only, neither in what is exported by default nor on a board."""
    for options, trains in (((), False), (("--training",), True)):
        cluster.command(cluster.aggregator, "export", "gateway.yaml", *options, "-o", "model")
        assert (b"training_mode" in formats.read_file(cluster.path("model.onnx"))) == trains, options
    assert b"training_mode" not in formats.read_file(cluster.path("state", "board-1", "model.current.onnx"))


def run_case(build, name):
    job = {**COMMON, **CASES[name]}
    wanted = None
    for disturbed in (False, True):
        with Cluster(build, GROUP, **job) as cluster:
            if "rows" in job["model"]:
                label_rows(cluster)
            cluster.start_all()
            if disturbed:
                disturb(cluster, job["rounds"])
            cluster.wait_for_end(120)
            cluster.replay()
            if "norm" in job["model"]:
                check_exports(cluster)
            wanted = check_members(cluster, wanted)
    print(f"{name}: {job['rounds'] * job['local_steps']} steps, {len(wanted[2])} arrays equal")


def main(build, *names):
    for name in names:
        assert name in CASES, f"no case {name}"
    for name in names or CASES:
        run_case(build, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
