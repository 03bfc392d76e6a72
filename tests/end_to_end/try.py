"""`cairn-aggregator try`: a federation on one machine from a model and arrays, in one command.

    try.py BIN [SCENARIO...]
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from bad_models import expect
from cluster import DIGITS, ENDLESS, free_ports
from scenarios import Scenarios

MODEL = os.path.join(DIGITS, "digits-mlp.onnx")
DATA = [os.path.join(DIGITS, f"board-*-{part}.npy") for part in ("images", "labels")]
ONE = [os.path.join(DIGITS, f"board-1-{part}.npy") for part in ("images", "labels")]  # 373 rows of 5 labels
PATIENCE = 240  # seconds, for what takes some on an idle machine
scenario = Scenarios()


class Folder:
    """A folder for runs, in which the temporary folders of `try` lie, too."""

    def __init__(self, build):
        self.program = os.path.join(build, "cairn-aggregator")
        self.place = tempfile.TemporaryDirectory(prefix="cairn-test-")
        self.path = self.place.name
        self.environment = {**os.environ, "TMPDIR": os.path.join(self.path, "tmp")}
        os.mkdir(self.environment["TMPDIR"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.place.cleanup()

    def command(self, *arguments):
        return [self.program, "try", *map(str, arguments)]

    def run(self, *arguments):
        return subprocess.run(self.command(*arguments), cwd=self.path, capture_output=True, text=True, timeout=PATIENCE,
                              env=self.environment)

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.environment)

    def left(self):
        """Names of what lies here, and in the folder for temporary files."""
        return sorted(set(os.listdir(self.path)) - {"tmp"}) + os.listdir(self.environment["TMPDIR"])


def result(said):
    """The row of the result: rounds, accuracy, loss, bytes and digest."""
    lines = said.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith(" rounds  accuracy")) + 1].split()


def read_until(process, pattern):
    """Lines until one fits."""
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"'{pattern}' was not said:\n{process.communicate()[1]}")


def children(process):
    """Processes that a process has started, by their profiles."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
        except OSError:  # it has ended
            continue
        if parent == process.pid and "run" in words:
            found[next(word[:-5] for word in words if word.endswith(".yaml"))] = int(pid)
    return found


def wait_until_gone(pids):
    deadline = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)


@scenario
def one_command_trains_and_shows_what_came_of_it(build):
    with Folder(build) as folder:
        os.mkdir(os.path.join(folder.path, "kept"))  # an empty folder is one to fill
        said = expect(folder.run(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 3, "--groups", 2,
                                 "--split", "labels", "--rounds", 4, "--keep", "kept"), 0,
                      "3 boards in 2 groups", "http://127.0.0.1:", "the run is over: all rounds are done")
        rounds, accuracy, *_, digest = result(said)
        assert rounds == "4" and float(accuracy) > 0.2, said
        assert "\nloss: cross_entropy; the best version has the highest accuracy" in said, said
        best = re.search(r"\nbest by accuracy: version (\d), accuracy (\S+), loss ", said)
        assert best and float(best[2]) >= float(accuracy), said
        kept = os.path.join(folder.path, "kept")
        assert folder.left() == ["kept"], folder.left()
        replayed = subprocess.run([folder.program, "replay", os.path.join(kept, "gateway.yaml")], check=True,
                                  capture_output=True, text=True, timeout=PATIENCE).stdout
        assert f"version 4 {digest[:16]} ok" in replayed, replayed
        assert "\nlimits.trust_groups: true\n" in recorded_job(folder), recorded_job(folder)
        # What is over is shown again, and nothing is started.
        assert digest in expect(folder.run("--keep", "kept"), 0)
        found = json.loads(folder.run("--keep", "kept", "--json").stdout)
        assert found["rounds"] == 4 and found["digest"].startswith(digest), found
        assert found["best"]["version"] == int(best[1]) and found["best"]["by"] == "accuracy", found
        return f"accuracy {accuracy}"


