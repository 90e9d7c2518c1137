"""Initialization of share-partitions: those of subscribed topics without a state.

The group's records and the states lie in one shard, so that a share-partition is initialized by the
decision that first assigns it. The start offsets of a topic that is new to the group come from the
group's configuration, by the first leader that reads the state. Partitions that are added to a
topic of the group start at 0, so that no record that was produced meanwhile is skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tidemark.codec.share_records import ShareRecord, ShareStateRecord
from tidemark.model.ids import Offset, TopicId
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeleteState,
    InitializeState,
    SharePartitionKey,
)

from share_coordinator.core.group_state import KnownTopic, ShareGroupState
from share_coordinator.core.share_states import ShareStates
from share_coordinator.core.subscribed_topics import SubscribedTopics

FIRST_OFFSET: Final = Offset(0)


class Start(NamedTuple):
    """Start of a share-partition."""

    topic_id: TopicId
    topic: str
    partition: int
    start_offset: Offset


def missing(group: ShareGroupState, subscribed: SubscribedTopics) -> list[Start]:
    """Share-partitions that the group's members may read and that have no state."""
    starts: list[Start] = []
    for topic_id, topic in subscribed.items():
        known = group.topics.get(topic_id)
        start_offset = UNKNOWN_START if known is None else FIRST_OFFSET
        has_state = known.partitions if known is not None else frozenset[int]()
        starts += (
            Start(topic_id, topic.name, partition, start_offset)
            for partition in range(topic.partition_count)
            if partition not in has_state
        )
    return starts


def begin(
    group: ShareGroupState, states: ShareStates, starts: Iterable[Start], wall_ms: int
) -> list[ShareRecord]:
    """Records that begin these share-partitions, or begin them again."""
    starts = list(starts)
    if not starts:
        return []
    keys = [SharePartitionKey(group.group_id, one.topic_id, one.partition) for one in starts]
    epoch = states.fresh_epoch(keys, wall_ms)
    records: list[ShareRecord] = []
    for key, one in zip(keys, starts, strict=True):
        request = InitializeState(key, epoch, one.start_offset)
        records += states.initialize(request, wall_ms).records
    # The states go first: if the log ends between them, the next owner deletes the states.
    records.append(group.topics_record(_with(group.topics, starts)))
    return records


def delete(
    group: ShareGroupState, states: ShareStates, topic_ids: Iterable[TopicId]
) -> list[ShareRecord]:
    """Records that delete all state of these topics in the group."""
    gone = set(topic_ids)
    records: list[ShareRecord] = list(_tombstones(group.group_id, states, gone))
    left = {topic_id: one for topic_id, one in group.topics.items() if topic_id not in gone}
    if len(left) < len(group.topics):
        records.append(group.topics_record(left))
    return records


def unlisted(
    states: ShareStates, listed: Callable[[str], Mapping[TopicId, KnownTopic]]
) -> Iterator[ShareStateRecord]:
    """Records that delete states which their groups do not list: the list was cut off."""
    for key in states.share_partitions():
        topic = listed(key.group_id).get(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            yield from states.delete(DeleteState(key)).records


def broken_topics(group: ShareGroupState, states: ShareStates) -> list[TopicId]:
    """Topics whose deletion was cut off: some of their share-partitions have no state left."""
    kept = states.of_group(group.group_id)
    return [
        topic_id
        for topic_id, topic in group.topics.items()
        if any((topic_id, partition) not in kept for partition in topic.partitions)
    ]


def _tombstones(
    group_id: str, states: ShareStates, topic_ids: set[TopicId]
) -> Iterable[ShareStateRecord]:
    for topic_id, partition in states.of_group(group_id):
        if topic_id in topic_ids:
            key = SharePartitionKey(group_id, topic_id, partition)
            yield from states.delete(DeleteState(key)).records


def _with(known: Mapping[TopicId, KnownTopic], starts: list[Start]) -> dict[TopicId, KnownTopic]:
    topics = dict(known)
    begun: dict[TopicId, set[int]] = {}
    for one in starts:
        begun.setdefault(one.topic_id, set()).add(one.partition)
        topics.setdefault(one.topic_id, KnownTopic(one.topic, frozenset()))
    for topic_id, partitions in begun.items():
        before = topics[topic_id]
        topics[topic_id] = KnownTopic(before.name, before.partitions | partitions)
    return topics
