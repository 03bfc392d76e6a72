"""`cairn-aggregator sweep`: trials with other values of a job's keys, and the best of them.

    sweep.py BIN [SCENARIO...]
"""

import importlib
import json
import os
import random
import signal
import subprocess
import time

from bad_models import expect
from cluster import DIGITS
from scenarios import Scenarios

Folder = importlib.import_module("try").Folder  # "try" is a word of Python
MODEL = os.path.join(DIGITS, "digits-mlp.onnx")
DATA = [os.path.join(DIGITS, f"board-*-{part}.npy") for part in ("images", "labels")]
HERE = [MODEL, "--data", *DATA, "--scale", "0.0625", "--boards", "2"]
RATES = "train.learning_rate=0.001,0.02,0.00001"
PATIENCE = 240
scenario = Scenarios()


class Sweep(Folder):
    def command(self, *arguments):
        return [self.program, "sweep", *map(str, arguments)]

    def program_says(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], cwd=self.path, capture_output=True, text=True,
                              timeout=PATIENCE, check=True, env=self.environment).stdout

    def names(self, folder):
        return sorted(os.listdir(os.path.join(self.path, folder)))


def found(said):
    """What a sweep found, without the bytes: boards ask again when they are killed."""
    answer = json.loads(said)
    return answer["winner"], [{key: value for key, value in trial.items() if not key.startswith("bytes")}
                              for trial in answer["trials"]]


@scenario
def the_best_value_is_found_and_its_run_went_on(build):
    with Sweep(build) as folder:
        arguments = [*HERE, "--keep", "kept", "--set", RATES, "--first", 1]
        said = expect(folder.run(*arguments), 0, "rung 1 of 2: 3 trials, 1 round\n", "rung 2 of 2: 1 trial, 3 rounds",
                      "the winner is trial 2; its values as a job file: kept/winner.yaml")
        rows = said[said.index("trial  rounds"):].splitlines()[1:4]
        assert [row.split()[:2] for row in rows] == [["2", "3"], ["1", "1"], ["3", "1"]], said
        assert "train.learning_rate=0.02" in rows[0], said
        assert [name for name in folder.names("kept") if name in ("trial-1", "trial-2", "trial-3")] == ["trial-2"]
        # Nothing is done again.
        begun = time.monotonic()
        winner, trials = found(expect(folder.run(*arguments, "--json"), 0))
        assert winner == 2 and len(trials) == 3 and time.monotonic() - begun < 5, trials
        # A run that stopped after a rung and went on is that of a run without a stop.
        plain = json.loads(folder.program_says("try", *HERE, "--job", "kept/winner.yaml", "--rounds", 3, "--json"))
        assert trials[0]["digest"] == plain["digest"], (trials[0], plain)
        expect(folder.run(*HERE, "--keep", "kept", "--set", RATES, "--first", 2), 1,
               "kept has a sweep with 'first 1', not 'first 2'")


@scenario
def a_trial_that_diverges_loses(build):
    with Sweep(build) as folder:
        with open(os.path.join(folder.path, "base.yaml"), "w", encoding="utf-8") as file:
            file.write("schema: cairn/job/v1\ntrain: {weight_decay: 1}\n")  # a rate of 1000 doubles weights ten times a step
        run = folder.run(*HERE, "--keep", "kept", "--job", "base.yaml", "--set", "train.learning_rate=1000,0.01", "--first", 1,
                         "--factor", 2, "--json")
        expect(run, 0, "error: trial 1 failed and loses; kept/trial-1.log:")
        winner, trials = found(run.stdout)
        assert winner == 2, trials
        assert trials[0]["rounds"] == 2 and "loss" not in trials[1], trials


@scenario
def a_killed_sweep_finds_the_same(build):
    draw = random.Random(20261128)
    with Sweep(build) as folder:
        arguments = [*HERE, "--draw", "train.momentum=0..0.95", "--set", "server.optimizer=fedavg,fedadam", "--draws", 3,
                     "--seed", 4, "--first", 1, "--json", "--keep"]
        wanted = found(expect(folder.run(*arguments, "undisturbed"), 0))
        for _ in range(5):
            process = folder.start(*arguments, "killed")
            time.sleep(draw.uniform(0.2, 5))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=PATIENCE)
        assert found(expect(folder.run(*arguments, "killed"), 0)) == wanted


