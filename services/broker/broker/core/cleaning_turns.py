"""CleaningTurns: which logs compaction takes, and which it leaves out.

As in Kafka, a log at which compaction failed by an unexpected error is uncleanable: it is left out,
and the others go on. It is tried again after a restart of the broker, in another log directory, or
when it is another log. A log whose round was cut short, because memory or descriptors had run out
or the worker died, is tried again, after all others that are due.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from tidemark.model.topics import TopicPartition


class Due(NamedTuple):
    """A log that may be compacted, and the dirty share of its bytes."""

    topic_partition: TopicPartition
    dirty_ratio: float


class CleaningTurns:
    """Outcomes of earlier rounds, by partition."""

    def __init__(self) -> None:
        self._cut_short: set[TopicPartition] = set()
        self._uncleanable: set[TopicPartition] = set()

    @property
    def uncleanable(self) -> frozenset[TopicPartition]:
        """The logs that are left out."""
        return frozenset(self._uncleanable)

    def takes(self, topic_partition: TopicPartition) -> bool:
        """True unless the log is uncleanable."""
        return topic_partition not in self._uncleanable

    def next_of(self, due: Iterable[Due]) -> Due | None:
        """Return the log whose turn it is: the dirtiest, those that were cut short last."""
        return max(due, key=self._rank, default=None)

    def _rank(self, one: Due) -> tuple[bool, float]:
        return one.topic_partition not in self._cut_short, one.dirty_ratio

    def completed(self, topic_partition: TopicPartition) -> None:
        """Note that a round came to its end."""
        self._cut_short.discard(topic_partition)

    def cut_short(self, topic_partition: TopicPartition) -> None:
        """Note that a round did not, for a reason that may pass."""
        self._cut_short.add(topic_partition)

    def failed(self, topic_partition: TopicPartition) -> None:
        """Note an unexpected error: the log is uncleanable."""
        self._cut_short.discard(topic_partition)
        self._uncleanable.add(topic_partition)

    def retain(self, hosted: Container[tuple[str, int]]) -> None:
        """Forget the logs of partitions that are not hosted any longer."""
        for noted in (self._cut_short, self._uncleanable):
            noted.intersection_update([one for one in noted if one in hosted])

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a log: another one has its name, or it is in another directory."""
        self._cut_short.discard(topic_partition)
        self._uncleanable.discard(topic_partition)
