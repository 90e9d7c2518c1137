"""Acknowledgements on the wire: batches of consecutive offsets, with one type or one for each."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

RUN_MIN: Final = 16
"""Offsets of one type in a row from which they are a batch of their own: it costs 19 bytes, a type
in a list one byte.
"""


class AcknowledgeType(IntEnum):
    """Outcome of a delivery, as numbered on the wire."""

    ACCEPT = 1
    """Processed: it is not delivered again."""
    RELEASE = 2
    """Available for another delivery, up to the group's limit of deliveries."""
    REJECT = 3
    """Cannot be processed: it is not delivered again."""
    RENEW = 4
    """Still being processed: its lock begins again (KIP-1222)."""


GAP: Final = 0
"""Type of an acquired offset that has no record."""


class AckBatch(NamedTuple):
    """Acknowledgements of offsets from first to last, inclusive: one type for all, or one each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


def batches_of(types: Mapping[int, int]) -> list[AckBatch]:
    """Return the batches of acknowledgements by offset, in ascending order."""
    batches: list[AckBatch] = []
    for run in _runs(types):
        before = batches[-1] if batches else None
        if before is None or not _joins(before, run):
            batches.append(run)
            continue
        types_before = before.types * (1 if len(before.types) > 1 else _count(before))
        joined = (*types_before, *(run.types * _count(run)))
        batches[-1] = AckBatch(before.first_offset, run.last_offset, joined)
    return batches


def _runs(types: Mapping[int, int]) -> Iterable[AckBatch]:
    """Yield consecutive offsets of one type."""
    run: AckBatch | None = None
    for offset in sorted(types):
        kind = (types[offset],)
        if run is not None and offset == run.last_offset + 1 and kind == run.types:
            run = run._replace(last_offset=offset)
            continue
        if run is not None:
            yield run
        run = AckBatch(offset, offset, kind)
    if run is not None:
        yield run


def _joins(before: AckBatch, run: AckBatch) -> bool:
    """True if a run is part of the batch before it, rather than a batch of its own."""
    adjacent = before.last_offset + 1 == run.first_offset
    uniform_long = len(before.types) == 1 and _count(before) >= RUN_MIN
    return adjacent and _count(run) < RUN_MIN and not uniform_long


def _count(batch: AckBatch) -> int:
    return batch.last_offset - batch.first_offset + 1
