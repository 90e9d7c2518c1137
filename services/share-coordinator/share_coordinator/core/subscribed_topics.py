"""Topics that a share group's members subscribe to, as the metadata has them now."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.model.ids import TopicId
from tidemark.model.topics import Topics

_HASH_BYTES: Final = 8


class SubscribedTopic(NamedTuple):
    """A topic that exists and that some member subscribes to."""

    name: str
    partition_count: int


SubscribedTopics = Mapping[TopicId, SubscribedTopic]


def subscribed_topics(
    subscriptions: Iterable[tuple[str, ...]], topics: Topics
) -> dict[TopicId, SubscribedTopic]:
    """Those of all subscriptions that exist, by name in order."""
    names = {name for subscription in set(subscriptions) for name in subscription}
    return {
        topic_id: SubscribedTopic(name, topics.partition_count(name))
        for name in sorted(names)
        if (topic_id := topics.topic_id_of(name)) is not None
    }


def metadata_hash(subscribed: SubscribedTopics) -> int:
    """A number that another set of topics, or other counts of partitions, would hardly have; 0 for
    no topics.
    """
    if not subscribed:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for topic_id in sorted(subscribed):
        topic = subscribed[topic_id]
        digest.update(topic_id + topic.partition_count.to_bytes(4, "big"))
        digest.update(topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)