@scenario
def ctrl_c_ends_all_and_the_same_command_goes_on(build):
    with Folder(build) as folder:
        arguments = [MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 2, "--keep", "kept"]
        process = folder.start(*arguments, "--rounds", ENDLESS)
        read_until(process, r"^ +2 ")
        started = children(process)
        assert sorted(started) == ["board-1", "board-2", "gateway"], started
        busy = folder.run("--keep", "kept")
        expect(busy, 1, "another cairn-aggregator try runs there")
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130 and "goes on" in errors, errors
        wait_until_gone(started.values())
        for option, value in (("--rounds", 20), ("--boards", 9), ("--scale", 2), ("--port", 9000)):
            only = expect(folder.run("--keep", "kept", option, value), 2, f"error: {option}: try --keep kept goes on with")
            assert len(only.splitlines()) == 1 and "edit kept/job.yaml" in only, only
        other = expect(folder.run(*arguments, "--rounds", 3), 2, "rounds")
        assert len(other.splitlines()) == 1 and "edit rounds.count in " in other, other
        last = 2 + ledger_newest(folder)
        path = os.path.join(folder.path, "kept", "job.yaml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(f"count: {ENDLESS}", f"count: {last}"))
        said = expect(folder.run(*arguments, "--rounds", ENDLESS), 0, "the run is over")
        assert result(said)[0] == str(last), said


@scenario
def a_job_that_was_submitted_to_a_try_ends_without_its_boards(build):
    """The boards go on with the job of the try when the submitted one is over."""
    with Folder(build) as folder:
        process = folder.start(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 2, "--keep", "kept", "--rounds", 60)
        read_until(process, r"^ +2 ")
        with open(os.path.join(folder.path, "kept", "job.yaml"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(folder.path, "kept", "short.yaml"), "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^name: .*$", "name: short", text).replace("count: 60", "count: 3"))
        subprocess.run([folder.program, "job", "submit", "gateway.yaml", "short.yaml", "--priority", "9"], check=True,
                       cwd=os.path.join(folder.path, "kept"), capture_output=True, timeout=PATIENCE)
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0 and result(said)[0] == "60", said
        shown = subprocess.run([folder.program, "job", "list", "gateway.yaml"], check=True, text=True, timeout=PATIENCE,
                               cwd=os.path.join(folder.path, "kept"), capture_output=True).stdout
        assert "ended at version 3" in shown, shown


def ask_ledger(folder, query):
    import sqlite3

    path = os.path.join(folder.path, "kept", "state", "gateway", "ledger.sqlite")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as ledger:
        return ledger.execute(query).fetchone()[0]


def ledger_newest(folder):
    return ask_ledger(folder, "SELECT max(number) FROM version")


def recorded_job(folder):
    """The values of the first round's job, a line for each."""
    return ask_ledger(folder, "SELECT job FROM setting ORDER BY from_round")


@scenario
def a_process_that_fails_is_told_with_its_last_lines(build):
    with Folder(build) as folder:
        process = folder.start(MODEL, "--data", *DATA, "--boards", 2, "--rounds", ENDLESS)
        read_until(process, r"^ +1 ")
        started = children(process)
        os.kill(started["board-2"], signal.SIGKILL)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 4, errors
        assert "board-2 was ended by signal 9" in errors and "\n  | " in errors, errors
        assert "1 of 2 groups can train, a version needs 2" in errors, errors
        wait_until_gone(started.values())
        assert len(folder.left()) == 1, "the folder is kept for a look"


@scenario
def a_loss_that_is_not_finite_ends_the_run_with_its_cure(build):
    with Folder(build) as folder:
        ended = folder.run(MODEL, "--data", *DATA, "--scale", "1e9", "--boards", 2, "--keep", "kept")
        assert ended.returncode == 4, ended
        for words in ("board-1: round 1 is given up: the loss", "board-2: round 1 is given up: the loss",
                      "0 of 2 groups can train, a version needs 2", "lower train.learning_rate", "cairn-node normalize"):
            assert words in ended.stderr, f"'{words}' is not in:\n{ended.stderr}"


@scenario
def the_rest_goes_on_without_a_board_that_fails(build):
    with Folder(build) as folder:
        process = folder.start(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 3, "--groups", 2, "--rounds", ENDLESS)
        read_until(process, r"^ +1 ")
        started = children(process)
        os.kill(started["board-3"], signal.SIGKILL)  # the second of two in its group
        version = int(read_until(process, r"^ +\d+ ").split()[0])
        for more in range(version + 1, version + 6):
            read_until(process, rf"^ +{more} ")
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130 and "board-3 was ended by signal 9" in errors, errors
        assert "2 of 2 groups can train, a version needs 2: the run goes on" in errors, errors


def edit(folder, name, old, new):
    path = os.path.join(folder.path, "kept", name)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert old in text, text
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))


