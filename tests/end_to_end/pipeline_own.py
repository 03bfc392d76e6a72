"""Pipelines with each board's own samples: in each round those of the board with the first part are trained.

    pipeline_own.py BUILD [SCENARIO...]
"""

import os
import random
import re
import shutil
import time

import wide_model
from changed_data import own_data, save_again
from cluster import DIGITS, Cluster, read_npy, run_to_end, same_model_everywhere, write_npy
from missing import wait_until_told
from scenarios import Scenarios
from spool import put_shard

TWO = {"lab": ["board-1", "board-2"]}
THREE = {"lab": ["board-1", "board-2", "board-3"]}
FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
SETTINGS = {"rounds": 4, "local_steps": 15, "quorum": 1, "up": "{mode: raw32}", "down": "{mode: raw32}",
            "learning_rate": 0.005, "held_out": "10 %, scope: own"}
TOPK = {"up": "{mode: topk, density: 10 %, value_bits: 2}", "down": "{mode: q8}"}
LAYERS = [64] * 6
LOSSES = os.path.join(os.path.dirname(DIGITS), "losses", "constant-weights")
scenario = Scenarios()


def silence(cluster, board, count=30):
    """All labels of a board become 9, which the job ignores: its samples are trained, and change nothing."""
    for part in ("images", "labels"):
        header, samples = read_npy(os.path.join(DIGITS, f"{board}-{part}.npy"))
        if part == "labels":
            samples = [bytes([9]) + bytes(len(sample) - 1) for sample in samples]
        write_npy(cluster.path(f"silent-{part}.npy"), header, samples[:count])
        cluster.edit(f"{board}.yaml", (os.path.join(DIGITS, f"{board}-{part}.npy"), cluster.path(f"silent-{part}.npy")))


def samples_of(boards, settings):
    """Of each update: those that as many boards would train without a chain."""
    batch, accumulate = re.findall(r"\d+", settings["batch"])
    return boards * int(batch) * int(accumulate) * settings.get("local_steps", SETTINGS["local_steps"])


def train(build, groups, prepare=None, disturb=None, model=None, layers=LAYERS, trained=None, **settings):
    """The digests of all versions after a replay, the model that all boards hold, and the logs."""
    with Cluster(build, groups, **{**SETTINGS, **settings}) as cluster:
        if model is not None:
            wide_model.main(cluster.path("deep.onnx"), "1,8,8", *layers, 10, **model)
            cluster.set_model("deep.onnx")
        if prepare:
            prepare(cluster)
        run_to_end(cluster, disturb)
        rows = cluster.ledger("SELECT digest FROM version ORDER BY number")
        logs = {name: cluster.log(name) for name in ["gateway", *cluster.boards]}
        weights = {row[0] for row in cluster.ledger("SELECT weight FROM contribution")}
        assert weights == {samples_of(trained or len(groups["lab"]), settings)}, weights
        return [row[0] for row in rows], cluster.current_model(cluster.boards[0]), logs


def measures(logs):
    """What boards said of each version on held-out samples."""
    return sorted(set(re.findall(r"version \d+: held-out loss .*", logs["board-1"] + logs["board-2"])))


@scenario
def each_board_trains_on_all_its_samples_in_its_turns(build):
    """Where the others' samples change nothing, four rounds are the two of a board alone, sample by sample."""
    loss = "{kind: cross_entropy, ignore: 9}"
    for speaks, silent in ("board-1", "board-2"), ("board-2", "board-1"):
        _, alone, _ = train(build, {"lab": [speaks]}, rounds=2, loss=loss, batch="16, accumulate: 4")
        _, chain, logs = train(build, TWO, lambda cluster, board=silent: silence(cluster, board), loss=loss,
                               batch="16, accumulate: 2", extra="parallel: {pipeline: 2}")
        assert alone == chain, f"{speaks} alone made another model than the chain in which {silent} is silent"
        for number in range(1, 5):
            line = f"round {number}: the chain trains on the samples of board-{(number - 1) % 2 + 1};"
            assert line in logs["board-1"] and line in logs["board-2"], line


