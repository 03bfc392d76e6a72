"""Other values of a job while its run goes on: reload, what may not change, and kills in between.

    reload.py BUILD [SCENARIO...]
"""

import contextlib
import random
import re
import signal
import sqlite3
import subprocess
import time

from cluster import Cluster, ENDLESS, same_model_everywhere
from scenarios import Scenarios

GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-3"]}
FAST = {"rounds": ENDLESS, "local_steps": 4, "model": "digits-mlp.onnx"}

scenario = Scenarios()


def reload(cluster, check=True):
    return cluster.command(cluster.aggregator, "reload", "gateway.yaml", check=check)


def refuse(cluster, *texts):
    """Nothing is written, and each text is said."""
    before = cluster.ledger("SELECT * FROM setting")
    result = reload(cluster, check=False)
    assert result.returncode in (1, 3), result
    for text in texts:
        assert text in result.stderr, f"{text!r} was not said:\n{result.stderr}"
    assert cluster.ledger("SELECT * FROM setting") == before, "a refused reload changed the ledger"


def finish(cluster, more=2):
    """The run ends some versions from now on, by a reload; every version can be made again."""
    last = cluster.version() + more + 2
    cluster.edit("job.yaml", (f"count: {ENDLESS}", f"count: {last}"))
    reload(cluster)
    cluster.wait_for_end(120)
    lines = cluster.replay()
    assert lines[-1] == f"{last + 1} versions, 0 differ, 0 not checked", lines[-1]
    same_model_everywhere(cluster)
    return last


