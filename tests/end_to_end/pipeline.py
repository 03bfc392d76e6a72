"""Pipelines: a model cut into parts, each on a board of its own, trains to the bits of one board.

    pipeline.py BUILD [SCENARIO...]
"""

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time

import wide_model
from cluster import DIGITS, ENDLESS, SOURCE, Cluster, read_npy, run_to_end, wait_until, write_npy
from missing import told, wait_until_told
from scenarios import Scenarios
from sets import share_samples, status
from spool import put_shard
from timeline import spans_of

ONE = {"lab": ["board-1"]}
TWO = {"lab": ["board-1", "board-2"]}
THREE = {"lab": ["board-1", "board-2", "board-3"]}
FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
SETTINGS = {"rounds": 3, "local_steps": 15, "quorum": 1, "up": "{mode: topk, density: 10 %, value_bits: 2}",
            "held_out": "10 %, scope: shared", "learning_rate": 0.005}
scenario = Scenarios()


def digests_of(build, groups, disturb=None, model=None, **settings):
    """Of all versions, after a replay, and the logs of the boards and the gateway."""
    with Cluster(build, groups, **{**SETTINGS, **settings}) as cluster:
        share_samples(cluster)
        if model is not None:
            wide_model.main(cluster.path("deep.onnx"), "1,8,8", *[64] * 6, 10, **model)
            cluster.set_model("deep.onnx")
        run_to_end(cluster, disturb)
        rows = cluster.ledger("SELECT digest FROM version ORDER BY number")
        logs = {name: cluster.log(name) for name in ["gateway", *cluster.boards]}
        return [row[0] for row in rows], logs


def one_board_and_two(build, train, pipeline="pipeline: 2", **settings):
    alone, _ = digests_of(build, ONE, batch=f"16, accumulate: 4{train}", **settings)
    chain, logs = digests_of(build, TWO, batch=f"16, accumulate: 2{train}", extra=f"parallel: {{{pipeline}}}",
                             **settings)
    assert len(alone) == 4, alone
    assert alone == chain, f"{train}: a board alone made {alone}, the chain {chain}"
    return logs


@scenario
def two_boards_that_hold_a_half_each_make_the_versions_of_one(build):
    one_board_and_two(build, "", up="{mode: raw32}", down="{mode: raw32}")  # no rounding hides a difference
    logs = one_board_and_two(build, "")
    values = [re.search(r"part (\d) of 2, chain 1 of 1 .*: (\d+) of (\d+) values", logs[board]).groups()
              for board in ("board-1", "board-2")]
    assert [part for part, _, _ in values] == ["1", "2"], values
    assert int(values[0][1]) + int(values[1][1]) == int(values[0][2]), values


@scenario
def what_a_part_keeps_between_rounds_changes_no_bit(build):
    """Two rows of Adam, which are gathered with the weights; a cut that the job names; one micro-batch more."""
    one_board_and_two(build, ", optimizer: adam, weight_decay: 0.01, no_decay: '*.bias', keep_optimizer: true",
                      pipeline="pipeline: 2, cut: 2.*")


def losses(logs):
    rows = [line.split() for line in logs["gateway"].splitlines()]
    return [float(row[2]) for row in rows if len(row) > 6 and row[0].isdigit()]


@scenario
def statistics_of_batches_change_no_bit_and_tied_weights_are_the_same_on_both(build):
    """A tensor of two parts is summed in another order, and so is the norm for clipping."""
    one_board_and_two(build, ", bn: train", model={"norm": True})
    for train, model in (", clip: 1", {}), ("", {"tied": True}), (", clip: 1", {"tied": True, "norm": True}):
        alone, one = digests_of(build, ONE, batch=f"16, accumulate: 4{train}", model=model)
        chain, two = digests_of(build, TWO, batch=f"16, accumulate: 2{train}", model=model,
                                extra="parallel: {pipeline: 2}")
        assert len(alone) == len(chain) == 4, (alone, chain)
        for a, b in zip(losses(one), losses(two)):
            assert abs(a - b) < 1e-3 * a, (losses(one), losses(two))


