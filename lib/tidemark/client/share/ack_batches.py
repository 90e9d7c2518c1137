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


class Decision(NamedTuple):
    """Acknowledgement of one offset. Only brokers of Tidemark take a delay and ``is_unseen``."""

    kind: int
    """An AcknowledgeType, or GAP."""
    delay_ms: int = 0
    """Time before a released record is delivered again; 0: by the group's configuration."""
    is_unseen: bool = False
    """The application never received the released record: its delivery does not count."""


Decisions = Mapping[int, Decision]
"""Acknowledgements by offset."""

ACCEPTED: Final = Decision(AcknowledgeType.ACCEPT)
WITHOUT_RECORD: Final = Decision(GAP)
UNREADABLE: Final = Decision(AcknowledgeType.RELEASE)
UNSEEN: Final = Decision(AcknowledgeType.RELEASE, is_unseen=True)


class AckBatch(NamedTuple):
    """Acknowledgements of offsets from first to last, inclusive: one type for all, or one each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]
    delay_ms: int = 0
    is_unseen: bool = False


def batches_of(decisions: Decisions) -> list[AckBatch]:
    """Return the batches of acknowledgements by offset, in ascending order."""
    batches: list[AckBatch] = []
    for run in _runs(decisions):
        before = batches[-1] if batches else None
        if before is None or not _joins(before, run):
            batches.append(run)
            continue
        types_before = before.types * (1 if len(before.types) > 1 else _count(before))
        joined = (*types_before, *(run.types * _count(run)))
        batches[-1] = before._replace(last_offset=run.last_offset, types=joined)
    return batches


def _runs(decisions: Decisions) -> Iterable[AckBatch]:
    """Yield consecutive offsets with one decision."""
    first = last = -1
    decided: Decision | None = None
    for offset in sorted(decisions):
        decision = decisions[offset]
        if offset == last + 1 and decision == decided:
            last = offset
            continue
        if decided is not None:
            yield _run(first, last, decided)
        first = last = offset
        decided = decision
    if decided is not None:
        yield _run(first, last, decided)


def _run(first: int, last: int, decision: Decision) -> AckBatch:
    return AckBatch(first, last, (decision.kind,), decision.delay_ms, decision.is_unseen)


def _joins(before: AckBatch, run: AckBatch) -> bool:
    """True if a run is part of the batch before it, rather than a batch of its own."""
    adjacent = before.last_offset + 1 == run.first_offset
    uniform_long = len(before.types) == 1 and _count(before) >= RUN_MIN
    fits = adjacent and _terms(before) == _terms(run)
    return fits and _count(run) < RUN_MIN and not uniform_long


def _terms(batch: AckBatch) -> tuple[int, bool]:
    return batch.delay_ms, batch.is_unseen


def _count(batch: AckBatch) -> int:
    return batch.last_offset - batch.first_offset + 1
