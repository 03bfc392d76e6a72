#!/usr/bin/env python3
"""The losses of a job, and those that a model computes itself, against PyTorch's.

    losses.py CAIRN_NODE
    losses.py --record FOLDER

Each case: a model is exported in TRAINING form, cairn-node trains three steps on samples in file order, and the losses
are PyTorch's within 2e-5. Cases of INSIDE have the loss in the file, where the job names it as loss.output and the labels
are inputs of the model, by name. --record keeps those of RECORDED with PyTorch's losses, for recorded.py.
"""
import copy
import inspect
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import trained  # noqa: E402

STEPS, BATCH, RATE = 3, 8, 0.05
TOLERANCE = 2e-5
CLASSES, TOKENS = 5, 6


def mlp(outputs):
    return nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, outputs))


class PerToken(nn.Module):
    """Scores of each class for each of TOKENS places; classes last or first."""

    def __init__(self, first):
        super().__init__()
        self.body, self.first = mlp(CLASSES), first

    def forward(self, x):
        y = self.body(x)
        return y.transpose(1, 2) if self.first else y


class Bytes(nn.Module):
    """Takes images as they lie in files."""

    def __init__(self):
        super().__init__()
        self.body = mlp(CLASSES)

    def forward(self, x):
        return self.body(x.float() / 255)


def floats(*shape):
    return torch.randn(STEPS * BATCH, *shape)


def classes(*shape, ignored=None):
    labels = torch.randint(0, CLASSES, (STEPS * BATCH, *shape))
    if ignored is not None:
        labels[torch.rand(labels.shape) < 0.2] = ignored
    return labels


WEIGHTS = [0.5, 1.0, 2.0, 0.25, 1.5]

# name: (module, samples, labels, loss in the profile, loss in PyTorch)
OUTSIDE = {
    "classes": (lambda: mlp(CLASSES), lambda: floats(7), classes, "cross_entropy", F.cross_entropy),
    "bytes": (Bytes, lambda: torch.randint(0, 256, (STEPS * BATCH, 7), dtype=torch.uint8), classes, "cross_entropy",
              F.cross_entropy),
    "weights": (lambda: mlp(CLASSES), lambda: floats(7), classes, f"{{kind: cross_entropy, weights: {WEIGHTS}}}",
                nn.CrossEntropyLoss(torch.tensor(WEIGHTS))),
    "ignored": (lambda: mlp(CLASSES), lambda: floats(7), lambda: classes(ignored=-100),
                "{kind: cross_entropy, ignore: -100}", F.cross_entropy),
    "smoothing": (lambda: mlp(CLASSES), lambda: floats(7), classes, "{kind: cross_entropy, smoothing: 0.1}",
                  nn.CrossEntropyLoss(label_smoothing=0.1)),
    "all of these": (lambda: mlp(CLASSES), lambda: floats(7), lambda: classes(ignored=3),
                     f"{{kind: cross_entropy, smoothing: 0.2, ignore: 3, weights: {WEIGHTS}}}",
                     nn.CrossEntropyLoss(torch.tensor(WEIGHTS), label_smoothing=0.2, ignore_index=3)),
    "tokens": (lambda: PerToken(False), lambda: floats(TOKENS, 7), lambda: classes(TOKENS, ignored=-1),
               "{kind: cross_entropy, ignore: -1}",
               lambda y, t: F.cross_entropy(y.reshape(-1, CLASSES), t.reshape(-1), ignore_index=-1)),
    "classes first": (lambda: PerToken(True), lambda: floats(TOKENS, 7), lambda: classes(TOKENS),
                      "{kind: cross_entropy, classes_first: true}", F.cross_entropy),
    "binary": (lambda: mlp(3), lambda: floats(7), lambda: torch.rand(STEPS * BATCH, 3).round(), "binary_cross_entropy",
               F.binary_cross_entropy_with_logits),
    "mse": (lambda: mlp(3), lambda: floats(7), lambda: floats(3), "mse", F.mse_loss),
    "l1": (lambda: mlp(3), lambda: floats(7), lambda: floats(3), "l1", F.l1_loss),
    "huber": (lambda: mlp(3), lambda: floats(7), lambda: floats(3), "{kind: huber, delta: 0.5}",
              nn.HuberLoss(delta=0.5)),
}


class Inside(nn.Module):
    """A body, and a loss of its output, the other inputs and its parameters."""

    def __init__(self, body, loss, scores=False):
        super().__init__()
        self.body, self.loss, self.scores = body, loss, scores
        self.spread = nn.Parameter(torch.tensor(0.3))

    def forward(self, x, *others):
        y = self.body(x)
        loss = self.loss(self, y, x, *others)
        return (y, loss) if self.scores else loss


def both_tasks(model, y, x, label, value):
    return (F.cross_entropy(y[:, :CLASSES], label) + 0.5 * (y[:, CLASSES:] - value).pow(2).mean()
            + 0.01 * model.body[0].weight.pow(2).sum())


def learned_balance(model, y, x, value):
    return torch.exp(-model.spread) * (y - value).abs().mean() + model.spread


