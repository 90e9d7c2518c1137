"""Start offsets of a share group: describe, reset, forget.

They may be changed only while the group has no members and no transaction holds its records. A
reset begins a share-partition under a higher state epoch: acknowledgements and delivery counts are
forgotten, and a leader that still has the window before it is refused.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tidemark.codec.share_records import ShareRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_EPOCH, Offset, TopicId
from tidemark.model.share_state import UNKNOWN_COUNT, UNKNOWN_START, SharePartitionKey
from tidemark.model.topics import Topics

from share_coordinator.core import initialization
from share_coordinator.core.group_state import ShareGroupState
from share_coordinator.core.initialization import Start
from share_coordinator.core.requests import (
    AlterOffsets,
    AlterOffsetsReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    DescribedOffset,
    DescribedTopic,
    DescribeOffsets,
    DescribeOffsetsReply,
    NewOffset,
    PartitionResult,
    TopicPartitions,
    TopicResult,
    TopicResults,
)
from share_coordinator.core.share_states import ShareStates

HELD: Final = "acknowledgements of an open transaction are pending: end it first"


class Changed(NamedTuple):
    """Records to append, the reply once they are committed, and share-partitions whose state begins
    again or ends.
    """

    records: list[ShareRecord]
    reply: AlterOffsetsReply | DeleteOffsetsReply
    keys: tuple[SharePartitionKey, ...] = ()


def describe(
    group: ShareGroupState, states: ShareStates, request: DescribeOffsets
) -> DescribeOffsetsReply:
    """Start offsets as the log has them."""
    asked = _all(group) if request.topics is None else request.topics
    return DescribeOffsetsReply(
        ErrorCode.NONE,
        topics=tuple(
            DescribedTopic(
                one.topic_id,
                one.topic,
                tuple(
                    _described(group.group_id, states, one.topic_id, partition)
                    for partition in one.partitions
                ),
            )
            for one in asked
        ),
    )


def alter(
    group: ShareGroupState,
    states: ShareStates,
    request: AlterOffsets,
    topics: Topics,
    wall_ms: int,
) -> Changed:
    """Begin share-partitions again; each has a result of its own."""
    starts: dict[tuple[TopicId, int], Start] = {}
    results: list[TopicResults] = []
    for topic_id, topic, offsets in request.topics:
        partitions: list[PartitionResult] = []
        count = _partition_count(topics, topic_id)
        for one in offsets:
            key = SharePartitionKey(group.group_id, topic_id, one.partition)
            result = _problem(one, count) or _held(states, key, one.partition)
            if result.error_code is ErrorCode.NONE:
                start = Start(topic_id, topic, one.partition, one.start_offset)
                starts[topic_id, one.partition] = start
            partitions.append(result)
        results.append(TopicResults(topic_id, topic, tuple(partitions)))
    records = initialization.begin(group, states, starts.values(), wall_ms)
    keys = tuple(SharePartitionKey(group.group_id, *part) for part in starts)
    return Changed(records, AlterOffsetsReply(ErrorCode.NONE, topics=tuple(results)), keys)


def delete(group: ShareGroupState, states: ShareStates, request: DeleteOffsets) -> Changed:
    """Forget topics whole; each has a result of its own."""
    known = {topic_id for topic_id, _ in states.of_group(group.group_id)} | set(group.topics)
    asked = {one.topic_id for one in request.topics} & known
    held = {one for one in asked if states.has_pending(keys_of(group.group_id, states, (one,)))}
    gone = asked - held
    results = tuple(_forgotten(one, gone, held) for one in request.topics)
    keys = keys_of(group.group_id, states, gone)
    records = initialization.delete(group, states, gone)
    return Changed(records, DeleteOffsetsReply(ErrorCode.NONE, topics=results), keys)


def keys_of(
    group_id: str, states: ShareStates, topic_ids: Iterable[TopicId]
) -> tuple[SharePartitionKey, ...]:
    """Share-partitions of a group that have a state, in these topics."""
    wanted = set(topic_ids)
    return tuple(
        SharePartitionKey(group_id, topic_id, partition)
        for topic_id, partition in states.of_group(group_id)
        if topic_id in wanted
    )


def _forgotten(
    one: TopicPartitions, gone: Collection[TopicId], held: Collection[TopicId]
) -> TopicResult:
    if one.topic_id in gone:
        return TopicResult(one.topic_id, one.topic, ErrorCode.NONE)
    if one.topic_id in held:
        return TopicResult(one.topic_id, one.topic, ErrorCode.UNSTABLE_OFFSET_COMMIT, HELD)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message = f"the group has no offsets in topic {one.topic}"
    return TopicResult(one.topic_id, one.topic, code, message)


def _held(states: ShareStates, key: SharePartitionKey, partition: int) -> PartitionResult:
    if states.has_pending((key,)):
        return PartitionResult(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT, HELD)
    return PartitionResult(partition, ErrorCode.NONE)


def _all(group: ShareGroupState) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id, topic.name, tuple(sorted(topic.partitions)))
        for topic_id, topic in sorted(group.topics.items())
    )


def _described(
    group_id: str, states: ShareStates, topic_id: TopicId, partition: int
) -> DescribedOffset:
    state = states.of(SharePartitionKey(group_id, topic_id, partition))
    if state is None:
        return DescribedOffset(partition, UNKNOWN_START, NO_EPOCH, UNKNOWN_COUNT)
    return DescribedOffset(
        partition, state.start_offset, state.leader_epoch, state.delivery_complete_count
    )


def _partition_count(topics: Topics, topic_id: TopicId) -> int:
    name = topics.name_of(topic_id)
    return topics.partition_count(name) if name is not None else 0


def _problem(one: NewOffset, partition_count: int) -> PartitionResult | None:
    if not 0 <= one.partition < partition_count:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResult(one.partition, code, "there is no such partition")
    if one.start_offset < Offset(0):
        message = f"a start offset of {one.start_offset}; the first offset is 0"
        return PartitionResult(one.partition, ErrorCode.INVALID_REQUEST, message)
    return None