@scenario
def boards_train_by_what_a_reload_says(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.edit("job.yaml", ("learning_rate: 0.05", "learning_rate: 0.02"), ("local_steps: 4", "local_steps: 6"))
        said = reload(cluster).stdout
        assert "train.learning_rate: 0.05, now 0.02" in said and "train.local_steps: 4, now 6" in said, said
        row = cluster.ledger("SELECT max(from_round) FROM setting")[0][0]
        cluster.wait_for_version(row + 1)
        assert cluster.status()["settings"] == row, cluster.status()
        for board in cluster.boards:
            cluster.wait_for_line(board, "the aggregator has other settings for job 'digits'")
        # 6 steps of 32 samples from the row's round on, and 4 before.
        weights = dict(cluster.ledger("SELECT round,max(weight) FROM contribution GROUP BY round"))
        for number, weight in weights.items():
            assert weight == (6 if number >= row else 4) * 32, (number, row, weight)

        # The state of the server's optimizer starts from zero, also where the new one has as many rows.
        for change in ((("down: {mode: q8}}", "down: {mode: q8}}\nserver: {optimizer: fedadam}"),),
                       (("fedadam", "fedyogi"),)):
            cluster.edit("job.yaml", *change)
            assert "starts from zero" in reload(cluster).stdout
            cluster.wait_for_version(cluster.ledger("SELECT max(from_round) FROM setting")[0][0] + 1)
        # By the signal.
        cluster.edit("job.yaml", ("density: 10 %", "density: 20 %"))
        cluster.signal("gateway", signal.SIGHUP)
        cluster.wait_for_line("gateway", "update.up.density: 10 %, now 20 %")
        cluster.wait_for_line("gateway", "the settings written for round", 4)
        finish(cluster)


@scenario
def a_bad_file_changes_nothing(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        refuse_before(cluster)
        cluster.start_all()
        cluster.wait_for_version(1)
        good = open(cluster.path("job.yaml")).read()
        cases = (
            ((("seed: 1", "seed: 2"), ("batch: 32", "batch: 16")), ("seed: 1 in the run, 2 in the profile",
                                                                     "these values hold for the whole run; others need another run: job submit, or init --after")),
            ((("learning_rate: 0.05", "learning_rate: fast"),), ("job.yaml:8:", "learning_rate", "fast")),
            ((("batch: 32", "bath: 32"),), ("job.yaml:8:", "bath")),
            ((("digits-mlp", "digits-cnn"),), ("another model",)),
            ((("{set: digits-held-out}", "{set: digits-held-out}\nunknown: 1"),), ("job.yaml:", "unknown")),
            ((("central: {set: digits-held-out}", ""),),
             ("central.set: digits-held-out in the run, not set in the profile", "only when the aggregator is started")),
            ((("value_bits: 2}", "value_bits: 2}, densities: [no-such-tensor=50%]"),), ("no-such-tensor",)),
            ((("down: {mode: q8}", "down: {mode: q8}, residual: bf16"),), ("update.residual",)),
        )
        for changes, texts in cases:
            cluster.edit("job.yaml", *changes)
            refuse(cluster, *texts)
            cluster.write("job.yaml", good)
        cluster.edit("job.yaml", ("seed: 1", "seed: 2"))
        cluster.signal("gateway", signal.SIGHUP)
        cluster.wait_for_line("gateway", "seed: 1 in the run, 2 in the profile")
        cluster.wait_for_line("gateway", "nothing is changed: the profile gateway.yaml is refused")
        cluster.write("job.yaml", good + "  x: [\n")
        cluster.signal("gateway", signal.SIGHUP)
        cluster.wait_for_line("gateway", "nothing is changed: the profile gateway.yaml is refused", 2)
        cluster.write("job.yaml", good)
        assert "nothing changes" in reload(cluster).stdout
        last = finish(cluster)
        over = "warning: the run is over: all rounds are done; "
        said = reload(cluster).stderr
        assert over + "with the values of the profile it stays so" in said, said
        cluster.edit("job.yaml", (f"count: {last}", f"count: {last + 1}"))
        said = reload(cluster).stderr
        assert over + "it goes on with these values when the aggregator is started again" in said, said


def refuse_before(cluster):
    result = reload(cluster, check=False)
    assert result.returncode == 1 and "no run was ever started here" in result.stderr, result


@scenario
def values_that_end_the_run_are_warned_of(build):
    """A reload whose stop.patience is used up already, and one with no round left."""
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        cluster.wait_for_version(3)
        cluster.kill("gateway")
        best = cluster.version()
        good = cluster.edit("job.yaml", (f"count: {ENDLESS}", f"count: {best}"))
        said = reload(cluster).stderr
        assert "warning: with these values the run ends at once, or with the open round: all rounds are done" in said, said
        # The best version is made an old one.
        with contextlib.closing(sqlite3.connect(cluster.path("state/gateway/ledger.sqlite"))) as ledger, ledger:
            ledger.execute("UPDATE version SET correct = count WHERE number = 1")
        cluster.write("job.yaml", good)
        said = reload(cluster).stderr
        assert "warning: the run is over: all rounds are done; it goes on with these values when" in said, said
        cluster.write("job.yaml", good + "stop: {patience: 1}\n")
        said = reload(cluster).stderr
        wanted = r"warning: stop.patience is 1 and the best version, 1, is \d+ versions? old: the run ends with the next"
        assert re.search(wanted, said), said
        cluster.write("job.yaml", good)
        said = reload(cluster).stderr
        assert "warning: the run is over: the model stopped getting better; it goes on with these values when" in said, said
        cluster.write("job.yaml", good + "stop: {patience: 1, target_accuracy: 50 %}\n")
        said = reload(cluster).stderr  # the next version cannot change this end
        assert "the run ends at once, or with the open round: the target accuracy is reached" in said, said


@scenario
def the_quorum_of_an_open_round_can_be_lowered(build):
    """A round that waits for a group that is gone goes on when the quorum no longer needs it."""
    with Cluster(build, GROUPS, **{**FAST, "deadline": "2 s"}) as cluster:
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.kill("board-3")
        cluster.edit("job.yaml", ("quorum: 2", "quorum: 1"))
        at = cluster.version()
        said = reload(cluster).stdout
        assert "rounds.quorum: 2, now 1" in said, said
        cluster.wait_for_version(at + 3)
        last = cluster.version() + 4
        cluster.edit("job.yaml", (f"count: {ENDLESS}", f"count: {last}"))
        reload(cluster)
        cluster.wait_for_end(120, ["gateway", "board-1"])
        assert cluster.replay()[-1] == f"{last + 1} versions, 0 differ, 0 not checked"


@scenario
def a_group_takes_the_values_together(build):
    """Two members; their leader hears of the change first."""
    with Cluster(build, {"lab-a": ["board-1", "board-2"], "lab-b": ["board-3"]}, **FAST) as cluster:
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.edit("job.yaml", ("momentum: 0.9", "momentum: 0.5"))
        reload(cluster)
        cluster.wait_for_version(cluster.ledger("SELECT max(from_round) FROM setting")[0][0] + 1)
        for board in cluster.boards:
            cluster.wait_for_line(board, "the aggregator has other settings for job 'digits'")
        finish(cluster)


def run(build, seed, kills):
    """Eight rounds; after the first the run is over, and a reload writes other values from round 2 on."""
    with Cluster(build, GROUPS, **{**FAST, "rounds": 1}) as cluster:
        draw = random.Random(seed)
        cluster.start_all()
        cluster.wait_for_end(120)
        cluster.edit("job.yaml", ("count: 1", "count: 8"), ("learning_rate: 0.05", "learning_rate: 0.02"),
             ("down: {mode: q8}}", "down: {mode: topk, density: 50 %}}\nserver: {optimizer: nesterov, learning_rate: 0.3}"))
        # A reload that is killed wrote all of its row or nothing.
        for _ in range(6 if kills else 0):
            process = subprocess.Popen([cluster.aggregator, "reload", "gateway.yaml"], cwd=cluster.directory,
                                       stdout=subprocess.DEVNULL)
            time.sleep(draw.uniform(0, 0.05))
            process.kill()
            process.wait()
            rows = cluster.ledger("SELECT job FROM setting ORDER BY from_round")
            assert len(rows) in (1, 2), rows
            assert len(rows) == 1 or "learning_rate: 0.02" in rows[1][0] and "nesterov" in rows[1][0], rows
        reload(cluster)
        rows = cluster.ledger("SELECT from_round FROM setting ORDER BY from_round")
        assert rows == [(1,), (2,)], rows
        cluster.start_all()
        for _ in range(kills):
            name = draw.choice(["gateway", "gateway", *cluster.boards])
            time.sleep(draw.uniform(0.05, 0.5))
            if cluster.processes[name].poll() is None:
                cluster.kill(name)
            cluster.start(name)
        cluster.wait_for_end(180)
        assert cluster.replay()[-1] == "9 versions, 0 differ, 0 not checked"
        return cluster.digest()


@scenario
def kills_change_no_bit_of_a_reloaded_run(build):
    seed = random.randrange(1 << 30)
    assert run(build, seed, 6) == run(build, seed, 0), f"another model with seed {seed}"
    return f"seed {seed}"


if __name__ == "__main__":
    scenario.main()
