"""Whether the coordinator knows that a producer writes to this partition in its transaction
(KIP-890).

A transactional batch that would begin a transaction here waits until the coordinator has said that
the partition is part of it: else a batch that comes late, after its transaction has ended, would
hold the last stable offset for ever, or end up in the next transaction. What was asked before a
marker does not count after it.

A producer has several batches under way. When the first is refused for now and the second is not,
the second must not be taken for the first by a partition that does not know the producer: the first
would then pass for a repetition, and be lost.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

ASKED_MAX: Final = 10_000
"""Producers whose questions one partition remembers; the oldest are asked again."""


class _Question(NamedTuple):
    producer_epoch: int
    guard: int
    answered: bool
    first_sequence: int


class TxnVerifications:
    """The questions of one partition, by producer id. A leader's, and gone with its leadership."""

    __slots__ = ("_guard", "_questions")

    def __init__(self) -> None:
        self._questions: OrderedDict[int, _Question] = OrderedDict()
        self._guard = 0

    def is_verified(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer may begin a transaction in this epoch."""
        known = self._questions.get(producer_id)
        return known is not None and known.answered and known.producer_epoch == producer_epoch

    def first_sequence(self, producer_id: int) -> int:
        """Where a producer that is being asked about must begin if nothing else is known of it."""
        known = self._questions.get(producer_id)
        return 0 if known is None else known.first_sequence

    def ask(self, producer_id: int, producer_epoch: int, first_sequence: int = 0) -> int:
        """The coordinator is about to be asked; a guard that must still hold at the answer.

        ``first_sequence``: the lowest that this transaction can have. With transactions v2 it is 0,
        for each has an epoch of its own; else the lowest seen.
        """
        self._guard += 1
        known = self._questions.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            first_sequence = min(first_sequence, known.first_sequence)
        self._questions[producer_id] = _Question(
            producer_epoch, self._guard, answered=False, first_sequence=first_sequence
        )
        self._questions.move_to_end(producer_id)
        if len(self._questions) > ASKED_MAX:
            self._questions.popitem(last=False)
        return self._guard

    def answer(self, producer_id: int, guard: int) -> bool:
        """The coordinator said yes; False when a marker, or another question, came in between."""
        known = self._questions.get(producer_id)
        if known is None or known.guard != guard:
            return False
        self._questions[producer_id] = known._replace(answered=True)
        return True

    def forget(self, producer_id: int) -> None:
        """Its transaction has begun here, has ended, or is not to begin."""
        self._questions.pop(producer_id, None)

    def clear(self) -> None:
        """Another leads, or we lead anew."""
        self._questions.clear()