@scenario
def changed_values_of_a_kept_trial_are_taken_or_refused_with_the_way(build):
    with Folder(build) as folder:
        expect(folder.run(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 2, "--rounds", 2, "--keep", "kept"), 0)
        edit(folder, "job.yaml", "count: 2", "count: 4")
        said = expect(folder.run("--keep", "kept"), 0, "the run is over")
        assert result(said)[0] == "4", said
        edit(folder, "job.yaml", "count: 4", "count: 6")
        edit(folder, "job.yaml", "learning_rate: 0.05", "learning_rate: 0.04")
        refused = folder.run("--keep", "kept")
        assert refused.returncode == 4, refused
        first = refused.stderr.index("  | error: ")
        assert "learning_rate" in refused.stderr[first:], refused.stderr
        way = re.search(r"To take what you changed: cairn-aggregator (reload \S+)\n", refused.stderr)
        assert way, refused.stderr
        # The remedy comes first, the list of keys last and whole; what goes on is what was mended.
        assert refused.stderr.index("from the next round on") < refused.stderr.index("A start takes other values"), refused
        assert "stop.target_accuracy\n" in refused.stderr, refused.stderr
        assert "when the cause is mended, cairn-aggregator try --keep" in refused.stderr, refused.stderr
        subprocess.run([folder.program, *way[1].split()], check=True, capture_output=True, timeout=PATIENCE)
        said = expect(folder.run("--keep", "kept"), 0, "the run is over")
        assert result(said)[0] == "6", said


@scenario
def processes_end_with_a_try_that_is_killed(build):
    with Folder(build) as folder:
        process = folder.start(MODEL, "--data", *DATA, "--boards", 2, "--rounds", ENDLESS)
        read_until(process, r"^ +1 ")
        started = children(process)
        process.kill()
        process.communicate(timeout=PATIENCE)
        wait_until_gone(started.values())


@scenario
def a_group_with_digits_of_its_own_is_not_taken_for_a_liar(build):
    with Folder(build) as folder:
        held_out = [os.path.join(DIGITS, f"held-out-{part}.npy") for part in ("images", "labels")]
        expect(folder.run(MODEL, "--data", *DATA, "--test", *held_out, "--scale", "0.0625", "--boards", 5, "--groups", 5,
                          "--split", "labels", "--rounds", 40, "--keep", "kept"), 0, "the run is over")
        with open(os.path.join(folder.path, "kept", "logs", "gateway.log"), encoding="utf-8") as file:
            log = file.read()
        assert "is left out" not in log, log
        found = json.loads(folder.run("--keep", "kept", "--json").stdout)
        # The digits of one group of five are a fifth of the samples.
        assert found["accuracy"] > 0.85, found
        return f"accuracy {found['accuracy']:.3f}"


@scenario
def a_job_file_gives_other_values(build):
    with Folder(build) as folder:
        with open(os.path.join(folder.path, "adam.yaml"), "w", encoding="utf-8") as file:
            file.write("schema: cairn/job/v1\ntrain: {local_steps: 5}\nserver: {optimizer: fedadam, learning_rate: 0.01}\n"
                       "rounds: {count: 2}\n")
        said = expect(folder.run(MODEL, "--data", *DATA, "--boards", 2, "--job", "adam.yaml", "--json"), 0)
        assert json.loads(said)["rounds"] == 2, said
        assert folder.left() == ["adam.yaml"], "nothing is kept that was not asked for"


def write_job(folder, text):
    with open(os.path.join(folder.path, "given.yaml"), "w", encoding="utf-8") as file:
        file.write("schema: cairn/job/v1\n" + text)
    return "given.yaml"


