"""Networks as users bring them: none of them is in the zoo, and each is written in another habit of PyTorch.

NETWORKS has each with what it reads, by name, and what it is trained for; users.py trains them.
"""
import dataclasses
import math
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from models import classes, images, tokens


@dataclasses.dataclass
class Network:
    build: Callable
    inputs: dict  # name: count -> samples
    labels: Callable = None  # count -> labels; without, the module's result is its loss
    loss: str = "cross_entropy"
    rate: float = 0.02
    freeze: tuple = ()  # buffers, which a TRAINING export does not tell from parameters
    joined: bool = False  # the newer exporter makes one weight of two that are multiplied


# Images.


class Fire(nn.Module):
    """SqueezeNet."""

    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.squeeze(x))
        return torch.cat([self.relu(self.one(x)), self.relu(self.three(x))], 1)


def squeezenet():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(16, 4, 8),
                         Fire(16, 4, 16), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(32, 8, 16), nn.Dropout(0.0),
                         nn.Conv2d(32, 5, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten())


class Shuffled(nn.Module):
    """A unit of ShuffleNet V2: halves, and channels mixed by a view."""

    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.body(changed)), 1)
        count, channels, height, width = x.size()
        x = x.view(count, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        return x.view(count, -1, height, width)


class ShuffleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.units = nn.Conv2d(3, 16, 3, 2, 1), nn.Sequential(Shuffled(16), Shuffled(16))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.units(self.stem(x)).mean([2, 3]))


class Excited(nn.Module):
    """A block of EfficientNet, or with other activations of MobileNetV3."""

    def __init__(self, channels, kernel, act, gate):
        super().__init__()
        wide = 4 * channels
        self.widen = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide, eps=1e-3), act())
        self.depth = nn.Sequential(nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide, bias=False),
                                   nn.BatchNorm2d(wide, momentum=0.01), act())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, channels, 1), act(),
                                     nn.Conv2d(channels, wide, 1), gate())
        self.narrow = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.depth(self.widen(x))
        return x + self.narrow(y * self.squeeze(y))


def excited(act, gate):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Excited(8, 3, act, gate), Excited(8, 5, act, gate),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(8, 5))


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image, by hand."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * ((x - mean) / torch.sqrt(spread + 1e-6)) + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(0.1 * torch.ones(width))

        def forward(self, x):
            y = self.norm(self.depth(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)

    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), ChannelNorm(width))
        self.blocks = nn.Sequential(self.Block(width), self.Block(width))
        self.down = nn.Sequential(ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2))
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 5)

    def forward(self, x):
        return self.head(self.norm(self.down(self.blocks(self.stem(x))).mean([-2, -1])))