def refused(build, groups, line, names, change=None, status=(), **settings):
    """The line that a board and, where it has no other board to ask, the gateway say of a job that cannot run.

    status: boards whose own status says it, too.
    """
    with Cluster(build, groups, **{**SETTINGS, **settings}) as cluster:
        share_samples(cluster)
        if change:
            change(cluster)
        cluster.start_all()
        for name in names:
            cluster.wait_for_line(name, line)
        for name in status:
            wait_until(lambda: line in cluster.command(cluster.node, "status", f"{name}.yaml").stdout,  # noqa: B023
                       f"the status of {name} says so")


@scenario
def what_cannot_be_a_chain_gets_one_clear_line(build):
    def own_samples(cluster, board="board-2"):
        text = open(cluster.path(f"{board}.yaml")).read()
        for part in ("images", "labels"):
            text = text.replace(cluster.path(f"all-{part}.npy"), os.path.join(DIGITS, f"{board}-{part}.npy"))
        cluster.write(f"{board}.yaml", text)

    def others_go_on(cluster):
        own_samples(cluster, "board-1")

    everybody = ("board-1", "board-2", "gateway")
    refused(build, TWO, "parallel.pipeline of job 'digits' is 3, and 2 boards are in group.members of this profile; "
            "wanted at least 3", everybody, extra="parallel: {pipeline: 3}")
    refused(build, TWO, "data set 'digits' of board-2 has other samples than that of board-1, and a chain needs the "
            "same: board-2 looks on", everybody, own_samples, ("board-2",), extra="parallel: {pipeline: 2}")
    refused(build, TWO, "a chain of 2 parts cannot be made of board-1: waiting for members with the same samples",
            everybody, own_samples, ("board-1",), extra="parallel: {pipeline: 2}")
    refused(build, THREE, "data set 'digits' of board-1 has other samples than that of board-2, and a chain needs the "
            "same: board-1 looks on", ("board-1", "board-2", "board-3", "gateway"), others_go_on, ("board-1",),
            extra="parallel: {pipeline: 2}")
    refused(build, THREE, "chain 1 of 1 (board-2 board-3)", ("board-2", "board-3"), others_go_on,
            extra="parallel: {pipeline: 2}")


CUTS = (("pipeline: 2, cut: nothing", "the cut 'nothing': the model has neither a tensor of this name nor a value that "
         "can be sent; wanted a name such as 6.weight"),
        ("pipeline: 2, cut: 0.*", "the cut '0.*': the first node of the model reads such a tensor"),
        ('pipeline: 3, cut: ["6.*", "2.*"]', "the cut '2.*' comes before '6.*'; wanted the order of the model, each once"),
        ("pipeline: 12", "the model can be cut at"))


@scenario
def a_cut_that_cannot_be_is_refused_before_a_board_gets_it(build):
    def say(result, line):
        assert result.returncode == 1 and line in result.stdout + result.stderr, (line, result)

    with Cluster(build, {"lab": [f"board-{i}" for i in range(1, 13)]},
                 **{**SETTINGS, "extra": "parallel: {pipeline: 2}"}) as cluster:
        good = open(cluster.path("job.yaml")).read()
        for bad, line in CUTS:
            text = good.replace("pipeline: 2", bad)
            cluster.write("job.yaml", text)
            say(cluster.command(cluster.node, "check", "job.yaml", check=False), line)
            say(cluster.command(cluster.aggregator, "check", "gateway.yaml", check=False), line)
            say(cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False), line)
        assert not cluster.ledger("SELECT * FROM setting"), "a run that was refused wrote its values"
        cluster.write("job.yaml", good)
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "listening on")
        rows = cluster.ledger("SELECT * FROM setting")
        for bad, line in CUTS:
            text = good.replace("pipeline: 2", bad)
            cluster.write("job.yaml", text)
            say(cluster.command(cluster.aggregator, "reload", "gateway.yaml", check=False), line)
            cluster.write("other.yaml", text.replace("name: digits", "name: other"))
            say(cluster.command(cluster.aggregator, "job", "submit", "gateway.yaml", "other.yaml", check=False), line)
        assert cluster.ledger("SELECT * FROM setting") == rows, "a reload that was refused changed the ledger"
        assert cluster.processes["gateway"].poll() is None


