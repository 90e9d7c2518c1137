"""The consumers' own protocol in JoinGroup and SyncGroup: subscriptions and assignments, as in
Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3.

subscription  version int16 · topics · user data; from 1 owned partitions; from 2 the generation in
              which they were assigned (KIP-792); from 3 the rack (KIP-881)
assignment    version int16 · partitions by topic · user data

A newer version begins as the newest known one does.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.codec.coordinator_fields import DamagedRecordError, FieldReader, FieldWriter

PROTOCOL_TYPE: Final = "consumer"
"""Protocol type of the groups whose members use this protocol."""
NO_GENERATION: Final = -1

_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3

PartitionsByName = Mapping[str, Sequence[int]]


class ConsumerSubscription(NamedTuple):
    """Subscription of a member."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Partitions that the member still has, by topic. An eager member has none when it joins."""
    generation: int = NO_GENERATION
    """Generation of those partitions; -1 if the member does not name it."""
    rack_id: str | None = None


def read_subscription(data: bytes) -> ConsumerSubscription:
    """Read a subscription. Raises DamagedRecordError for bytes that are none."""
    reader = FieldReader(data)
    version = _version(reader)
    topics = reader.array(reader.string)
    reader.nullable_octets()
    return ConsumerSubscription(
        version,
        topics,
        _partitions(reader) if version >= _OWNED_FROM else (),
        reader.int32() if version >= _GENERATION_FROM else NO_GENERATION,
        reader.nullable_string() if version >= _RACK_FROM else None,
    )


def write_subscription(subscription: ConsumerSubscription) -> bytes:
    """Return the bytes of a subscription without user data."""
    writer = FieldWriter(subscription.version)
    writer.array(subscription.topics, writer.string)
    writer.int32(-1)
    if subscription.version >= _OWNED_FROM:
        _write_partitions(writer, subscription.owned)
    if subscription.version >= _GENERATION_FROM:
        writer.int32(subscription.generation)
    if subscription.version >= _RACK_FROM:
        writer.string(subscription.rack_id)
    return writer.done()


def read_assignment(data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Read the partitions of an assignment by topic; none of empty bytes, which stand for no
    assignment. Raises DamagedRecordError.
    """
    if not data:
        return ()
    reader = FieldReader(data)
    _version(reader)
    return _partitions(reader)


def write_assignment(partitions: PartitionsByName, version: int) -> bytes:
    """Return the bytes of an assignment without user data."""
    writer = FieldWriter(version)
    _write_partitions(writer, [(name, tuple(partitions[name])) for name in sorted(partitions)])
    writer.int32(-1)
    return writer.done()


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if version < 0:
        raise DamagedRecordError(f"the consumer protocol has no version {version}")
    return version


def _partitions(reader: FieldReader) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return reader.array(lambda: (reader.string(), reader.array(reader.int32)))


def _write_partitions(
    writer: FieldWriter, partitions: Sequence[tuple[str, tuple[int, ...]]]
) -> None:
    def write_topic(topic: tuple[str, tuple[int, ...]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], writer.int32)

    writer.array(partitions, write_topic)
