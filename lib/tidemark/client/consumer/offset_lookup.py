"""Lookup of offsets at the leaders, with retries; used by consumers and admin clients."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.cluster import Cluster
from tidemark.client.wire.transport import OffsetItem, OffsetOutcome, Transport
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock


class OffsetAndTimestamp(NamedTuple):
    """Place of a record; ``timestamp_ms`` is -1 for an end of the log."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class OffsetLookup:
    """ListOffsets at all leaders, until all have answered or the deadline has passed."""

    def __init__(
        self, cluster: Cluster, transport: Transport, config: ClientConfig, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._transport = transport
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._clock = clock

    async def look_up(
        self,
        queries: Mapping[TopicPartition, int],
        *,
        allowed_ms: int,
        read_committed: bool = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset of each timestamp in ms, or OffsetSpec. Raises ClientError.

        The offset is -1 if there is no record at or after the timestamp.
        """
        deadline = Deadline.after(allowed_ms, self._clock.now_ms())
        self._cluster.cache.want({partition.topic for partition in queries})
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        failures = 0
        while left := {
            partition: queries[partition] for partition in queries if partition not in found
        }:
            problem = await self._round(left, found, deadline, read_committed=read_committed)
            if problem is None:
                continue
            failures += 1
            if self._cluster.gives_up(problem.code, deadline):
                raise problem
            self._cluster.cache.mark_stale()
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)
        return {partition: found[partition] for partition in queries}

    async def _round(
        self,
        left: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
        deadline: Deadline,
        *,
        read_committed: bool,
    ) -> ClientError | None:
        """Ask each leader once; return a failure, if any."""
        problem: ClientError | None = None
        by_broker: dict[int, list[OffsetItem]] = defaultdict(list)
        for partition, timestamp_ms in left.items():
            view = await self._cluster.topic(partition.topic, deadline)
            if not 0 <= partition.partition < len(view.partitions):
                return error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{partition} does not exist: the topic has {len(view.partitions)} partitions",
                )
            leader = self._cluster.cache.leader(partition)
            if leader is None:
                problem = error_for(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader to ask for offsets"
                )
                continue
            by_broker[leader.broker_id].append(
                OffsetItem(partition, leader.topic_id, leader.leader_epoch, timestamp_ms)
            )
        for broker_id, items in by_broker.items():
            try:
                outcomes = await self._transport.list_offsets(
                    broker_id, items, read_committed=read_committed
                )
            except ClientError as failed:
                problem = failed
                continue
            where = self._transport.where(broker_id)
            problem = _collect(outcomes, found, where) or problem
            answered = {outcome.partition for outcome in outcomes}
            if any(item.partition not in answered for item in items):
                return error_for(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "the answer to ListOffsets leaves a partition out",
                    where=where,
                )
        return problem


def _collect(
    outcomes: list[OffsetOutcome],
    found: dict[TopicPartition, OffsetAndTimestamp],
    where: str,
) -> ClientError | None:
    problem: ClientError | None = None
    for outcome in outcomes:
        if outcome.error_code:
            problem = error_for(
                outcome.error_code,
                f"looking up an offset of {outcome.partition} failed",
                where=where,
            )
        else:
            found[outcome.partition] = OffsetAndTimestamp(
                outcome.offset, outcome.timestamp_ms, outcome.leader_epoch
            )
    return problem
