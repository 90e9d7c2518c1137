"""Acknowledgements of one request that wait for writes of several share-partitions."""

from collections.abc import Callable

from broker.core.share.acknowledgement import Answer
from broker.core.share.sessions import PartitionKey


class PendingAnswers:
    """Answers of a request by partition. ``on_complete``, if set, is called once, with the last."""

    __slots__ = ("_missing", "answers", "on_complete")

    def __init__(self) -> None:
        self.answers: dict[PartitionKey, Answer] = {}
        self.on_complete: Callable[[], None] | None = None
        self._missing = 0

    @property
    def is_complete(self) -> bool:
        """True if nothing is missing."""
        return not self._missing

    def expect(self, key: PartitionKey) -> "AnswerSlot":
        """Return the place of an answer that may come later."""
        self._missing += 1
        return AnswerSlot(self, key)

    def settle(self, key: PartitionKey, answer: Answer) -> None:
        """Take an answer that was expected."""
        self.answers[key] = answer
        self._missing -= 1
        if not self._missing and self.on_complete is not None:
            done, self.on_complete = self.on_complete, None
            done()


class AnswerSlot:
    """Place of one partition's answer; the token of its write."""

    __slots__ = ("_key", "_pending")

    def __init__(self, pending: PendingAnswers, key: PartitionKey) -> None:
        self._pending = pending
        self._key = key

    def settle(self, answer: Answer) -> None:
        """Give the answer. Called once."""
        self._pending.settle(self._key, answer)