@scenario
def chains_side_by_side_sum_what_two_boards_with_their_own_samples_do(build):
    """In round 1 the first boards of both chains feed them; samples of all four count by round 2."""
    settings = {"rounds": 1, **TOPK}
    two, _, pair = train(build, TWO, batch="16, accumulate: 4", **settings)
    four, _, logs = train(build, FOUR, batch="16, accumulate: 2", extra="parallel: {pipeline: 2}", **settings)
    assert two == four, f"two boards made {two}, two chains {four}"
    assert measures(pair) == measures(logs), f"two boards measured {measures(pair)}, two chains {measures(logs)}"
    assert "the chain trains on the samples of board-2;" in logs["board-4"], logs["board-4"]
    _, _, logs = train(build, FOUR, batch="16, accumulate: 2", extra="parallel: {pipeline: 2}", rounds=2)
    told = logs["board-1"] + logs["board-2"]
    for number, board in (1, 1), (1, 2), (2, 3), (2, 4):
        assert f"round {number}: the chain trains on the samples of board-{board};" in told, (number, board, told)


@scenario
def dropout_and_inputs_of_later_parts_change_no_bit(build):
    """The last part draws by the numbers of the first one's samples, and gets those that it reads itself."""
    for model in {"drops": True}, {"echoes": True}, {"drops": True, "skips": True}:
        alone, _, _ = train(build, {"lab": ["board-1"]}, batch="16, accumulate: 6", model=model, rounds=1, **TOPK)
        chain, _, _ = train(build, THREE, batch="16, accumulate: 2", model=model, rounds=1, **TOPK,
                            extra="parallel: {pipeline: 3}")
        assert alone == chain, f"{model}: a board alone made {alone}, the chain {chain}"


@scenario
def members_are_killed_and_the_versions_are_the_same(build):
    """Of three boards two are the chain, each in turn; kills at drawn times hit all that a round does."""
    settings = {"batch": "16, accumulate: 2, optimizer: adam, keep_optimizer: true", "local_steps": 120, "rounds": 6, "rejoin": "20 s", **TOPK,
                "extra": "parallel: {pipeline: 2}"}
    wanted, _, calm = train(build, THREE, trained=2, **settings)
    draw, killed = random.Random(23), []

    def disturb(cluster):
        cluster.wait_for_line("board-1", "version 0: held-out")
        for number in draw.choices(range(1, 4), k=12):
            time.sleep(draw.uniform(0.05, 0.9))
            if cluster.processes["gateway"].poll() is not None:
                return
            cluster.kill(f"board-{number}")
            cluster.start(f"board-{number}")
            killed.append(number)

    found, _, logs = train(build, THREE, disturb=disturb, trained=2, **settings)
    assert found == wanted, f"undisturbed {wanted}, after the deaths of {killed} {found}"
    assert len(killed) > 4 and measures(logs) == measures(calm), (killed, measures(calm), measures(logs))
    return f"{len(killed)} boards killed"


@scenario
def a_label_that_is_no_class_names_the_board_and_file_that_has_it(build):
    """When the board starts, also where labels are an input of the model; and in a step, if the file changes in use."""
    job = {"extra": "parallel: {pipeline: 2}", "form": "2 s", "central": False}
    with Cluster(build, TWO, **{**SETTINGS, **job, "loss": "{output: loss}", "batch": "2, accumulate: 1"}) as cluster:
        shutil.copy(f"{LOSSES}-model.onnx", cluster.path("loss.onnx"))
        cluster.set_model("loss.onnx")
        cluster.edit("job.yaml", ("scale: 0.0625", "scale: 1"))
        for board in cluster.boards:
            header, samples = read_npy(f"{LOSSES}-label.npy")
            if board == "board-2":
                samples[14] = bytes([12]) + samples[14][1:]
            write_npy(cluster.path(f"{board}-labels.npy"), header, samples)
            cluster.edit(f"{board}.yaml", (f"inputs: {DIGITS}/{board}-images.npy, labels: {DIGITS}/{board}-labels.npy",
                                           f"inputs: {{x: {LOSSES}-x.npy, label: {board}-labels.npy}}"))
        cluster.start_all()
        assert cluster.processes["board-2"].wait(60) == 1
        wait_until_told(cluster, "board-2", "board-2-labels.npy: sample 14 has the label 12; the model's classes are 0 to 4")
        cluster.wait_for_line("board-1", "a chain of 2 parts cannot be made of board-1: waiting for board-2")
    with Cluster(build, TWO, **{**SETTINGS, **job, "local_steps": 1500, "batch": "16, accumulate: 1"}) as cluster:
        files = own_data(cluster, "board-2")
        for path in files:
            cluster.edit("board-2.yaml", (f"{DIGITS}/{os.path.basename(path)}", path))
        cluster.start_all()
        cluster.wait_for_line("board-1", "round 2: the chain trains on the samples of board-2")
        save_again(files[1])
        assert cluster.processes["board-2"].wait(60) == 1
        wait_until_told(cluster, "board-2", "board-2-labels.npy changed while it was used")
        said = cluster.log("board-1")
        assert "a label that came from board-2 is no class of the model" in said, said
        assert "not finite" not in said + cluster.log("board-2"), said


