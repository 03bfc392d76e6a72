"""Tensors that never travel: personal layers, FedBN and frozen ones, in real runs.

    local_tensors.py BUILD [SCENARIO...]

The boards' files of digits are split by label, so each group would rather have an output layer of its own.
"""

import os
import re
import sys
import time

from cluster import Cluster, DIGITS, ENDLESS, SOURCE, mix_data, read_npy, write_npy
from lora import add_adapters
from scenarios import Scenarios

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
from formats import read_file, read_model, weights_of, with_weights  # noqa: E402

HEAD = "3.weight", "3.bias"
ROUNDS = 8
ALONE = {f"lab-{i}": [f"board-{i}"] for i in range(1, 5)}

scenario = Scenarios()


def cluster_of(build, groups, local="", **job):
    update = f", {local}" if local else ""
    return Cluster(build, groups, **{"rounds": ROUNDS, "local_steps": 10, "model": "digits-mlp.onnx", "central": False,
                                     "held_out": "20 %", "quorum": len(groups), "update": update, **job})


def names(patterns):
    return f"local: [{', '.join(patterns)}], snapshot_every: 4"


def change(cluster, name, old, new):
    with open(cluster.path(name)) as file:
        text = file.read()
    assert old in text, f"{name}: no {old}"
    cluster.write(name, text.replace(old, new))


def check_replay(cluster, stay):
    """Both implementations make every version again."""
    lines = cluster.replay()
    assert lines[-1] == f"{ROUNDS + 1} versions, 0 differ, 0 not checked", lines
    model = os.path.join(DIGITS, cluster.job["model"])
    count, _ = replay.replay(cluster.path("state/gateway"), model, 10.0, stay=stay)
    assert count == ROUNDS, count


def tensors(data):
    """The values of each tensor by its name."""
    values, at, found = weights_of(data), 0, {}
    for tensor in read_model(data):
        found[tensor.name] = values[at : at + tensor.count]
        at += tensor.count
    return found


def accuracies(cluster):
    """Of each group, with the weights that it uses, in the last measurement that it sent."""
    rows = cluster.ledger("SELECT grp, held_out_correct, held_out_count FROM contribution WHERE round = ?", ROUNDS)
    return {group: correct / count for group, correct, count in rows}


def export(cluster):
    """The newest version's tensors, and what export said."""
    said = cluster.command(cluster.aggregator, "export", "gateway.yaml", "--training", "-o", "out").stdout
    return tensors(read_file(cluster.path("out.onnx"))), said


def run(build, groups, local="", stay=(), kills=(), look=lambda cluster: None, **job):
    """(digest, what look found) of a run in which processes are killed at some versions."""
    with cluster_of(build, groups, local, **job) as cluster:
        cluster.start_all()
        for version, name in kills:
            cluster.wait_for_version(version)
            cluster.kill(name)
            cluster.start(name)
        cluster.wait_for_end(180)
        check_replay(cluster, stay)
        return cluster.digest(), look(cluster)


def look_at_heads(cluster):
    """The heads of both groups and of the newest version."""
    exported, said = export(cluster)
    assert "untrained, because each group keeps its own: 2 tensors of 650 values: 3.weight, 3.bias" in said, said
    boards = {board: tensors(cluster.current_model(board)) for board in cluster.boards}
    for board in boards:
        assert "the group keeps for itself: 2 tensors of 650 values: 3.weight, 3.bias" in cluster.log(board)
    first = tensors(read_file(os.path.join(DIGITS, "digits-mlp.onnx")))
    for name in HEAD:
        assert exported[name] == first[name], f"{name} of the version moved"
        assert boards["board-1"][name] == boards["board-2"][name] != first[name], f"{name} differs within its group"
        assert boards["board-1"][name] != boards["board-3"][name], f"two groups have the same {name}"
    assert exported["1.weight"] == boards["board-1"]["1.weight"] == boards["board-3"]["1.weight"]
    return [boards["board-1"][name].tobytes() for name in HEAD]


@scenario
def a_personal_head_stays_in_its_group_through_kills(build):
    groups = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}
    kills = (2, "gateway"), (3, "board-3"), (4, "board-2")
    assert run(build, groups, names(HEAD), HEAD, kills, look_at_heads) == \
        run(build, groups, names(HEAD), HEAD, (), look_at_heads)


# What it is worth


def mean_accuracy(cluster):
    found = accuracies(cluster)
    return sum(found.values()) / len(found), min(found.values())


