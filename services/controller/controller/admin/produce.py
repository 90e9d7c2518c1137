"""Records produced through REST: as Confluent's `records` and `records:batch`."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field
from tidemark.client.config import ProducerConfig
from tidemark.client.errors import ClientError
from tidemark.client.producer.batches import RecordMetadata
from tidemark.client.producer.producer import Producer
from tidemark.model.authorization import Operation, topic_resource

from controller.admin import topics
from controller.admin.broker_calls import CLIENT_ID
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, bad_value, from_cluster, unknown_topic
from controller.admin.models import Input
from controller.admin.payloads import Encoding, base64_bytes, encode

RECORDS_MAX: Final = 1_000
_ENCODINGS: Final[dict[str, Encoding]] = {"JSON": "json", "STRING": "string", "BINARY": "binary"}


class RecordPart(Input):
    """Key or value: JSON (the default), STRING, or BINARY as Base64."""

    type: Literal["JSON", "STRING", "BINARY"] = Field(default="JSON", examples=["JSON"])
    data: Any = Field(default=None, examples=[{"id": 7}])


class RecordHeader(Input):
    """Header of a record; ``value`` is Base64."""

    name: str = Field(max_length=1_024, examples=["trace"])
    value: str | None = Field(default=None, examples=["YWJj"])


class NewRecord(Input):
    """Record to produce. Without a partition the key decides, as in Kafka's clients."""

    partition_id: int | None = Field(default=None, ge=0, lt=2**31, examples=[0])
    headers: list[RecordHeader] = Field(default=[], max_length=100)
    key: RecordPart | None = None
    value: RecordPart | None = None
    timestamp: datetime | None = Field(default=None, description="time of the record; default: now")


async def produce(
    ctx: AdminContext, topic: str, records: list[NewRecord]
) -> list[RecordMetadata | AdminError]:
    """Append records, each alone, with acks=all; return place or error of each, in order. Raises
    AdminError for a topic that does not exist.
    """
    ctx.require(Operation.WRITE, topic_resource(topic))
    count = len(ctx.topic(topic).partitions)
    if topics.is_internal(topic):
        raise bad_value(f"{topic} is written by brokers and coordinators only", field="topic_name")
    config = ProducerConfig(
        client_id=CLIENT_ID,
        request_timeout_ms=ctx.brokers.change_ms,
        delivery_timeout_ms=ctx.brokers.change_ms + 1_000,
        connections_setup_timeout_ms=ctx.brokers.timeout_ms,
        max_block_ms=ctx.brokers.change_ms,
        allow_auto_create_topics=False,
        linger_ms=0,
        **ctx.brokers.kafka_security,
    )
    results: list[RecordMetadata | AdminError] = []
    async with Producer(ctx.brokers.bootstrap(), config) as producer:
        for record in records:
            try:
                results.append(await _send(producer, topic, record, count))
            except AdminError as problem:
                results.append(problem)
            except ClientError as problem:
                results.append(from_cluster(problem))
    return results


async def _send(
    producer: Producer, topic: str, record: NewRecord, partitions: int
) -> RecordMetadata:
    number = record.partition_id
    if number is not None and number >= partitions:
        raise unknown_topic(topic, number)
    return await producer.send(
        topic,
        key=_bytes(record.key, "key"),
        value=_bytes(record.value, "value"),
        partition=number,
        timestamp_ms=None if record.timestamp is None else _milliseconds(record.timestamp),
        headers=[
            (each.name, None if each.value is None else base64_bytes(each.value, "headers.value"))
            for each in record.headers
        ],
    )


def _bytes(part: RecordPart | None, field: str) -> bytes | None:
    return None if part is None else encode(part.data, _ENCODINGS[part.type], f"{field}.data")


def _milliseconds(moment: datetime) -> int:
    try:
        found = int(moment.timestamp() * 1_000)
    except (OverflowError, OSError, ValueError):
        found = -1
    if found < 0:
        raise bad_value("the time is before 1970", field="timestamp")
    return found


def size_of(part: RecordPart | None) -> int | None:
    """Return the bytes of a key or value; None if it is null."""
    content = _bytes(part, "data")
    return None if content is None else len(content)
