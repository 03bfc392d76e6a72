"""Process sets: which boards of a group train, by the rules of a profile.

    sets.py BUILD [SCENARIO...]
"""

import json
import os
import re
import signal
import time

import wide_model
from cluster import DIGITS, ENDLESS, JOB, Cluster, read_npy, run_to_end, same_model_everywhere, wait_until, write_npy
from jobs import Gateway
from scenarios import Scenarios

TWO = {"lab": ["board-1", "board-2"]}
FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
SETTINGS = {"rounds": 6, "local_steps": 20, "quorum": 1, "mixed": True, "form": "30 s"}
scenario = Scenarios()


def finish(cluster, accuracy=0.85):
    if cluster.job["rounds"] == ENDLESS:
        cluster.end_run(10)  # good enough by then
    cluster.wait_for_end(120)
    cluster.replay()
    same_model_everywhere(cluster)
    assert cluster.accuracy() > accuracy, cluster.accuracy()


def status(cluster, board):
    return json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)


def said(cluster, board, line):
    assert line in cluster.log(board), f"{board} did not say '{line}'"


@scenario
def a_dynamic_set_grows_with_the_phase(build):
    """At first the versions are those that three boards make; once it has grown, the samples of four count."""
    grown = ("parallel: {phases: {pretraining: 1, fine_tuning: 4}, train: grown, "
             "sets: {grown: phase == fine_tuning or name != board-4}}")
    fixed = "parallel: {train: three, sets: {three: [board-1, board-2, board-3]}}"
    samples, versions = [], []
    for extra in grown, fixed:
        with Cluster(build, FOUR, **SETTINGS, extra=extra) as cluster:
            cluster.start_all()
            finish(cluster)
            samples.append([row[0] for row in cluster.ledger("SELECT weight FROM contribution ORDER BY round")])
            versions.append([row[0] for row in cluster.ledger("SELECT digest FROM version ORDER BY number")])
            if extra == grown:
                for board in cluster.boards:
                    said(cluster, board, "phase pretraining: board-1 board-2 board-3 train; looking on: board-4")
                    said(cluster, board, "round 4, step 0, phase fine_tuning: board-1 board-2 board-3 board-4 train")
                # Who is the last to hear of the end is alone then.
                told = [status(cluster, board)["group"].get("train") for board in cluster.boards]
                assert "board-1 board-2 board-3 board-4" in told, told
    each = SETTINGS["local_steps"] * JOB["batch"]
    assert samples == [3 * [3 * each] + 3 * [4 * each], 6 * [3 * each]], samples
    same = [one == other for one, other in zip(*versions)]
    assert same == 4 * [True] + 3 * [False], f"versions as of three boards: {same}"


@scenario
def a_rule_over_steps_is_asked_before_each_step(build):
    parallel = "parallel: {train: turns, sets: {turns: name == board-1 or step >= 10 and step < 15}}"
    with Cluster(build, FOUR, **SETTINGS, extra=parallel) as cluster:
        cluster.start_all()
        finish(cluster)
        said(cluster, "board-2", "round 2, step 10: board-1 board-2 board-3 board-4 train")
        said(cluster, "board-2", "round 2, step 15: board-1 train; looking on: board-2 board-3 board-4")


@scenario
def hardware_facts_are_those_of_each_board(build):
    """And on all boards the same: board-3 has another address of board-4 in its profile, which is in no subnet."""
    sets = ", sets: {large: memory >= 1 GiB and cores >= 3 and link > 1 kbit/s and address == 127.0.0.0/8}"
    with Cluster(build, FOUR, **SETTINGS, group=sets, extra="parallel: {train: large}") as cluster:
        for board in cluster.boards:
            text = open(cluster.path(f"{board}.yaml")).read()
            cores = 1 if board == "board-2" else 4
            if board == "board-3":
                text = re.sub(r'board-4: "127.0.0.1:', 'board-4: "localhost:', text)
                assert "localhost" in text
            cluster.write(f"{board}.yaml", f"{text}\ncpu: {{cores: {cores}}}\nmemory: {{size: 2 GiB}}\n")
        cluster.start_all()
        finish(cluster)
        for board in cluster.boards:
            said(cluster, board, "board-1 board-3 board-4 train; looking on: board-2")