def summed(model, y, x, value):
    """As a variational autoencoder has it."""
    wrong = (y - value).pow(2).sum()
    return (wrong - 0.5 * torch.sum(1 + y - y.exp())) / x.shape[0]


def small(y):
    return 0.1 * y.pow(2).mean()


def entropy(**how):
    """Cross-entropy by these arguments; the weights of the classes, if wanted, are a Constant node."""
    def loss(model, y, x, t):
        more = {"weight": torch.tensor(WEIGHTS)} if how.get("weighted") else {}
        return F.cross_entropy(y, t, **more, **{key: value for key, value in how.items() if key != "weighted"})
    return loss


def masked(model, y, x, t):
    """As focal losses and losses of sequences weigh each label by themselves."""
    each = F.cross_entropy(y, t, reduction="none", ignore_index=3)
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def padded(model, y, x, keep):
    """Norms, deviations and distances of rows of which some are zeros, as padding is."""
    y = y * keep
    return (y.norm(dim=1) + y.std(dim=1) + (F.normalize(y, dim=1) - x[:, :3]).pow(2).sum(1)
            + F.cosine_similarity(y, x[:, :3], dim=1) + torch.linalg.vector_norm(y, ord=3, dim=1)).mean()


def shifted(model, y, x, t):
    return F.cross_entropy(y[:, :, :-1], t[:, 1:]) + small(y)


# name: (body, loss, x, other inputs). PyTorch 1 cannot export its own mse_loss and the like.
INSIDE = {
    "weights in a Constant": (lambda: mlp(CLASSES), entropy(weighted=True), lambda: floats(7),
                              lambda: {"label": classes()}),
    "weights and ignored labels": (lambda: PerToken(True), entropy(weighted=True, ignore_index=2),
                                   lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS)}),
    "a term with ignored labels": (lambda: PerToken(True),
                                   lambda m, y, x, t: entropy(ignore_index=0)(m, y, x, t) + small(y),
                                   lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS)}),
    "a term with padded labels": (lambda: PerToken(True), lambda m, y, x, t: entropy()(m, y, x, t) + small(y),
                                  lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS, ignored=-100)}),
    "half of a cross-entropy": (lambda: PerToken(False),
                                lambda m, y, x, t: .5 * F.cross_entropy(y.reshape(-1, CLASSES), t.reshape(-1),
                                                                        ignore_index=0),
                                lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS)}),
    "a term with weights": (lambda: PerToken(True),
                            lambda m, y, x, t: .5 * entropy(weighted=True, ignore_index=1)(m, y, x, t) + small(y),
                            lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS)}),
    "a term of shifted labels": (lambda: PerToken(True), shifted, lambda: floats(TOKENS, 7),
                                 lambda: {"label": classes(TOKENS)}),
    "each label by itself": (lambda: PerToken(True), masked, lambda: floats(TOKENS, 7),
                             lambda: {"label": classes(TOKENS)}),
    "each label, weighted": (lambda: mlp(CLASSES),
                             lambda m, y, x, t: entropy(weighted=True, reduction="none")(m, y, x, t).mean(),
                             lambda: floats(7), lambda: {"label": classes()}),
    "a sum of cross-entropies": (lambda: mlp(CLASSES), entropy(reduction="sum"), lambda: floats(7),
                                 lambda: {"label": classes(ignored=-100)}),
    "a sum over the batch": (lambda: mlp(3), lambda m, y, x, t: .1 * (y - t).pow(2).sum(), lambda: floats(7),
                             lambda: {"value": floats(3)}),
    "a mean and a sum": (lambda: mlp(3), lambda m, y, x, t: (y - t).pow(2).mean() - .02 * y.abs().sum(),
                         lambda: floats(7), lambda: {"value": floats(3)}),
    "rows of zeros": (lambda: mlp(3), padded, lambda: floats(7),
                      lambda: {"keep": (torch.arange(STEPS * BATCH) % 3 > 0).float().reshape(-1, 1)}),
    "a sum and a weight": (lambda: mlp(3),
                           lambda m, y, x, t: (y - t).pow(2).sum() + m.body[0].weight.pow(2).sum(),
                           lambda: floats(7), lambda: {"value": floats(3)}),
    "its own cross-entropy": (lambda: mlp(CLASSES), lambda m, y, x, t: F.cross_entropy(y, t), lambda: floats(7),
                              lambda: {"label": classes(ignored=-100)}),
    "of each token": (lambda: PerToken(False),
                      lambda m, y, x, t: F.cross_entropy(y.view(-1, CLASSES), t.view(-1), ignore_index=-1),
                      lambda: floats(TOKENS, 7), lambda: {"label": classes(TOKENS, ignored=-1)}),
    "log-softmax and nll": (lambda: mlp(CLASSES), lambda m, y, x, t: F.nll_loss(F.log_softmax(y, 1), t),
                            lambda: floats(7), lambda: {"label": classes()}),
    "two tasks": (lambda: mlp(CLASSES + 2), both_tasks, lambda: floats(7),
                  lambda: {"label": classes(), "value": floats(2)}),
    "learned balance": (lambda: mlp(3), learned_balance, lambda: floats(7), lambda: {"value": floats(3)}),
    "sums": (lambda: mlp(3), summed, lambda: floats(7), lambda: {"value": floats(3)}),
}


