#!/usr/bin/env python3
"""Exports a small character model, char-gpt.onnx, beside this script: one block, a context of 32 bytes.

Needs PyTorch. TRAINING mode without constant folding keeps the parameter names of the module.
"""
import math
import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
VOCABULARY, LENGTH, WIDTH, HEADS = 128, 32, 48, 4


class CharGpt(nn.Module):
    """Logits of the next byte after each byte of a text."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("later", torch.ones(LENGTH, LENGTH).triu(1).bool())
        nn.init.normal_(self.tokens.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.1)

    def attend(self, x):
        batch = x.shape[0]
        q, k, v = (part.reshape(batch, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.qkv(x).split(WIDTH, 2))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)).masked_fill(self.later, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, LENGTH, WIDTH))

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(LENGTH))
        x = x + self.attend(self.norm1(x))
        x = x + self.narrow(torch.relu(self.wide(self.norm2(x))))
        return self.head(self.norm3(x))


if __name__ == "__main__":
    torch.manual_seed(1)
    model = CharGpt().train()
    torch.onnx.export(model, torch.zeros(1, LENGTH, dtype=torch.long), str(HERE / "char-gpt.onnx"),
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17,
                      input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}})
    print(sum(p.numel() for p in model.parameters()), "parameters")
