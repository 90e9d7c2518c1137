"""Topics that the members of a KIP-848 group subscribe to: by name, by pattern, or both."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.codec.group_records_consumer import TopicMetadata
from tidemark.model.ids import TopicId
from tidemark.model.topics import INTERNAL_TOPICS
from tidemark.re2.pattern import Pattern, matching
from tidemark.re2.syntax import PatternError

from broker.core.groups.requests import Topics

_NO_TOPICS: Final = frozenset[str]()


class Subscription(NamedTuple):
    """Subscription of one member. An absent pattern is None or empty, as in KIP-848."""

    topic_names: tuple[str, ...]
    regex: str | None


def pattern_problem(regex: str | None) -> str | None:
    """Return an error message for the pattern's author, or None if it compiles."""
    if not regex:
        return None
    try:
        Pattern(regex)
    except PatternError as problem:
        return str(problem)
    return None


class _Matches:
    """One pattern with its cached matches. Metadata changes often, topic names rarely, so only new
    names are matched.
    """

    __slots__ = ("_names", "_pattern", "_position", "matched")

    def __init__(self, regex: str) -> None:
        self._pattern = _compiled(regex)
        self._position = -1
        self._names = _NO_TOPICS
        self.matched = _NO_TOPICS

    def renew(self, topics: Topics) -> None:
        """Match names that are new, and drop names that no longer exist."""
        if self._position == topics.position or self._pattern is None:
            return
        names = frozenset(topics.names())
        # A pattern never matches internal topics; a member can subscribe to them by name.
        new = names - self._names - INTERNAL_TOPICS
        self.matched = (self.matched & names) | matching(self._pattern, new)
        self._names = names
        self._position = topics.position


class TopicResolver:
    """Resolves subscriptions to topics. A loss of its cache costs only time."""

    __slots__ = ("_matches",)

    def __init__(self) -> None:
        self._matches: dict[str, _Matches] = {}

    def topic_ids(
        self, subscriptions: Iterable[Subscription], topics: Topics
    ) -> dict[Subscription, frozenset[TopicId]]:
        """Return the ids of the existing topics of each subscription."""
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
        """Return all existing topics of any of the subscriptions, in order of their names."""
        distinct = set(subscriptions)
        self._keep_only({each.regex for each in distinct if each.regex})
        names = _NO_TOPICS.union(*(self._names(each, topics) for each in distinct))
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

    def _keep_only(self, regexes: set[str]) -> None:
        for regex in self._matches.keys() - regexes:
            del self._matches[regex]


def _compiled(regex: str) -> Pattern | None:
    """Compile a logged pattern. None, which matches nothing, if a newer release logged a syntax
    that this one does not support.
    """
    try:
        return Pattern(regex)
    except PatternError:
        return None


def partition_counts(metadata: Iterable[TopicMetadata]) -> Mapping[TopicId, int]:
    """Return the number of partitions of each topic."""
    return {topic.topic_id: topic.partition_count for topic in metadata}