@scenario
def chains_that_no_group_can_form_are_refused_and_of_some_groups_wait(build):
    groups = {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}
    none = "parallel.pipeline: 3 needs groups of 3 boards; the largest group, lab-a, has 2"
    some = "parallel.pipeline: 2 needs groups of 2 boards; 1 of 2 groups have fewer, such as lab-b with 1: these wait"
    shares = "parallel.pipeline: 2 and parallel.shard: 2 need groups of 4 boards; the largest group, lab-a, has 2"
    with Cluster(build, groups, **{**SETTINGS, "extra": "parallel: {pipeline: 2}"}) as cluster:
        good = open(cluster.path("job.yaml")).read()
        cluster.start("gateway")
        cluster.wait_for_line("gateway", some)
        cluster.wait_for_line("gateway", "round 1 waits for")
        for bad, line in ("pipeline: 3", none), ("pipeline: 2, shard: 2", shares):
            cluster.write("job.yaml", good.replace("pipeline: 2", bad))
            cluster.write("other.yaml", good.replace("pipeline: 2", bad).replace("name: digits", "name: other"))
            for command in ("check",), ("reload",), ("job", "submit"):
                names = ("gateway.yaml", "other.yaml") if len(command) > 1 else ("gateway.yaml",)
                result = cluster.command(cluster.aggregator, *command, *names, check=False)
                assert result.returncode == 1 and f"error: {line}" in result.stderr, result
        cluster.write("job.yaml", good)
        cluster.kill("gateway")  # so that check may have its addresses
        result = cluster.command(cluster.aggregator, "check", "gateway.yaml")
        assert f"warning: {some}" in result.stderr and "replicate" not in result.stderr, result
        cluster.write("job.yaml", good.replace("pipeline: 2", "pipeline: 2, replicate: 2"))
        result = cluster.command(cluster.aggregator, "check", "gateway.yaml")
        assert ("warning: parallel.replicate: 2 needs groups of 4 boards; the largest group, lab-a, has 2: it counts as 1 "
                "there, and 0 of the boards look on") in result.stderr, result


def serve_to_end(cluster, timeout):
    """As a service does, starts boards that end with an error, until the run is over."""
    deadline = time.monotonic() + timeout
    while cluster.processes["gateway"].poll() is None:
        assert time.monotonic() < deadline, f"the run is not over in {timeout} s"
        for board in cluster.boards:
            if cluster.processes[board].poll():
                cluster.start(board)
        time.sleep(0.1)
    cluster.wait_for_end(10)


@scenario
def a_round_that_no_board_can_train_goes_on_with_the_corrected_job(build):
    """Its values are corrected once by a reload alone and once with kills around it; the versions are those of a job
    that was right from the beginning."""
    digests, _ = digests_of(build, TWO, batch="16, accumulate: 2", extra="parallel: {pipeline: 2}")
    for kills in False, True:
        with Cluster(build, TWO, **{**SETTINGS, "batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 3}",
                                    "deadline": "1 s"}) as cluster:
            share_samples(cluster)
            cluster.start_all()
            cluster.wait_for_line("gateway", "parallel.pipeline: 3 needs groups of 3 boards")
            cluster.wait_for_line("gateway", "no group has trained round 1")
            for board in cluster.boards:
                assert cluster.processes[board].wait(30) == 1
            cluster.edit("job.yaml", ("pipeline: 3", "pipeline: 2"), ("deadline: 1 s", "deadline: 60 s"))
            if kills:
                cluster.kill("gateway")
            said = cluster.command(cluster.aggregator, "reload", "gateway.yaml").stdout
            assert "from round 1 on: parallel.pipeline: 3, now 2" in said, said
            if kills:
                cluster.start("gateway")
                cluster.wait_for_line("gateway", "listening on", 2)
                cluster.kill("gateway")
                cluster.start("gateway")
            serve_to_end(cluster, 100)
            assert cluster.replay()[-1] == "4 versions, 0 differ, 0 not checked"
            made = [row[0] for row in cluster.ledger("SELECT digest FROM version ORDER BY number")]
            assert made == digests, (kills, made, digests)


