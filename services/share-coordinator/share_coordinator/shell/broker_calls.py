"""Calls of the share-coordinator to brokers: ids of groups, windows of share-partitions, ends of
transactions.
"""

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, NO_EPOCH, LeaderEpoch
from tidemark.model.metadata import ClusterImage
from tidemark.model.partition_leader import find_leader
from tidemark.model.share_state import SharePartitionKey
from tidemark.model.topics import CONSUMER_OFFSETS, TopicPartition
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool, call_failures
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.task_parent import TaskParent
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import share_pb2_grpc

from share_coordinator.core.effects import TransactionsEnded
from share_coordinator.shell.wire_mapping import (
    read_group_id_answer,
    write_drop_windows,
    write_ended,
    write_load_windows,
    write_release,
    write_reserve,
)

log = logging.getLogger(__name__)

RESERVE_TIMEOUT_S: Final = 5.0
"""Time for a reservation; after that the heartbeat is refused, and its client repeats it."""
RELEASE_TIMEOUT_S: Final = 30.0
RELEASE_WAIT_S: Final = 5.0
"""Time for which the deletion of a group waits for the release of its id; shorter than the time
that a broker waits for the deletion.
"""
DROP_TIMEOUT_S: Final = 5.0
NOTICE_TIMEOUT_S: Final = 5.0
RELEASES_MAX: Final = 10_000
"""Releases that wait for a group coordinator. A further one is left to the group coordinator, which
verifies a reservation before it refuses an id.
"""

NOTICES_MAX: Final = 10_000
"""Ended transactions of which leaders are notified at a time. Others wait for their turn."""
NOTICES_WAITING_MAX: Final = 200_000
"""Ended transactions that wait for their turn. Of a further one leaders learn from the next owner
of the shard, or when they read the states.
"""
_BACKOFF: Final = Backoff(50, 10_000)
_NOT_READ: Final[Mapping[SharePartitionKey, LeaderEpoch]] = MappingProxyType({})

Reserved = Callable[[ErrorCode, str | None], None]
"""Called with the result of a reservation."""


