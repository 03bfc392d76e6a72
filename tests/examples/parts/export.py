#!/usr/bin/env python3
"""Exports model.onnx, a small Transformer with an encoder and a decoder. Needs PyTorch; Cairn trains the file without.

A sample is 16 numbers: 8 that are read, and behind them what was written before each of the 8 answers. TRAINING mode
without constant folding keeps the parameter names of the module, which the job's cut names.
"""
import inspect
import math
import pathlib

import torch
from torch import nn

LENGTH, WORDS, WIDTH, HEADS = 8, 16, 24, 2


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.causal = causal

    def forward(self, x, memory):
        q, k, v = (part.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in (self.query(x), self.key(memory), self.value(memory)))
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        if self.causal:
            scores = scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, LENGTH, WIDTH))


class Layer(nn.Module):
    """Of an encoder; with `reads` of a decoder, which also looks at what the encoder made."""

    def __init__(self, reads):
        super().__init__()
        self.norm1, self.own = nn.LayerNorm(WIDTH), Attention(causal=reads)
        self.norm2, self.read = (nn.LayerNorm(WIDTH), Attention(causal=False)) if reads else (None, None)
        self.norm3 = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, memory=None):
        normal = self.norm1(x)
        x = x + self.own(normal, normal)
        if self.read is not None:
            x = x + self.read(self.norm2(x), memory)
        return x + self.narrow(torch.relu(self.wide(self.norm3(x))))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.words.weight, std=0.3)
        nn.init.normal_(self.places.weight, std=0.3)

    def forward(self, x):
        return self.words(x) + self.places(torch.arange(LENGTH))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = Embedding(), Embedding()
        self.encoder = nn.ModuleList(Layer(reads=False) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(reads=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        memory = self.source(x[:, :LENGTH])
        for layer in self.encoder:
            memory = layer(memory)
        y = self.target(x[:, LENGTH:])
        for layer in self.decoder:
            y = layer(y, memory)
        return self.head(self.norm(y))


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Transformer().train()
    more = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(model, torch.zeros(1, 2 * LENGTH, dtype=torch.long),
                      str(pathlib.Path(__file__).with_name("model.onnx")),
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17,
                      input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}}, **more)
    print(sum(p.numel() for p in model.parameters()), "parameters")
