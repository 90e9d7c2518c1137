"""ShardRuntime: one shard of a coordinator over the log that holds its state.

    load    take over the log, replay it up to the end
    decide  on a request or a deadline: records and effects; the records are replayed at once
    append  the records of decisions made meanwhile together, one batch for each writer, acks=all.
            Many or large records go out in several appends, one after the other
    release the effects, once the log is committed past everything replayed before them. Effects of
            a decision without records come from memory alone: they also wait until it is certain
            that no later owner had begun by then

A failed append has an unknown outcome: ``run`` ends, every waiting request fails, and the holder of
the shard creates a new runtime, which loads again.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, Buffer, read_header
from tidemark.codec.records import build_batch, read_records
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import Offset
from tidemark.protocol.shard import (
    CLIENT_ERRORS,
    Decision,
    KnowsOffsets,
    Moment,
    Shard,
    Writer,
)
from tidemark.runtime.clock import Clock

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
EffectT = TypeVar("EffectT")

REQUESTS_MAX: Final = 20_000
"""Bound on the unanswered requests of one shard."""
BATCH_BYTES_TARGET: Final = 256 * 1024
"""Approximate size up to which records of several decisions share a batch."""
APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bound on the records of one append, unless a single record is larger. A request to a broker has a
bound too, and an append beyond it would fail again after every load: all transactions that are due
by then are decided at once.
"""
LOAD_TURN_MS: Final = 5
"""Time for which a load may hold the loop before other tasks run."""

Encode = Callable[[RecordT], tuple[bytes, bytes | None]]
Decode = Callable[[bytes, bytes | None], RecordT | None]


class ShardLog(Protocol):
    """The partition that holds a shard's state, as seen by one owner."""

    async def take_over(self) -> int:
        """Fence every earlier owner; return the offset (exclusive) up to which to replay. Raises
        TidemarkError.
        """
        ...

    def read(self, end: int) -> AsyncGenerator[Buffer, None]:
        """Yield whole record batches from the log's start up to ``end`` (exclusive)."""
        ...

    def append(self, batches: bytes) -> Awaitable[int]:
        """Append one or more whole batches, all or a first part of them; return the end (exclusive)
        once they are committed. A local log has them in order when the call returns. Raises
        TidemarkError with an unknown outcome.
        """
        ...

    def confirm(self) -> Awaitable[int] | None:
        """Return None if no later owner can have begun yet. Otherwise return an awaitable that is
        done once it is certain that none had begun when this was called, and everything appended
        before is committed; its result has no meaning. Raises TidemarkError as ``append`` does.
        """
        ...


class _Encoded(NamedTuple, Generic[RecordT]):
    """A record and its bytes."""

    record: RecordT
    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value or b"")


@dataclass(eq=False, slots=True)
class _Part(Generic[RecordT, EffectT]):
    """Records that are appended together, and the effects of the decisions that end with them."""

    runs: list[tuple[Writer | None, list[_Encoded[RecordT]]]] = field(default_factory=list)
    effects: list[EffectT] = field(default_factory=list)
    size_bytes: int = 0

    def has_room(self, one: _Encoded[RecordT]) -> bool:
        return not self.runs or self.size_bytes + one.size_bytes <= APPEND_BYTES_MAX

    def add(self, one: _Encoded[RecordT], writer: Writer | None) -> None:
        if not self.runs or self.runs[-1][0] != writer:
            self.runs.append((writer, []))
        self.runs[-1][1].append(one)
        self.size_bytes += one.size_bytes

    def batches(self, wall_ms: int) -> bytes:
        """Build the batches: one for each writer in turn, split where they grow long."""
        built: list[bytes] = []
        for writer, records in self.runs:
            rows: list[tuple[int, bytes, bytes | None, tuple[()]]] = []
            size_bytes = 0
            for one in records:
                if size_bytes > BATCH_BYTES_TARGET:
                    built.append(_build(rows, writer))
                    rows, size_bytes = [], 0
                rows.append((wall_ms, one.key, one.value, ()))
                size_bytes += one.size_bytes
            built.append(_build(rows, writer))
        return b"".join(built)


