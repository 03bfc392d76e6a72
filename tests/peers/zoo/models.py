"""The zoo: models as people write them in PyTorch, each with its samples, loss and rate.

models_*.py hold further families; FAMILIES gathers all.
"""
import dataclasses
import math
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Family:
    build: Callable  # the module, in training mode
    inputs: Callable  # count -> samples
    labels: Callable  # count -> labels; with mse, targets
    loss: str = "cross-entropy"
    batch: int = 8
    rate: float = 0.05
    momentum: float = 0.9


def images(*shape):
    return lambda count: torch.randn(count, *shape)


def tokens(vocabulary, length):
    return lambda count: torch.randint(0, vocabulary, (count, length))


def classes(number, *shape):
    return lambda count: torch.randint(0, number, (count, *shape))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


class Attention(nn.Module):
    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length).bool())

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if self.causal:
            scores = scores.masked_fill(~self.mask[:, :, :length, :length], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Logits for each token; tied: the embedding is the output's weight too."""

    def __init__(self, vocabulary=40, length=32, width=48, heads=4, layers=2, tied=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, length, True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, width=48, heads=4, layers=2, number=10):
        super().__init__()
        length = (size // patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads, length, False) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, number)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Encoder(nn.Module):
    """torch.nn's own Transformer, the sequence first or the batch first."""

    def __init__(self, batch_first):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation="gelu", norm_first=batch_first,
                                           batch_first=batch_first)
        self.batch_first = batch_first
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 5)

    def forward(self, x):
        x = x if self.batch_first else x.transpose(0, 1)
        return self.head(self.encoder(x).mean(1 if self.batch_first else 0))


class UNet(nn.Module):
    """A class for each pixel; what goes down is joined to what comes up."""

    def __init__(self, channels=8, number=4):
        super().__init__()

        def pair(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.SiLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.SiLU())

        self.down1, self.down2, self.bottom = pair(1, channels), pair(channels, 2 * channels), pair(2 * channels, 4 * channels)
        self.widen2 = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, 2)
        self.widen1 = nn.ConvTranspose2d(2 * channels, channels, 2, 2)
        self.up2, self.up1 = pair(4 * channels, 2 * channels), pair(2 * channels, channels)
        self.head = nn.Conv2d(channels, number, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.bottom(F.max_pool2d(two, 2))
        x = self.up2(torch.cat([self.widen2(x), two], 1))
        return self.head(self.up1(torch.cat([self.widen1(x), one], 1)))


class Shared(nn.Module):
    """One module used three times, and a weight that is read in two ways."""

    def __init__(self):
        super().__init__()
        self.into, self.step, self.out = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 6)

    def forward(self, x):
        x = self.into(x)
        for _ in range(3):
            x = x + torch.tanh(self.step(x))
        return self.out(x @ self.step.weight)


class Activations(nn.Module):
    """Every function that torch.nn has for a layer's end, one after the other."""

    def __init__(self):
        super().__init__()
        ends = (nn.ELU(), nn.SELU(), nn.CELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.Softsign(), nn.Tanh(),
                nn.Sigmoid(), nn.LeakyReLU(0.2), nn.PReLU(), nn.Hardswish(), nn.Hardsigmoid(), nn.ReLU6(), nn.Hardtanh(),
                nn.LogSigmoid(), nn.Softmax(1), nn.LogSoftmax(1), nn.Tanhshrink())
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in ends)
        self.ends, self.out = nn.ModuleList(ends), nn.Linear(12, 5)

    def forward(self, x):
        for layer, end in zip(self.layers, self.ends):
            x = x + end(layer(x))
        return self.out(x)


FAMILIES = {
    "mlp": Family(mlp, images(1, 28, 28), classes(10), rate=0.01),
    "lenet": Family(lenet, images(1, 28, 28), classes(10)),
    "gpt": Family(GPT, tokens(40, 32), classes(40, 32)),
    "gpt-tied": Family(lambda: GPT(tied=True), tokens(40, 32), classes(40, 32)),
    "vit": Family(ViT, images(3, 16, 16), classes(10)),
    "encoder": Family(lambda: Encoder(True), images(16, 32), classes(5)),
    "encoder-sequence-first": Family(lambda: Encoder(False), images(16, 32), classes(5)),
    "unet": Family(UNet, images(1, 16, 16), lambda count: torch.randn(count, 4, 16, 16), loss="mse"),
    "shared": Family(Shared, images(20), classes(6)),
    "activations": Family(Activations, images(12), classes(5), rate=0.01),
}
