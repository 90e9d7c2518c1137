"""A broker that leads partitions, members that use its handlers of share groups, and the state that
a share-coordinator keeps: on a virtual loop, without sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

from broker.shell.partitions.hosted import HostedPartition
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.long_tail import read_response, write_request
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset, PartitionEpoch
from tidemark.model.share_state import (
    UNKNOWN_START,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.core.share.plain_share_partition import PlainCoordinator
from unit.broker.shell.broker_worlds import ME, OTHER, World, topic
from virtual_time import LoopClock, pass_time

Result = TypeVar("Result")

GROUP = "billing"
TOPIC_ID = bytes([1]) * 16
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
READ_COMMITTED = {"share.isolation.level": "read_committed"}
EARLIEST = {"share.auto.offset.reset": "earliest"}


class PlainState:
    """A share-coordinator, offset by offset. ``failures`` are the errors of the next calls."""

    def __init__(self) -> None:
        self.kept: dict[SharePartitionKey, PlainCoordinator] = {}
        self.epochs: dict[SharePartitionKey, StateEpoch] = {}
        self.failures: list[ErrorCode] = []
        self.calls: list[tuple[str, int]] = []
        """Name and number of share-partitions of each call."""
        self.latency_s = 0.001

    async def _call(self, name: str, count: int) -> ErrorCode:
        self.calls.append((name, count))
        await pass_time(self.latency_s)
        return self.failures.pop(0) if self.failures else ErrorCode.NONE

    async def read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        failure = await self._call("read", len(reads))
        return [self._read_one(one.key, failure) for one in reads]

    def _read_one(self, key: SharePartitionKey, failure: ErrorCode) -> StateRead:
        epoch = self.epochs.setdefault(key, StateEpoch(1))
        kept = self.kept.get(key)
        if failure is not ErrorCode.NONE or kept is None:
            return StateRead(key, failure, epoch, UNKNOWN_START)
        return StateRead(key, failure, epoch, Offset(kept.start), kept.batches())

    async def write(
        self, group_id: str, writes: Sequence[WriteState], timeout_s: float
    ) -> list[StateResult]:
        failure = await self._call("write", len(writes))
        return [StateResult(one.key, failure or self._write_one(one)) for one in writes]

    def _write_one(self, write: WriteState) -> ErrorCode:
        if write.state_epoch != self.epochs[write.key]:
            return ErrorCode.FENCED_STATE_EPOCH
        self.kept.setdefault(write.key, PlainCoordinator()).write(write)
        return ErrorCode.NONE

    async def summaries(
        self, group_id: str, summaries: Sequence[ReadStateSummary], timeout_s: float
    ) -> list[StateSummary]:
        failure = await self._call("summaries", len(summaries))
        kept = {key: Offset(one.start) for key, one in self.kept.items()}
        return [
            StateSummary(one.key, failure, start_offset=kept.get(one.key, UNKNOWN_START))
            for one in summaries
        ]

    def reset(self) -> None:
        """All states begin again."""
        self.kept.clear()
        self.epochs = {key: StateEpoch(epoch + 1) for key, epoch in self.epochs.items()}


class InlineWorkers:
    """Workers that do a job where it is asked for; ``failures`` are those of the next jobs."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    async def run_for(self, _lane: object, work: Any, *arguments: Any) -> Any:
        await pass_time(0.01)
        if self.failures:
            raise self.failures.pop(0)
        return work(*arguments)