@scenario
def a_set_that_names_a_board_that_is_not_there_says_so_and_goes_on(build):
    sets = ", sets: {first: [board-1, board-2, board-9]}"
    with Cluster(build, FOUR, **SETTINGS, group=sets, extra="parallel: {train: first}") as cluster:
        cluster.start_all()
        finish(cluster)
        said(cluster, "board-1", "set 'first' names board-9, which is not there: the rest goes on")
        said(cluster, "board-3", "board-1 board-2 train; looking on: board-3 board-4")


@scenario
def boards_that_run_take_what_a_restarted_gateway_says_of_the_job(build):
    """Its rules of parallel are others now; nobody starts a board anew, and the run is the same."""
    with Cluster(build, TWO, **{**SETTINGS, "rounds": 8}, extra="parallel: {replicate: 2}") as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 2: held-out")
        cluster.signal("gateway", signal.SIGTERM)
        cluster.processes["gateway"].wait()
        text = open(cluster.path("job.yaml")).read()
        cluster.write("job.yaml", text.replace("{replicate: 2}", "{shard: 2}"))
        cluster.start("gateway")
        for index, board in enumerate(cluster.boards):
            cluster.wait_for_line(board, "the aggregator has other settings for job 'digits'", timeout=60)
            cluster.wait_for_line(board, f"shard {index + 1} of 2", timeout=60)
        finish(cluster, 0.75)  # what it learns is not what is asked here


@scenario
def all_that_train_die_and_one_that_looked_on_has_the_state(build):
    settings = {**SETTINGS, "rounds": ENDLESS, "rejoin": "300 ms", "timeout": "2 s"}
    with Cluster(build, FOUR, **settings, extra="parallel: {train: first, sets: {first: [board-1, board-2]}}") as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-3", "version 3: held-out")
        cluster.kill("board-1")
        cluster.kill("board-2")
        cluster.wait_for_line("board-3", "board-3 board-4 train")  # nobody of the set is there: all train
        cluster.start("board-1")
        cluster.start("board-2")
        cluster.wait_for_line("board-1", "board-1 board-2 train; looking on: board-3 board-4", 1)
        finish(cluster)


def share_samples(cluster):
    """All boards have the samples of all."""
    parts = {}
    for part in ("images", "labels"):
        samples = []
        for board in ("board-1", "board-2", "board-3", "board-4"):
            header, own = read_npy(os.path.join(DIGITS, f"{board}-{part}.npy"))
            samples += own
        write_npy(cluster.path(f"all-{part}.npy"), header, samples)
        parts[part] = len(samples)
    for board in cluster.boards:
        text = open(cluster.path(f"{board}.yaml")).read()
        for part in ("images", "labels"):
            text = re.sub(rf"\S*{board}-{part}.npy", cluster.path(f"all-{part}.npy"), text)
        cluster.write(f"{board}.yaml", text)
    return parts["images"]


def losses(cluster):
    """Of each version, on the held-out samples of the gateway and of the group."""
    rows = [line.split() for line in cluster.log("gateway").splitlines()]
    return [float(row[2]) for row in rows if len(row) > 6 and row[0].isdigit()]


@scenario
def a_group_divides_shared_samples_as_one_board_would_draw_them(build):
    shared = {"rounds": 3, "local_steps": 15, "quorum": 1, "up": "{mode: raw32}", "down": "{mode: raw32}",
              "held_out": "10 %, scope: shared", "form": "30 s"}
    results = []
    for groups, accumulate in (({"lab": ["board-1"]}, 4), (FOUR, 1)):
        with Cluster(build, groups, **shared, batch=f"8, accumulate: {accumulate}") as cluster:
            share_samples(cluster)
            cluster.start_all()
            cluster.wait_for_end(120)
            results.append((losses(cluster), re.findall(r"\((\d+) samples\)", cluster.log("board-1"))))
    (alone, samples), (together, divided) = results
    assert len(alone) == len(together) == 4, results
    for one, four in zip(alone, together):
        assert abs(one - four) < 2e-3 * one, (alone, together)
    assert set(samples) == set(divided), f"{samples} held-out samples, of the group {divided}"


