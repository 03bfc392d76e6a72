"""Recurrent models of the zoo."""
import torch
from torch import nn

from models import Family, classes, images


class Series(nn.Module):
    """Recurrent layers over a sensor series, a class from the last step."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(width, 6)

    def forward(self, x):
        y, _ = self.layers(x)
        return self.head(y[:, -1])


class LastStates(nn.Module):
    """A class from the last state of each direction of the last layer."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(2 * width, 6)

    def forward(self, x):
        _, h = self.layers(x)
        return self.head(torch.cat((h[-2], h[-1]), 1))


class Tagger(nn.Module):
    """A class for every step, from both directions."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(9, 24, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 6)

    def forward(self, x):
        return self.head(torch.tanh(self.layers(x)[0]))


def lstm():
    return Series(nn.LSTM(9, 64, num_layers=2, batch_first=True), 64)


def gru():
    return LastStates(nn.GRU(9, 48, num_layers=2, bidirectional=True, batch_first=True), 48)


def rnn():
    return Series(nn.RNN(9, 64, batch_first=True), 64)


FAMILIES = {
    "lstm": Family(lstm, images(64, 9), classes(6)),
    "gru": Family(gru, images(64, 9), classes(6)),
    "rnn": Family(rnn, images(64, 9), classes(6), rate=0.01),
    "lstm-tagger": Family(Tagger, images(32, 9), classes(6, 32)),
}
