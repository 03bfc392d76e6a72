"""A gate that refuses versions, going back to an earlier version, and taking a group out of a run.

    rollback.py BUILD [SCENARIO...]
"""

import contextlib
import os
import random
import re
import sqlite3
import subprocess
import time

from cluster import Cluster, ENDLESS, same_model_everywhere, wait_until
from reload import FAST, GROUPS, finish, reload
from scenarios import Scenarios

scenario = Scenarios()

GATE = "gate: {loss: 0.5, accuracy: 30 %}"
WILD = (("learning_rate: 0.05", "learning_rate: 300"), ("limits: {max_norm: 10}", "limits: {max_norm: 1000000}"))
CALM = tuple((new, old) for old, new in WILD)
LIMITS = "limits: {max_norm: 10}\n"


def aggregator(cluster, *arguments, code=0):
    result = cluster.command(cluster.aggregator, *arguments, check=False)
    assert result.returncode == code, f"{arguments}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def answer(cluster, word, *arguments, code=0):
    """Runs a command at a terminal, where somebody types the word."""
    person, terminal = os.openpty()
    with os.fdopen(person, "w") as keyboard, os.fdopen(terminal) as shown:
        keyboard.write(f"{word}\n")
        keyboard.flush()
        result = subprocess.run([cluster.aggregator, *arguments], cwd=cluster.directory, stdin=shown,
                                capture_output=True, text=True, timeout=120)
    assert result.returncode == code, f"{arguments}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def refuse(cluster, text, *arguments, code=1):
    said = aggregator(cluster, *arguments, code=code)
    assert text in said, f"{text!r} was not said:\n{said}"
    assert len(said.splitlines()) <= 2, said


REFUSED, ROLLED_BACK = 1, 2  # kinds of rulings: aggregator/ledger/rulings.h


def rulings(cluster, kind):
    return [row[0] for row in cluster.ledger("SELECT version FROM ruling WHERE kind=? ORDER BY version", kind)]


def wait_for_ruling(cluster, kind, count=1, timeout=120):
    wait_until(lambda: len(rulings(cluster, kind)) >= count, f"{count} rulings of kind {kind}", timeout)


def weights(cluster, version):
    with open(cluster.path(f"state/gateway/files/version-{version}.full"), "rb") as file:
        return file.read()[88:]


def each_score_is_told_once(cluster, ruled):
    """Of versions that were trained, in their order: a version of a ruling has the score of another one."""
    told = aggregator(cluster, "events", "gateway.yaml")
    numbers = [int(number) for number in re.findall(r" version_measured: version (\d+): ", told)]
    assert len(numbers) > 2 and numbers == sorted(set(numbers)) and not set(numbers) & set(ruled), told


@scenario
def one_group_of_several_makes_no_version_the_best_one(build):
    with Cluster(build, GROUPS, **FAST | {"quorum": 1}, central=False) as cluster:
        cluster.start_all()
        cluster.wait_for_version(3)
        refuse(cluster, "version best: none is known", "rollback", "gateway.yaml", "best", "--reason", "worse")
        refuse(cluster, "version best: none is known", "export", "gateway.yaml", "--best", "-o", "best")
        assert not rulings(cluster, ROLLED_BACK)


@scenario
def a_gate_refuses_what_got_worse(build):
    with Cluster(build, GROUPS, **FAST, extra=LIMITS + GATE) as cluster:
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.edit("job.yaml", *WILD)
        reload(cluster)
        wait_for_ruling(cluster, REFUSED, 2)
        cluster.edit("job.yaml", *CALM)
        reload(cluster)
        cluster.wait_for_line("gateway", "is refused: its ", 2)
        cluster.wait_for_line("gateway", "the gate refused 2 versions in a row")
        refused = rulings(cluster, REFUSED)[0]
        assert weights(cluster, refused) == weights(cluster, refused - 1), "a refused version has other weights"
        assert weights(cluster, refused) != weights(cluster, refused - 2)
        assert os.path.getsize(cluster.path(f"state/gateway/files/version-{refused}.delta")) <= 112
        for board in cluster.boards:
            cluster.wait_for_line(board, f"version {refused}: held-out")
            cluster.wait_for_line(board, f"version {refused} went back to an earlier one: what waited here is forgotten")
        said = aggregator(cluster, "status", "gateway.yaml")
        assert "the gate refused version" in said, said
        finish(cluster, more=6)
        each_score_is_told_once(cluster, rulings(cluster, REFUSED))