class ShareFetchWorld(World):
    """A broker that leads ``orders``; the group reads from the earliest record on."""

    def __init__(self, partitions: int = 1, *, has_groups: bool = True, **settings: Any) -> None:
        """``has_groups`` False: no share group was ever created."""
        self.state = PlainState()
        self.tasks: asyncio.TaskGroup | None = None
        super().__init__(clock=LoopClock(), share_state=self.state, **settings)
        self.workers = InlineWorkers()
        keys = self.parts.shares.partitions._keys
        keys._workers = cast("WorkerPool", self.workers)
        self.lookup._workers = keys._workers
        self.handlers = {
            key: self.parts.hot(key) for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        }
        self.shares = self.parts.shares.partitions
        state = [topic(SHARE_GROUP_STATE, number=9, leader=OTHER)] if has_groups else []
        self.show(topic(partitions=partitions), *state)
        self.configure()

    def start(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Do something meanwhile."""
        assert self.tasks is not None
        return self.tasks.create_task(work)

    def configure(self, **configs: str) -> None:
        """Set the group's configuration, keys with underscores."""
        own = {name.replace("_", "."): value for name, value in configs.items()}
        self.change(group_configs_changed={GROUP: {**EARLIEST, **own}})

    def put(
        self, *counts: int, partition: int = 0, timestamp: int | None = None, **fields: Any
    ) -> None:
        """Batches of so many records."""
        stamp = self.clock.wall_ms() if timestamp is None else timestamp
        for count in counts:
            records = [(stamp, None, b"x" * 10, ())] * count
            batch = build_batch(records, **fields)
            self.parts.partitions.appender.append_internal(self.at(partition), batch)

    def put_keys(self, keys: str) -> None:
        """A batch of one record for each letter, which is its key; a dash: none."""
        records = [
            (self.clock.wall_ms(), None if key == "-" else key.encode(), b"v", ()) for key in keys
        ]
        self.parts.partitions.appender.append_internal(self.at(0), build_batch(records))

    def put_transactional(self, count: int, producer_id: int) -> None:
        fields = {"producer_id": producer_id, "producer_epoch": 0}
        self.put(count, attributes_extra=TRANSACTIONAL_BIT, **fields)

    def mark(self, producer_id: int, *, commits: bool) -> None:
        marker = EndTxnMarker(commits=commits, coordinator_epoch=0)
        now = self.clock.wall_ms()
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=now)
        self.parts.partitions.appender.append_internal(self.at(0), batch, control=marker)

    def at(self, partition: int = 0) -> HostedPartition:
        return self.hosted(partition=partition)

    def lead(self, leader: int, epoch: int) -> None:
        """Another leader, or another epoch of this one."""
        self.show(topic(leader=ME if leader == ME else OTHER, epoch=epoch))
        self.configure()

    def add_replica(self) -> None:
        """Another broker is in sync, which may be elected."""
        alone = topic()
        (one,) = alone.partitions
        both = replace(
            one, replicas=(ME, OTHER), isr=(ME, OTHER), partition_epoch=PartitionEpoch(1)
        )
        self.show(replace(alone, partitions=(both,)))
        self.configure()

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.at().partition.leader_epoch


@asynccontextmanager
async def running(world: ShareFetchWorld) -> AsyncIterator[ShareFetchWorld]:
    """With the tasks of the broker's share-partitions."""
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(world.shares.run())
        world.tasks = tasks
        await asyncio.sleep(0)
        yield world
        run.cancel()


class Part(NamedTuple):
    """Result for one partition."""

    error: ErrorCode
    acknowledged: ErrorCode
    acquired: list[tuple[int, int, int]]
    batches: list[tuple[int, int]]