@scenario
def a_board_with_other_samples_looks_on(build):
    with Cluster(build, FOUR, **{**SETTINGS, "mixed": False, "held_out": "10 %, scope: shared"}) as cluster:
        share_samples(cluster)
        text = open(cluster.path("board-3.yaml")).read()
        for part in ("images", "labels"):
            text = text.replace(cluster.path(f"all-{part}.npy"), os.path.join(DIGITS, f"board-3-{part}.npy"))
        cluster.write("board-3.yaml", text)
        cluster.start_all()
        finish(cluster)
        said(cluster, "board-1", "board-3 looks on")
        said(cluster, "board-3", "board-1 board-2 board-4 train; looking on: board-3")


def losses_of_one_of_four(build, **settings):
    with Cluster(build, FOUR, **{**SETTINGS, **settings},
                 extra="parallel: {train: one, sets: {one: [board-2]}}") as cluster:
        cluster.start_all()
        finish(cluster, 0.5)
        return losses(cluster), cluster.log("board-1")


@scenario
def the_learning_rate_follows_the_share_that_trains(build):
    for scaling, factor in ("linear", 0.25), ("sqrt", 0.5):
        scaled, log = losses_of_one_of_four(build, momentum=f"0.9, lr_scaling: {scaling}")
        assert f"1 of 4 members train: learning rate x {factor}" in log, scaling
        lower, _ = losses_of_one_of_four(build, learning_rate=0.05 * factor)
        assert lower == scaled, f"{scaling}: {factor} of the rate gives another result"


@scenario
def a_slow_board_gets_fewer_micro_batches(build):
    settings = {**SETTINGS, "rounds": ENDLESS, "local_steps": 30, "timeout": "60 s", "batch": "32, accumulate: 4"}
    boards = {"lab": ["board-1", "board-2"]}
    found = []
    with Cluster(build, boards, **settings, extra="parallel: {balance: true}") as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 0: held-out")
        deadline, divided = time.monotonic() + 60, []
        while time.monotonic() < deadline and cluster.processes["board-2"].poll() is None and not found:
            cluster.signal("board-2", signal.SIGSTOP)  # three quarters of the time
            time.sleep(0.03)
            cluster.signal("board-2", signal.SIGCONT)
            time.sleep(0.01)
            divided = re.findall(r"a step: board-1 (\d+) .*board-2 (\d+) ", cluster.log("board-1"))
            found = [(one, two) for one, two in (map(int, pair) for pair in divided) if two < one]
        assert found, f"board-2 never got less: {divided}"
        finish(cluster, 0.7)
        assert sum(found[0]) == 8, found


SHARDED = {"rounds": 4, "local_steps": 20, "quorum": 1, "mixed": True, "form": "30 s", "rejoin": "30 s",
           "learning_rate": 0.005, "momentum": "0.9, optimizer: adam, weight_decay: 0.01, clip: 1"}


def digest_of(build, groups, disturb=None, layers=0, model=None, **settings):
    with Cluster(build, groups, **settings) as cluster:
        if layers:
            wide_model.main(cluster.path("deep.onnx"), "1,8,8", *[128] * layers, 10, **(model or {}))
            cluster.set_model("deep.onnx")
        run_to_end(cluster, disturb)
        return cluster.digest(), cluster.log("board-1")


def state_bytes(log):
    """Of the optimizer, that the trainer of a board has room for."""
    return int(re.search(r"shard 1 of \d: (\d+) bytes of the optimizer's state", log).group(1))


@scenario
def shards_hold_a_part_of_the_optimizer_and_change_no_bit(build):
    for more in ("", ", keep_optimizer: true", ", accumulate: 3"):
        settings = {**SHARDED, "momentum": SHARDED["momentum"] + more}
        whole, _ = digest_of(build, TWO, **settings)
        shared, log = digest_of(build, TWO, **settings, extra="parallel: {shard: 2}")
        assert shared == whole, f"{more}: digest {shared}, without shards {whole}"
        assert 0 <= state_bytes(log) - 2 * 4 * 38282 // 2 < 100, state_bytes(log)  # Adam has two floats a value


