"""Mutations of files for fuzzing: bit flips, truncation, splices, overwritten bytes."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

Mutation = Callable[[bytes, bytes, np.random.Generator], bytes]


def _place(data: bytes, generator: np.random.Generator) -> int:
    """A position: near the start in half of the cases, where headers are."""
    end = len(data) if generator.random() < 0.5 else min(len(data), 400)
    return int(generator.integers(max(end, 1)))


def flip(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """One to eight bits are the other way."""
    changed = bytearray(data or b"\0")
    for _ in range(int(generator.integers(1, 9))):
        changed[_place(bytes(changed), generator)] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def truncate(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """The end is missing."""
    return data[: _place(data, generator)]


def splice(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """It goes on as another file of its kind."""
    return data[: _place(data, generator)] + other[_place(other, generator) :]


def overwrite(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """Some of it is as in another file, zero or random, in place."""
    start, length = _place(data, generator), int(generator.integers(1, 65))
    source = _place(other, generator)
    new = (other[source : source + length], bytes(length), generator.bytes(length))[int(generator.integers(3))]
    return data[:start] + new + data[start + len(new) :]


def repeat(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A stretch of it is there twice: duplicated fields and members."""
    start, end = sorted((_place(data, generator), _place(data, generator)))
    return data[:end] + data[start:end] + data[end:]


def drop(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A stretch of it is missing."""
    start, end = sorted((_place(data, generator), _place(data, generator)))
    return data[:start] + data[end:]


def append(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """Something follows."""
    return data + generator.bytes(int(generator.integers(1, 50)))


def number(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A number written in digits, such as a length, a version or an index, is another."""
    found = list(re.finditer(rb"\d+", data[:4000]))
    if not found:
        return flip(data, other, generator)
    one = found[int(generator.integers(len(found)))]
    new = (b"0", b"1", b"-1", b"99999999999999999999", b"1e999", b"%d" % (int(one[0][:15]) + 1))
    return data[: one.start()] + new[int(generator.integers(len(new)))] + data[one.end() :]


def word(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """Four bytes, such as a length in binary, are an extreme number."""
    start = _place(data, generator)
    extreme = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)[int(generator.integers(5))]
    return data[:start] + extreme.to_bytes(4, "little") + data[start + 4 :]


def exchange(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """Another file of its kind has its name."""
    return other


def swap(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """Two stretches of it have changed places."""
    a, b, c = sorted(_place(data, generator) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


MUTATIONS: tuple[Mutation, ...] = (
    flip, truncate, splice, overwrite, repeat, drop, append, number, word, exchange, swap
)  # fmt: skip


def mutated(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A file's bytes with one to three of the mutations.

    Args:
        data: the file.
        other: another file of its kind.
        generator: chooses.
    """
    for _ in range(int(generator.integers(1, 4))):
        data = MUTATIONS[int(generator.integers(len(MUTATIONS)))](data, other, generator)
    return data