@scenario
def another_cut_in_the_middle_of_a_round_changes_no_bit(build):
    settings = {"batch": "16, accumulate: 2", "local_steps": 150, "extra": "parallel: {pipeline: 2}"}
    digests, _ = digests_of(build, TWO, **settings)

    def cut(cluster):
        for number, kills in (1, False), (2, True):
            cluster.wait_for_version(number)
            before = "pipeline: 2" if number == 1 else "pipeline: 2, cut: 2.*"
            cluster.edit("job.yaml", (before, "pipeline: 2, cut: 2.*" if number == 1 else "pipeline: 2, cut: 6.*"))
            said = cluster.command(cluster.aggregator, "reload", "gateway.yaml").stdout
            assert f"from round {number + 1} on: parallel.cut" in said, said
            if kills:
                cluster.kill("gateway")
                cluster.start("gateway")

    made, logs = digests_of(build, TWO, disturb=cut, **settings)
    assert made == digests, (made, digests)
    assert logs["board-1"].count("parallel.cut as the job says") >= 2, logs["board-1"][-2000:]


@scenario
def one_label_of_many_that_differs_is_found(build):
    def differ(cluster):
        for part in ("images", "labels"):
            header, samples = read_npy(cluster.path(f"all-{part}.npy"))
            write_npy(cluster.path(f"all-{part}.npy"), header, samples * 8)
        header, labels = read_npy(cluster.path("all-labels.npy"))
        assert len(labels) > 8192, len(labels)
        labels[1] = labels[0] if labels[0] != labels[1] else labels[2]
        write_npy(cluster.path("other-labels.npy"), header, labels)
        text = open(cluster.path("board-3.yaml")).read()
        cluster.write("board-3.yaml", text.replace("all-labels.npy", "other-labels.npy"))

    refused(build, THREE, "data set 'digits' of board-3 has other samples than that of board-1, and a chain needs the "
            "same: board-3 looks on", ("board-1", "board-2", "board-3", "gateway"), differ,
            extra="parallel: {pipeline: 2}", held_out="0 %, scope: shared")


@scenario
def a_timeout_shorter_than_a_micro_batch_is_found_out_and_said(build):
    """Paced boards, whose first part takes about half a second for a micro-batch."""
    with Cluster(build, THREE, **{**SETTINGS, "batch": "16, accumulate: 1", "extra": "parallel: {pipeline: 3}",
                                  "rounds": 1, "local_steps": 2, "timeout": "100 ms"}) as cluster:
        share_samples(cluster)
        cluster.node = os.path.join(build, "..", "tests", "support", "node_paced")
        cluster.start("gateway")
        for board in cluster.boards:
            cluster.start(board, environment={"CAIRN_PACE": "5e7"})
        cluster.wait_for_end(120)
        for board in cluster.boards:
            assert "group.timeout 0.1 s seems shorter than a micro-batch takes" in cluster.log(board), cluster.log(board)
            assert cluster.log(board).count("group: epoch ") < 8, cluster.log(board)


@scenario
def a_folder_of_samples_is_refused_by_its_line(build):
    """Its files may differ between the members, and a part needs the samples of the others."""
    def folders(cluster):
        os.mkdir(cluster.path("spool"))
        put_shard(cluster.path("spool"), "first", 0, 120)
        for board in cluster.boards:
            text = open(cluster.path(f"{board}.yaml")).read()
            text = text[: text.index("data:")] + 'data: {digits: {inputs: "spool/*.npz:images", labels: "spool/*.npz:labels"}}\n'
            cluster.write(f"{board}.yaml", text)

    refused(build, TWO, "data set 'digits' is a folder, whose files may differ between the members of a chain; "
            "wanted files with parallel.pipeline", ("board-1", "board-2", "gateway"), folders,
            extra="parallel: {pipeline: 2}")


