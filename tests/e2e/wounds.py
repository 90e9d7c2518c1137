"""Wounds: what crashes and disks do to a segment file, each drawn from a seed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from e2e.disk_fixtures import make_batch
from tidemark.codec.record_batch import HEADER_BYTES, read_header


class Wound(NamedTuple):
    """What is done to a segment file, given the position of each batch; the first byte touched."""

    name: str
    inflict: Callable[[random.Random, bytearray, list[int]], int]


def _cut_anywhere(dice: random.Random, content: bytearray, _starts: list[int]) -> int:
    at = dice.randrange(1, len(content))
    del content[at:]
    return at


def _cut_in_a_header(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    at = dice.choice(starts) + dice.randrange(1, HEADER_BYTES)
    del content[at:]
    return at


def _cut_between_batches(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    at = dice.choice(starts[1:])
    del content[at:]
    return at


def _cut_to_nothing(_dice: random.Random, content: bytearray, _starts: list[int]) -> int:
    content.clear()
    return 0


def _append_noise(dice: random.Random, content: bytearray, _starts: list[int]) -> int:
    at = len(content)
    content += dice.randbytes(dice.randrange(1, 3_000))
    return at


def _append_zeros(dice: random.Random, content: bytearray, _starts: list[int]) -> int:
    at = len(content)
    content += bytes(dice.randrange(1, 3_000))
    return at


def _append_the_last_again(_dice: random.Random, content: bytearray, starts: list[int]) -> int:
    at = len(content)
    content += content[starts[-1] :]
    return at


def _append_a_batch_of_ages_hence(_dice: random.Random, content: bytearray, _: list[int]) -> int:
    at = len(content)
    content += make_batch(b"never sent", base_offset=7)  # below the log's end
    return at


def _zero_the_tail(dice: random.Random, content: bytearray, _starts: list[int]) -> int:
    at = dice.randrange(1, len(content))
    while at < len(content) and content[at] == 0:
        at += 1
    content[at:] = bytes(len(content) - at)
    return at


def flip(content: bytearray, at: int, dice: random.Random) -> int:
    content[at] ^= 1 << dice.randrange(8)
    return at


def _flip_in_the_last_batch(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    return flip(content, dice.randrange(starts[-1] + HEADER_BYTES, len(content)), dice)


def _flip_anywhere(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    return flip(content, dice.randrange(starts[2] + HEADER_BYTES, starts[3]), dice)


def _flip_a_length(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    return flip(content, dice.choice(starts) + dice.randrange(8, 12), dice)


def _flip_a_crc(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    return flip(content, dice.choice(starts) + dice.randrange(17, 21), dice)


def _flip_the_magic(dice: random.Random, content: bytearray, starts: list[int]) -> int:
    return flip(content, dice.choice(starts) + 16, dice)


WOUNDS: Final = [
    Wound(name.__name__.strip("_"), name)
    for name in (
        *(_cut_anywhere, _cut_anywhere, _cut_anywhere, _cut_in_a_header, _cut_between_batches),
        *(_cut_to_nothing, _append_noise, _append_noise, _append_zeros, _append_the_last_again),
        *(_append_a_batch_of_ages_hence, _zero_the_tail, _zero_the_tail, _flip_in_the_last_batch),
        *(_flip_anywhere, _flip_anywhere, _flip_a_length, _flip_a_crc, _flip_the_magic),
    )
]


def starts_of(content: bytes | bytearray) -> list[int]:
    """Where each batch begins."""
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += read_header(content, at).size_bytes
    assert at == len(content)
    return starts


def wound(path: Path, inflicted: Wound, dice: random.Random) -> bytes:
    """Hurt a segment; the bytes that must be served afterwards: the whole batches before it."""
    whole = path.read_bytes()
    starts = starts_of(whole)
    content = bytearray(whole)
    first = inflicted.inflict(dice, content, starts)
    assert content != whole, inflicted.name
    path.write_bytes(content)
    return whole[: max(start for start in [*starts, len(whole)] if start <= first)]
