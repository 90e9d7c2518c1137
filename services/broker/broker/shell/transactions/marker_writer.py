"""MarkerWriter: appends of the markers that end transactions.

Coordinators send markers over gRPC, administrators over Kafka's protocol. A marker for the state of
share groups goes on to the share-coordinator that owns the shard: only the owner appends there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from tidemark.protocol.shard import Writer
from tidemark.runtime.clock import Clock

from broker.core.commit_wait import CommitWait
from broker.core.partition import Role
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot

COMMIT_WAIT_MS: Final = 10_000
"""Longest wait for the in-sync replicas, from the append on. It is one wait for all markers of a
request, whose answer is to come within marker.request.timeout.ms.
"""
BUMPED_FROM: Final = 2
"""Lowest ``transaction_version`` whose markers carry a producer epoch above that of the records."""


class Ending(NamedTuple):
    """End of one producer's transaction."""

    writer: Writer
    marker: EndTxnMarker
    bumped: bool
    """True if its epoch is above that of the transaction's records (transactions v2)."""


class Relay:
    """A marker on its way to the share-coordinator that owns a shard."""

    __slots__ = ("_call", "_outcome")

    def __init__(self, call: Callable[[], Awaitable[tuple[ErrorCode, str]]]) -> None:
        self._call = call
        self._outcome: tuple[ErrorCode, str] | None = None

    async def outcome(self) -> tuple[ErrorCode, str]:
        """Return the outcome, after the call if it was not made yet."""
        if self._outcome is None:
            self._outcome = await self._call()
        return self._outcome


class Written(NamedTuple):
    """Result of one target so far; ``commit`` or ``relay`` has to be waited for."""

    error_code: ErrorCode
    message: str
    commit: CommitWait[HostedPartition] | None = None
    due: InstantMs = InstantMs(0)
    """End of the wait for ``commit``."""
    relay: Relay | None = None


class ReplaysMarkers(Protocol):
    """The group coordinator, as far as markers in its partitions concern it."""

    def is_serving(self, partition: int) -> bool:
        """True if the shard of that partition of __consumer_offsets is loaded here."""
        ...

    def transaction_ended(
        self, hosted: HostedPartition, writer: Writer, end: int, *, commits: bool
    ) -> None:
        """Apply a marker that was appended below offset ``end``."""
        ...


class EndsShareTransactions(Protocol):
    """The share-coordinators, as far as markers in the state of share groups concern them."""

    async def end_transaction(
        self, shard: int, producer_id: int, open_from: int, *, commits: bool
    ) -> tuple[ErrorCode, str | None]:
        """End a producer's transactions with an epoch below ``open_from`` in one shard."""
        ...


class MarkerWriter:
    """Appends markers to partitions that this broker leads."""

    def __init__(
        self,
        clock: Clock,
        appender: PartitionAppender,
        parked: ParkingLot,
        groups: ReplaysMarkers,
        share_groups: EndsShareTransactions,
    ) -> None:
        self._clock = clock
        self._appender = appender
        self._parked = parked
        self._groups = groups
        self._share_groups = share_groups

    def write(self, hosted: HostedPartition, ending: Ending) -> Written:
        """Append one marker, if it is not there already."""
        number = hosted.topic_partition.partition
        if hosted.topic_partition.topic == SHARE_GROUP_STATE:
            return Written(
                ErrorCode.NONE, "", relay=Relay(partial(self._end_at_owner, hosted, ending))
            )
        if hosted.topic_partition.topic == TRANSACTION_STATE:
            words = f"no transaction writes to {TRANSACTION_STATE}"
            return Written(ErrorCode.INVALID_REQUEST, words)
        is_groups = hosted.topic_partition.topic == CONSUMER_OFFSETS
        if is_groups and not self._groups.is_serving(number):
            return Written(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group's shard is being loaded"
            )
        batch = build_marker(
            ending.marker,
            producer_id=ending.writer.producer_id,
            producer_epoch=ending.writer.producer_epoch,
            timestamp=self._clock.wall_ms(),
        )
        end_before = hosted.partition.log_end
        outcome = self._appender.append_internal(
            hosted, batch, control=ending.marker, bumped=ending.bumped
        )
        if outcome.error_code is not ErrorCode.NONE:
            return Written(outcome.error_code, outcome.message or "")
        if is_groups and outcome.end > end_before:
            self._groups.transaction_ended(
                hosted, ending.writer, outcome.end, commits=ending.marker.commits
            )
        if not outcome.must_wait:
            return Written(ErrorCode.NONE, "")
        due = InstantMs(self._clock.now_ms() + COMMIT_WAIT_MS)
        return Written(ErrorCode.NONE, "", CommitWait.of(hosted, outcome.end), due)

    async def _end_at_owner(self, hosted: HostedPartition, ending: Ending) -> tuple[ErrorCode, str]:
        """Let the owner of a shard of share groups write the end."""
        if hosted.partition.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "not the leader"
        writer = ending.writer
        code, message = await self._share_groups.end_transaction(
            hosted.topic_partition.partition,
            writer.producer_id,
            writer.producer_epoch + (0 if ending.bumped else 1),
            commits=ending.marker.commits,
        )
        return code, message or ""

    async def relay(self, written: Iterable[Written]) -> None:
        """Make all calls to share-coordinators together: one that is slow delays the answers about
        other partitions only once.
        """
        async with asyncio.TaskGroup() as tasks:
            for one in written:
                if one.relay is not None:
                    tasks.create_task(one.relay.outcome())

    async def settled(self, written: Written) -> tuple[ErrorCode, str]:
        """Return the outcome of one target, once the in-sync replicas have it or the wait has
        ended.
        """
        code, message, commit, due, relay = written
        if relay is not None:
            return await relay.outcome()
        if commit is not None:
            wait_ms = due - self._clock.now_ms()
            if wait_ms > 0 and not commit.is_lost and not commit.is_committed:
                await self._parked.wait_committed(commit.hosted, commit.end, wait_ms=wait_ms)
            if commit.is_lost or not commit.is_committed:
                return commit.failure(), "appended, but not replicated in time"
        return code, message
