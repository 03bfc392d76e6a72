#!/usr/bin/env python3
"""Writes inputs.npy and labels.npy: how any data becomes a data set for Cairn. Needs NumPy.

The first dimension counts samples. Inputs are float32 or uint8, in the shape that the model takes;
labels are class numbers from 0 (any integer type), or float32 values for loss: mse.

Here a sample is a noisy picture of a line: across (class 0), upright (1) or slanted (2).
"""
import numpy

SIZE = 12


def line(kind, random):
    picture = numpy.zeros((SIZE, SIZE))
    place = random.randint(2, SIZE - 2)
    along = numpy.arange(SIZE)
    if kind == 0:
        picture[place, :] = 1
    elif kind == 1:
        picture[:, place] = 1
    else:
        picture[along, (along + place) % SIZE] = 1
    return picture + random.normal(0, 0.3, picture.shape)


def main():
    random = numpy.random.RandomState(5)
    labels = random.randint(0, 3, 900)
    inputs = numpy.stack([line(label, random) for label in labels])
    numpy.save("inputs.npy", inputs.reshape(-1, 1, SIZE, SIZE).astype(numpy.float32))
    numpy.save("labels.npy", labels.astype(numpy.int64))


if __name__ == "__main__":
    main()