@scenario
def ctrl_c_ends_the_trial_and_the_same_command_goes_on(build):
    with Sweep(build) as folder:
        arguments = [*HERE, "--keep", "kept", "--set", "train.batch=16,64", "--first", 2, "--factor", 2]
        process = folder.start(*arguments)
        for line in process.stdout:
            if line.startswith("trial "):
                break
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130 and "the same command goes on" in errors, errors
        expect(folder.run(*arguments), 0, "the winner is trial ")


@scenario
def what_cannot_be_swept_is_one_clear_line(build):
    given = ["--keep", "kept"]
    wrong = (
        ([], 2, "nothing to try: name keys with --set or --draw"),
        (["--set", "train.learning_rat=1"], 2, "train.learning_rat: is no key of a job"),
        (["--set", "rounds.count=1,2"], 2, "rounds.count: cannot be swept"),
        (["--set", "model=a.onnx"], 2, "model: cannot be swept"),
        (["--set", "train.momentum="], 2, "train.momentum: '' is no value"),
        (["--draw", "train.momentum=0..0.9"], 2, "train.momentum: a range wants --draws N"),
        (["--log-draw", "train.momentum=0..0.9", "--draws", 2], 2, "LOW below HIGH and above 0"),
        (["--set", "train.momentum=0.1", "--draws", 244], 2, "--draws 244: expected a number from 1 to 243"),
        (["--set", "train.batch=1,2", "--factor", 1], 2, "--factor 1: expected a number from 2 to 100"),
        (["--set", "train.batch=1,2", "--first", 1000000], 2, "more than 1000000 rounds"),
        (["--set", "train.batch=1,2", "--rounds", 3], 2, "sweep takes no --rounds"),
        (["--set", "train.batch=1,0"], 3, "batch"),
        (["--set", "train.batch=0,1"], 3, "batch"),  # no trial has begun: the folder is no hindrance
        (["--set", "train.batch=1,2", "--job", "absent.yaml"], 2, "absent.yaml: No such file"),
    )
    with Sweep(build) as folder:
        for arguments, code, words in wrong:
            said = expect(folder.run(*HERE, *given, *arguments), code, words)
            assert len(said.splitlines()) == 1, said
        expect(folder.run(*HERE, "--set", "train.batch=1,2"), 2, "sweep wants --keep DIR")
        expect(folder.run("--keep", "kept", "--set", "train.batch=1,2"), 2, "sweep wants a MODEL.onnx and --data X Y")
        expect(folder.run(MODEL, "--keep", "kept", "--set", "train.batch=1,2"), 2, "try wants --data X Y")
        expect(folder.run(MODEL, "--data", "no-x.npy", "no-y.npy", "--keep", "other", "--set", "train.batch=1,2"), 1,
               "no-x.npy: cannot be read: not found")


@scenario
def nine_rates_and_two_optimizers(build):
    with Sweep(build) as folder:
        rates = "train.learning_rate=0.3,0.1,0.03,0.01,0.003,0.001,0.0003,0.0001,0.00003"
        answer = json.loads(expect(folder.run(*HERE, "--keep", "kept", "--set", rates, "--set",
                                              "server.optimizer=fedavg,fedadam", "--json"), 0))
        best = answer["trials"][0]
        assert len(answer["trials"]) == 18 and best["rounds"] == 27, answer
        rungs = [sum(trial["rung"] > number for trial in answer["trials"]) for number in range(3)]
        assert rungs == [18, 6, 2], answer
        assert best["accuracy"] > 0.9 and best["loss"] == min(t["loss"] for t in answer["trials"] if t["rung"] == best["rung"])
        return f"{best}"


if __name__ == "__main__":
    scenario.main()
