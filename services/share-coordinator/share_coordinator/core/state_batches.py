"""Algebra of state batches: consecutive offsets of one delivery state and delivery count.

Batches that are kept ascend, do not overlap, and neighbours of one state and count are one batch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from tidemark.model.ids import Offset
from tidemark.model.share_state import StateBatch

Batches = tuple[StateBatch, ...]


def combine(kept: Batches, written: Iterable[StateBatch], start: Offset) -> Batches:
    """``kept`` with ``written`` laid over it; offsets below ``start`` are dropped (a start below
    every offset drops nothing).

    Where batches overlap the greater delivery count decides, then the greater state, as in Kafka.
    Both only grow while a state lasts, so that a write that arrives late undoes nothing.
    """
    # The kept batches are in order: only the one that straddles the start has to be cut.
    cut = bisect_left(kept, start, key=_last_offset)
    combined = [*above(start, kept[cut : cut + 1]), *kept[cut + 1 :]]
    for batch in above(start, written):
        _lay_over(combined, batch)
    return tuple(combined)


#   start offset             S
#   batch        [--A--]     |            wholly below:  dropped
#   batch               [---B|---]        straddles:     its end is kept
#   batch                    |  [-C-]     wholly above:  kept
def above(start: Offset, batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Return the parts of ``batches`` at or above ``start``."""
    return [
        batch if batch.first_offset >= start else batch._replace(first_offset=start)
        for batch in batches
        if batch.last_offset >= start
    ]


def _lay_over(kept: list[StateBatch], batch: StateBatch) -> None:
    """Put one batch in its place; only its neighbourhood is looked at."""
    low = bisect_left(kept, batch.first_offset, key=_last_offset)
    high = bisect_right(kept, batch.last_offset, key=_first_offset)
    before, after = max(low - 1, 0), min(high + 1, len(kept))
    pieces = [*kept[before:low], *_merge(kept[low:high], batch), *kept[high:after]]
    kept[before:after] = _joined(pieces)


def _merge(overlapped: Sequence[StateBatch], batch: StateBatch) -> list[StateBatch]:
    """Pieces of ``batch`` and of the batches that it overlaps, in order."""
    pieces: list[StateBatch] = []
    at = batch.first_offset
    for one in overlapped:
        if one.first_offset < batch.first_offset:
            pieces.append(one._replace(last_offset=Offset(batch.first_offset - 1)))
        if at < one.first_offset:
            pieces.append(batch._replace(first_offset=at, last_offset=Offset(one.first_offset - 1)))
        first = max(one.first_offset, batch.first_offset)
        last = min(one.last_offset, batch.last_offset)
        winner = one if _rank(one) >= _rank(batch) else batch
        pieces.append(winner._replace(first_offset=first, last_offset=last))
        if one.last_offset > batch.last_offset:
            pieces.append(one._replace(first_offset=Offset(batch.last_offset + 1)))
        at = Offset(last + 1)
    if at <= batch.last_offset:
        pieces.append(batch._replace(first_offset=at))
    return pieces


def _joined(pieces: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    for piece in pieces:
        if joined and _continues(joined[-1], piece):
            joined[-1] = joined[-1]._replace(last_offset=piece.last_offset)
        else:
            joined.append(piece)
    return joined


def _continues(before: StateBatch, after: StateBatch) -> bool:
    return before.last_offset + 1 == after.first_offset and _rank(before) == _rank(after)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _first_offset(batch: StateBatch) -> Offset:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> Offset:
    return batch.last_offset