class Member:
    """A member of the group, and the connection that it uses; one request at a time."""

    closed = False

    def __init__(
        self, world: ShareFetchWorld, name: str = "m1", *, group: str = GROUP, version: int = 2
    ) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.version = version
        self.epoch = 0
        self.requester = Requester("User:a", "")
        self.listener = SimpleNamespace(name="CLIENT")
        self.reply: Any = None
        self.done: asyncio.Future[Any] = asyncio.Future()
        self.muted_ms = 0

    # -- the connection

    def mute(self, throttle_ms: int) -> None:
        self.muted_ms += throttle_ms

    def later(self, _: object) -> Any:
        self.reply = SimpleNamespace(send=self._take, on_gone=None)
        return self.reply

    def answer(self, _: object, body: bytes) -> None:
        self._take([body])

    def answer_parts(self, _: object, parts: Any) -> None:
        self._take(parts)

    def _take(self, parts: Any) -> None:
        self.done.set_result(
            b"".join(
                one if isinstance(one, bytes) else one[0].read_at(one[1], one[2]) for one in parts
            )
        )

    def lose_connection(self) -> None:
        if self.reply is not None and self.reply.on_gone is not None:
            self.reply.on_gone()
        self.world.shares.connection_lost(self)

    # -- requests

    def send(self, key: ApiKey, fields: Any) -> asyncio.Future[Any]:
        """Send a request; its answer is decoded by ``ask``."""
        self.done = asyncio.Future()
        named = {"group_id": self.group, "member_id": self.name, "share_session_epoch": self.epoch}
        body = memoryview(write_request(key, self.version, {**named, **fields}))
        header = RequestHeader(int(key), self.version, 0, None, 0)
        self.world.handlers[key](cast("Any", self), header, body)
        return self.done

    async def ask(self, key: ApiKey, fields: Any) -> Any:
        body = await self.send(key, fields)
        found = read_response(key, self.version, memoryview(body))
        if not found.error_code:
            self.epoch += 1
        return found

    def fetch_fields(
        self,
        *partitions: int,
        wait_ms: int = 0,
        records: int = 500,
        acks: dict[int, Any] | None = None,
        forget: Sequence[int] = (),
        **more: Any,
    ) -> dict[str, Any]:
        named = dict.fromkeys(partitions, ()) | (acks or {})
        return {
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": records,
            "batch_size": 500,
            "topics": topics_of(named),
            "forgotten_topics_data": [{"topic_id": TOPIC_ID, "partitions": list(forget)}],
            **more,
        }

    async def fetch(self, *partitions: int, **terms: Any) -> dict[int, Part]:
        """Results by partition, of an answer without a top-level error."""
        found = await self.ask(ApiKey.SHARE_FETCH, self.fetch_fields(*partitions, **terms))
        assert not found.error_code, found.error_message
        return {
            one.partition_index: _part(one) for each in found.responses for one in each.partitions
        }

    async def refused(self, *partitions: int, **terms: Any) -> ErrorCode:
        """The top-level error of a fetch."""
        found = await self.ask(ApiKey.SHARE_FETCH, self.fetch_fields(*partitions, **terms))
        return ErrorCode(found.error_code)

    async def take(self, *partitions: int, **terms: Any) -> list[tuple[int, int, int]]:
        """What is acquired of partition 0: first and last offset, delivery count."""
        found = await self.fetch(*partitions, **terms)
        return found[0].acquired if 0 in found else []

    async def acknowledge(
        self, *batches: Any, partition: int = 0, renews: bool | None = None
    ) -> ErrorCode:
        """The error for one partition, or of the whole request. ``renews``: IsRenewAck; None: if
        there is a renewal.
        """
        fields: dict[str, Any] = {"topics": topics_of({partition: batches})}
        if self.version >= 2:
            has_renewals = any(RENEW in types for _, _, *types in batches)
            fields["is_renew_ack"] = has_renewals if renews is None else renews
        found = await self.ask(ApiKey.SHARE_ACKNOWLEDGE, fields)
        if found.error_code:
            return ErrorCode(found.error_code)
        return ErrorCode(found.responses[0].partitions[0].error_code)

    async def close(self, *batches: Any) -> ErrorCode:
        self.epoch = -1
        return await self.acknowledge(*batches)


def topics_of(partitions: dict[int, Any]) -> list[dict[str, Any]]:
    """Partitions of the one topic, with batches (first, last, types...)."""
    return [
        {
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition_index": number,
                    "acknowledgement_batches": [
                        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
                        for first, last, *types in batches
                    ],
                }
                for number, batches in partitions.items()
            ],
        }
    ]


def _part(one: Any) -> Part:
    headers = [header for _, header in iterate_headers(one.records or b"")]
    return Part(
        ErrorCode(one.error_code),
        ErrorCode(one.acknowledge_error_code),
        [
            (each.first_offset, each.last_offset, each.delivery_count)
            for each in one.acquired_records
        ],
        [(header.base_offset, header.last_offset) for header in headers],
    )