@scenario
def what_does_not_go_together_with_a_pipeline_is_refused_by_its_line(build):
    refusals = (
        ("pipeline: 2, kind: auto", "parallel.pipeline: parallel.kind auto chooses it; expected one of the two"),
        ("kind: auto, cut: one", "parallel.cut: parallel.kind auto chooses where the model is cut; expected one of the two"),
        ("pipeline: 2, measure: board-1", "parallel.measure: not together with parallel.pipeline in this version"),
        ("pipeline: 2, train: board-1", "parallel.train: not together with parallel.pipeline in this version"),
        ("pipeline: 2, balance: true", "parallel.balance: not together with parallel.pipeline in this version"),
        ("pipeline: 3, cut: one", "parallel.cut: 1 name makes 2 parts; expected parallel.pipeline: 2, or 2 names"),
        ("pipeline: 17", "parallel.pipeline"), ("pipeline: 0", "parallel.pipeline"),
        ("tensor: 2", "parallel.tensor"))
    with Cluster(build, TWO, **SETTINGS) as cluster:
        with open(cluster.path("job.yaml")) as file:
            job = file.read()
        for parallel, wanted in refusals:
            cluster.write("job.yaml", f"{job}parallel: {{{parallel}}}\n")
            result = cluster.command(cluster.aggregator, "check", "gateway.yaml", check=False)
            said = result.stdout + result.stderr
            assert result.returncode and "job.yaml:" in said and wanted in said, f"{parallel}: wanted '{wanted}': {said}"


@scenario
def a_loss_that_is_not_finite_ends_the_round_of_all_parts(build):
    """Only the last part sees the loss; the vote tells the others, and nobody waits for anybody."""
    refused(build, TWO, "the round is given up", ("board-1", "board-2"), extra="parallel: {pipeline: 2}",
            learning_rate=1000, momentum="0.9, weight_decay: 1", local_steps=60)


@scenario
def three_parts_and_chains_side_by_side_train_as_one_board(build):
    """Two chains add up two gradients, as two boards do. Beside one chain of two boards a third looks on."""
    alone, _ = digests_of(build, ONE, batch="16, accumulate: 12")
    for groups, accumulate, parallel in ((THREE, 4, "pipeline: 3"), (FOUR, 3, "pipeline: 4"),
                                         (THREE, 6, "pipeline: 2")):
        chain, logs = digests_of(build, groups, batch=f"16, accumulate: {accumulate}", extra=f"parallel: {{{parallel}}}")
        assert alone == chain, f"{parallel}: a board alone made {alone}, the chain {chain}"
        assert f"part 1 of {parallel[-1]}, chain 1 of 1" in logs["board-1"], logs["board-1"]
    side, logs = digests_of(build, FOUR, batch="16, accumulate: 3", extra="parallel: {pipeline: 2}")
    assert "part 2 of 2, chain 2 of 2 (board-2 board-4)" in logs["board-4"], logs["board-4"]
    two, _ = digests_of(build, TWO, batch="16, accumulate: 6", extra="parallel: {replicate: 2}")
    assert side == two, f"two chains made {side}, two boards {two}"


@scenario
def dropout_frozen_fronts_and_values_that_skip_a_part_change_no_bit(build):
    """Dropout draws by the numbers of samples; a frozen first part gets no gradient; the middle part hands on."""
    one_board_and_two(build, "", model={"drops": True})
    one_board_and_two(build, ", freeze: [w0, b0, w1, b1, w2, b2]", pipeline="pipeline: 2, cut: w3", model={})
    alone, _ = digests_of(build, ONE, batch="16, accumulate: 6", model={"skips": True})
    chain, _ = digests_of(build, THREE, batch="16, accumulate: 2", model={"skips": True},
                          extra='parallel: {pipeline: 3, cut: [w2, w4]}')
    assert len(alone) == 4 and alone == chain, f"with a skip a board alone made {alone}, the chain {chain}"