@scenario
def the_run_goes_back_to_a_version(build):
    with Cluster(build, GROUPS, **FAST, extra="server: {optimizer: fedadam}") as cluster:
        refuse(cluster, "the run has no version yet", "rollback", "gateway.yaml", "0", "--reason", "x")
        cluster.start_all()
        cluster.wait_for_version(4)
        refuse(cluster, "--reason TEXT is missing", "rollback", "gateway.yaml", "2", code=2)
        refuse(cluster, "printable characters", "rollback", "gateway.yaml", "2", "--reason", "a\nb", code=2)
        refuse(cluster, "version 999: there is none", "rollback", "gateway.yaml", "999", "--reason", "x")
        refuse(cluster, "version two: there is none", "rollback", "gateway.yaml", "two", "--reason", "x")
        refuse(cluster, "wants PROFILE and VERSION", "rollback", "gateway.yaml", code=2)
        aggregator(cluster, "rollback", "gateway.yaml", "2", "--reason", "a test")
        wait_for_ruling(cluster, ROLLED_BACK)
        version, = rulings(cluster, ROLLED_BACK)
        cluster.wait_for_line("gateway", f"version {version} has the weights of version 2: rolled back, a test")
        assert weights(cluster, version) == weights(cluster, 2)
        for board in cluster.boards:
            cluster.wait_for_line(board, f"version {version} went back to an earlier one: what waited here is forgotten")
        assert f"version {version} went back to version 2: a test" in aggregator(cluster, "status", "gateway.yaml")
        cluster.wait_for_version(version + 2)
        # With the gateway away: the next start does it, also where a round is open.
        cluster.kill("gateway")
        aggregator(cluster, "rollback", "gateway.yaml", "0", "--reason", "from the start")
        refuse(cluster, "a rollback to version 0 waits already: from the start", "rollback", "gateway.yaml", "1",
               "--reason", "x")
        cluster.start("gateway")
        wait_for_ruling(cluster, ROLLED_BACK, 2)
        finish(cluster)
        each_score_is_told_once(cluster, rulings(cluster, ROLLED_BACK))
        refuse(cluster, "the run is over", "rollback", "gateway.yaml", "1", "--reason", "x")
        said = aggregator(cluster, "export", "gateway.yaml", "--best", "-o", "model")
        assert "model.onnx" in said


