"""HostedPartition, and the outcomes of its appends and reads."""

import asyncio
from collections.abc import Hashable
from typing import NamedTuple

from tidemark.model.authorization import topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import TopicImage
from tidemark.model.topics import INTERNAL_TOPICS

from broker.core.partition import Partition, Role
from broker.shell.counters import TopicCounters
from broker.shell.partitions.replica_move import ReplicaMove
from broker.storage.log import Log, LogRead
from broker.storage.log_manager import LogManager
from broker.storage.recompression import BatchRule


class HostedPartition:
    """One partition on this broker: its decisions and its log."""

    __slots__ = (
        "__weakref__",
        "checked_at",
        "counters",
        "is_internal",
        "log",
        "manager",
        "move",
        "partition",
        "resource",
        "rule",
        "start",
        "tail",
        "topic_id",
        "topic_partition",
        "turns",
        "unsound_since",
        "verifying",
    )

    def __init__(
        self, topic: TopicImage, partition: Partition, hosted_log: Log, manager: LogManager
    ) -> None:
        self.topic_id = topic.topic_id
        self.topic_partition = partition.topic_partition
        self.partition = partition
        self.log = hosted_log
        self.manager = manager
        self.move: ReplicaMove | None = None
        """Move to another log directory that goes on, or None."""
        self.resource = topic_resource(topic.name)
        self.is_internal = topic.name in INTERNAL_TOPICS
        self.counters = TopicCounters()
        self.tail = object()
        """Key of followers' long polls, which wait for the log's end; consumers' polls wait for the
        high watermark of the partition itself.
        """
        self.start = object()
        """Key of deletions, which wait for the log start of the in-sync replicas."""
        self.rule: BatchRule | None = None
        """Rule that a worker applies to a batch before it is stored (keys, compression.type); None:
        none.
        """
        self.turns: dict[Hashable, asyncio.Future[None]] = {}
        """By lane (a connection): done when its last append that went through a worker has ended;
        keeps their order.
        """
        self.unsound_since: int | None = None
        """Last leader epoch in which it fetched before its disk was found to have failed or lost
        bytes; None: no failure is known.
        """
        self.checked_at = -1
        """Offset that a follower last asked for twice."""
        self.verifying: dict[int, asyncio.Future[None]] = {}
        """By producer id: done when its last append that the coordinator verified first has
        ended.
        """

    @property
    def is_unsound(self) -> bool:
        """True if its disk failed or lost bytes: it is no witness of what was committed."""
        return self.log.damage is not None or self.partition.role is Role.FAILED


class AppendOutcome(NamedTuple):
    """Outcome of one partition's batches. ``end`` is exclusive; -1 with an error."""

    error_code: ErrorCode
    base_offset: int
    end: int
    log_append_time_ms: int
    log_start: int
    must_wait: bool
    """True if the answer must wait until the high watermark reaches ``end``."""
    message: str | None
    refused_records: tuple[int, ...] = ()
    """Indexes of the records that are at fault in a refused batch."""
    is_correctable: bool = False
    """True if the batch can be appended once a worker has set it right. Until it is given up, it is
    not counted as failed.
    """


class ReadOutcome(NamedTuple):
    """Result of a read. ``read`` is None with an error, and if nothing is readable."""

    error_code: ErrorCode
    read: LogRead | None
    high_watermark: int
    last_stable: int
    log_start: int
    diverging: tuple[int, int] | None = None
    """(leader epoch, end offset) up to which a follower's log may be the leader's (KIP-595)."""
    aborted: list[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions in what was read; None: none."""
    preferred_replica: int = -1
    """Follower that the consumer should read from instead (KIP-392); -1: none."""
