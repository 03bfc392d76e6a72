#!/usr/bin/env python3
"""Writes inputs.npy and labels.npy: numbers to be written in reverse. Needs only Python.

A sample has 8 numbers from 2 to 15, then 1, which begins an answer, and the first 7 numbers of the answer. The labels
are the 8 numbers of the answer. All are bytes.
"""
import pathlib
import random

COUNT, LENGTH, WORDS = 2000, 8, 16


def write(name, rows):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"".join(map(bytes, rows))
    pathlib.Path(__file__).with_name(name).write_bytes(content)


if __name__ == "__main__":
    numbers = random.Random(1)
    words = [[numbers.randrange(2, WORDS) for _ in range(LENGTH)] for _ in range(COUNT)]
    write("inputs.npy", [row + [1] + row[:0:-1] for row in words])
    write("labels.npy", [row[::-1] for row in words])
