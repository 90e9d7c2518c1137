"""ShardRuntime: one shard of a coordinator over the log that holds its state.

    load    take the log over, replay it up to there
    decide  a request, or what has become due: records and effects; the records are replayed at once
    append  records of decisions made meanwhile go out together, one batch a writer, acks=all
    release effects are performed once the log is committed past what had been replayed by then

When an append fails its outcome is not known: ``run`` ends, all who wait hear an error, and whoever
holds the shard makes a new runtime, which loads again.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, Buffer, read_header
from tidemark.codec.records import build_batch, read_records
from tidemark.machine.shard import CLIENT_ERRORS, Decision, Moment, Shard, Writer
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.clock import Clock

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
EffectT = TypeVar("EffectT")

REQUESTS_MAX: Final = 20_000
"""Requests of one shard that are not answered yet."""
BATCH_BYTES_TARGET: Final = 256 * 1024
"""Records of several decisions share a batch up to about so much."""
LOAD_TURN_MS: Final = 5
"""So long a load keeps the loop before others are served."""

Encode = Callable[[RecordT], tuple[bytes, bytes | None]]
Decode = Callable[[bytes, bytes | None], RecordT | None]


class ShardLog(Protocol):
    """The partition that holds a shard's state, for one owner of it."""

    async def take_over(self) -> int:
        """Fence every earlier owner; the offset up to which there is something to replay.

        Raises TidemarkError.
        """
        ...

    def read(self, end: int) -> AsyncIterator[Buffer]:
        """Whole record batches, one at a time, from the log's start up to ``end`` (exclusive)."""
        ...

    def append(self, batches: bytes) -> Awaitable[int]:
        """Append one or more whole batches, all or a first part of them; the end (exclusive), once
        they are committed. A local log has them in order when this returns. Raises TidemarkError:
        whether they are in the log is not known.
        """
        ...


@dataclass(eq=False, slots=True)
class _Part(Generic[RecordT, EffectT]):
    """Decisions whose records are appended in one go, and their effects."""

    runs: list[tuple[Writer | None, list[RecordT]]] = field(default_factory=list)
    effects: list[EffectT] = field(default_factory=list)

    def add(self, decision: Decision[RecordT, EffectT]) -> None:
        if decision.records:
            if not self.runs or self.runs[-1][0] != decision.writer:
                self.runs.append((decision.writer, []))
            self.runs[-1][1].extend(decision.records)
        self.effects.extend(decision.effects)


