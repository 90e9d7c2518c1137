"""Topics that were deleted while the shard had no owner.

A deletion is an input of the shard's owner. Without an owner it is missed, and found later by
comparison with the metadata. These may be behind, so that a topic counts as deleted only when it is
missing twice in a row.
"""

from collections.abc import Iterable

from tidemark.model.ids import TopicId
from tidemark.model.topics import Topics


class MissingTopics:
    """Topics that were missing at the last look. May be lost."""

    def __init__(self) -> None:
        self._missing: frozenset[TopicId] = frozenset()

    def look(self, held: Iterable[TopicId], topics: Topics) -> frozenset[TopicId]:
        """Topics of ``held`` that are missing now and were the last time."""
        missing = frozenset(one for one in set(held) if topics.name_of(one) is None)
        gone = missing & self._missing
        self._missing = missing - gone
        return gone
