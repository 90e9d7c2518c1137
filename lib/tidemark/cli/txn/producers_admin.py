"""Calls of ``tidemark producers``."""

from collections.abc import Sequence
from typing import Any

from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

Row = dict[str, Any]


async def list_all(
    bootstrap: str, topics: Sequence[str], numbers: Sequence[int], *, open_only: bool
) -> list[Row]:
    """Return a row for each producer of each partition. Raises UnknownTopicOrPartitionError,
    CommandError for a partition that does not exist.
    """
    async with open_admin(bootstrap) as admin:
        described = await admin.describe_topics(topics)
        wanted = [
            TopicPartition(name, each.partition)
            for name in topics
            for each in described[name].partitions
            if not numbers or each.partition in numbers
        ]
        if not wanted:
            raise CommandError(
                f"no topic of {', '.join(topics)} has such a partition", code=ExitCode.USAGE
            )
        producers = await admin.describe_producers(wanted)
        ids = {each.producer_id for found in producers.values() for each in found}
        owners = {
            each.producer_id: each.transactional_id
            for each in (await admin.list_transactions(producer_ids=sorted(ids)) if ids else ())
        }
    now_ms = Clock().wall_ms()
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "idle_ms": max(0, now_ms - each.last_timestamp_ms)
            if each.last_timestamp_ms >= 0
            else None,
            "open_since_offset": each.current_txn_start_offset
            if each.current_txn_start_offset >= 0
            else None,
            "transactional_id": owners.get(each.producer_id),
        }
        for partition, found in sorted(producers.items())
        for each in found
        if not open_only or each.current_txn_start_offset >= 0
    ]
