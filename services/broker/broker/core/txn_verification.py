"""Verification that a partition is part of a producer's transaction (KIP-890).

A transactional batch that would begin a transaction here waits until the coordinator has confirmed
that the partition is part of it. Otherwise a batch that arrives after its transaction has ended
would block the last stable offset for ever, or join the next transaction. A request sent before a
marker does not count after it.

A producer has several batches in flight. Suppose that the first is refused temporarily and the
second is not. A partition without state of the producer must not take the second for the first: the
first would then look like a repetition, and be lost.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

ASKED_MAX: Final = 10_000
"""Most producers with a verification in one partition; the oldest are verified again."""


class _Verification(NamedTuple):
    producer_epoch: int
    guard: int
    answered: bool
    first_sequence: int


class TxnVerifications:
    """Verifications of one partition, by producer id, which end with the leader's epoch."""

    __slots__ = ("_guard", "_verifications")

    def __init__(self) -> None:
        self._verifications: OrderedDict[int, _Verification] = OrderedDict()
        self._guard = 0

    def is_verified(self, producer_id: int, producer_epoch: int) -> bool:
        """True if this producer may begin a transaction in this epoch."""
        verification = self._verifications.get(producer_id)
        return (
            verification is not None
            and verification.answered
            and verification.producer_epoch == producer_epoch
        )

    def first_sequence(self, producer_id: int) -> int:
        """Return the lowest valid sequence of a producer without other state here."""
        verification = self._verifications.get(producer_id)
        return 0 if verification is None else verification.first_sequence

    def ask(self, producer_id: int, producer_epoch: int, first_sequence: int = 0) -> int:
        """Begin a verification; return a guard that must still hold when the reply arrives.

        ``first_sequence``: the lowest that this transaction can have. With transactions v2 it is 0,
        since each transaction has its own epoch; otherwise it is the lowest seen.
        """
        self._guard += 1
        verification = self._verifications.get(producer_id)
        if verification is not None and verification.producer_epoch == producer_epoch:
            first_sequence = min(first_sequence, verification.first_sequence)
        self._verifications[producer_id] = _Verification(
            producer_epoch, self._guard, answered=False, first_sequence=first_sequence
        )
        self._verifications.move_to_end(producer_id)
        if len(self._verifications) > ASKED_MAX:
            self._verifications.popitem(last=False)
        return self._guard

    def answer(self, producer_id: int, guard: int) -> bool:
        """Store the confirmation. False if a marker, or another verification, came in between."""
        verification = self._verifications.get(producer_id)
        if verification is None or verification.guard != guard:
            return False
        self._verifications[producer_id] = verification._replace(answered=True)
        return True

    def forget(self, producer_id: int) -> None:
        """Remove a verification: its transaction has begun here, has ended, or is not to begin."""
        self._verifications.pop(producer_id, None)

    def clear(self) -> None:
        """Remove all verifications at a new leader epoch."""
        self._verifications.clear()
