"""What tests ask a real cluster over bare connections: topics, leaders, batches as they are stored.

`kafka_wire.Wire` is one connection to one port; here are the questions about a whole cluster.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from e2e.clusters import Cluster
from e2e.kafka_wire import Wire
from tidemark.codec.record_batch import BatchHeader, crc_matches, iterate_headers
from tidemark.codec.records import Record, read_records
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import FetchedPartition
from tidemark.kafka.long_tail import Struct
from tidemark.kafka.metadata import MetadataTopic
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

WAIT_S = PATIENCE_S
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6


class Batch(NamedTuple):
    """One whole batch as it came from a broker."""

    header: BatchHeader
    data: bytes

    @property
    def records(self) -> list[Record]:
        return read_records(self.data, self.header)


def connect(address: str) -> Wire:
    """A connection to ``host:port``."""
    return Wire(int(address.rpartition(":")[2]), timeout_s=WAIT_S)


def ask(wire: Wire, api_key: ApiKey, version: int, fields: Mapping[str, object]) -> Struct:
    """A request of the long tail and its answer."""
    body = long_tail.write_request(api_key, version, fields)
    return long_tail.read_response(api_key, version, wire.ask(api_key, version, body))


def live_brokers(cluster: Cluster) -> list[int]:
    """Numbers of the brokers whose process lives."""
    return [
        member.number
        for member in cluster.layout.members()
        if member.kind == "broker" and member.name in cluster.running()
    ]


def topic_at(address: str, topic: str) -> MetadataTopic:
    """A topic as one broker tells it; never creates it."""
    with connect(address) as wire:
        (found,) = wire.metadata(topic).topics
        return found


def asked_to_create(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    *,
    leaders: Sequence[int] | None = None,
    configs: Mapping[str, object] | None = None,
) -> Any:
    """Ask for a topic; return the row of CreateTopicsResponse, which may name an error."""
    chosen = [
        {"partition_index": number, "broker_ids": [broker]}
        for number, broker in enumerate(leaders or ())
    ]
    asked = {
        "name": topic,
        "num_partitions": -1 if chosen else partitions,
        "replication_factor": -1 if chosen else 1,
        "assignments": chosen,
        "configs": [
            {"name": key.replace("_", "."), "value": str(value)}
            for key, value in (configs or {}).items()
        ],
    }
    with connect(cluster.kafka(live_brokers(cluster)[0])) as wire:
        answer = ask(
            wire,
            ApiKey.CREATE_TOPICS,
            CREATE_TOPICS_VERSION,
            {"topics": [asked], "timeout": PATIENCE_MS},
        )
    (made,) = answer.topics
    return made


def create_topic(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    *,
    leaders: Sequence[int] | None = None,
    configs: Mapping[str, object] | None = None,
) -> bytes:
    """Make a topic, wait until every live broker knows it, and give its id.

    ``leaders``: the broker of each partition; by default the controller chooses.
    """
    live = live_brokers(cluster)
    made = asked_to_create(cluster, topic, partitions, leaders=leaders, configs=configs)
    assert made.error_code == ErrorCode.NONE, (made.error_code, made.error_message)

    def knows(broker: int) -> bool:
        return topic_at(cluster.kafka(broker), topic).topic_id == bytes(made.topic_id)

    for broker in live:
        wait_for(partial(knows, broker), f"broker {broker} knows {topic}")
    return bytes(made.topic_id)


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Delete a topic; it is gone from the broker that was asked."""
    with connect(cluster.kafka(live_brokers(cluster)[0])) as wire:
        answer = ask(
            wire,
            ApiKey.DELETE_TOPICS,
            DELETE_TOPICS_VERSION,
            {"topics": [{"name": topic, "topic_id": bytes(16)}], "timeout": PATIENCE_MS},
        )
    assert [one.error_code for one in answer.responses] == [ErrorCode.NONE]


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """The broker that leads a partition."""
    address = cluster.kafka(live_brokers(cluster)[0])

    def leader() -> int | None:
        found = topic_at(address, topic)
        leaders = {one.partition: one.leader_id for one in found.partitions}
        return leaders[partition] if leaders.get(partition, -1) >= 0 else None

    return wait_for(leader, f"{topic}-{partition} has a leader")


def to_leader(cluster: Cluster, topic: str, partition: int = 0) -> Wire:
    """A connection to the broker that leads a partition."""
    return connect(cluster.kafka(leader_of(cluster, topic, partition)))


def to_another(cluster: Cluster, topic: str, partition: int = 0) -> Wire:
    """A connection to a live broker that does not lead a partition."""
    leader = leader_of(cluster, topic, partition)
    other = next(broker for broker in live_brokers(cluster) if broker != leader)
    return connect(cluster.kafka(other))


def batches_of(fetched: FetchedPartition) -> list[Batch]:
    """The whole batches of one fetched partition; each one's CRC is right."""
    assert fetched.result.error_code == ErrorCode.NONE, ErrorCode(fetched.result.error_code)
    data = memoryview(fetched.records or b"")
    batches = []
    for position, header in iterate_headers(data):
        view = data[position : position + header.size_bytes]
        assert crc_matches(view, header)
        batches.append(Batch(header, bytes(view)))
    return batches


def stored(wire: Wire, topic: str, partition: int = 0, offset: int = 0) -> list[Batch]:
    """All batches of a partition from an offset on, over its leader's connection."""
    found: list[Batch] = []
    while True:
        (of_topic,) = wire.fetch((topic, partition, offset)).topics
        more = batches_of(of_topic.partitions[0])
        if not more:
            return found
        found += more
        offset = more[-1].header.last_offset + 1


def stored_records(wire: Wire, topic: str, partition: int = 0, offset: int = 0) -> list[Record]:
    """All records of a partition from an offset on."""
    return [
        record
        for batch in stored(wire, topic, partition, offset)
        for record in batch.records
        if record.offset >= offset
    ]
