"""Topics that were deleted while the shard had no owner.

A deletion is an input of the shard's owner. Without an owner it is missed, and found later by
comparison with the metadata. However old these are, a topic that they lack is deleted: the
metadata of the owner that named it to a group had it. An earlier owner stopped serving before its
metadata were as new as those with which this one began (``CoordinatorSession.acquire``), and
metadata never go back. Ids are not used again. That it has to be missing twice is caution.
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