class ShardRuntime(Generic[RequestT, RecordT, EffectT]):
    """One life of one shard: ``run`` loads and serves until cancelled or failed."""

    def __init__(
        self,
        make_shard: Callable[[], Shard[RequestT, RecordT, EffectT]],
        log: ShardLog,
        *,
        encode: Encode[RecordT],
        decode: Decode[RecordT],
        clock: Clock,
        perform: Callable[[EffectT], None],
        in_flight_max: int = 1,
    ) -> None:
        """``perform`` hands answers back by ``answer``. ``in_flight_max``: appends that are not
        committed yet; a log that is local takes many.
        """
        self._make_shard = make_shard
        self._log = log
        self._encode = encode
        self._decode = decode
        self._clock = clock
        self._perform = perform
        self._in_flight_max = in_flight_max
        self._shard: Shard[RequestT, RecordT, EffectT] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._broken: asyncio.Future[None] | None = None
        self._dropped_by = ErrorCode.NOT_COORDINATOR
        """Error of the requests that are not answered when the state is dropped."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0
        self._gathered: _Part[RecordT, EffectT] = _Part()
        self._in_flight: list[_Part[RecordT, EffectT]] = []

    @property
    def is_serving(self) -> bool:
        """Whether all of the log is replayed, and nothing has failed since."""
        return self._shard is not None

    @property
    def shard(self) -> Shard[RequestT, RecordT, EffectT] | None:
        """The state, for who only looks; None while it is not served."""
        return self._shard

    @property
    def waiting_count(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting)

    async def run(self) -> None:
        """Load, then serve until cancelled. Raises TidemarkError, once it serves in a group, when
        the state was dropped; ValueError for a record that cannot be read or written.
        """
        try:
            shard = await self._load()
            async with asyncio.TaskGroup() as self._tasks:
                self._broken = asyncio.get_running_loop().create_future()
                self._shard = shard
                self._take(shard.loaded(self._now()))
                try:
                    await self._broken
                finally:
                    self._shard = None  # the group takes no more tasks from here on
        finally:
            self._drop()

    async def _load(self) -> Shard[RequestT, RecordT, EffectT]:
        shard = self._make_shard()
        end = await self._log.take_over()
        async with contextlib.aclosing(_closable(self._log.read(end))) as batches:
            turn_ends = self._clock.now_ms() + LOAD_TURN_MS
            async for batch in batches:
                self._replay(shard, batch)
                if self._clock.now_ms() >= turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = self._clock.now_ms() + LOAD_TURN_MS
        return shard

    def _replay(self, shard: Shard[RequestT, RecordT, EffectT], batch: Buffer) -> None:
        header = read_header(batch)
        writer = None
        if header.producer_id >= 0:
            writer = Writer(header.producer_id, header.producer_epoch)
        if header.is_control:
            said = read_control(batch, header)
            if isinstance(said, EndTxnMarker):
                assert writer is not None, "a marker names its producer"
                shard.replay_end(writer, commits=said.commits)
            return
        for one in read_records(batch, header):
            if one.key is not None:
                record = self._decode(one.key, one.value)
                if record is not None:
                    shard.replay(record, writer if header.is_transactional else None)

    def _drop(self) -> None:
        """Nothing of this state is told any more."""
        self._shard = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        failure = TidemarkError(self._dropped_by, "the coordinator has dropped its state")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)
        self._waiting.clear()

    # -- requests

    async def ask(self, request: RequestT) -> Any:
        """The reply to a request. Raises TidemarkError: COORDINATOR_LOAD_IN_PROGRESS; or, when the
        state is dropped meanwhile and the outcome is unknown, COORDINATOR_NOT_AVAILABLE where an
        append was not committed in time or for want of replicas, else NOT_COORDINATOR.
        """
        if self._shard is None:
            raise TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard is being loaded")
        if len(self._waiting) >= REQUESTS_MAX:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{REQUESTS_MAX} requests wait for the shard"
            )
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._request_id += 1
        request_id = self._request_id
        self._waiting[request_id] = waiting
        try:
            self._decide(request_id, request)
            return await waiting
        finally:
            self._waiting.pop(request_id, None)

    def tell(self, request: RequestT) -> None:
        """A request that nobody waits for; dropped while nothing is served."""
        if self._shard is not None:
            self._request_id += 1
            self._decide(self._request_id, request)

    def answer(self, request_id: int, reply: object) -> None:
        """From ``perform``: to who asked, if it still waits."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def end_transaction(
        self, writer: Writer, committed: Coroutine[Any, Any, int], *, commits: bool
    ) -> None:
        """A marker has just been appended to the local log, behind all that was decided here;
        answers from now on may tell of it, and wait until it is ``committed``.
        """
        if self._shard is None or self._tasks is None:
            committed.close()
            return
        assert not self._gathered.runs, "a local log takes records at once"
        self._guarded(lambda shard: shard.replay_end(writer, commits=commits))
        part: _Part[RecordT, EffectT] = _Part()
        self._in_flight.append(part)
        self._watch(part, committed)

    def _decide(self, request_id: int, request: RequestT) -> None:
        self._guarded(lambda shard: self._take(shard.decide(request_id, request, self._now())))

    def _wake(self) -> None:
        self._timer = None
        self._guarded(lambda shard: self._take(shard.wake(self._now())))

    def _guarded(self, work: Callable[[Shard[RequestT, RecordT, EffectT]], None]) -> None:
        """A bug of ours in the state costs the state, not the process."""
        shard = self._shard
        if shard is None:
            return
        try:
            work(shard)
        except AssertionError as bug:
            self._break(bug)

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.wall_ms())

    # -- append and release

    def _take(self, decision: Decision[RecordT, EffectT]) -> None:
        """Replay a decision's records; see that they are appended and its effects performed."""
        shard = self._shard
        assert shard is not None, "who serves has a state"
        for record in decision.records:
            shard.replay(record, decision.writer)
        if not decision.records and not self._gathered.runs:
            # It may tell of what is on its way: of the last that is.
            if self._in_flight:
                self._in_flight[-1].effects.extend(decision.effects)
            else:
                self._release(decision.effects)
        else:
            self._gathered.add(decision)
            self._flush()
        self._arm()

    def _flush(self) -> None:
        if not self._gathered.runs or len(self._in_flight) >= self._in_flight_max:
            return
        part, self._gathered = self._gathered, _Part()
        self._in_flight.append(part)
        assert self._tasks is not None, "run() appends"
        try:
            batches = self._batches(part)
        except (ValueError, struct.error) as unencodable:
            self._break(unencodable)
            return
        self._watch(part, self._log.append(batches))

    def _watch(self, part: _Part[RecordT, EffectT], committed: Awaitable[int]) -> None:
        assert self._tasks is not None, "run() appends"
        task = self._tasks.create_task(self._settle(part, committed))
        if isinstance(committed, Coroutine):  # a task that is cancelled at once never awaits it
            task.add_done_callback(lambda _: committed.close())

    async def _settle(self, part: _Part[RecordT, EffectT], committed: Awaitable[int]) -> None:
        """Wait until a part is committed; perform its effects, and append what gathered."""
        try:
            await committed
        except TidemarkError as failure:
            self._break(failure)
            return
        if self._shard is None or part not in self._in_flight:
            return  # a later one was committed first, and this one with it
        # An earlier one is committed by then too: it is below in the log.
        at = self._in_flight.index(part)
        done, self._in_flight = self._in_flight[: at + 1], self._in_flight[at + 1 :]
        for one in done:
            self._release(one.effects)
        self._flush()

    def _release(self, effects: Sequence[EffectT]) -> None:
        for effect in effects:
            self._perform(effect)

    def _batches(self, part: _Part[RecordT, EffectT]) -> bytes:
        """The records of a part: a batch for each writer in turn, cut where they grow long."""
        wall = self._clock.wall_ms()
        built: list[bytes] = []
        for writer, records in part.runs:
            rows: list[tuple[int, bytes, bytes | None, tuple[()]]] = []
            size_bytes = 0
            for record in records:
                key, value = self._encode(record)
                if size_bytes > BATCH_BYTES_TARGET:
                    built.append(_build(rows, writer))
                    rows, size_bytes = [], 0
                rows.append((wall, key, value, ()))
                size_bytes += len(key) + len(value or b"")
            built.append(_build(rows, writer))
        return b"".join(built)

    def _break(self, failure: BaseException) -> None:
        self._shard = None
        if isinstance(failure, TidemarkError):
            self._dropped_by = CLIENT_ERRORS.get(failure.code, ErrorCode.NOT_COORDINATOR)
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(failure)

    def _arm(self) -> None:
        """Wake when the shard next has something to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shard is None:
            return
        due = self._shard.next_deadline()
        if due is not None:
            wait_s = max(0, due - self._clock.now_ms()) / 1_000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._wake)


def _build(
    rows: Sequence[tuple[int, bytes, bytes | None, tuple[()]]], writer: Writer | None
) -> bytes:
    if writer is None:
        return build_batch(rows)
    return build_batch(
        rows,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        attributes_extra=TRANSACTIONAL_BIT,
    )


async def _closable(batches: AsyncIterator[Buffer]) -> Any:
    """An async generator over any async iterator, so that it is closed at once."""
    async for batch in batches:
        yield batch