def shift(folder, boards):
    """Each board has pixels of another brightness and contrast, and all labels: its features are shifted."""
    mix_data(folder, boards)
    for index, board in enumerate(boards):
        path = os.path.join(folder, f"{board}-images.npy")
        header, samples = read_npy(path)
        scale, offset = (1, 0.5, 0.25, -1)[index], (0, 8, 0, 16)[index]
        write_npy(path, header, [bytes(int(offset + scale * each) for each in sample) for sample in samples])


def worth(build, local, stay, seeds, folder=None, **job):
    """(mean over groups and seeds, mean of the worst group) of the accuracy that groups measured last."""
    found = []
    for seed in seeds:
        with cluster_of(build, ALONE, local, seed=seed, **job) as cluster:
            if folder:
                os.makedirs(cluster.path("data"), exist_ok=True)
                shift(cluster.path("data"), cluster.boards)
                for board in cluster.boards:
                    change(cluster, f"{board}.yaml", f"{DIGITS}/{board}", f"data/{board}")
            cluster.start_all()
            cluster.wait_for_end(300)
            found.append(mean_accuracy(cluster))
    return [sum(column) / len(found) for column in zip(*found)]


def table(rows):
    return "; ".join(f"{name}: {mean:.3f}, worst group {worst:.3f}" for name, (mean, worst) in rows.items())


@scenario
def a_personal_head_is_worth_its_points_on_split_labels(build):
    job = {"rounds": ROUNDS, "local_steps": 5}
    rows = {"shared": worth(build, "", (), (1, 2, 3), **job),
            "personal head": worth(build, names(HEAD), HEAD, (1, 2, 3), **job)}
    assert rows["personal head"][0] > rows["shared"][0] + 0.02, rows
    return table(rows)


@scenario
def fedbn_is_worth_its_points_on_shifted_features(build):
    job = {"rounds": ROUNDS, "local_steps": 10, "model": "digits-norm.onnx"}
    norms = '"1.weight", "1.bias"'
    rows = {"shared": worth(build, "", (), (1, 2, 3), True, **job),
            "local statistics": worth(build, "statistics: local", (), (1, 2, 3), True, **job),
            "FedBN": worth(build, f"local: [{norms}], statistics: local", (), (1, 2, 3), True, **job)}
    assert rows["FedBN"][0] > rows["shared"][0] + 0.02, rows
    return table(rows)


# Adapters of a Transformer


TEXT = os.path.join(SOURCE, "tests", "data", "text", "char-gpt.onnx")
FROZEN = "freeze: [tokens.*, places.*, norm*, qkv.weight, qkv.bias, out.weight, out.bias, wide.weight, wide.bias, " \
         "narrow.weight, narrow.bias, head.weight]"
BASE_SIZE = 4 * 42192  # bytes of the frozen tensors
TWO = {"lab-a": ["board-1"], "lab-b": ["board-2"]}


def text_cluster(build, frozen, up="{mode: q8}", rank=4, bases=(), groups=None, **job):
    """Boards that train a small Transformer adapters on pages of this tree; bases have its file."""
    cluster = cluster_of(build, TWO if groups is None else groups, f"frozen: {frozen}",
                         **{"rounds": 4, "local_steps": 4, "up": up, "batch": 16, "learning_rate": f"0.05, {FROZEN}",
                            **job})
    cluster.__enter__()
    add_adapters(TEXT, cluster.path("lora.onnx"), rank)
    cluster.set_model(cluster.path("lora.onnx"))
    change(cluster, "job.yaml", "scale: 0.0625, mean: 0", "window: 32, stride: 16")
    pages = "runtime/profile/PROFILES.md", "transport/PROTOCOL.md", "runtime/update/UPDATE.md"
    for board, page in zip(cluster.boards, pages):
        with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
            cluster.write(f"{board}.txt", file.read().encode("ascii", "ignore").decode()[:8000])
        change(cluster, f"{board}.yaml", f"{DIGITS}/{board}-images.npy", f"{board}.txt")
        change(cluster, f"{board}.yaml", f"{DIGITS}/{board}-labels.npy", f"{board}.txt:next")
    for board in bases:
        change(cluster, f"{board}.yaml", "threads: 1", "threads: 1\nbase: lora.onnx")
    return cluster


def sizes(cluster):
    """Bytes of the newest round's updates and of the version that they made."""
    up = [size for size, in cluster.ledger("SELECT size FROM contribution WHERE round = 4")]
    return max(up), cluster.ledger("SELECT delta_size FROM version WHERE number = 4")[0][0]