@scenario
def a_job_file_counts_more_than_the_values_of_a_trial_and_less_than_options(build):
    with Folder(build) as folder:
        given = write_job(folder, "name: mine\nrounds: {count: 9, quorum: 1}\ntrain: {batch: 8, optimizer: adam}\n")
        expect(folder.run(MODEL, "--data", *DATA, "--boards", 2, "--rounds", 1, "--job", given, "--keep", "kept"), 0)
        job = recorded_job(folder)
        for line in ("name: mine", "rounds.count: 1", "rounds.quorum: 1", "train.batch: 8", "rounds.deadline: 1 min",
                     "data.held_out: 0", "limits.trust_groups: true"):
            assert f"\n{line}" in "\n" + job, f"'{line}' is not in:\n{job}"
        with open(os.path.join(folder.path, "kept", "job.yaml"), encoding="utf-8") as file:
            assert "momentum" not in file.read()  # it has no meaning with adam
        shutil.rmtree(os.path.join(folder.path, "kept"))
        given = write_job(folder, "rounds: {count: 1, quorum: 5}\nrobust: {rule: rfa}\n")
        expect(folder.run(MODEL, "--data", *DATA, "--boards", 5, "--groups", 5, "--job", given, "--keep", "kept"), 0)
        assert "trust_groups: true" not in recorded_job(folder)


@scenario
def with_shared_data_the_boards_of_a_group_have_the_same_rows(build):
    with Folder(build) as folder:
        given = write_job(folder, "data: {scope: shared}\nrounds: {count: 2}\n")
        expect(folder.run(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 4, "--groups", 2, "--job", given,
                          "--keep", "kept"), 0, "the run is over")
        names = sorted(os.listdir(os.path.join(folder.path, "kept", "data")))
        assert names == [f"{owner}-{part}.npy" for owner in ("group-1", "group-2", "test") for part in ("inputs", "labels")], names
        for board, group in ((1, 1), (2, 1), (3, 2), (4, 2)):
            with open(os.path.join(folder.path, "kept", f"board-{board}.yaml"), encoding="utf-8") as file:
                assert f"data/group-{group}-inputs.npy" in file.read()


