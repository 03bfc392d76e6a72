"""The programs read a state that an older Cairn wrote, go on with it, export and replay it; a state that they cannot
read stays as it is, and the message names what wrote it.

    older_state.py BUILD [SCENARIO...]
    older_state.py BUILD --record FILE    writes such a state; tests/data/states/README.md says which are kept

A recorded state is of the first rounds of a small run: the gateway's ledger and files, one board's checkpoints and its
key. The run's values are the ones below.
"""

import glob
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile

from cluster import SOURCE, Cluster
from scenarios import Scenarios

GROUPS = {"gate": ["board-1"]}
JOB = {"rounds": 6, "quorum": 1, "model": "digits-mlp.onnx", "local_steps": 40, "central": False}
ENOUGH = "version 3:"
FOLDERS = ["state", "keys"]
UNREADABLE = 7  # exit code of both programs

scenario = Scenarios()


def record(build, path):
    with Cluster(build, GROUPS, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", ENOUGH)
        for name in ("board-1", "gateway"):
            cluster.kill(name)
        with tarfile.open(path, "w:xz") as archive:
            for folder in FOLDERS:
                archive.add(cluster.path(folder), folder)


def unpack(cluster, path):
    for folder in FOLDERS:
        shutil.rmtree(cluster.path(folder))
    with tarfile.open(path) as archive:
        archive.extractall(cluster.directory)


def recorded():
    found = sorted(glob.glob(os.path.join(SOURCE, "tests/data/states/*.tar.xz")))
    assert found, "no recorded states"
    return found


def versions(cluster):
    return cluster.ledger("SELECT number, digest FROM version ORDER BY number")


def writer(cluster, name):
    with open(cluster.path("state", name, "written_by")) as file:
        return file.read()


def named(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def export_and_replay(cluster):
    cluster.command(cluster.aggregator, "export", "gateway.yaml", "-o", "taken")
    assert os.path.getsize(cluster.path("taken.onnx")) and os.path.getsize(cluster.path("taken.safetensors"))
    assert cluster.replay()[-1].endswith("0 differ, 0 not checked"), cluster.replay()


@scenario
def a_recorded_state_is_exported_replayed_and_gone_on_with(build):
    for path in recorded():
        with Cluster(build, GROUPS, **JOB) as cluster:
            unpack(cluster, path)
            before = versions(cluster)
            assert 0 < before[-1][0] < JOB["rounds"], f"{path} has {len(before)} versions"
            export_and_replay(cluster)
            cluster.start_all()
            cluster.wait_for_end(100)
            assert versions(cluster)[: len(before)] == before, "versions of the older program changed"
            assert cluster.status()["version"] == JOB["rounds"]
            log = cluster.log("board-1")
            assert "resuming at round" in log and "starting from the beginning" not in log, log
            export_and_replay(cluster)
            assert writer(cluster, "gateway") == named(cluster.aggregator)
            assert writer(cluster, "board-1") == named(cluster.node)


@scenario
def an_older_ledger_without_job_values_is_exported_and_replayed(build):
    """Schema 2 kept a digest of the job's values, whose text was another one in older programs."""
    with Cluster(build, GROUPS, **JOB) as cluster:
        unpack(cluster, recorded()[0])
        with sqlite3.connect(cluster.path("state/gateway/ledger.sqlite")) as ledger:
            ledger.executescript("ALTER TABLE meta ADD COLUMN job BLOB; DROP TABLE setting;"
                                 f"UPDATE meta SET job = x'{'11' * 32}'; PRAGMA user_version=2;")
        ledger.close()
        export_and_replay(cluster)
        said = cluster.command(cluster.aggregator, "replay", "gateway.yaml").stderr
        assert "recorded no job values" in said, said
        refused = cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False)
        assert refused.returncode == 1 and "recorded only their digest" in refused.stderr, refused.stderr


def write_note(cluster, name, text):
    with open(cluster.path("state", name, "written_by"), "w") as file:
        file.write(text + "\n")


@scenario
def a_ledger_of_a_later_schema_stays_as_it_is(build):
    with Cluster(build, GROUPS, **JOB) as cluster:
        unpack(cluster, recorded()[0])
        with sqlite3.connect(cluster.path("state/gateway/ledger.sqlite")) as ledger:
            ledger.execute("PRAGMA user_version=9")
        ledger.close()
        write_note(cluster, "gateway", "cairn-aggregator 7.1.0")
        for command in (["run"], ["export", "-o", "taken"], ["replay"], ["status"]):
            refused = cluster.command(cluster.aggregator, command[0], "gateway.yaml", *command[1:], check=False)
            assert refused.returncode == UNREADABLE, (command, refused)
            assert "written by cairn-aggregator 7.1.0" in refused.stderr, refused.stderr
            assert "schema 9" in refused.stderr and "reads 1 to 5" in refused.stderr, refused.stderr
        assert writer(cluster, "gateway") == "cairn-aggregator 7.1.0\n"


@scenario
def a_checkpoint_of_a_later_version_stays_as_it_is(build):
    with Cluster(build, GROUPS, **JOB) as cluster:
        unpack(cluster, recorded()[0])
        path = cluster.path("state/board-1/checkpoint.a")
        with open(path, "r+b") as file:
            file.write(b"cairnck9")
            file.seek(0)
            content = file.read()
        write_note(cluster, "board-1", "cairn-node 7.1.0\x1b[2J")
        refused = cluster.command(cluster.node, "run", "board-1.yaml", check=False)
        assert refused.returncode == UNREADABLE, refused
        assert "checkpoint format 9, written by cairn-node 7.1.0?[2J;" in refused.stderr, refused.stderr
        with open(path, "rb") as file:
            assert file.read() == content, "the state was changed"


if __name__ == "__main__":
    if sys.argv[2:3] == ["--record"]:
        record(sys.argv[1], sys.argv[3])
    else:
        scenario.main()
