"""Which topics the members of a KIP-848 group subscribe to: by name, by pattern, or both."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.codec.group_records_consumer import TopicMetadata
from tidemark.model.ids import TopicId
from tidemark.model.topics import INTERNAL_TOPICS

from broker.core.groups.requests import Topics
from broker.core.groups.subscriptions.pattern import TopicPattern, matching
from broker.core.groups.subscriptions.syntax import PatternError

_NO_TOPICS: Final = frozenset[str]()


class Subscription(NamedTuple):
    """What one member asks for. No pattern is None or empty, as KIP-848 has it."""

    topic_names: tuple[str, ...]
    regex: str | None


def pattern_problem(regex: str | None) -> str | None:
    """What is wrong with a pattern, in words for its author; None when nothing is."""
    if not regex:
        return None
    try:
        TopicPattern(regex)
    except PatternError as problem:
        return str(problem)
    return None


class _Matches:
    """One pattern, and what it matched when it was last asked. Metadata changes all the time, names
    seldom: only new ones are looked at.
    """

    __slots__ = ("_names", "_pattern", "_position", "matched")

    def __init__(self, regex: str) -> None:
        self._pattern = _compiled(regex)
        self._position = -1
        self._names = _NO_TOPICS
        self.matched = _NO_TOPICS

    def renew(self, topics: Topics) -> None:
        """Look at names that are new, and forget those that are gone."""
        if self._position == topics.position or self._pattern is None:
            return
        names = frozenset(topics.names())
        # A subscription to all topics does not mean those; by name they can be subscribed to.
        new = names - self._names - INTERNAL_TOPICS
        self.matched = (self.matched & names) | matching(self._pattern, new)
        self._names = names
        self._position = topics.position


class TopicResolver:
    """Finds the topics of subscriptions. What it remembers of patterns can be lost, and costs only
    time.
    """

    __slots__ = ("_matches",)

    def __init__(self) -> None:
        self._matches: dict[str, _Matches] = {}

    def topic_ids(
        self, subscriptions: Iterable[Subscription], topics: Topics
    ) -> dict[Subscription, frozenset[TopicId]]:
        """The topics that each subscription means and that exist."""
        return {
            subscription: frozenset(
                topic_id
                for name in self._names(subscription, topics)
                if (topic_id := topics.topic_id_of(name)) is not None
            )
            for subscription in set(subscriptions)
        }

    def metadata(
        self, subscriptions: Iterable[Subscription], topics: Topics
    ) -> tuple[TopicMetadata, ...]:
        """Of all topics that any subscription means and that exist, by name in order."""
        wanted = set(subscriptions)
        self._forget_others({one.regex for one in wanted if one.regex})
        names = _NO_TOPICS.union(*(self._names(one, topics) for one in wanted))
        return tuple(
            TopicMetadata(topic_id, name, topics.partition_count(name))
            for name in sorted(names)
            if (topic_id := topics.topic_id_of(name)) is not None
        )

    def _names(self, subscription: Subscription, topics: Topics) -> frozenset[str]:
        named = frozenset(subscription.topic_names)
        if not subscription.regex:
            return named
        matches = self._matches.get(subscription.regex)
        if matches is None:
            matches = self._matches[subscription.regex] = _Matches(subscription.regex)
        matches.renew(topics)
        return named | matches.matched

    def _forget_others(self, wanted: set[str]) -> None:
        for regex in self._matches.keys() - wanted:
            del self._matches[regex]


def _compiled(regex: str) -> TopicPattern | None:
    """None, which matches nothing, for a pattern that was logged by a release that knew more."""
    try:
        return TopicPattern(regex)
    except PatternError:
        return None


def partition_counts(metadata: Iterable[TopicMetadata]) -> Mapping[TopicId, int]:
    """How many partitions each topic has."""
    return {topic.topic_id: topic.partition_count for topic in metadata}