@scenario
def what_is_not_kept_cannot_be_gone_back_to(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        with open(cluster.path("gateway.yaml")) as file:
            text = file.read()
        cluster.write("gateway.yaml", text.replace('gateway: {', 'gateway: {keep_versions: 2, '))
        cluster.start_all()
        cluster.wait_for_version(7)
        cluster.kill("gateway")
        kept = sorted(int(name.split("-")[1].split(".")[0]) for name in os.listdir(cluster.path("state/gateway/files"))
                      if name.endswith(".full"))
        gone = next(number for number in range(1, 8) if number not in kept)
        refuse(cluster, f"version {gone}: it is no longer kept (gateway.keep_versions)", "rollback", "gateway.yaml",
               str(gone), "--reason", "x")
        said = aggregator(cluster, "rollback", "gateway.yaml", str(gone), "--reason", "x", code=1)
        assert re.search(rf"Versions that are kept: 0, .*\d+ to {cluster.version()}\n", said), said
        # The version of a rollback that waits is not pruned.
        wanted = kept[-1]
        aggregator(cluster, "rollback", "gateway.yaml", str(wanted), "--reason", "x")
        cluster.start("gateway")
        wait_for_ruling(cluster, ROLLED_BACK)
        version, = rulings(cluster, ROLLED_BACK)
        assert cluster.ledger("SELECT source FROM ruling") == [(wanted,)]
        cluster.wait_for_version(version + 1)


def forget_values(cluster):
    with contextlib.closing(sqlite3.connect(cluster.path("state/gateway/ledger.sqlite"))) as ledger, ledger:
        ledger.execute("UPDATE setting SET job=NULL, digest=zeroblob(32)")


@scenario
def a_group_is_taken_out(build):
    with Cluster(build, {**GROUPS, "lab-c": ["board-4"]}, **{**FAST, "deadline": "2 s"}) as cluster:
        for name in ("gateway", "board-1", "board-3"):
            cluster.start(name)
        cluster.wait_for_version(3)
        cluster.kill("board-3")
        cluster.start("board-4")
        deadline = time.monotonic() + 120
        while not cluster.ledger("SELECT 1 FROM contribution WHERE grp='lab-c' AND round<=(SELECT max(number) FROM version)"):
            assert time.monotonic() < deadline, "lab-c never took part"
            time.sleep(0.05)
        first = cluster.ledger("SELECT min(round) FROM contribution WHERE grp='lab-c'")[0][0]
        cluster.wait_for_version(first + 2)
        cluster.start("board-3")
        said = aggregator(cluster, "replay", "gateway.yaml", "--without", "lab-c")
        lines = said.splitlines()
        assert lines[0].startswith(f"version {first} ") and lines[0].endswith(" exact"), said
        assert lines[1].startswith(f"version {first + 1} ") and lines[1].endswith(" approximate (1 round)"), said
        assert "nothing is stored" in said and f"versions 0 to {first - 1} of" in said, said
        refuse(cluster, "no board was ever enrolled in group lab-x", "replay", "gateway.yaml", "--without", "lab-x")
        refuse(cluster, "--from 0: expected", "replay", "gateway.yaml", "--without", "lab-c", "--from", "0", code=2)
        refuse(cluster, "group lab-x: no board of it was ever enrolled", "remove", "gateway.yaml", "lab-x", "--reason", "x")
        remove = ("remove", "gateway.yaml", "lab-c", "--reason", "it lied")
        said = aggregator(cluster, *remove, code=1)
        assert "nobody was asked" in said and f"to version {first - 1}, the newest kept one" in said, said
        assert "not confirmed; nothing is changed" in answer(cluster, "no", *remove, code=1)
        assert cluster.ledger("SELECT count(*) FROM board WHERE revoked") == [(0,)]
        assert "--yes" in aggregator(cluster, "rollback", "gateway.yaml", "0", "--reason", "x", "--yes", code=2)
        said = answer(cluster, "yes", *remove)
        assert "revoked board-4" in said and f"the weights of version {first - 1}" in said, said
        wait_for_ruling(cluster, ROLLED_BACK)
        version, = rulings(cluster, ROLLED_BACK)
        assert weights(cluster, version) == weights(cluster, first - 1)
        cluster.wait_for_version(version + 1)
        assert not cluster.ledger("SELECT 1 FROM contribution WHERE grp='lab-c' AND round>?", version)
        said = aggregator(cluster, "remove", "gateway.yaml", "lab-c", "--reason", "again")
        assert "no update of group lab-c is in version" in said, said
        cluster.kill("board-4")
        aggregator(cluster, "enroll", "gateway.yaml", "board-4", "--group", "lab-d", "-o", "moved.key")
        said = aggregator(cluster, "remove", "gateway.yaml", "lab-c", "--reason", "its board moved")
        assert "no update of group lab-c is in version" in said, said
        last = cluster.version() + 4
        cluster.edit("job.yaml", (f"count: {ENDLESS}", f"count: {last}"))
        reload(cluster)
        cluster.wait_for_end(120, ["gateway", "board-1", "board-3"])
        assert cluster.replay()[-1] == f"{last + 1} versions, 0 differ, 0 not checked"
        same_model_everywhere(cluster, ["board-1", "board-3"])
        # An older program recorded only a digest of the values, which may be that of another text.
        forget_values(cluster)
        said = aggregator(cluster, "replay", "gateway.yaml", "--without", "lab-c")
        assert said.splitlines()[0].startswith(f"version {first} ") and "nothing is stored" in said, said


def run(build, seed, kills):
    """Reload, refusals and a rollback at versions that do not depend on time; kills at random."""
    with Cluster(build, GROUPS, **{**FAST, "rounds": 2}, extra=LIMITS + GATE) as cluster:
        draw = random.Random(seed)

        def stage(last, *changes):
            cluster.edit("job.yaml", *changes, (f"count: {stage.last}", f"count: {last}"))
            stage.last = last
            reload(cluster)
            cluster.start_all()
            for _ in range(kills):
                name = draw.choice(["gateway", "gateway", *cluster.boards])
                time.sleep(draw.uniform(0.05, 0.4))
                if cluster.processes[name].poll() is None:
                    cluster.kill(name)
                cluster.start(name)
            cluster.wait_for_end(180)

        stage.last = 2
        cluster.start_all()
        cluster.wait_for_end(120)
        stage(5, *WILD)  # versions 3 to 5 are refused
        cluster.edit("job.yaml", *CALM, ("count: 5", "count: 9"))
        stage.last = 9
        reload(cluster)
        aggregator(cluster, "rollback", "gateway.yaml", "1", "--reason", "a test")
        stage(9)
        assert rulings(cluster, REFUSED)[:3] == [3, 4, 5] and rulings(cluster, ROLLED_BACK) == [6], cluster.ledger("SELECT * FROM ruling")
        assert cluster.replay()[-1] == "10 versions, 0 differ, 0 not checked"
        same_model_everywhere(cluster)
        return cluster.digest()


@scenario
def kills_change_no_bit(build):
    seed = random.randrange(1 << 30)
    assert run(build, seed, 4) == run(build, seed, 0), f"another model with seed {seed}"
    return f"seed {seed}"


if __name__ == "__main__":
    scenario.main()