class Dense(nn.Module):
    """DenseNet: each layer reads all that came before."""

    def __init__(self, channels=8, growth=4):
        super().__init__()
        self.stem, self.layers = nn.Conv2d(3, channels, 3, padding=1), nn.ModuleList()
        for i in range(4):
            width = channels + i * growth
            self.layers.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, growth, 3, padding=1)))
        width = channels + 4 * growth
        self.transition = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(width // 2, 5)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = self.transition(torch.cat(features, 1))
        return self.head(F.adaptive_avg_pool2d(x, (1, 1)).squeeze(-1).squeeze(-1))


class Style(nn.Module):
    """Reflected borders, instance and group normalization, pixel shuffle and a bilinear skip."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
                                  nn.Conv2d(8, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.PReLU(8), nn.ReplicationPad2d(1),
                                  nn.Conv2d(8, 16, 3), nn.InstanceNorm2d(16), nn.LeakyReLU(0.1))
        self.up = nn.Sequential(nn.PixelShuffle(2), nn.Conv2d(4, 3, 3, padding=1))

    def forward(self, x):
        skip = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.up(self.body(x))) + 0.5 * skip


class Pyramid(nn.Module):
    """Dilated convolutions beside a pooled branch (ASPP), brought to the input's size."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.branches = nn.ModuleList([nn.Conv2d(8, 6, 1), *(nn.Conv2d(8, 6, 3, padding=d, dilation=d) for d in (2, 3))])
        self.pooled, self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 6, 1)), nn.Conv2d(24, 4, 1)

    def forward(self, x):
        size, y = x.shape[-2:], F.silu(self.stem(x))
        pooled = F.interpolate(self.pooled(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.head(F.silu(torch.cat([*(branch(y) for branch in self.branches), pooled], 1)))
        return F.interpolate(y, size=size, mode="bilinear", align_corners=True)


class Alex(nn.Module):
    """Local response normalization, a last window of the pooling that is cut off, GLU."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(), nn.LocalResponseNorm(3), nn.MaxPool2d(3, 2),
                                      nn.Conv2d(8, 8, 3, padding=1), nn.Softplus(), nn.AvgPool2d(3, ceil_mode=True))
        self.head = nn.Sequential(nn.Linear(72, 24), nn.GLU(), nn.Linear(12, 5))

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), start_dim=1))


def video():
    return nn.Sequential(nn.Conv3d(2, 8, (3, 3, 5), (1, 2, 1), (1, 0, 2)), nn.BatchNorm3d(8), nn.ELU(),
                         nn.MaxPool3d(3, 2, 1), nn.Conv3d(8, 8, 2, dilation=(1, 2, 1), groups=4), nn.SiLU(),
                         nn.AvgPool3d((2, 1, 2), 1, (1, 0, 1)), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 5))


class Mixer(nn.Module):
    class Block(nn.Module):
        def __init__(self, places, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.across = nn.Sequential(nn.Linear(places, 24), nn.GELU(approximate="tanh"), nn.Linear(24, places))
            self.along = nn.Sequential(nn.Linear(width, 40), nn.GELU(), nn.Linear(40, width))

        def forward(self, x):
            x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.along(self.norm2(x))

    def __init__(self, width=16):
        super().__init__()
        self.patches, self.norm, self.head = nn.Linear(48, width), nn.LayerNorm(width), nn.Linear(width, 5)
        self.blocks = nn.Sequential(self.Block(16, width), self.Block(16, width))

    def forward(self, x):
        x = x.unfold(2, 4, 4).unfold(3, 4, 4)  # patches of 4 x 4
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], 16, 48)
        return self.head(self.norm(self.blocks(self.patches(x))).mean(dim=1))


class Windows(nn.Module):
    """Swin: attention in windows that are shifted by a roll, with a bias for each distance."""

    def __init__(self, size=8, window=4, width=16, heads=2):
        super().__init__()
        self.size, self.window, self.heads = size, window, heads
        self.embed, self.norm = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(0.1 * torch.randn((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        n = self.window
        y = torch.roll(self.norm(x), shifts=(-n // 2, -n // 2), dims=(1, 2))
        y = y.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, n * n, c)
        q, k, v = self.qkv(y).reshape(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1).contiguous()
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c))
        y = y.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, c)
        x = x + torch.roll(y, shifts=(n // 2, n // 2), dims=(1, 2))
        return self.head(x.flatten(1, 2).mean(1))


# Series.


class Causal(nn.Module):
    """A block of a TCN: weights as direction and length, borders cut off behind."""

    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.cut = 2 * dilation
        self.one = parametrizations.weight_norm(nn.Conv1d(inputs, outputs, 3, padding=self.cut, dilation=dilation))
        self.two = parametrizations.weight_norm(nn.Conv1d(outputs, outputs, 3, padding=self.cut, dilation=dilation))
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x):
        y = F.relu(self.one(x)[:, :, :-self.cut].contiguous())
        y = F.relu(self.two(y)[:, :, :-self.cut].contiguous())
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Causal(6, 8, 1), Causal(8, 8, 2), Causal(8, 8, 4))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


class WaveNet(nn.Module):
    """Gates, residuals and the sum of what every layer skips, padded in front."""

    def __init__(self, width=8):
        super().__init__()
        self.start = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))
        self.stays = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, x):
        x, skips = self.start(x), 0
        for i, (gate, skip, stay) in enumerate(zip(self.gates, self.skips, self.stays)):
            a, b = gate(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            skips, x = skips + skip(y), x + stay(y)
        return self.end(skips)


class Translator(nn.Module):
    """Sequence to sequence: a GRU reads, another one goes on from its state and looks back."""

    def __init__(self, words=20, width=12):
        super().__init__()
        self.read, self.write = nn.Embedding(words, width, padding_idx=0), nn.Embedding(words, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.ask, self.out = nn.Linear(width, width, bias=False), nn.Linear(2 * width, words)

    def forward(self, source, target):
        seen, state = self.encoder(self.read(source))
        y, _ = self.decoder(self.write(target), state)
        shares = torch.bmm(self.ask(y), seen.transpose(1, 2)).softmax(dim=-1)
        return self.out(torch.tanh(torch.cat([y, torch.bmm(shares, seen)], dim=-1)))


class Cells(nn.Module):
    """LSTMCell and GRUCell in a loop of Python."""

    def __init__(self, width=8):
        super().__init__()
        self.width, self.one, self.two = width, nn.LSTMCell(4, width), nn.GRUCell(width, width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.width)
        c, g, outputs = torch.zeros_like(h), torch.zeros_like(h), []
        for step in range(x.shape[1]):
            h, c = self.one(x[:, step], (h, c))
            g = self.two(h, g)
            outputs.append(g)
        return self.head(torch.stack(outputs, dim=1).max(dim=1)[0])


class ConvCells(nn.Module):
    """A convolutional LSTM over frames."""

    def __init__(self, width=6):
        super().__init__()
        self.width, self.gates, self.head = width, nn.Conv2d(1 + width, 4 * width, 3, padding=1), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        h = c = x.new_zeros(x.size(0), self.width, *x.shape[-2:])
        for frame in x.unbind(1):
            i, f, o, g = torch.split(self.gates(torch.cat([frame, h], 1)), self.width, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class Basis(nn.Module):
    """N-BEATS: each block explains a part of the past and adds to the forecast. The series is normalized first."""

    def __init__(self, past=16, future=4):
        super().__init__()
        self.past = past
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(past, 24), nn.ReLU(), nn.Linear(24, past + future))
                                    for _ in range(3))

    def forward(self, x):
        mean, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True) + 1e-5
        rest, forecast = (x - mean) / spread, None
        for block in self.blocks:
            back, ahead = block(rest).split([self.past, 4], dim=-1)
            rest, forecast = rest - back, ahead if forecast is None else forecast + ahead
        return forecast * spread + mean


# Tokens, sets and pairs.


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Llama(nn.Module):
    """Rotated places, RMS normalization, gated layers, and fewer heads for keys than for queries."""

    class Block(nn.Module):
        def __init__(self, width, heads, shared):
            super().__init__()
            self.heads, self.shared, self.part = heads, shared, width // heads
            self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
            self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * self.part, bias=False)
            self.o = nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
            self.down = nn.Linear(2 * width, width, bias=False)

        def attend(self, x, cos, sin, mask):
            def rotated(y):
                one, two = y.chunk(2, dim=-1)
                return y * cos + torch.cat((-two, one), dim=-1) * sin

            b, t, _ = x.shape
            q = rotated(self.q(x).view(b, t, self.heads, self.part).transpose(1, 2))
            k, v = (y.view(b, t, self.shared, self.part).transpose(1, 2) for y in self.kv(x).chunk(2, dim=-1))
            size = (b, self.shared, self.heads // self.shared, t, self.part)
            k, v = (y[:, :, None].expand(size).reshape(b, self.heads, t, self.part) for y in (rotated(k), v))
            scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.part) + mask
            y = torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32), v)
            return self.o(y.transpose(1, 2).contiguous().view(b, t, -1))

        def forward(self, x, *places):
            x = x + self.attend(self.norm1(x), *places)
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, words=30, length=12, width=16, heads=4, shared=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(self.Block(width, heads, shared) for _ in range(2))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        turns = torch.outer(torch.arange(length).float(), 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads)))
        turns = torch.cat((turns, turns), dim=-1)
        self.register_buffer("cos", turns.cos())
        self.register_buffer("sin", turns.sin())

    def forward(self, x):
        t = x.shape[1]
        mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
        x, cos, sin = self.words(x), self.cos[:t], self.sin[:t]
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x))


class Perceiver(nn.Module):
    """A few learned queries look at many places, with torch.nn's own attention."""

    def __init__(self, width=16, queries=4):
        super().__init__()
        self.into, self.queries = nn.Linear(6, width), nn.Parameter(torch.randn(queries, width))
        self.cross = nn.MultiheadAttention(width, 2, batch_first=True)
        self.own = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1, self.norm2, self.head = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.into(x)
        y = self.queries.unsqueeze(0).repeat(x.size(0), 1, 1)
        y = y + self.cross(self.norm1(y), x, x, need_weights=False)[0]
        z = self.norm2(y)
        y = y + self.own(z, z, z)[0]
        return self.head(y.mean(1))


class EncoderDecoder(nn.Module):
    """nn.Transformer with a causal mask."""

    def __init__(self, words=20, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.Transformer(width, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.body(self.words(source), self.words(target) * math.sqrt(16), tgt_mask=mask))


class Bag(nn.Module):
    """The mean of a text's words but for the padding, and its largest ones."""

    def __init__(self, words=30, width=12):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width, padding_idx=0), nn.Linear(2 * width, 5)

    def forward(self, x):
        there = (x != 0).unsqueeze(-1).float()
        y = self.words(x)
        mean = (y * there).sum(1) / there.sum(1).clamp(min=1.0)
        largest = y.masked_fill(there == 0, -1e4).amax(1)
        return self.head(torch.cat([mean, largest], -1))


class Padded(nn.Module):
    """torch.nn's encoder told which words are padding."""

    def __init__(self, words=30, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer, self.head = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True), nn.Linear(width, 5)

    def forward(self, x):
        y = self.layer(self.words(x), src_key_padding_mask=x == 0)
        return self.head(y[:, 0])


class Distances(nn.Module):
    """T5: attention whose bias is looked up by the distance."""

    def __init__(self, words=30, length=10, width=12):
        super().__init__()
        self.words, self.bias = nn.Embedding(words, width), nn.Embedding(2 * length - 1, 2)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.head = nn.Linear(width, words)

    def forward(self, x):
        b, t = x.shape
        places = torch.arange(t, device=x.device)
        bias = self.bias(places[None, :] - places[:, None] + t - 1).permute(2, 0, 1).unsqueeze(0)
        x = self.words(x)
        q, k, v = (layer(x).view(b, t, 2, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        shares = F.softmax(torch.matmul(q, k.transpose(-1, -2)) + bias, -1)
        return self.head(x + torch.matmul(shares, v).permute(0, 2, 1, 3).flatten(2))


class Siamese(nn.Module):
    """Two images, one trunk, and a score from how far apart and how alike they are."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1),
                                   nn.SiLU(), nn.Flatten(), nn.Linear(128, 16))
        self.head = nn.Linear(17, 1)

    def forward(self, left, right):
        one, two = F.normalize(self.trunk(left), dim=1), self.trunk(right)
        alike = F.cosine_similarity(one, two, dim=1).unsqueeze(1)
        return self.head(torch.cat([torch.abs(one - two), alike], 1))


class Ratings(nn.Module):
    """Factors of users and items, numbers of both beside them (wide and deep)."""

    def __init__(self, width=6):
        super().__init__()
        self.users, self.items, self.base = nn.Embedding(20, width), nn.Embedding(30, width), nn.Embedding(30, 1)
        self.deep = nn.Sequential(nn.Linear(2 * width + 3, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, facts):
        user, item = self.users(ids[:, 0]), self.items(ids[:, 1])
        score = (user * item).sum(dim=1, keepdim=True) + self.base(ids[:, 1])
        return score + self.deep(torch.cat([user, item, facts], dim=1))


class Points(nn.Module):
    """PointNet: the same layers for each point, their maximum, and what it says back to each point."""

    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.two, self.head = nn.Conv1d(16, 24, 1), nn.Conv1d(40, 4, 1)

    def forward(self, x):
        x = self.one(x.permute(0, 2, 1))
        whole = torch.max(self.two(x), 2, keepdim=True)[0].expand(-1, -1, x.size(2))
        return self.head(torch.cat([x, whole], 1)).permute(0, 2, 1)


class Graph(nn.Module):
    """Graph convolutions with the edges as an input."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(5, 12), nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, nodes, edges):
        edges = edges / edges.sum(-1, keepdim=True).clamp_min(1.0)
        x = F.elu(torch.bmm(edges, self.one(nodes)))
        return self.head(F.elu(edges @ self.two(x)).sum(1))


# Losses inside.


class Heads(nn.Module):
    """A class and two numbers from one body, each with its loss."""

    def __init__(self):
        super().__init__()
        self.body, self.kind, self.size = nn.Sequential(nn.Linear(9, 16), nn.Tanh()), nn.Linear(16, 5), nn.Linear(16, 2)

    def forward(self, x, kind, size):
        y = self.body(x)
        return F.cross_entropy(self.kind(y), kind) + 0.3 * torch.abs(self.size(y) - size).mean()


class Variational(nn.Module):
    """An autoencoder of a distribution; its noise is an input."""

    def __init__(self):
        super().__init__()
        self.read, self.write = nn.Sequential(nn.Linear(12, 16), nn.ReLU()), nn.Sequential(nn.Linear(3, 16), nn.ReLU(),
                                                                                           nn.Linear(16, 12))
        self.mean, self.spread = nn.Linear(16, 3), nn.Linear(16, 3)

    def forward(self, x, noise):
        y = self.read(x)
        mean, spread = self.mean(y), self.spread(y)
        z = mean + noise * torch.exp(0.5 * spread)
        apart = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1)
        return ((self.write(z) - x).pow(2).sum(1) + apart).mean()


class Triplets(nn.Module):
    """Of three inputs the first two are to lie closer together than the first and the last, by a margin."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, one, same, other):
        one, same, other = (F.normalize(self.body(x), p=2, dim=-1) for x in (one, same, other))
        near, far = (one - same).pow(2).sum(-1), (one - other).pow(2).sum(-1)
        return F.relu(near - far + 0.2).mean()


# Elements picked and written by index.


class Picked(nn.Module):
    """The step at which each sequence ends, and attention to the steps before it, by the numbers of the samples."""

    def __init__(self):
        super().__init__()
        self.embed, self.query = nn.Embedding(20, 16), nn.Linear(16, 16)
        self.layer, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(32, 5)

    def forward(self, tokens, ends, seen):
        steps, _ = self.layer(self.embed(tokens))
        rows = torch.arange(tokens.shape[0])
        last = steps[rows, ends]
        columns = torch.arange(tokens.shape[1])
        allowed = seen[rows[:, None], columns[None, :]]
        scores = torch.einsum("bh,bth->bt", self.query(last), steps).masked_fill(allowed == 0, -1e4)
        return self.head(torch.cat([last, torch.einsum("bt,bth->bh", scores.softmax(-1), steps)], 1))


class Written(nn.Module):
    """A bias with a part set to zero, and a mask of windows written piece by piece, as in Swin."""

    def __init__(self):
        super().__init__()
        self.qkv, self.bias = nn.Linear(8, 24, bias=False), nn.Parameter(torch.randn(24) * 0.1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        bias, mask = self.bias.clone(), x.new_zeros((6, 6))
        bias[8:16].zero_()
        for number, rows in enumerate((slice(0, 2), slice(2, 4), slice(4, None))):
            for columns in (slice(0, 3), slice(3, None)):
                mask[rows, columns] = number
        q, k, v = (self.qkv(x) + bias).chunk(3, -1)
        return self.head((q @ k.transpose(1, 2) * 0.3 - mask).softmax(-1) @ v).mean(1)


def one(draw):
    return {"input": draw}


def numbers(*shape):
    return lambda count: torch.randn(count, *shape)


def ids(count):
    return torch.stack([torch.randint(0, 20, (count,)), torch.randint(0, 30, (count,))], 1)


def edges(count):
    return (torch.rand(count, 6, 6) < 0.4).float()


PICTURE = one(images(3, 16, 16))
NETWORKS = {
    "squeezenet": Network(squeezenet, one(images(3, 32, 32)), classes(5)),
    "shufflenet": Network(ShuffleNet, PICTURE, classes(5)),
    "efficientnet": Network(lambda: excited(nn.SiLU, nn.Sigmoid), PICTURE, classes(5)),
    "mobilenetv3": Network(lambda: excited(nn.Hardswish, nn.Hardsigmoid), PICTURE, classes(5)),
    "convnext": Network(ConvNeXt, PICTURE, classes(5)),
    "densenet": Network(Dense, PICTURE, classes(5)),
    "style": Network(Style, PICTURE, images(3, 16, 16), "mse"),
    "aspp": Network(Pyramid, PICTURE, images(4, 16, 16), "mse"),
    "alexnet": Network(Alex, one(images(3, 32, 32)), classes(5)),
    "video": Network(video, one(images(2, 6, 12, 8)), classes(5)),
    "mixer": Network(Mixer, PICTURE, classes(5)),
    "swin": Network(Windows, PICTURE, classes(5)),
    "wavenet": Network(WaveNet, one(images(1, 24)), images(1, 24), "mse"),
    "seq2seq": Network(Translator, {"source": tokens(20, 7), "target": tokens(20, 5)}, classes(20, 5)),
    "cells": Network(Cells, one(images(6, 4)), classes(5)),
    "convlstm": Network(ConvCells, one(images(4, 1, 8, 8)), images(1, 8, 8), "mse"),
    "nbeats": Network(Basis, one(images(16)), images(4), "mse"),
    "llama": Network(Llama, one(tokens(30, 12)), classes(30, 12), freeze=("*cos", "*sin")),
    "perceiver": Network(Perceiver, one(images(20, 6)), classes(5)),
    "transformer": Network(EncoderDecoder, {"source": tokens(20, 7), "target": tokens(20, 5)}, classes(20, 5)),
    "bag": Network(Bag, one(tokens(30, 9)), classes(5)),
    "padded": Network(Padded, one(tokens(30, 9)), classes(5)),
    "picked": Network(Picked, {"tokens": tokens(20, 7), "ends": lambda count: torch.randint(0, 7, (count,)),
                               "seen": lambda count: (torch.rand(count, 7) < 0.7).long()}, classes(5)),
    "written": Network(Written, one(numbers(6, 8)), classes(4)),
    "t5": Network(Distances, one(tokens(30, 10)), classes(30, 10)),
    "siamese": Network(Siamese, {"left": images(1, 16, 16), "right": images(1, 16, 16)},
                       lambda count: torch.rand(count, 1).round(), "binary_cross_entropy"),
    "ratings": Network(Ratings, {"ids": ids, "facts": numbers(3)}, numbers(1), "huber"),
    "pointnet": Network(Points, one(images(20, 3)), classes(4, 20)),
    "graph": Network(Graph, {"nodes": numbers(6, 5), "edges": edges}, classes(5)),
    "heads": Network(Heads, {"x": numbers(9), "kind": classes(5), "size": numbers(2)}),
    "vae": Network(Variational, {"x": numbers(12), "noise": numbers(3)}),
    "triplets": Network(Triplets, {"one": numbers(7), "same": numbers(7), "other": numbers(7)}),
}
if hasattr(parametrizations, "weight_norm"):  # PyTorch 1 has one that no module can be copied with
    NETWORKS["tcn"] = Network(Tcn, one(images(6, 24)), classes(5), joined=True)