def check_timeline(path, steps, micro):
    """Each member's passes and messages of each step; returns the bytes that a step sends over the cut."""
    spans, names = spans_of(path)
    assert sorted(names.values()) == ["board-1", "board-2"], names
    sent = set()
    for step in range(1, steps + 1):
        ends = {}
        for member in (0, 1):
            for batch in range(micro):
                (f_begin, f_end, _), = spans[member, step, f"F {batch}"]
                (b_begin, b_end, _), = spans[member, step, f"B {batch}"]
                assert f_begin <= f_end <= b_begin <= b_end, (member, step, batch)
                ends[member] = b_end
            (_, voted, _), = spans[member, step, "vote"]
            (applies, _, _), = spans[member, step, "apply"]
            assert ends[member] <= voted <= applies, (member, step)
        calls = [spans[member, step, f"{call} {batch}"][0] for batch in range(micro)
                 for member, call in ((0, "send F"), (1, "receive F"), (1, "send B"), (0, "receive B"))]
        assert all(begin <= end and size > 0 for begin, end, size in calls), calls
        sent.add(sum(size for _, _, size in calls) // 2)
    assert len(sent) == 1, sent
    return sent.pop()


@scenario
def a_member_that_is_left_over_says_that_it_looks_on(build):
    """And nobody is called slow for the size of its part."""
    with Cluster(build, THREE, **{**SETTINGS, "batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}",
                                  "rounds": ENDLESS, "local_steps": 300}) as cluster:
        share_samples(cluster)
        cluster.start_all()
        cluster.wait_for_line("board-3", "board-3 is left over beside 1 chain of 2 parts: it looks on")
        said = []

        def looks_on():
            said.append(cluster.command(cluster.node, "status", "board-3.yaml").stdout)
            return "looks on: the others make up all chains and shards" in said[-1]
        wait_until(looks_on, "that the board looks on")
        cluster.wait_for_line("board-1", "version 3: held-out")
        said += [cluster.command(cluster.node, "status", f"{board}.yaml").stdout for board in cluster.boards]
        assert not any(" is slow: " in text for text in said), said
        cluster.end_run()
        cluster.wait_for_end(120)


@scenario
def a_timeline_shows_each_pass_and_message_and_status_the_bubble(build):
    with Cluster(build, TWO, **{**SETTINGS, "batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}",
                                "rounds": 1, "local_steps": 10}) as cluster:
        share_samples(cluster)
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2", "--timeline", "timeline.json")
        cluster.wait_for_end(100)
        sent = check_timeline(cluster.path("timeline.json"), 10, 4)
        for number, board in enumerate(cluster.boards, 1):
            chain = status(cluster, board)["group"]["chain"]
            assert (chain["part"], chain["parts"], chain["chain"], chain["chains"]) == (number, 2, 1, 1), chain
            assert chain["micro_batches"] == 4 and chain["bubble"] == 0.2, chain
            assert 0.2 - 1e-9 <= chain["bubble_parts"] < 0.5, chain  # two parts of which one does nothing: a half
            assert 0 <= chain["bubble_measured"] <= 1 and chain["slowest"] == f"board-{chain['slowest_part']}", chain
            assert chain["cut_bytes"] == [sent], (chain, sent)
            lines = " ".join(cluster.command(cluster.node, "status", f"{board}.yaml").stdout.split())
            assert f"holds part {number} of 2, chain 1 of 1; 4 micro-batches a step, bubble 20.0 % by formula" in lines
            assert f"over its cuts a chain sends in a step {sent} bytes" in lines, lines


@scenario
def a_member_of_another_release_joins_no_chain(build):
    """It is left out by name, and the chain of the others has the versions of one board."""
    alone, _ = digests_of(build, ONE, batch="16, accumulate: 4")
    with Cluster(build, THREE, **{**SETTINGS, "form": "2 s", "batch": "16, accumulate: 2",
                                  "extra": "parallel: {pipeline: 2}"}) as cluster:
        share_samples(cluster)
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2")
        node, cluster.node = cluster.node, os.path.join(build, "..", "tests", "support", "node_of_another_release")
        cluster.start("board-3")
        cluster.node = node
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "board-3 runs release 15.63.63, this board ")
        cluster.wait_for_end(200, ["gateway", "board-1", "board-2"])
        assert [row[0] for row in cluster.ledger("SELECT digest FROM version ORDER BY number")] == alone


