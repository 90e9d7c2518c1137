"""Topics that the members of a KIP-848 group subscribe to: by name, by pattern, or both."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.codec.group_records_consumer import TopicMetadata
from tidemark.model.ids import TopicId
from tidemark.re2.pattern import Pattern
from tidemark.re2.syntax import PatternError

from broker.core.groups.requests import Topics

_NO_TOPICS: Final = frozenset[str]()

Matches = Mapping[str, frozenset[str]]
"""Names of the topics of each pattern of a group. A pattern without an entry was not matched yet.
"""


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


def topic_ids(
    subscriptions: Iterable[Subscription], matches: Matches, topics: Topics
) -> dict[Subscription, frozenset[TopicId]]:
    """Return the ids of the existing topics of each subscription."""
    return {
        subscription: frozenset(
            topic_id
            for name in _names(subscription, matches)
            if (topic_id := topics.topic_id_of(name)) is not None
        )
        for subscription in set(subscriptions)
    }


def subscribed(
    subscriptions: Iterable[Subscription], matches: Matches, topics: Topics
) -> tuple[TopicMetadata, ...]:
    """Return all existing topics of any of the subscriptions, in order of their names."""
    names = _NO_TOPICS.union(*(_names(each, matches) for each in set(subscriptions)))
    return tuple(
        TopicMetadata(topic_id, name, topics.partition_count(name))
        for name in sorted(names)
        if (topic_id := topics.topic_id_of(name)) is not None
    )


def partition_counts(metadata: Iterable[TopicMetadata]) -> Mapping[TopicId, int]:
    """Return the number of partitions of each topic."""
    return {topic.topic_id: topic.partition_count for topic in metadata}


def _names(subscription: Subscription, matches: Matches) -> frozenset[str]:
    named = frozenset(subscription.topic_names)
    return named | matches.get(subscription.regex, _NO_TOPICS) if subscription.regex else named
