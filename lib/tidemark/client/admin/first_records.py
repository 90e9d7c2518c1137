"""Age of the record at an offset, by one read of each partition, for the time lag."""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.client.config import IsolationLevel
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.deadline import Deadline
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

_POLL_MS: Final = 500
_BYTES_EACH: Final = 4_096  # the first batch is returned whole, however large it is


async def first_timestamps(
    bootstrap: str,
    offsets: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel,
    wait_ms: int = 5_000,
    settings: Mapping[str, Any] | None = None,
) -> dict[TopicPartition, int]:
    """Return timestamps in ms of the first readable records at or after these offsets, without
    partitions that have none within ``wait_ms``. ``settings``: others of the consumer, such as its
    login. Raises ClientError.
    """
    found: dict[TopicPartition, int] = {}
    if not offsets:
        return found
    clock = Clock()
    deadline = Deadline.after(wait_ms, clock.now_ms())
    async with Consumer(
        bootstrap,
        isolation_level=isolation,
        max_partition_fetch_bytes=_BYTES_EACH,
        auto_offset_reset="earliest",
        **(settings or {}),
    ) as consumer:
        consumer.assign(offsets)
        for partition, offset in offsets.items():
            consumer.seek(partition, offset)
        while len(found) < len(offsets) and not deadline.passed(clock.now_ms()):
            left_ms = int(min(_POLL_MS, deadline.left_ms(clock.now_ms())))
            for record in await consumer.poll(timeout_ms=left_ms):
                partition = TopicPartition(record.topic, record.partition)
                found.setdefault(partition, record.timestamp_ms)
                consumer.pause(partition)
    return found