def wire_down(cluster, board):
    return cluster.board_status(board)["link"]["payload_down"]


def adapter_run(build, frozen, **more):
    cluster = text_cluster(build, frozen, **more)
    try:
        cluster.start_all()
        cluster.wait_for_end(180)
        assert cluster.replay()[-1] == "5 versions, 0 differ, 0 not checked"
        return cluster.digest(), sizes(cluster), [wire_down(cluster, board) for board in cluster.boards]
    finally:
        cluster.__exit__(*sys.exc_info())


@scenario
def frozen_tensors_cost_nothing_and_change_nothing(build):
    shared = adapter_run(build, "shared, snapshot_every: never")
    local = adapter_run(build, "local, snapshot_every: never", bases=["board-2"])
    assert shared[0] == local[0], "without the zeros of frozen tensors the versions are others"
    (up, down), (all_up, all_down) = local[1], shared[1]
    assert up < 4800 and down < 4800, (up, down)  # 3776 values in 8 bits
    fetched, had = local[2]
    assert fetched > BASE_SIZE > 2 * had, f"payload down: {fetched} without, {had} bytes with the base"
    return f"up {all_up} -> {up}, down {all_down} -> {down} bytes a round; with the base {fetched} -> {had} in the run"


@scenario
def adapters_take_a_tenth_of_the_bytes_of_full_training(build):
    """The same Transformer, trained whole and by its adapters alone, whose base each board has."""
    rows = []
    for whole in (True, False):
        more = {"learning_rate": "0.05"} if whole else {"bases": ["board-1", "board-2"]}
        cluster = text_cluster(build, f"{'shared' if whole else 'local'}, snapshot_every: never", rounds=20,
                               local_steps=20, central=False, **more)
        try:
            cluster.start_all()
            cluster.wait_for_end(240)
            up, down = sizes(cluster)
            loss = cluster.ledger("SELECT sum(held_out_loss) / sum(held_out_count) FROM contribution WHERE round = 20")
            rows.append((up, down, max(wire_down(cluster, board) for board in cluster.boards), loss[0][0]))
        finally:
            cluster.__exit__(*sys.exc_info())
    (up, down, fetched, loss), (adapter_up, adapter_down, adapter_fetched, adapter_loss) = rows
    assert 10 * adapter_up < up and 10 * adapter_down < down, rows
    assert 5 * adapter_fetched < fetched, rows  # with the messages of 20 rounds
    assert loss < 3 and adapter_loss < 3.5, rows
    return (f"up {up} -> {adapter_up}, down {down} -> {adapter_down} bytes a round, {fetched} -> {adapter_fetched} "
            f"down in 20 rounds; held-out loss {loss:.3f} and {adapter_loss:.3f}")


@scenario
def a_wrong_base_is_refused_and_the_right_one_catches_up(build):
    cluster = text_cluster(build, "local", bases=["board-2"], rounds=ENDLESS, quorum=1)
    try:
        right = read_file(cluster.path("lora.onnx"))
        values = weights_of(right)
        values[0] += 1
        change(cluster, "board-2.yaml", "base: lora.onnx", "base: other.onnx")
        with open(cluster.path("other.onnx"), "wb") as file:
            file.write(with_weights(right, values))
        for name in ("gateway", *cluster.boards):
            cluster.start(name)
        cluster.wait_for_line("board-2", "base: other.onnx has frozen tensors with the digest ")
        found, wanted = re.search(r"frozen tensors with the digest (\w{64}), the job's are (\w{64})",
                                  cluster.log("board-2")).groups()
        assert found != wanted
        cluster.wait_for_line("gateway", f"board-2 of group lab-b reports: base: other.onnx has frozen tensors with the "
                                         f"digest {found}, the job's are {wanted}")
        cluster.kill("board-2")
        cluster.wait_for_version(2)
        change(cluster, "board-2.yaml", "base: other.onnx", "base: lora.onnx")
        cluster.start("board-2")
        deadline = time.monotonic() + 120
        while not cluster.ledger("SELECT 1 FROM contribution WHERE grp = 'lab-b'"):
            assert time.monotonic() < deadline, "the board with the right base sent nothing in 120 s"
            time.sleep(0.05)
        assert "version 0 is taken from" in cluster.log("board-2"), "its base was not used"
        cluster.end_run()
        cluster.wait_for_end(120)
        assert "0 differ" in cluster.replay()[-1]
    finally:
        cluster.__exit__(*sys.exc_info())


if __name__ == "__main__":
    scenario.main()
