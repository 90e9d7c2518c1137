"""Groups: the group coordinator of this broker, with a shard for each partition of
__consumer_offsets that it leads.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from tidemark.codec.group_records import CoordinatorRecord, decode, encode
from tidemark.codec.java_hash import shard_for_name
from tidemark.model.authorization import Authorizer, Operation, Requester, topic_resource
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import TopicImage
from tidemark.model.metadata_change import MetadataChange
from tidemark.model.topics import CONSUMER_OFFSETS
from tidemark.protocol.shard import Writer
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.shard_runtime import ShardRuntime
from tidemark.runtime.telemetry import fields
from tidemark.runtime.topics_view import TopicsView

from broker.core.groups.coordinator_shard import CoordinatorShard
from broker.core.groups.effects import GroupEffect, LookUpShareGroup
from broker.core.groups.id_requests import (
    CoordinatorRequest,
    GroupIdReply,
    ReleaseGroupId,
    ReserveGroupId,
    ShareGroupLookedUp,
)
from broker.core.groups.requests import (
    DeletedTopic,
    GroupReply,
    GroupRequest,
    TopicsDeleted,
    TxnOffsetCommit,
)
from broker.core.groups.settings import GroupSettings
from broker.core.groups.shard import GroupShard
from broker.core.groups.statistics import GroupFigures, figures
from broker.core.partition import Role
from broker.shell.groups.group_log import GroupLog
from broker.shell.groups.txn_offsets import verify_txn_offset_commit
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.transactions.txn_verifier import TxnVerifier

log = logging.getLogger(__name__)

APPENDS_MAX: Final = 10_000
"""Appends of one shard that are not committed yet; as many requests may wait for it."""
_BACKOFF_S: Final = 0.2
_UNREADABLE_BACKOFF_S: Final = 10.0
"""Pause after a record of a newer release, or damage: nothing changes by itself."""

_NOTHING_SET: Final[Mapping[str, str]] = {}

GroupRuntime = ShardRuntime[CoordinatorRequest, CoordinatorRecord, GroupEffect]


class ShareGroupLookUp(Protocol):
    """The share-coordinators, as far as the type of a group id concerns them."""

    async def exists(self, group_id: str) -> bool | None:
        """Return True if there is a share group with this id; None if no coordinator answers."""
        ...


class _Held:
    """One partition that is led here: its log, its runtime, and the task that keeps it."""

    __slots__ = ("hosted", "leader_epoch", "log", "runtime", "task")

    def __init__(self, hosted: HostedPartition) -> None:
        self.hosted = hosted
        self.leader_epoch = hosted.partition.leader_epoch
        self.log: GroupLog | None = None
        self.runtime: GroupRuntime | None = None
        self.task: asyncio.Task[None] | None = None


class Groups:
    """The group coordinator. ``run`` is the parent of every shard's task; ``sync`` follows
    leadership.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        metadata: MetadataCache,
        hosted: Mapping[tuple[str, int], HostedPartition],
        make_log: Callable[[HostedPartition], GroupLog],
        verifier: TxnVerifier | None,
        share_groups: ShareGroupLookUp,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        """``verifier`` is asked about transactional offset commits; None: they are not verified."""
        self._share_groups = share_groups
        self._settings = settings
        self._metadata = metadata
        self._hosted = hosted
        self._make_log = make_log
        self._verifier = verifier
        self._authorizer = authorizer
        self._clock = clock
        self._topics = TopicsView(metadata)
        self._held: dict[int, _Held] = {}
        self._tasks: asyncio.TaskGroup | None = None

    # -- shards

    async def run(self) -> None:
        """Hold shards until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self.sync()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None  # the task group takes no tasks from here on

    def sync(self) -> None:
        """Begin and end shards by the leaders of the present image."""
        if self._tasks is None:
            return
        topic = self._metadata.image.topics.get(CONSUMER_OFFSETS)
        led = {} if topic is None else dict(self._led(topic))
        for number, held in list(self._held.items()):
            hosted = led.get(number)
            if hosted is not held.hosted or hosted.partition.leader_epoch != held.leader_epoch:
                del self._held[number]
                if held.task is not None:
                    held.task.cancel()
        for number, hosted in led.items():
            if number not in self._held:
                held = self._held[number] = _Held(hosted)
                held.task = self._tasks.create_task(
                    self._hold(number, held), name=f"groups-{number}"
                )

    def _led(self, topic: TopicImage) -> Iterator[tuple[int, HostedPartition]]:
        for one in topic.partitions:
            hosted = self._hosted.get((topic.name, one.partition))
            if hosted is not None and hosted.partition.role is Role.LEADER:
                yield one.partition, hosted

    async def _hold(self, number: int, held: _Held) -> None:
        """Serve a shard for as long as this broker leads it in this epoch; load it again when an
        append failed.
        """
        while held.hosted.partition.role is Role.LEADER:
            held.log = self._make_log(held.hosted)
            if held.log.leader_epoch != held.leader_epoch:
                return
            runtime = held.runtime = self._make_runtime(held.log)
            backoff_s = _BACKOFF_S
            try:
                await runtime.run()
            except* TidemarkError as failures:
                reason = str(failures.exceptions[0])
                log.warning("group shard dropped", extra=fields(shard=number, reason=reason))
                if held.hosted.log.damage is not None:  # another replica must lead
                    backoff_s = _UNREADABLE_BACKOFF_S
            except* (ValueError, struct.error) as unreadable:
                backoff_s = _UNREADABLE_BACKOFF_S
                log.critical(
                    "group shard dropped: a record cannot be read or written",
                    extra=fields(shard=number, reason=str(unreadable.exceptions[0])),
                )
            except* Exception as bugs:
                log.critical(
                    "group shard dropped: internal error",
                    extra=fields(shard=number),
                    exc_info=bugs,
                )
            finally:
                held.runtime = None
            await asyncio.sleep(backoff_s)

    def _make_runtime(self, group_log: GroupLog) -> GroupRuntime:
        runtime: GroupRuntime
        shard = CoordinatorShard(
            GroupShard(self._settings, lambda: self._topics, self._configs_of, self._may_describe)
        )

        def perform(effect: GroupEffect) -> None:
            if isinstance(effect, LookUpShareGroup):
                self._begin_look_up(runtime, effect.group_id)
            else:
                runtime.answer(effect.to, shard.reply_now(effect))

        runtime = ShardRuntime(
            lambda: shard,
            group_log,
            encode=encode,
            decode=decode,
            clock=self._clock,
            perform=perform,
            in_flight_max=APPENDS_MAX,
        )
        return runtime

    def _begin_look_up(self, runtime: GroupRuntime, group_id: str) -> None:
        async def look_up() -> None:
            exists = await self._share_groups.exists(group_id)
            runtime.submit(ShareGroupLookedUp(group_id, exists))

        if self._tasks is not None:
            self._tasks.create_task(look_up(), name=f"look-up-{group_id}")

    def _configs_of(self, group_id: str) -> Mapping[str, str]:
        return self._metadata.image.group_configs.get(group_id, _NOTHING_SET)

    def _may_describe(self, requester: Requester, topic: str) -> bool:
        return self._authorizer.sees(requester, Operation.DESCRIBE, topic_resource(topic))

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Check configuration that a group would set. Raises TidemarkError INVALID_CONFIG."""
        try:
            self._settings.check_of_group(configs)
        except InvalidConfigError as refused:
            raise TidemarkError(ErrorCode.INVALID_CONFIG, str(refused)) from None

    def follow(self, change: MetadataChange) -> None:
        """Hold the shards that are led here by a new image, and drop offsets of topics that it
        deletes.
        """
        self.sync()
        if change.topics_deleted:
            self._topics_deleted(change.topics_deleted)

    def _topics_deleted(self, topics: Sequence[TopicImage]) -> None:
        gone = TopicsDeleted(tuple(DeletedTopic(one.name, one.topic_id) for one in topics))
        for held in self._held.values():
            if held.runtime is not None:
                held.runtime.submit(gone)

    # -- requests

    def shard_of(self, group_id: str) -> int:
        """Return the group's shard, a partition of __consumer_offsets. Raises TidemarkError
        COORDINATOR_NOT_AVAILABLE if the topic does not exist yet.
        """
        topic = self._metadata.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} does not exist yet"
            )
        return shard_for_name(group_id, len(topic.partitions))

    async def ask(self, group_id: str, request: GroupRequest) -> Any:
        """Return the reply of the group's shard. Raises TidemarkError NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        held = self._held_here(group_id)
        if isinstance(request, TxnOffsetCommit):
            self._served(held)
            code = await verify_txn_offset_commit(self._verifier, held.hosted, request)
            if code is not ErrorCode.NONE:
                raise TidemarkError(code, f"not part of transaction {request.transactional_id!r}")
        return await self._served(held).ask(request)

    async def change_id(self, request: ReserveGroupId | ReleaseGroupId) -> GroupIdReply:
        """Reserve or release a share group's id, and return the reply of its shard. Raises
        TidemarkError as ``ask`` does.
        """
        reply = await self._served(self._held_here(request.group_id)).ask(request)
        assert isinstance(reply, GroupIdReply), reply
        return reply

    def _held_here(self, group_id: str) -> _Held:
        held = self._held.get(self.shard_of(group_id))
        if held is None or held.hosted.partition.role is not Role.LEADER:
            raise TidemarkError(
                ErrorCode.NOT_COORDINATOR, f"another broker coordinates group {group_id!r}"
            )
        return held

    async def ask_all(self, request: GroupRequest) -> list[GroupReply]:
        """Return the replies of every shard led here. Raises TidemarkError
        COORDINATOR_LOAD_IN_PROGRESS while one is being loaded.
        """
        return [await self._served(held).ask(request) for held in list(self._held.values())]

    @staticmethod
    def _served(held: _Held) -> GroupRuntime:
        if held.runtime is None or not held.runtime.is_serving:
            raise TidemarkError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{held.hosted.topic_partition} is being loaded",
            )
        return held.runtime

    def figures(self) -> Iterator[GroupFigures]:
        """Yield every group of the shards that are served here."""
        for held in tuple(self._held.values()):
            shard = None if held.runtime is None else held.runtime.shard
            if isinstance(shard, CoordinatorShard):
                yield from figures(shard.groups)

    def is_serving(self, partition: int) -> bool:
        """True if a partition of __consumer_offsets is loaded: a marker during the load would be
        missed.
        """
        held = self._held.get(partition)
        return held is not None and held.runtime is not None and held.runtime.is_serving

    def transaction_ended(
        self, hosted: HostedPartition, writer: Writer, end: int, *, commits: bool
    ) -> None:
        """Apply a marker that was appended to a partition of __consumer_offsets below offset
        ``end``.
        """
        held = self._held.get(hosted.topic_partition.partition)
        assert held is not None, "markers are taken only where the shard is served"
        assert held.runtime is not None, "markers are taken only where the shard is served"
        assert held.log is not None, "markers are taken only where the shard is served"
        held.runtime.end_transaction(writer, held.log.committed(end), commits=commits)
