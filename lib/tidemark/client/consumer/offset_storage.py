"""Storage of a group's offsets: at its coordinator, in ZooKeeper, or in both during a migration."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.group_types import GroupMetadata, OffsetAndMetadata, Offsets, by_topic
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    ClientError,
    CommitFailedError,
    ConnectionLostError,
    RequestTimedOutError,
    error_for,
)
from tidemark.client.wire.coordinator import Coordinator
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

if TYPE_CHECKING:
    from tidemark.runtime.zk_offsets import ZkOffsets

_BY_NAME_MAX: Final = 9
"""Last version of OffsetCommit and OffsetFetch with topic names."""
_ZOOKEEPER_HINT: Final = "check that ZooKeeper is up, and what zookeeper_connect names"

T = TypeVar("T")
Check = Callable[[], None]
"""Called before each attempt of a commit; raises CommitFailedError if there must be none."""


def never_refuses() -> None:
    """Do nothing: a Check for offsets that nobody can take away."""


class OffsetStorage(Protocol):
    """Storage of offsets. Both calls retry until the deadline."""

    async def commit(
        self, offsets: Offsets, deadline: Deadline, check: Check = never_refuses
    ) -> None:
        """Store offsets durably. Raises CommitFailedError, ClientError."""
        ...

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without one are left out. Raises ClientError."""
        ...

    async def close(self) -> None:
        """Close the storage's own connections."""
        ...


class Committer(Protocol):
    """Identity of the committing member; epoch and id may change between attempts."""

    def metadata(self) -> GroupMetadata:
        """Return the current identity."""
        ...

    @property
    def joins(self) -> int:
        """Number of times the consumer has joined; commits of an earlier membership are void."""
        ...

    @property
    def is_catching_up(self) -> bool:
        """True if the coordinator may have raised the member epoch without an answer so far."""
        ...


class CoordinatorOffsets:
    """Offsets at the group's coordinator: OffsetCommit and OffsetFetch."""

    def __init__(
        self, coordinator: Coordinator, committer: Committer, clock: Clock, *, stable: bool
    ) -> None:
        self._coordinator = coordinator
        self._committer = committer
        self._clock = clock
        self._stable = stable

    async def commit(
        self, offsets: Offsets, deadline: Deadline, check: Check = never_refuses
    ) -> None:
        """Commit as a member, or as a simple consumer.

        A stale epoch is an error, unless a newer one is on its way to this member.
        """
        failures = 0
        joins = self._committer.joins

        def fields() -> dict[str, Any]:
            check()
            member = self._committer.metadata()
            if self._committer.joins != joins:
                raise CommitFailedError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"member {member.member_id} was fenced, and joined again, before its commit",
                )
            return commit_fields(member, offsets)

        while True:
            member = self._committer.metadata()
            try:
                await self._coordinator.ask_until(
                    deadline,
                    ApiKey.OFFSET_COMMIT,
                    fields,
                    self._commit_problem,
                    version_max=_BY_NAME_MAX,
                )
            except CommitFailedError as refused:
                moved = self._committer.metadata().member_epoch > member.member_epoch
                may_pass = refused.code is ErrorCode.STALE_MEMBER_EPOCH and (
                    moved or self._committer.is_catching_up
                )
                if not may_pass or deadline.passed(self._clock.now_ms()):
                    raise
            else:
                return
            failures += 1
            await self._coordinator.back_off(failures)

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Fetch offsets. Under read_committed this waits for offsets in open transactions."""
        wanted = by_topic(partitions)
        if not wanted:
            return {}
        answer = await self._coordinator.ask_until(
            deadline,
            ApiKey.OFFSET_FETCH,
            lambda: fetch_fields(self._committer.metadata(), wanted, stable=self._stable),
            self._fetch_problem,
            version_max=_BY_NAME_MAX,
        )
        return {
            TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
            for topic in _group_of(answer).topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def close(self) -> None:
        """Do nothing: there are no connections of its own."""

    def _commit_problem(self, answer: Struct) -> ClientError | None:
        what = f"committing offsets of group {self._coordinator.key!r} failed"
        return _first_problem(answer.topics, what, self._coordinator.where)

    def _fetch_problem(self, answer: Struct) -> ClientError | None:
        what = f"fetching offsets of group {self._coordinator.key!r} failed"
        group = _group_of(answer)
        if group.error_code:
            return error_for(group.error_code, what, where=self._coordinator.where)
        return _first_problem(group.topics, what, self._coordinator.where)


class ZooKeeperOffsets:
    """Offsets in ZooKeeper, as consumers before Kafka 0.9 stored them: no metadata, no fencing."""

    def __init__(self, connect: str, group_id: str, config: ConsumerConfig, clock: Clock) -> None:
        self._connect = connect
        self._group_id = group_id
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._zookeeper: ZkOffsets | None = None
        self._starting = asyncio.Lock()

    async def commit(
        self, offsets: Offsets, deadline: Deadline, check: Check = never_refuses
    ) -> None:
        """Write each partition's offset; repetition is harmless while nobody else commits."""
        plain = {partition: each.offset for partition, each in offsets.items()}

        async def commit(zookeeper: "ZkOffsets") -> None:
            check()
            await zookeeper.commit(plain)

        await self._until(deadline, commit)

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Read the offsets."""
        wanted = list(partitions)
        found = await self._until(deadline, lambda zookeeper: zookeeper.fetch(wanted))
        return {partition: OffsetAndMetadata(offset) for partition, offset in found.items()}

    async def close(self) -> None:
        """Close the ZooKeeper session."""
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            await zookeeper.stop()

    async def _until(self, deadline: Deadline, call: Callable[["ZkOffsets"], Awaitable[T]]) -> T:
        """Retry until the deadline: calls are idempotent, so an unknown outcome does no harm."""
        from tidemark.runtime.zk_offsets import MalformedOffsetError
        from tidemark.runtime.zk_session import ZkError

        failures = 0
        while True:
            left_s = max(0.001, deadline.left_ms(self._clock.now_ms()) / 1_000)
            try:
                async with asyncio.timeout(left_s):
                    return await call(await self._started(left_s))
            except TimeoutError:
                raise RequestTimedOutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"ZooKeeper did not answer within {deadline.allowed_ms} ms",
                    where=self._connect,
                    hint=_ZOOKEEPER_HINT,
                ) from None
            except MalformedOffsetError as problem:
                raise ClientError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from None
            except ZkError as problem:
                if deadline.passed(self._clock.now_ms()):
                    raise ConnectionLostError(
                        ErrorCode.NETWORK_EXCEPTION,
                        str(problem),
                        where=self._connect,
                        hint=_ZOOKEEPER_HINT,
                    ) from None
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)

    async def _started(self, timeout_s: float) -> "ZkOffsets":
        from tidemark.runtime.zk_offsets import (
            ZkOffsets,
        )  # imported here: only this storage needs kazoo

        async with self._starting:
            if self._zookeeper is None:
                zookeeper = ZkOffsets(self._connect, self._group_id)
                try:
                    await zookeeper.start(timeout_s)
                except BaseException:
                    await zookeeper.stop()  # otherwise its threads would go on trying
                    raise
                self._zookeeper = zookeeper
        return self._zookeeper


class DualOffsets:
    """Offsets in both storages during a migration; a commit succeeds when both have stored it.

    While a fleet is restarted, some instances commit to one storage only. A fetch therefore returns
    the larger offset, as Kafka's consumers did: records below it were processed.
    """

    def __init__(self, ours: OffsetStorage, zookeeper: OffsetStorage) -> None:
        self._ours = ours
        self._zookeeper = zookeeper

    async def commit(
        self, offsets: Offsets, deadline: Deadline, check: Check = never_refuses
    ) -> None:
        """Commit at the coordinator first: if it fences the member, ZooKeeper stays unchanged."""
        await self._ours.commit(offsets, deadline, check)
        await self._zookeeper.commit(offsets, deadline, check)

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the larger offset of each partition."""
        wanted = list(partitions)
        ours = await self._ours.fetch(wanted, deadline)
        return furthest(ours, await self._zookeeper.fetch(wanted, deadline))

    async def close(self) -> None:
        """Close both storages."""
        await self._ours.close()
        await self._zookeeper.close()


