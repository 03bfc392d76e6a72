"""`cairn-node normalize` puts the scaling of its input into a model.

    input_scaling.py BUILD [SCENARIO...]
"""

import os

from bad_input import expect, write_train
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
                assert f"64 {by}s over 373 samples: means " in said or by == "channel", said
                cluster.set_model("copy.onnx")
                assert train(cluster, "held_out: 0 %") == wanted, f"{model} by {by}: other weights"


@scenario
def an_exported_model_has_the_scaling(build):
    with Cluster(build, rounds=1, local_steps=5) as cluster:
        normalize(cluster, f"{DIGITS}/digits-cnn.onnx", IMAGES, "copy.onnx")
        cluster.set_model("copy.onnx")
        train(cluster, "held_out: 10 %")
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