def same_bits_in_every_stage(build, layers=0, model=None, **settings):
    whole, _ = digest_of(build, TWO, layers=layers, model=model, **settings)
    planned = []
    for stage in (1, 2, 3):
        extra = f"parallel: {{shard: 2, stage: {stage}}}"
        shared, log = digest_of(build, TWO, layers=layers, model=model, **settings, extra=extra)
        assert f"state, stage {stage}, " in log, f"stage {stage} was not taken"
        assert shared == whole, f"stage {stage}: digest {shared}, without shards {whole}"
        planned.append(int(re.findall(r"shard 1 of 2: .* (\d+) bytes in all", log)[-1]))
    return planned


@scenario
def shards_without_clipping_change_no_bit(build):
    settings = {**SHARDED, "rounds": 3, "momentum": "0.9"}
    first, second, third = same_bits_in_every_stage(build, layers=8, **settings)
    assert first > second > third, f"stages plan {first}, {second}, {third} bytes"


@scenario
def every_stage_of_shards_changes_no_bit(build):
    for more in ("", ", keep_optimizer: true", ", freeze: '*bias'", ", proximal: 0.01"):
        same_bits_in_every_stage(build, **{**SHARDED, "momentum": SHARDED["momentum"] + more})
    same_bits_in_every_stage(build, **SHARDED, group=", wire: bfloat16")


@scenario
def shards_of_statistics_and_tied_weights_change_no_bit(build):
    settings = {**SHARDED, "rounds": 3, "momentum": "0.9, optimizer: adam"}
    for model in ({"norm": True}, {"tied": True}, {"norm": True, "tied": True}):
        same_bits_in_every_stage(build, layers=6, model=model, **settings)


@scenario
def shards_of_gradients_add_up_micro_batches(build):
    settings = {**SHARDED, "batch": "16, accumulate: 3", "momentum": "0.9", "learning_rate": 0.05}
    found = []
    for extra in ("", "parallel: {shard: 2, stage: 2}", "parallel: {shard: 2, stage: 3}"):
        with Cluster(build, TWO, **settings, extra=extra) as cluster:
            cluster.start_all()
            finish(cluster, 0.5)
            found.append(losses(cluster))
    assert found[1] == found[2] and len(found[0]) == len(found[1]), found
    for whole, shared in zip(found[0], found[1]):
        assert abs(whole - shared) < 2e-3 * whole, found


def the_owner_dies(build, stage, steps):
    settings = {**SHARDED, "rounds": 2, "local_steps": steps, "extra": f"parallel: {{shard: 2, stage: {stage}}}"}
    wanted, _ = digest_of(build, TWO, **settings)

    def disturb(cluster):
        cluster.wait_for_line("board-1", "shard 1 of 2")
        for name in ("board-2", "board-1", "board-2"):
            time.sleep(6.5)  # a state is gathered and stored every 5 s
            if "version 2:" in cluster.log("board-1"):
                return  # the run is over, and who is started after that waits for a gateway that has gone
            before = cluster.log(name).count("resuming at round")
            cluster.kill(name)
            cluster.start(name)
            cluster.wait_for_line(name, "resuming at round", before + 1)
            stored.append(int(re.findall(r"resuming at round \d+, step (\d+)", cluster.log(name))[-1]))

    stored = []
    found, log = digest_of(build, TWO, disturb, **settings)
    assert found == wanted, f"digest {found}, undisturbed {wanted}"
    assert "is lost" in log or "resuming at round" in log
    assert max(stored) > 0, "all who were started anew began their round again: no state was stored in it"


@scenario
def the_owner_of_a_shard_dies_and_no_state_is_lost(build):
    the_owner_dies(build, 1, 1500)


@scenario
def the_owner_of_weights_dies_and_no_state_is_lost(build):
    the_owner_dies(build, 3, 2000)


