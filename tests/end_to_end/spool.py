"""Shards that appear in a folder: from the next round on, the same after a stop, damaged ones left out.

    spool.py BIN
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

from cluster import DIGITS, ENDLESS, Cluster, read_npy, write_npy

PROFILE = f"""schema: cairn/site/v1
state: %s
device: cpu
data:
  d: {{inputs: "%s/*.npz:images", labels: "%s/*.npz:labels", held_out: test}}
  test: {{inputs: {DIGITS}/held-out-images.npy, labels: {DIGITS}/held-out-labels.npy}}
job:
  name: d
  model: {DIGITS}/digits-cnn.onnx
  data: {{set: d, scale: 0.0625, normalize: feature}}
  train: {{batch: 16, local_steps: 5, learning_rate: 0.05, optimizer: adam}}
  rounds: {{count: 4}}
"""


def put_shard(folder, name, begin, end):
    """Samples of a board as a compressed archive that appears with its name only when it is complete."""
    path = os.path.join(folder, name)
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as archive:
        for part in ("images", "labels"):
            header, samples = read_npy(os.path.join(DIGITS, f"board-1-{part}.npy"))
            write_npy(path + ".npy", header, samples[begin:end])
            archive.write(path + ".npy", f"{part}.npy")
            os.unlink(path + ".npy")
    os.rename(path + ".part", path + ".npz")


def train(node, directory, state, *options):
    with open(os.path.join(directory, "site.yaml"), "w") as file:
        file.write(PROFILE % (state, f"spool-{state}", f"spool-{state}"))
    result = subprocess.run([node, "train", "--threads", "2", "--save", f"{state}.safetensors", "--trace", "t.csv",
                             *options, "site.yaml"], cwd=directory, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    with open(os.path.join(directory, "t.csv")) as file:
        return [line.split(",")[:3] for line in file.read().splitlines()[1:]], result.stderr


def a_round_keeps_its_shards(node, directory):
    steps = {}
    for state, ends in (("whole", (10, 20)), ("parts", (3, 7, 12, 20))):
        folder = os.path.join(directory, f"spool-{state}")
        os.mkdir(folder)
        put_shard(folder, "a", 0, 100)
        put_shard(folder, "c", 100, 150)
        steps[state], told = [], ""
        for end in ends:
            more, log = train(node, directory, state, "--steps", str(end))
            steps[state] += more
            told += log
            if end in (7, 10):  # within round 2, or at its end: it comes with round 3
                put_shard(folder, "b", 150, 300)
                with open(os.path.join(folder, "damaged.npz"), "wb") as file:
                    file.write(b"PK not much more")
                with open(os.path.join(folder, "d.npz.part"), "wb") as file:
                    file.write(b"PK")
        assert "round 3: 300 samples to train on" in told, told
        assert "damaged.npz:images: not a NumPy archive" in told, told
        assert "the shard 'damaged' is left out" in told, told
        assert ".part" not in told, told
    assert len(steps["whole"]) == 20 and steps["whole"] == steps["parts"], steps
    weights = [open(os.path.join(directory, f"{state}.safetensors"), "rb").read() for state in steps]
    assert weights[0] == weights[1], "other weights after stops"
    os.unlink(os.path.join(directory, "spool-parts", "b.npz"))
    shutil.rmtree(os.path.join(directory, "parts"))
    others, _ = train(node, directory, "parts")
    assert others != steps["whole"], "the shard made no difference"


def boards_of_a_group_find_shards_while_they_run(build):
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=ENDLESS, local_steps=40, quorum=1) as cluster:
        spool = cluster.path("spool")
        os.mkdir(spool)
        put_shard(spool, "first", 0, 120)
        with open(cluster.path("board-1.yaml")) as file:
            text = file.read()
        text = text[: text.index("data:")] + 'data: {digits: {inputs: "spool/*.npz:images", labels: "spool/*.npz:labels"}}\n'
        cluster.write("board-1.yaml", text)
        cluster.start_all()
        cluster.wait_for_line("board-1", "round 2: update")
        put_shard(spool, "second", 120, 373)
        cluster.wait_for_line("board-1", ": 336 samples to train on")
        cluster.kill("board-1")
        cluster.start("board-1")
        cluster.end_run()
        cluster.wait_for_end(90)
        assert cluster.current_model("board-1") == cluster.current_model("board-2")
        print(f"held-out accuracy {cluster.accuracy()}")


def main(build):
    build = os.path.abspath(build)
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as directory:
        a_round_keeps_its_shards(os.path.join(build, "cairn-node"), directory)
    boards_of_a_group_find_shards_while_they_run(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