@scenario
def a_member_killed_at_each_turn_changes_no_version(build):
    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}", "local_steps": 150, **TOPK}
    wanted, _, _ = train(build, TWO, **settings)

    def disturb(cluster):
        for number, board in (1, "board-2"), (2, "board-1"), (3, "board-1"):
            cluster.wait_for_line("board-1" if board == "board-2" else "board-2",
                                  f"round {number}: the chain trains on the samples")
            cluster.kill(board)
            cluster.start(board)

    found, _, _ = train(build, TWO, disturb=disturb, **settings)
    assert found == wanted, f"undisturbed {wanted}, killed {found}"


@scenario
def a_folder_of_samples_is_read_by_its_own_board_only(build):
    """New files come with the board's next turn or later; a kill in a round changes no sample of it."""
    def folders(cluster):
        for board in cluster.boards:
            folder = cluster.path(f"spool-{board}")
            os.mkdir(folder)
            put_shard(folder, "first", 0, 120 if board == "board-1" else 50)
            text = open(cluster.path(f"{board}.yaml")).read()
            cluster.write(f"{board}.yaml", text[: text.index("data:")] + "data: {digits: {inputs: "
                          f'"spool-{board}/*.npz:images", labels: "spool-{board}/*.npz:labels"}}}}\n')

    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}", "local_steps": 150, **TOPK}
    wanted, _, _ = train(build, TWO, folders, **settings)

    def disturb(cluster):
        cluster.wait_for_line("board-2", "round 2: the chain trains on the samples of board-2;")
        cluster.kill("board-2")
        cluster.start("board-2")

    found, _, _ = train(build, TWO, folders, disturb, **settings)
    assert found == wanted, f"undisturbed {wanted}, killed {found}"


@scenario
def a_job_says_that_activations_of_own_samples_may_travel(build):
    with Cluster(build, TWO, **{**SETTINGS, "held_out": "10 %", "extra": "parallel: {pipeline: 1}"}) as cluster:
        cluster.edit("job.yaml", ("pipeline: 1", "pipeline: 2"))
        result = cluster.command(cluster.aggregator, "check", "gateway.yaml", check=False)
        said = result.stdout + result.stderr
        assert result.returncode and "parallel.pipeline: data.scope is missing; expected shared" in said, said
        assert "activations and labels of each board's samples then go to other boards" in said, said
        cluster.edit("job.yaml", ("held_out: 10 %", "held_out: 10 %, scope: own"))
        cluster.command(cluster.aggregator, "check", "gateway.yaml")


@scenario
def a_part_that_does_not_fit_is_told_before_its_turn(build):
    """The second part has most of the weights; board-1 holds the first one at first."""
    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2, cut: w1}", "rounds": 2}
    layers = [256] * 6
    _, _, logs = train(build, TWO, model={}, layers=layers, **settings)
    needs = [int(re.search(rf"part {part} of 2, .*, (\d+) bytes in all", logs["board-1"]).group(1)) for part in (1, 2)]
    assert needs[0] + (2 << 20) < needs[1], needs
    with Cluster(build, TWO, **{**SETTINGS, **settings}) as cluster:
        wide_model.main(cluster.path("deep.onnx"), "1,8,8", *layers, 10)
        cluster.set_model("deep.onnx")
        with open(cluster.path("board-1.yaml"), "a") as file:
            file.write(f"memory: {{train_max: {(needs[0] + needs[1]) // 2048} KiB}}\n")
        cluster.start_all()
        cluster.wait_for_line("board-1", "part 2 of 2: with data.scope own each board holds each part in some round")
        assert "part 1 of 2, chain" not in cluster.log("board-1"), "board-1 began a round"


