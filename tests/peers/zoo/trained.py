"""Trains a model file for a few steps with cairn-node, as a user would. Standard library only."""
import csv
import pathlib
import subprocess
import tempfile

PROFILE = """schema: cairn/site/v1
state: state
device: cpu
threads: 1
data:
  samples: {{{data}}}
job:
  name: forms
  model: {model}
  loss: {loss}
  data: {{set: samples, held_out: 0 %}}
  train: {{batch: {batch}, local_steps: {steps}, learning_rate: {rate}, momentum: {momentum}, bn: {bn}, freeze: {freeze}}}
  rounds: {{count: 1}}
"""


def command(node, *words):
    """Exit status and all that was said."""
    done = subprocess.run([str(node), *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=300)
    return done.returncode, done.stdout


def first_error(text):
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines() or ["nothing was said"]
    return lines[0].split("error: ")[-1].strip()


def losses(node, model, data, loss, batch, rate, momentum=0.9, bn="model", steps=3,
           freeze=()):
    """The losses of the first steps on samples in file order, or a line that says why there are none.

    data and loss are what the profile says of them.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-forms-") as folder:
        site, trace = pathlib.Path(folder, "site.yaml"), pathlib.Path(folder, "trace.csv")
        site.write_text(PROFILE.format(model=model, data=data, loss=loss, batch=batch, rate=rate,
                                       momentum=momentum, bn=bn, steps=steps,
                                       freeze=list(freeze) or "none"))
        status, text = command(node, "check", model)
        if status:
            return None, "check: " + first_error(text)
        status, text = command(node, "train", "--steps", steps, "--order", "sequential", "--trace", trace, site)
        if status:
            return None, "train: " + first_error(text)
        with open(trace, newline="") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)], None