@scenario
def nine_boards_hold_three_parts_three_times(build):
    """Three boards with the whole model add up the same three gradients."""
    parallel = 'parallel: {pipeline: 3, replicate: 3, cut: ["2.*", "6.*"]}'
    nine = {"lab": [f"board-{number}" for number in range(1, 10)]}
    _, chains = digests_of(build, nine, batch="16, accumulate: 1", extra=parallel)
    for number in range(1, 10):
        line = f"part {(number + 2) // 3} of 3, chain {(number - 1) % 3 + 1} of 3"
        assert line in chains[f"board-{number}"], f"board-{number} did not say '{line}'"
    _, three = digests_of(build, THREE, batch="16, accumulate: 3", extra="parallel: {replicate: 3}")
    assert len(losses(chains)) == len(losses(three)) == 4, (losses(chains), losses(three))
    for a, b in zip(losses(chains), losses(three)):
        assert abs(a - b) < 1e-3 * b, (losses(chains), losses(three))


def try_example(build, folder, boards, job="job.yaml", rounds=2):
    """The result of the command in the README of the example, with other boards or another job. One processor: boards
    have a thread for each of theirs, and the number of threads changes bits."""
    result = subprocess.run([os.path.join(build, "cairn-aggregator"), "try", "model.onnx", "--data", "inputs.npy",
                             "labels.npy", "--boards", str(boards), "--groups", "1", "--job", job, "--rounds", str(rounds),
                             "--json"], cwd=folder, capture_output=True, text=True, timeout=200,
                            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
    assert result.returncode == 0, result
    return json.loads(result.stdout)


@scenario
def the_transformer_of_the_example_trains_in_three_parts(build):
    """By the command of its README; one chain makes the bits of one board, three add up three gradients."""
    with tempfile.TemporaryDirectory() as directory:
        folder = shutil.copytree(os.path.join(SOURCE, "tests", "examples", "parts"), os.path.join(directory, "parts"))
        with open(os.path.join(folder, "README.md")) as file:
            command = re.search(r"^    cairn-aggregator (.*)$", file.read(), re.MULTILINE).group(1)
        shown = subprocess.run([os.path.join(build, "cairn-aggregator"), *command.split(), "--rounds", "3"], cwd=folder,
                               capture_output=True, text=True, timeout=200)
        assert shown.returncode == 0 and re.search(r"^ +3 +(0\.9|1)", shown.stdout, re.MULTILINE), shown
        checked = subprocess.run([os.path.join(build, "cairn-node"), "check", "job.yaml"], cwd=folder,
                                 capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0 and checked.stdout.endswith("ok\n"), checked
        with open(os.path.join(folder, "job.yaml")) as file:
            job = file.read()
        whole = re.sub(r"^parallel:\n(?:  .*\n)+", "", job, flags=re.MULTILINE).replace("accumulate: 2", "accumulate: 6")
        # Adam would enlarge what the order of a sum changes.
        plain = "optimizer: adam, learning_rate: 0.003", "learning_rate: 0.1"
        for name, text in (("one.yaml", whole), ("nine.yaml", job.replace(*plain)),
                           ("three.yaml", whole.replace(*plain) + "parallel: {replicate: 3}\n")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        one, chain = try_example(build, folder, 1, "one.yaml"), try_example(build, folder, 3)
        assert one["digest"] == chain["digest"], (one, chain)
        nine, three = (try_example(build, folder, boards, job, 1) for boards, job in ((9, "nine.yaml"), (3, "three.yaml")))
        assert abs(nine["loss"] - three["loss"]) < 1e-3 * three["loss"], (nine, three)


@scenario
def each_member_is_killed_and_the_versions_are_the_same(build):
    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}", "local_steps": 150}
    wanted, _ = digests_of(build, TWO, **settings)

    def disturb(cluster):
        for version, board in (0, "board-2"), (1, "board-1"), (2, "board-2"):
            cluster.wait_for_line("board-1", f"version {version}: held-out")
            cluster.kill(board)
            cluster.start(board)

    found, logs = digests_of(build, TWO, disturb, **settings)
    assert found == wanted, f"undisturbed {wanted}, killed {found}"
    assert logs["board-1"].count("part 1 of 2") > 3, "nobody was killed while a chain trained"


def kill_at_drawn_times(cluster, boards, seed):
    """Kills each of that many boards once, in a drawn order. Returns the numbers of those for which there was time."""
    draw, killed = random.Random(seed), []
    cluster.wait_for_line("board-1", "version 0: held-out")
    for number in draw.sample(range(1, boards + 1), boards):
        time.sleep(draw.uniform(0.1, 1.5))
        if cluster.processes["gateway"].poll() is not None:
            break
        cluster.kill(f"board-{number}")
        cluster.start(f"board-{number}")
        killed.append(number)
    return killed


@scenario
def nine_boards_in_three_chains_are_killed_and_the_versions_are_the_same(build):
    """One after the other, at drawn times: while they form, compute, add up, store, gather, send and measure."""
    nine = {"lab": [f"board-{number}" for number in range(1, 10)]}
    settings = {"batch": "16, accumulate: 1", "extra": "parallel: {pipeline: 3, replicate: 3}", "local_steps": 120,
                "rounds": 4, "rejoin": "20 s"}
    wanted, _ = digests_of(build, nine, **settings)
    killed = []
    found, logs = digests_of(build, nine, lambda cluster: killed.extend(kill_at_drawn_times(cluster, 9, 19)), **settings)
    assert found == wanted, f"undisturbed {wanted}, after the deaths of {killed} {found}"
    formed = logs["board-5"].count("part 2 of 3")
    assert len(killed) > 4 and formed > 4, f"{killed} were killed, chains formed {formed} times"
    return f"{len(killed)} boards killed, chains formed {formed} times"


@scenario
def a_killed_member_goes_on_from_the_parts_that_others_stored(build):
    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 3}", "rounds": 1, "local_steps": 4000}
    wanted, _ = digests_of(build, THREE, **settings)

    def disturb(cluster):
        stored = [cluster.path("state", "board-2", name) for name in ("part.b", "part-before.b")]
        wait_until(lambda: all(os.path.exists(path) for path in stored), "two stores of parts", 60)
        cluster.kill("board-2")
        os.remove(stored[0])  # another member has this part, too
        cluster.start("board-2")
        cluster.wait_for_line("board-2", "the parts that members stored after step", timeout=30)

    found, logs = digests_of(build, THREE, disturb, **settings)
    assert found == wanted, f"undisturbed {wanted}, killed {found}"
    steps = re.findall(r"members stored after step (\d+)", logs["board-1"])
    assert len(steps) == 1, steps
    return f"went on after step {steps[0]} of {settings['local_steps']}"


@scenario
def a_chain_that_lacks_a_member_waits_and_says_who_is_missing(build):
    def disturb(cluster):
        cluster.wait_for_line("board-1", "version 1: held-out")
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "a chain of 2 parts cannot be made of board-1: waiting for board-2")
        waits = "a chain of 2 parts waits for board-2"
        wait_until_told(cluster, "board-2", "missing in its group")
        assert told(cluster, "board-1")["status"] == waits, told(cluster, "board-1")
        own = status(cluster, "board-1")
        assert own["state"] == waits and "samples_per_s" not in own["round"], own
        assert "reports:" not in cluster.log("gateway"), cluster.log("gateway")  # nothing is wrong with board-1
        cluster.start("board-2")
        for board in cluster.boards:
            wait_until(lambda: not re.search("waits|missing", told(cluster, board)["status"]), f"{board} trains", 30)

    settings = {"batch": "16, accumulate: 2", "extra": "parallel: {pipeline: 2}", "rejoin": "300 ms",
                "local_steps": 150}
    wanted, _ = digests_of(build, TWO, **settings)
    found, _ = digests_of(build, TWO, disturb, **settings)
    assert found == wanted, f"undisturbed {wanted}, after waiting {found}"


if __name__ == "__main__":
    scenario.main()