@scenario
def all_wait_where_a_later_part_does_not_fit_in_fewer_shares(build):
    """Of four boards one is lost, so each part has one share. board-1 could hold the first part, and then not the second."""
    settings = {**SETTINGS, "batch": "16, accumulate: 2, optimizer: adam", "rounds": 6, "local_steps": 60, "rejoin": "300 ms",
                "extra": "parallel: {pipeline: 2, shard: 2, cut: w1}", **TOPK}
    layers = [256] * 6
    wanted, _, logs = train(build, FOUR, model={}, layers=layers, **settings)
    needs = int(re.search(r"part 2 of 2, .*, (\d+) bytes in all", logs["board-1"]).group(1)) + (512 << 10)

    def prepare(cluster):
        with open(cluster.path("board-1.yaml"), "a") as file:
            file.write(f"memory: {{train_max: {needs >> 10} KiB}}\n")

    def disturb(cluster):
        for version in 0, 1, 2:
            cluster.wait_for_line("board-1", f"version {version}: held-out")
            cluster.kill("board-2")
            for board in "board-1", "board-4":
                cluster.wait_for_line(board, "a share that fits cannot be made of board-1 board-3 board-4: waiting for board-2",
                                      count=version + 1)
                cluster.wait_for_line(board, "board-1 lacks memory: part 2 of 2 in 1 share takes ", count=version + 1)
            wait_until_told(cluster, "board-1", "a share that fits waits for board-2, or for more memory here")
            cluster.start("board-2")

    found, _, logs = train(build, FOUR, prepare, disturb, model={}, layers=layers, **settings)
    assert wanted == found, f"undisturbed {wanted}, waiting {found}"
    assert "the epoch ended" not in logs["board-1"], logs["board-1"]


@scenario
def a_member_that_stays_away_has_no_turns(build):
    """The others take turns without it, and the run ends."""
    with Cluster(build, THREE, **{**SETTINGS, "batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}",
                                  "rounds": 8, "local_steps": 120, "rejoin": "300 ms", **TOPK}) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-2", "round 2: the chain trains on the samples of board-2;")
        cluster.kill("board-3")
        cluster.wait_for_end(100, ["gateway", "board-1", "board-2"])
        cluster.replay()
        same_model_everywhere(cluster, ["board-1", "board-2"])
        told = re.findall(r"round (\d): the chain trains on the samples of board-(\d);", cluster.log("board-1"))
        assert {board for number, board in told if int(number) > 6} == {"1", "2"}, told


def lend_samples(cluster):
    """Boards from the fourth on have the samples of the first three."""
    for number, board in enumerate(cluster.boards):
        for part in ("images", "labels"):
            if number > 2:
                name = f"{board}-{part}.npy"
                shutil.copy(os.path.join(DIGITS, f"board-{number % 3 + 1}-{part}.npy"), cluster.path(name))
                cluster.edit(f"{board}.yaml", (os.path.join(DIGITS, name), cluster.path(name)))


@scenario
def a_tensor_of_three_parts_is_the_same_in_both_chains(build):
    """With seven boards the two chains have their parts in other orders of boards, and a sum of three depends on that."""
    seven = {"lab": [f"board-{number}" for number in range(1, 8)]}
    models = []
    for parts, more in (2, "replicate: 2"), (3, "replicate: 2, cut: [b2, b4]"), (3, "shard: 2, stage: 2, cut: [b2, b4]"):
        _, model, logs = train(build, seven, lend_samples, model={"tied": True}, trained=2 * parts, rounds=4,
                               batch=f"16, accumulate: {6 // parts}", extra=f"parallel: {{pipeline: {parts}, {more}}}")
        models.append(wide_model.weights_of(model))
        for number in range(1, 8):
            log = logs[f"board-{number}"]
            assert "is lost" not in log and "the epoch ended" not in log, f"{parts} parts, {more}: {log}"
    two, *three = models
    apart = [max(abs(a - b) for a, b in zip(two, found)) for found in three]
    assert max(apart) < 1e-6, f"weights differ by {apart}"
    return f"weights differ by {apart} from those of two parts"


@scenario
def a_board_without_samples_says_so_and_the_others_wait_for_it(build):
    with Cluster(build, TWO, **{**SETTINGS, "extra": "parallel: {pipeline: 2}", "rejoin": "300 ms", "form": "1 s"}) as cluster:
        silence(cluster, "board-2", 0)
        cluster.start_all()
        cluster.wait_for_line("board-2", "silent-images.npy: no samples; the first dimension counts them")
        cluster.wait_for_line("board-1", "a chain of 2 parts cannot be made of board-1: waiting for board-2")


if __name__ == "__main__":
    scenario.main()
