"""`cairn-node normalize` puts the scaling of its input into a model.

    input_scaling.py BUILD [SCENARIO...]
"""

import os
import re
import struct

from bad_input import expect, npy, write_train
from cluster import DIGITS, Cluster
from scenarios import Scenarios

IMAGES = f"{DIGITS}/board-1-images.npy"
SCALED = "scale: 0.0625, mean: 0, held_out: 10 %"  # how the job of these tests has it

scenario = Scenarios()


def normalize(cluster, *arguments, check=True):
    return cluster.command(cluster.node, "normalize", *arguments, check=check)


def train(cluster, data):
    """The weights after a training with these keys of data."""
    write_train(cluster, "state/alone")
    cluster.edit("train.yaml", (SCALED, data))
    cluster.command(cluster.node, "train", "--anew", "--save", "trained.safetensors", "--training", "alone.yaml")
    with open(cluster.path("trained.safetensors"), "rb") as file:
        return file.read()


@scenario
def the_copy_trains_to_the_bits_of_data_normalize(build):
    for model in ("digits-cnn.onnx", "digits-mlp.onnx"):
        for by in ("feature", "channel"):
            with Cluster(build, rounds=2, local_steps=10, model=model) as cluster:
                wanted = train(cluster, f"held_out: 0 %, normalize: {by}")
                assert train(cluster, "held_out: 0 %") != wanted, "nothing was normalized"
                said = normalize(cluster, "--by", by, os.path.join(DIGITS, model), IMAGES, "copy.onnx").stdout
                wanted_text = "64 features over 373 samples: means 0 to " if by == "feature" else "1 channel over 373 samples: mean 4.97, "
                assert wanted_text in said, said
                cluster.set_model("copy.onnx")
                assert train(cluster, "held_out: 0 %") == wanted, f"{model} by {by}: other weights"


@scenario
def an_exported_model_has_the_scaling(build):
    with Cluster(build, rounds=1, local_steps=5) as cluster:
        normalize(cluster, f"{DIGITS}/digits-cnn.onnx", IMAGES, "copy.onnx")
        cluster.set_model("copy.onnx")
        train(cluster, "held_out: 10 %")
        said = cluster.command(cluster.node, "check", "alone.yaml")
        assert "the model scales its input already" not in said.stderr, said.stderr
        cluster.edit("train.yaml", ("held_out: 10 %", "held_out: 10 %, scale: 0.5"))
        expect(cluster.command(cluster.node, "check", "alone.yaml"), 0, "warning: the model scales its input already")
        said = normalize(cluster, "state/alone/model.current.onnx", IMAGES, "twice.onnx", check=False)
        expect(said, 1, "input 'input': it is normalized in the model already")
        assert not os.path.exists(cluster.path("twice.onnx"))


@scenario
def what_differs_from_board_to_board_is_warned_of(build):
    with Cluster(build) as cluster:
        warning = "data.normalize: each board and the central set scale by their own samples"
        expect(cluster.command(cluster.aggregator, "check", "--profile-only", "gateway.yaml"), 0)
        cluster.edit("job.yaml", (SCALED, "normalize: feature"))
        expect(cluster.command(cluster.aggregator, "check", "--profile-only", "gateway.yaml"), 0, warning, "cairn-node normalize")


@scenario
def constant_features_are_told_and_not_blown_up(build):
    """What varies by rounding only is constant, and what is small is not."""
    with Cluster(build) as cluster:
        def columns(i):
            return [37.2, 1e-7 * (i % 7), 1000000.3, i % 5] + [0.1 * (i % (k + 2)) for k in range(60)]
        values = [value for i in range(2000) for value in columns(i)]
        npy(cluster.path("x.npy"), "<f4", (2000, 64), struct.pack(f"<{len(values)}f", *values))
        said = normalize(cluster, f"{DIGITS}/digits-mlp.onnx", "x.npy", "copy.onnx").stdout
        assert "2 of them are constant in these samples: only the mean is taken off\n" in said, said
        least = float(re.search("deviations ([0-9.e-]+) to", said).group(1))
        assert 1e-7 < least < 3e-7, said
        npy(cluster.path("one.npy"), "<f4", (1, 64), struct.pack("<64f", *values[:64]))
        expect(normalize(cluster, f"{DIGITS}/digits-mlp.onnx", "one.npy", "one.onnx", check=False), 1, "one sample has no deviation")


@scenario
def bad_input_is_one_clear_line(build):
    with Cluster(build) as cluster:
        model = f"{DIGITS}/digits-cnn.onnx"
        cluster.write("there.onnx", "")
        for words, arguments in (
            (("no.onnx: error: not found",), ("no.onnx", IMAGES, "copy.onnx")),
            (("no.npy", "not found"), (model, "no.npy", "copy.onnx")),
            (("a sample has the shape (); the model wants (1, 8, 8)",), (model, f"{DIGITS}/board-1-labels.npy", "copy.onnx")),
            (("there.onnx: File exists",), (model, IMAGES, "there.onnx")),
            (("is no array of float32 with 2 dimensions or more",), (f"{DIGITS}/../text/char-gpt.onnx", IMAGES, "copy.onnx")),
        ):
            said = normalize(cluster, *arguments, check=False)
            expect(said, 1, *words)
            assert len(said.stderr.splitlines()) == 1 and not said.stdout, said
            assert not os.path.exists(cluster.path("copy.onnx")), arguments
        expect(normalize(cluster, "--by", "sample", model, IMAGES, "copy.onnx", check=False), 2, "neither feature nor channel")
        expect(normalize(cluster, model, IMAGES, check=False), 2, "Usage")


if __name__ == "__main__":
    scenario.main()