class ShardRuntime(Generic[RequestT, RecordT, EffectT]):
    """One lifetime of one shard: ``run`` loads and serves it until cancelled or failed."""

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
        linger_ms: int = 0,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """``perform`` returns replies through ``answer``. ``in_flight_max`` bounds the uncommitted
        appends; a local log takes many. Records wait ``linger_ms`` for others to append together.
        ``on_loaded`` is called when the whole log is replayed.
        """
        self._make_shard = make_shard
        self._log = log
        self._encode = encode
        self._decode = decode
        self._clock = clock
        self._perform = perform
        self._in_flight_max = in_flight_max
        self._linger_s = linger_ms / 1_000
        self._lingering: asyncio.TimerHandle | None = None
        self._on_loaded = on_loaded
        self._shard: Shard[RequestT, RecordT, EffectT] | None = None
        self._located: Callable[[RecordT, Offset], None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._broken: asyncio.Future[None] | None = None
        self._dropped_by = ErrorCode.NOT_COORDINATOR
        """Error of the requests that are unanswered when the state is dropped."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0
        self._gathered: deque[_Part[RecordT, EffectT]] = deque()
        """Parts that wait for room in flight; only the last one takes further records."""
        self._in_flight: list[_Part[RecordT, EffectT]] = []
        self._confirming: _Part[RecordT, EffectT] | None = None
        """Effects from memory that wait for ``ShardLog.confirm``; also the last of its kind in
        ``_in_flight``.
        """
        self._unconfirmed: list[EffectT] = []
        """Effects of later decisions from memory, for the next confirmation."""

    @property
    def is_serving(self) -> bool:
        """True if the whole log is replayed, and nothing has failed since."""
        return self._shard is not None

    @property
    def shard(self) -> Shard[RequestT, RecordT, EffectT] | None:
        """The state, for reading only; None while it is not served."""
        return self._shard

    @property
    def waiting_count(self) -> int:
        """Number of unanswered requests."""
        return len(self._waiting)

    async def run(self) -> None:
        """Load, then serve until cancelled. Raises TidemarkError when the state is dropped (in an
        exception group once it serves), ValueError for a record that cannot be read or written.
        """
        try:
            shard = await self._load()
            async with asyncio.TaskGroup() as self._tasks:
                self._broken = asyncio.get_running_loop().create_future()
                self._shard = shard
                self._on_loaded()
                self._take(shard.loaded(self._now()))
                try:
                    await self._broken
                finally:
                    self._shard = None  # the task group takes no tasks from here on
        finally:
            self._drop()

    async def _load(self) -> Shard[RequestT, RecordT, EffectT]:
        shard = self._make_shard()
        if isinstance(shard, KnowsOffsets):
            assert self._in_flight_max == 1, "offsets are counted back from the end of an append"
            self._located = shard.located
        end = await self._log.take_over()
        async with contextlib.aclosing(self._log.read(end)) as batches:
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
            control = read_control(batch, header)
            if isinstance(control, EndTxnMarker):
                assert writer is not None, "a marker names its producer"
                shard.replay_end(writer, commits=control.commits)
            return
        for one in read_records(batch, header):
            if one.key is not None:
                record = self._decode(one.key, one.value)
                if record is not None:
                    shard.replay(record, writer if header.is_transactional else None)
                    if self._located is not None:
                        self._located(record, Offset(one.offset))

    def _drop(self) -> None:
        """Drop the state and fail all waiting requests."""
        self._shard = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        failure = TidemarkError(self._dropped_by, "the coordinator has dropped its state")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)
        self._waiting.clear()

    # -- requests

    async def ask(self, request: RequestT) -> Any:
        """Return the reply to a request. Raises TidemarkError COORDINATOR_LOAD_IN_PROGRESS before
        the shard is loaded. If the state is dropped meanwhile the outcome is unknown, and the error
        is COORDINATOR_NOT_AVAILABLE if an append was not committed in time or for lack of replicas,
        else NOT_COORDINATOR.
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

    def submit(self, request: RequestT) -> None:
        """Decide a request without a reply; it is dropped while the shard is not served."""
        if self._shard is not None:
            self._request_id += 1
            number = self._request_id
            self._whole(lambda shard: self._take(shard.decide(number, request, self._now())))

    def answer(self, request_id: int, reply: object) -> None:
        """Return a reply to the caller of ``ask``, if it still waits. Called by ``perform``."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def end_transaction(
        self, writer: Writer, committed: Coroutine[Any, Any, int], *, commits: bool
    ) -> None:
        """Replay a marker that was just appended to the local log, after everything decided here.
        Later replies may depend on it, and wait until it is ``committed``. The state is dropped if
        it has records that the log lacks, for want of room: they would follow the marker.
        """
        if self._shard is None or self._tasks is None:
            committed.close()
            return
        if self._gathered:
            committed.close()
            words = "a transaction ended before records that wait for earlier appends"
            self._break(TidemarkError(ErrorCode.REQUEST_TIMED_OUT, words))
            return
        self._whole(lambda shard: shard.replay_end(writer, commits=commits))
        part: _Part[RecordT, EffectT] = _Part()
        self._in_flight.append(part)
        self._watch(part, committed)

    def _decide(self, request_id: int, request: RequestT) -> None:
        self._guarded(lambda shard: self._take(shard.decide(request_id, request, self._now())))

    def _wake(self) -> None:
        self._timer = None
        self._whole(lambda shard: self._take(shard.wake(self._now())))

    def _guarded(self, work: Callable[[Shard[RequestT, RecordT, EffectT]], None]) -> None:
        """Run ``work`` on the shard for a caller that waits, who gets its errors. A failed
        assertion drops the state; the process lives on.
        """
        shard = self._shard
        if shard is None:
            return
        try:
            work(shard)
        except AssertionError as bug:
            self._break(bug)

    def _whole(self, work: Callable[[Shard[RequestT, RecordT, EffectT]], None]) -> bool:
        """Run ``work`` on the shard that may not be left undone. Any error drops the state: it may
        differ from the log by now, or would not be woken again. Return True unless it is dropped.
        """
        shard = self._shard
        if shard is not None:
            try:
                work(shard)
            except Exception as bug:  # noqa: BLE001 - whatever it is, the state cannot be kept
                self._break(bug)
        return self._shard is not None

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.wall_ms())

    # -- append and release

    def _take(self, decision: Decision[RecordT, EffectT]) -> None:
        """Replay a decision's records, append them, and perform its effects once committed."""
        assert self.is_serving, "decisions are taken only while the shard is served"
        if not self._whole(lambda shard: _replay(shard, decision)):
            return
        if not decision.records and not self._gathered:
            self._from_memory(decision.effects)
        elif self._gather(decision):
            self._flush_later()
        self._arm()

    def _gather(self, decision: Decision[RecordT, EffectT]) -> bool:
        """Queue a decision for the next appends, its effects with its last record. Return True
        unless a record cannot be encoded, which drops the state.
        """
        gathered, writer = self._gathered, decision.writer
        try:
            for record in decision.records:
                one = _Encoded(record, *self._encode(record))
                if not gathered or not gathered[-1].has_room(one):
                    gathered.append(_Part())
                gathered[-1].add(one, writer)
        except (ValueError, struct.error) as unencodable:
            self._break(unencodable)
            return False
        gathered[-1].effects.extend(decision.effects)
        return True

    def _from_memory(self, effects: Sequence[EffectT]) -> None:
        """Perform effects that no record accompanies, once the owner is confirmed and the last
        append is committed: they may depend on its records.
        """
        if not effects:
            return
        if self._confirming is not None:
            self._unconfirmed.extend(effects)
            return
        confirmation = self._log.confirm()
        if confirmation is not None:
            self._confirming = _Part(effects=list(effects))
            self._in_flight.append(self._confirming)
            self._watch(self._confirming, confirmation)
        elif self._in_flight:
            self._in_flight[-1].effects.extend(effects)
        else:
            self._release(effects)

    def _flush_later(self) -> None:
        """Append what is gathered, at the end of the linger."""
        if not self._linger_s:
            self._flush()
        elif self._lingering is None:
            later = asyncio.get_running_loop().call_later
            self._lingering = later(self._linger_s, self._linger_ended)

    def _linger_ended(self) -> None:
        self._lingering = None
        if self._shard is not None:
            self._flush()

    def _flush(self) -> None:
        while self._gathered and len(self._in_flight) < self._in_flight_max:
            part = self._gathered.popleft()
            self._in_flight.append(part)
            try:
                batches = part.batches(self._clock.wall_ms())
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
        """Wait until a part is committed; perform its effects, and append the gathered records."""
        try:
            end = await committed
        except TidemarkError as failure:
            self._break(failure)
            return
        if self._shard is None or part not in self._in_flight:
            return  # it was committed together with a later one
        # Earlier parts are committed too: they are below it in the log.
        at = self._in_flight.index(part)
        done, self._in_flight = self._in_flight[: at + 1], self._in_flight[at + 1 :]
        if self._located is not None:
            self._locate(part, end)
        for one in done:
            self._release(one.effects)
        if self._confirming in done:
            self._confirming = None
            effects, self._unconfirmed = self._unconfirmed, []
            self._from_memory(effects)
        self._flush()

    def _locate(self, part: _Part[RecordT, EffectT], end: int) -> None:
        """Say where the records of a part are: the last of them is the one before ``end``."""
        assert self._located is not None, "only a shard that asks for it"
        records = [one.record for _, run in part.runs for one in run]
        for offset, record in enumerate(records, end - len(records)):
            self._located(record, Offset(offset))

    def _release(self, effects: Sequence[EffectT]) -> None:
        for effect in effects:
            self._perform(effect)

    def _break(self, failure: BaseException) -> None:
        self._shard = None
        if isinstance(failure, TidemarkError):
            self._dropped_by = CLIENT_ERRORS.get(failure.code, ErrorCode.NOT_COORDINATOR)
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(failure)

    def _arm(self) -> None:
        """Set the timer for the shard's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shard is None:
            return
        due = self._shard.next_deadline()
        if due is not None:
            wait_s = max(0, due - self._clock.now_ms()) / 1_000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._wake)


def _replay(shard: Shard[Any, RecordT, Any], decision: Decision[RecordT, Any]) -> None:
    for record in decision.records:
        shard.replay(record, decision.writer)


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