# What is no mean of a number for each sample: the line says so.
REFUSED = {
    "the root of a mean": lambda m, y, x, t: (y - t).pow(2).mean().sqrt(),
    "a mean times a mean": lambda m, y, x, t: (y - t).pow(2).mean() * y.abs().mean(),
    "a sum times a mean": lambda m, y, x, t: (y - t).pow(2).mean() * y.abs().sum(),
}


def export(model, samples, path, inputs, outputs):
    more = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(copy.deepcopy(model), samples, str(path), training=torch.onnx.TrainingMode.TRAINING,
                          opset_version=17, do_constant_folding=False, input_names=inputs, output_names=outputs,
                          dynamic_axes={name: {0: "batch"} for name in inputs}, **more)


def torch_losses(model, loss_of, samples):
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(*(part[step * BATCH:(step + 1) * BATCH] for part in samples))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(node, name, path, data, loss, wanted):
    found, problem = trained.losses(node, path, data, loss, BATCH, RATE)
    if not problem and numpy.allclose(found, wanted, rtol=TOLERANCE):
        print(f"{name}: {wanted[0]:.4f} to {wanted[-1]:.4f}")
        return []
    return [f"{name}: {problem or f'losses {found}, PyTorch has {wanted}'}"]


def outside(node, name, folder):
    build, samples, labels, loss, theirs = OUTSIDE[name]
    model, x, t = build(), samples(), labels()
    numpy.save(folder / "x.npy", x.numpy())
    numpy.save(folder / "t.npy", t.numpy())
    export(model, x[:2], folder / "model.onnx", ["x"], ["y"])
    wanted = torch_losses(model, lambda x, t: theirs(model(x), t), (x, t))
    return compare(node, name, folder / "model.onnx", f"inputs: {folder}/x.npy, labels: {folder}/t.npy", loss, wanted)


def write_inside(name, scores, folder, stem=""):
    """The files of a case: the names of its inputs and PyTorch's losses."""
    body, loss, samples, others = INSIDE[name]
    model = Inside(body(), loss)
    named = {"x": samples(), **others()}
    for key, value in named.items():
        numpy.save(folder / f"{stem}{key}.npy", value.numpy())
    parts = tuple(named.values())
    model.scores = scores
    export(model, tuple(part[:2] for part in parts), folder / f"{stem}model.onnx", list(named),
           ["y", "loss"] if scores else ["loss"])
    model.scores = False
    return list(named), torch_losses(model, model, parts)


# Cases that are tested without PyTorch too, by the names of their files.
RECORDED = {
    "constant-weights": "weights in a Constant",
    "ignored-term": "a term with ignored labels",
    "padded-term": "a term with padded labels",
    "half-term": "half of a cross-entropy",
    "weighted-term": "a term with weights",
    "each-label": "each label by itself",
    "summed-labels": "a sum of cross-entropies",
    "batch-sum": "a sum over the batch",
    "mean-and-sum": "a mean and a sum",
    "rows-of-zeros": "rows of zeros",
}


def record(folder):
    lines = []
    for stem, name in RECORDED.items():
        named, wanted = write_inside(name, False, folder, f"{stem}-")
        lines.append(f"{stem} output:loss:{','.join(named)} {BATCH} {RATE} " + " ".join(f"{loss:.8g}" for loss in wanted))
    (folder / "expected.txt").write_text("\n".join(lines) + "\n")


def inside(node, name, scores, folder):
    named, wanted = write_inside(name, scores, folder)
    data = "inputs: {" + ", ".join(f"{key}: {folder}/{key}.npy" for key in named) + "}"
    return compare(node, f"{name}{', scores too' if scores else ''}", folder / "model.onnx", data, "{output: loss}", wanted)


def refused(node, name, folder):
    model, parts = Inside(mlp(3), REFUSED[name]), (floats(7), floats(3))
    for key, value in zip("xt", parts):
        numpy.save(folder / f"{key}.npy", value.numpy())
    export(model, tuple(part[:2] for part in parts), folder / "model.onnx", ["x", "t"], ["loss"])
    found, problem = trained.losses(node, folder / "model.onnx", f"inputs: {{x: {folder}/x.npy, t: {folder}/t.npy}}",
                                    "{output: loss}", BATCH, RATE)
    if problem and "may only be added" in problem:
        print(f"{name}: refused")
        return []
    return [f"{name}: {problem or found}"]


def main():
    node, wrong = sys.argv[1], []
    torch.manual_seed(11)
    torch.set_num_threads(1)
    if node == "--record":
        record(pathlib.Path(sys.argv[2]))
        return 0
    with tempfile.TemporaryDirectory(prefix="cairn-losses-") as made:
        folder = pathlib.Path(made)
        for name in OUTSIDE:
            wrong += outside(node, name, folder)
        for name in INSIDE:
            for scores in (False, True):
                wrong += inside(node, name, scores, folder)
        for name in REFUSED:
            wrong += refused(node, name, folder)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