def furthest(ours: Offsets, others: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the larger offset of each partition; of equal ones ours, for its metadata."""
    found = dict(ours)
    for partition, each in others.items():
        known = found.get(partition)
        if known is None or each.offset > known.offset:
            found[partition] = each
    return found


def storage_for(
    config: ConsumerConfig, coordinator: Coordinator, committer: Committer, clock: Clock
) -> OffsetStorage:
    """Return the storage for a consumer's settings."""
    stable = config.isolation_level == "read_committed"
    ours = CoordinatorOffsets(coordinator, committer, clock, stable=stable)
    if not config.uses_zookeeper:
        return ours
    assert config.zookeeper_connect is not None, "checked with the settings"
    zookeeper = ZooKeeperOffsets(config.zookeeper_connect, coordinator.key, config, clock)
    return DualOffsets(ours, zookeeper) if config.dual_commit_enabled else zookeeper


def commit_fields(member: GroupMetadata, offsets: Offsets) -> dict[str, Any]:
    """Return the fields of OffsetCommit."""
    return {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": member.member_epoch,
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "topics": wire_offsets(offsets),
    }


def wire_offsets(offsets: Offsets) -> list[dict[str, Any]]:
    """Return offsets by topic, as in OffsetCommit and TxnOffsetCommit."""
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": (each := offsets[TopicPartition(topic, number)]).offset,
                    "committed_leader_epoch": each.leader_epoch,
                    "committed_metadata": each.metadata,
                }
                for number in numbers
            ],
        }
        for topic, numbers in by_topic(offsets).items()
    ]


def fetch_fields(
    member: GroupMetadata, wanted: Mapping[str, list[int]], *, stable: bool
) -> dict[str, Any]:
    """Return the fields of OffsetFetch for one group, in any version.

    The request of a consumer that is not a member yet names no member, which is allowed.
    """
    if member.member_epoch <= 0:
        member = GroupMetadata(member.group_id)
    topics = [{"name": topic, "partition_indexes": numbers} for topic, numbers in wanted.items()]
    group = {
        "group_id": member.group_id,
        "member_id": member.member_id or None,
        "member_epoch": member.member_epoch,
        "topics": topics,
    }
    return {
        "groups": [group],
        "group_id": member.group_id,
        "topics": topics,
        "require_stable": stable,
    }


def _group_of(answer: Struct) -> Any:
    """Return the requested group; before version 8 the response itself."""
    return answer.groups[0] if answer.groups else answer


def _first_problem(topics: Iterable[Any], what: str, where: str) -> ClientError | None:
    """Return the first error; one that is not retriable takes precedence."""
    problems = [
        error_for(each.error_code, f"{what} for {topic.name}-{each.partition_index}", where=where)
        for topic in topics
        for each in topic.partitions
        if each.error_code
    ]
    problems.sort(key=lambda problem: problem.retriable)
    return problems[0] if problems else None