@scenario
def what_was_drained_is_told_and_goes_on(build):
    with Folder(build) as folder:
        process = folder.start(MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", 2, "--rounds", ENDLESS, "--keep", "kept")
        read_until(process, r"^ +2 ")
        subprocess.run([folder.program, "drain", "kept/gateway.yaml"], cwd=folder.path, check=True, capture_output=True)
        said, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and "the run is drained, not over; cairn-aggregator try --keep " in errors, errors
        newest = ledger_newest(folder)
        assert f"drained after version {newest}; " in said and re.search(rf"^ +{newest} ", said, re.M), said
        assert result(said)[0] == str(newest), said
        edit(folder, "job.yaml", f"count: {ENDLESS}", f"count: {newest + 1}")
        assert result(expect(folder.run("--keep", "kept"), 0, "the run is over"))[0] == str(newest + 1)


@scenario
def warnings_are_told_once(build):
    with Folder(build) as folder:
        given = write_job(folder, "rounds: {count: 1, async: {buffer: 1}}\n")
        ended = folder.run(MODEL, "--data", *DATA, "--boards", 2, "--job", given)
        assert ended.returncode == 0 and ended.stderr.count("warning: rounds.async.buffer: has no effect") == 1, ended


@scenario
def what_the_gateway_warned_of_is_told(build):
    with Folder(build) as folder:
        with open(os.path.join(folder.path, "wild.yaml"), "w", encoding="utf-8") as file:
            file.write("schema: cairn/job/v1\ntrain: {learning_rate: 300}\ngate: {accuracy: 0.01 %}\nrounds: {count: 6}\n")
        said = expect(folder.run(MODEL, "--data", *DATA, "--boards", 2, "--job", "wild.yaml"), 0, "warnings of the gateway: ")
        assert "refused" in said.split("warnings of the gateway: ")[1], said


@scenario
def what_cannot_be_tried_is_one_clear_line(build):
    cases = [
        ([], 2, "MODEL.onnx"),
        ([MODEL], 2, "--data X Y"),
        ([MODEL, "--data", ONE[0]], 2, "two files"),
        ([ONE[0], "--data", *ONE], 1, "board-1-images.npy: byte 0: model: "),
        (["absent.onnx", "--data", *ONE], 1, "absent.onnx", "not found"),
        ([MODEL, "--data", ONE[0], DATA[1].replace("*", "2")], 1, "373 rows", "348"),
        ([MODEL, "--data", ONE[0], DATA[1]], 1, "a * in both"),
        ([MODEL, "--data", *ONE, "--boards", 2, "--groups", 3], 2, "--groups 3", "2 boards"),
        ([MODEL, "--data", *ONE, "--boards", 40], 2, "--groups 2: expected at least 3 for 40 boards"),
        ([MODEL, "--data", *ONE, "--boards", 6, "--groups", 6, "--split", "labels"], 1, "5 different labels", "6 groups",
         "use --split dirichlet, or --groups 5"),
        ([MODEL, "--data", *ONE, "--split", "dirichlet", "--alpha", 0.01, "--groups", 4], 1, "would get no row", "--alpha"),
        ([MODEL, "--data", *ONE, "--split", "by-hand"], 2, "iid, labels or dirichlet"),
        ([MODEL, "--data", *ONE, "--seed", "-1"], 2, "--seed -1: expected a number from 0"),
        ([MODEL, "--data", *ONE, "--keep", "here"], 1, "here: holds something else"),
        ([MODEL, "--data", *ONE, "--keep", "absent/here"], 1, "absent/here: No such file or directory"),
        (["--keep", "absent"], 1, "absent: there is no earlier try"),
        ([MODEL, "--data", *ONE, "--job", "here/job.yaml"], 3, "job.yaml:2:10", "server.optimiser", "'optimizer'"),
        ([MODEL, "--data", *ONE, "--job", "here/five.yaml"], 2, "--groups 2", "wants at least 5", "use --groups 5 or a smaller rounds.quorum"),
    ]
    with Folder(build) as folder, socket.socket() as other:
        os.mkdir(os.path.join(folder.path, "here"))
        with open(os.path.join(folder.path, "here", "job.yaml"), "w", encoding="utf-8") as file:
            file.write("schema: cairn/job/v1\nserver: {optimiser: fedadam}\n")
        with open(os.path.join(folder.path, "here", "five.yaml"), "w", encoding="utf-8") as file:
            file.write("schema: cairn/job/v1\nrounds: {quorum: 5}\n")
        port = free_ports(1)[0]
        other.bind(("127.0.0.1", port))
        other.listen()
        for arguments, code, *words in [*cases, ([MODEL, "--data", *ONE, "--port", port], 1, f"port {port}")]:
            said = expect(folder.run(*arguments), code, *words)
            assert len(said.splitlines()) == 1, f"{arguments}: more than one line:\n{said}"
        # The programs check what they get; their words follow a line of ours, and name the user's file.
        expect(folder.run(os.path.join(DIGITS, "digits-rows.onnx"), "--data", *ONE), 1, "model, job and --data do not fit",
               "board-1-labels.npy")
        expect(folder.run(os.path.join(DIGITS, "digits-rows.onnx"), "--data", *ONE), 1, "`check` of", "wanted 8 class numbers")
        expect(folder.run(MODEL, "--data", *ONE, "--test", ONE[0], ONE[0]), 1, "model, job and --test do not fit", ONE[0])
        assert folder.left() == ["here"], folder.left()


@scenario
def a_program_that_is_missing_is_named(build):
    with Folder(build) as folder:
        shutil.copy(folder.program, folder.path)
        folder.program = os.path.join(folder.path, "cairn-aggregator")
        folder.environment["PATH"] = folder.path
        expect(folder.run(MODEL, "--data", *ONE), 1, "cairn-node is neither beside this program nor in PATH")
        # And it is taken from PATH.
        folder.environment["PATH"] = os.path.abspath(build)
        expect(folder.run(MODEL, "--data", *ONE, "--rounds", 1, "--boards", 1, "--groups", 1), 0, "the run is over")


if __name__ == "__main__":
    scenario.main()