class GroupCoordinators:
    """Leaders of the partitions of __consumer_offsets, as a CoordinatorDirectory."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def shard_count(self) -> int:
        """See CoordinatorDirectory."""
        topic = self._metadata.image.topics.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    def endpoint_of(self, shard: int) -> str:
        """See CoordinatorDirectory."""
        leader = find_leader(self._metadata.image, TopicPartition(CONSUMER_OFFSETS, shard))
        return "" if leader is None else leader.grpc_endpoint

    def endpoints(self) -> Sequence[str]:
        """See CoordinatorDirectory."""
        return sorted({self.endpoint_of(shard) for shard in range(self.shard_count())} - {""})

    async def refresh(self, wait_s: float) -> None:
        """See CoordinatorDirectory."""
        await self._metadata.wait_newer_or(self._metadata.image.position, wait_s)


class BrokerCalls:
    """Calls for the shards of one replica. They begin while ``run`` runs."""

    def __init__(
        self, metadata: MetadataCache, channels: ChannelPool, dice: Dice = random.random
    ) -> None:
        self._metadata = metadata
        self._channels = channels
        self._stub: Callable[[Any], Any] = share_pb2_grpc.ShareGroupsStub
        self._groups = CoordinatorClient(
            GroupCoordinators(metadata), channels, self._stub, dice=dice
        )
        self._dice = dice
        self._releases: dict[str, asyncio.Task[None]] = {}
        self._notice_count = 0
        self._notices: deque[tuple[TransactionsEnded, Callable[[], None]]] = deque()
        """Notices that wait for their turn. None may be forgotten: its leader holds the records of
        the transaction until it is notified.
        """
        self._tasks = TaskParent()

    async def run(self) -> None:
        """Make calls until cancelled."""
        await self._tasks.run()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Start work that ends with ``run``; None if it has ended."""
        return self._tasks.start(work, name)

    # -- group ids

    def reserve(self, group_id: str, owner_epoch: int, reserved: Reserved) -> None:
        """Reserve an id for a share group, and call ``reserved`` with the result."""
        self.start(self._reserve(group_id, owner_epoch, reserved), f"reserve-{group_id}")

    async def _reserve(self, group_id: str, owner_epoch: int, reserved: Reserved) -> None:
        release = self._releases.get(group_id)
        if release is not None:  # it must not undo the reservation
            release.cancel()
            await asyncio.wait((release,))
        try:
            request = write_reserve(group_id, owner_epoch)
            response = await self._groups.call(
                "ReserveGroupId", group_id, request, RESERVE_TIMEOUT_S
            )
            reserved(*read_group_id_answer(response))
        except TidemarkError as failure:
            words = fields(group=group_id, reason=failure.message)
            log.warning("group id not reserved", extra=words)
            reserved(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.message)

    def release(self, group_id: str, owner_epoch: int, done: Callable[[], None]) -> None:
        """Let groups of other types have an id. Call ``done`` when they may, or when it has failed
        or takes longer than RELEASE_WAIT_S. A failure is logged.
        """
        if len(self._releases) >= RELEASES_MAX:
            log.warning("group id not released", extra=fields(group=group_id, reason="too many"))
            done()
            return
        task = self.start(self._release(group_id, owner_epoch), f"release-{group_id}")
        if task is not None:
            self._releases[group_id] = task
            task.add_done_callback(lambda ended: self._released(group_id, ended))
            self.start(_wait_for(task, done), f"released-{group_id}")

    def _released(self, group_id: str, ended: asyncio.Task[None]) -> None:
        if self._releases.get(group_id) is ended:
            del self._releases[group_id]

    async def _release(self, group_id: str, owner_epoch: int) -> None:
        request = write_release(group_id, owner_epoch)
        try:
            response = await self._groups.call(
                "ReleaseGroupId", group_id, request, RELEASE_TIMEOUT_S
            )
            code, message = read_group_id_answer(response)
        except TidemarkError as failure:
            code, message = failure.code, failure.message
        if code is not ErrorCode.NONE:
            words = fields(group=group_id, error=code.name, reason=message)
            log.warning("group id not released", extra=words)

    # -- windows

    def drop_windows(self, keys: Collection[SharePartitionKey]) -> None:
        """Let the leaders of share-partitions drop their windows. One attempt: a leader that is not
        reached is fenced at its next write.
        """
        for endpoint, of_leader in by_leader(self._metadata.image, keys)[0].items():
            self.start(self._drop(endpoint, of_leader), f"drop-{endpoint}")

    async def _drop(self, endpoint: str, keys: Sequence[SharePartitionKey]) -> None:
        rpc = self._stub(await self._channels.channel(endpoint)).DropWindows
        try:
            with call_failures(endpoint):
                await rpc(write_drop_windows(keys), timeout=DROP_TIMEOUT_S)
        except CallFailedError as failure:
            words = fields(group=keys[0].group_id, endpoint=endpoint, reason=str(failure))
            log.info("windows not dropped at once", extra=words)

    def load_windows(self, keys: Collection[SharePartitionKey]) -> None:
        """Let the leaders of share-partitions read their state. One attempt."""
        for endpoint, of_leader in by_leader(self._metadata.image, keys)[0].items():
            self.start(self._load(endpoint, of_leader), f"load-{endpoint}")

    async def _load(self, endpoint: str, keys: Sequence[SharePartitionKey]) -> None:
        rpc = self._stub(await self._channels.channel(endpoint)).LoadWindows
        try:
            with call_failures(endpoint):
                await rpc(write_load_windows(keys), timeout=NOTICE_TIMEOUT_S)
        except CallFailedError as failure:
            words = fields(endpoint=endpoint, reason=str(failure))
            log.info("leader not notified of dead letters yet", extra=words)

    # -- transactions

    def transaction_ended(self, ended: TransactionsEnded, answered: Callable[[], None]) -> None:
        """Notify the leaders of share-partitions, until all of them have answered; then call
        ``answered``.
        """
        if len(self._notices) >= NOTICES_WAITING_MAX:
            words = fields(reason="too many", **ended.transaction._asdict())
            log.warning("leaders not notified of a transaction's end", extra=words)
            return
        self._notices.append((ended, answered))
        self._begin_notices()

    def _begin_notices(self) -> None:
        while self._notices and self._notice_count < NOTICES_MAX:
            ended, answered = self._notices.popleft()
            task = self.start(
                self._notify(ended, answered), f"transaction-{ended.transaction.producer_id}"
            )
            if task is not None:
                self._notice_count += 1
                task.add_done_callback(self._notice_ended)

    def _notice_ended(self, _: asyncio.Task[None]) -> None:
        self._notice_count -= 1
        self._begin_notices()

    async def _notify(self, ended: TransactionsEnded, answered: Callable[[], None]) -> None:
        delays = RetryDelays(_BACKOFF, self._dice)
        keys: Sequence[SharePartitionKey] = ended.keys
        read_by = dict(zip(ended.keys, ended.leader_epochs, strict=True))
        while keys:
            position = self._metadata.image.position
            leaders, waiting = by_leader(self._metadata.image, keys, read_by)
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task(self._unanswered(endpoint, ended, of_leader))
                    for endpoint, of_leader in leaders.items()
                ]
            keys = waiting + [key for call in calls for key in call.result()]
            if keys:
                await self._metadata.wait_newer_or(position, delays.next_s())
        answered()

    async def _unanswered(
        self, endpoint: str, ended: TransactionsEnded, keys: list[SharePartitionKey]
    ) -> list[SharePartitionKey]:
        """Notify a leader; return the share-partitions for which it has not answered."""
        rpc = self._stub(await self._channels.channel(endpoint)).TransactionEnded
        try:
            with call_failures(endpoint):
                await rpc(write_ended(ended, keys), timeout=NOTICE_TIMEOUT_S)
        except CallFailedError as failure:
            words = fields(endpoint=endpoint, reason=str(failure), **ended.transaction._asdict())
            log.info("leader not notified of a transaction's end yet", extra=words)
            return keys
        return []


async def _wait_for(release: asyncio.Task[None], done: Callable[[], None]) -> None:
    await asyncio.wait((release,), timeout=RELEASE_WAIT_S)
    done()


def by_leader(
    image: ClusterImage,
    keys: Iterable[SharePartitionKey],
    read_by: Mapping[SharePartitionKey, LeaderEpoch] = _NOT_READ,
) -> tuple[dict[str, list[SharePartitionKey]], list[SharePartitionKey]]:
    """Return share-partitions by the gRPC endpoint of their leader, and those without a leader, or
    with a later one than ``image`` has: ``read_by`` are leader epochs that have read the states.
    Partitions that are gone are left out.
    """
    found: dict[str, list[SharePartitionKey]] = defaultdict(list)
    without: list[SharePartitionKey] = []
    for key in keys:
        topic = image.topics_by_id.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            continue
        at = topic.partitions[key.partition]
        broker = image.brokers.get(at.leader) if at.leader != NO_BROKER else None
        is_latest = at.leader_epoch >= read_by.get(key, NO_EPOCH)
        if broker is not None and broker.grpc_endpoint and is_latest:
            found[broker.grpc_endpoint].append(key)
        else:
            without.append(key)
    return dict(found), without
