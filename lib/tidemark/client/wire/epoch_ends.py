"""OffsetForLeaderEpoch: where the records of an epoch end in the leader's log (KIP-320)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from tidemark.client.errors import UnsupportedVersionError
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.transport import EpochItem, EpochOutcome
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_CONSUMER: Final = -1
_CONSUMERS_FROM: Final = 3
"""First version for consumers; earlier ones need the rights of a broker."""


class _Asks(Protocol):
    async def ask(
        self, connection: BrokerConnection, api_key: ApiKey, fields: Mapping[str, object]
    ) -> Struct: ...


async def ask_epoch_ends(
    transport: _Asks, connection: BrokerConnection, items: Sequence[EpochItem]
) -> list[EpochOutcome]:
    """Ask the broker of one connection. Raises ClientError."""
    if connection.version(ApiKey.OFFSET_FOR_LEADER_EPOCH) < _CONSUMERS_FROM:
        raise UnsupportedVersionError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the broker does not tell consumers where epochs end",
            where=str(connection.address),
        )
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in items:
        topics[item.partition.topic].append(
            {
                "partition": item.partition.partition,
                "current_leader_epoch": item.leader_epoch,
                "leader_epoch": item.epoch,
            }
        )
    fields = {
        "replica_id": _CONSUMER,
        "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
    }
    answer = await transport.ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, fields)
    return [
        EpochOutcome(
            TopicPartition(topic.topic, each.partition),
            each.error_code,
            each.leader_epoch,
            each.end_offset,
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