@scenario
def replicas_of_shards_train_and_the_one_left_over_looks_on(build):
    boards = {"lab": ["board-1", "board-2", "board-3"]}
    with Cluster(build, boards, **SHARDED, extra="parallel: {shard: 2}") as cluster:
        cluster.start_all()
        finish(cluster, 0.7)
        said(cluster, "board-1", "board-3 is left over beside 1 replicas of 2 shards")
    with Cluster(build, FOUR, **{**SHARDED, "rounds": 1}, extra="parallel: {shard: 2, replicate: 1}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        for board in "board-3", "board-4":
            said(cluster, "board-1", f"{board} is left over beside 1 replicas of 2 shards")
    for stage in (1, 2, 3):
        extra = f"parallel: {{shard: 2, replicate: 2, stage: {stage}}}"
        with Cluster(build, FOUR, **SHARDED, extra=extra) as cluster:
            cluster.start_all()
            finish(cluster, 0.7)
            said(cluster, "board-4", "shard 2 of 2")


def put_battery(cluster, percent):
    supply = cluster.path("root", "sys/class/power_supply/battery")
    os.makedirs(supply, exist_ok=True)
    for name, text in ("type", "Battery"), ("status", "Discharging"), ("capacity", str(percent)):
        with open(os.path.join(supply, name), "w") as file:
            file.write(text + "\n")


@scenario
def a_board_looks_on_until_it_is_charged(build):
    """The others train meanwhile. The charge counts from the next round on, without another epoch."""
    extra = "parallel: {train: charged, sets: {charged: battery >= 40 and bytes >= 1 MiB}}"
    with Cluster(build, TWO, **{**SETTINGS, "rounds": ENDLESS}, extra=extra) as cluster:
        put_battery(cluster, 20)
        for name in ("gateway", "board-1"):
            cluster.start(name)
        cluster.start("board-2", "--sysroot", cluster.path("root"))
        cluster.wait_for_line("board-1", "board-1 train; looking on: board-2")
        cluster.wait_for_version(3)
        put_battery(cluster, 60)
        cluster.wait_for_line("board-1", "step 0: board-1 board-2 train")
        assert cluster.views("board-1", 2) == 1, "another epoch began"
        finish(cluster)


def wait_for_text(cluster, text):
    wait_until(lambda: text in " ".join(cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout.split()),
               f"`status` says: {text}", 30)


@scenario
def a_board_alone_in_its_group_is_not_asked_until_it_is_charged(build):
    extra = "parallel: {train: charged, sets: {charged: battery >= 40}}"
    alone = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    with Cluster(build, alone, **{**SETTINGS, "rounds": ENDLESS, "quorum": 1}, extra=extra) as cluster:
        put_battery(cluster, 20)
        cluster.start("gateway")
        cluster.start("board-2", "--sysroot", cluster.path("root"))
        why = "battery 20 %; the set charged wants battery >= 40"
        cluster.wait_for_line("board-2", f"this board rests: {why}")
        cluster.wait_for_line("gateway", f"group lab-b rests: {why}")
        before = cluster.ledger("SELECT ifnull(max(round),0) FROM selection WHERE grp='lab-b'")[0][0]
        cluster.start("board-1")
        cluster.wait_for_version(before + 4)
        assert cluster.ledger("SELECT ifnull(max(round),0) FROM selection WHERE grp='lab-b'")[0][0] == before
        wait_for_text(cluster, f"it rests: {why}")
        put_battery(cluster, 60)
        cluster.wait_for_line("gateway", "group lab-b may train")
        wait_until(lambda: cluster.ledger("SELECT max(round) FROM selection WHERE grp='lab-b'")[0][0] > before,
                   "the charged board is asked", 60)
        finish(cluster, 0.5)


@scenario
def a_group_that_does_not_meet_the_rule_is_not_asked(build):
    """By a fact of its board and then, after a reload, by its charge."""
    alone = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    rule = "name != board-2"
    with Cluster(build, alone, **{**SETTINGS, "rounds": ENDLESS, "quorum": f"1, select: {rule}"}) as cluster:
        put_battery(cluster, 20)
        for name in ("gateway", "board-1"):
            cluster.start(name)
        cluster.start("board-2", "--sysroot", cluster.path("root"))
        cluster.wait_for_line("board-2", "registered in group")
        cluster.wait_for_version(4)
        asked = "SELECT count(*) FROM selection WHERE grp='lab-b'"
        for rule, new in (rule, "battery >= 40"), ("battery >= 40", None):
            wait_for_text(cluster, f"not invited: its group does not meet rounds.select: {rule}")
            assert cluster.ledger(asked) == [(0,)]
            if new:
                cluster.edit("job.yaml", (rule, new))
                cluster.command(cluster.aggregator, "reload", "gateway.yaml")
                cluster.wait_for_version(cluster.ledger("SELECT max(from_round) FROM setting")[0][0] + 2)
        put_battery(cluster, 60)
        cluster.kill("board-2")  # it reports when it is registered, else once a minute
        time.sleep(2)  # a report that comes sooner after another one is not taken
        cluster.start("board-2", "--sysroot", cluster.path("root"))
        wait_until(lambda: cluster.ledger(asked)[0][0] > 0, "the charged board is asked", 100)
        finish(cluster, 0.5)


@scenario
def a_group_with_too_few_samples_is_not_asked(build):
    """Board 1 has 373 samples, board 2 has 348; a tenth of them is held out."""
    alone = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    rule = "data.digits >= 325"
    with Cluster(build, alone, **{**SETTINGS, "mixed": False, "rounds": ENDLESS, "quorum": f"1, select: {rule}"}) as cluster:
        cluster.start_all()
        cluster.wait_for_version(4)
        wait_for_text(cluster, f"not invited: its group does not meet rounds.select: {rule}")
        asked = "SELECT count(*) FROM selection WHERE grp='lab-b'"
        assert cluster.ledger(asked) == [(0,)]
        cluster.edit("job.yaml", (rule, "data.digits >= 300"))
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        wait_until(lambda: cluster.ledger(asked)[0][0] > 0, "the board with fewer samples is asked", 60)
        cluster.edit("job.yaml", ("data.digits >= 300", "memory >= 1 MiB"),
                     ("quorum: 1, select", "quorum: 2, select"))
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        finish(cluster, 0.3)


@scenario
def each_job_selects_by_the_samples_of_its_own(build):
    """A board has some 330 samples in one job and 180 in the other. Taken for the other job's, they would keep it out."""
    with Gateway(build, {"lab-a": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.write_job("second", rounds=4, held_out="50 %")
        for name, rule in ("job", "data.digits >= 250"), ("second", "data.digits >= 1 and data.digits < 250"):
            cluster.edit(f"{name}.yaml", ("rounds: {", f"rounds: {{select: {rule}, "))
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.submit("second", "--turn", "1")
        # The jobs take turns four times. If each turn waited for the report of the next minute, that took longer.
        wait_until(lambda: cluster.jobs()["second"]["state"] == "ended", "the end of the second job", 120)
        ended = cluster.version()
        wait_until(lambda: cluster.version() > ended + 1, "versions after that")


@scenario
def more_shards_than_members_are_as_many_as_there_are(build):
    with Cluster(build, TWO, **SHARDED, extra="parallel: {shard: 4, replicate: 2}") as cluster:
        cluster.start_all()
        finish(cluster, 0.7)
        said(cluster, "board-1", "parallel.shard is 4, but 2 members train: 2 shards (board-1 board-2)")
        said(cluster, "board-1", "parallel.replicate is 2, but 2 members are 1 replicas of 2 shards")


@scenario
def a_group_goes_on_without_the_owner_of_a_shard(build):
    settings = {**SHARDED, "rounds": ENDLESS, "rejoin": "300 ms"}
    for stage in (1, 3):
        with Cluster(build, TWO, **settings, extra=f"parallel: {{shard: 2, stage: {stage}}}") as cluster:
            cluster.start_all()
            cluster.wait_for_line("board-1", "version 2: held-out")
            cluster.kill("board-2")
            cluster.wait_for_line("board-1", "parallel.shard is 2, but 1 members train: 1 shards (board-1)")
            cluster.wait_for_line("board-1", "this board holds the whole of the model's state")
            cluster.start("board-2")
            cluster.wait_for_line("board-1", "shard 1 of 2", 2)
            finish(cluster, 0.7)


if __name__ == "__main__":
    scenario.main()
