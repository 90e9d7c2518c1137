"""A shard over a log that can be held back, broken and read again: what is told, and when."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from tidemark.codec.control_record import EndTxnMarker, OwnerRecord, build_marker, build_owner
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.codec.records import build_batch, read_records
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs, Offset
from tidemark.protocol.shard import Decision, Moment, Writer
from tidemark.runtime import shard_runtime
from tidemark.runtime.shard_runtime import ShardRuntime
from virtual_time import LoopClock, run_virtual

Put = tuple[str, str]


@dataclass(frozen=True)
class Told:
    """An answer."""

    to: int
    reply: str


class Register:
    """Keys and their last values; a request is ``key=value``, or ``key`` to read."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.pending: dict[int, list[Put]] = {}
        self.due: InstantMs | None = None
        self.slips_in = ""

    def decide(self, request_id: int, request: str, now: Moment) -> Decision[Put, Told]:
        assert request != "bug", "a bug of ours"
        if request.startswith("slip"):
            self.slips_in = request.removeprefix("slip ")
            self.due = InstantMs(now.instant + 5)
            return Decision()
        if request == "soon":
            self.due = InstantMs(now.instant + 5)
            return Decision()
        if request.startswith("all "):
            puts = tuple((key, "1") for key in request.removeprefix("all ").split())
            return Decision(puts, (Told(request_id, "done"),))
        key, is_put, value = request.partition("=")
        if not is_put:
            return Decision((), (Told(request_id, self.values.get(key, "none")),))
        return Decision(((key, value),), (Told(request_id, "done"),))

    def wake(self, now: Moment) -> Decision[Put, Told]:
        del now
        self.due = None
        self._slip("wake")
        return Decision((("woken", "yes"),), ())

    def next_deadline(self) -> InstantMs | None:
        return self.due

    def replay(self, record: Put, writer: Writer | None) -> None:
        self._slip(record[0])
        if writer is None:
            self.values[record[0]] = record[1]
        else:
            self.pending.setdefault(writer.producer_id, []).append(record)

    def _slip(self, where: str) -> None:
        if self.slips_in == where:
            raise KeyError(where)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        for key, value in self.pending.pop(writer.producer_id, []):
            if commits:
                self.values[key] = value

    def loaded(self, now: Moment) -> Decision[Put, Told]:
        del now
        return Decision((("loaded", "yes"),), ())

    def check(self) -> None:
        return


@dataclass
class HeldLog:
    """Batches, and appends that are committed when the test says so."""

    batches: list[bytes] = field(default_factory=list)
    held: list[asyncio.Future[int]] = field(default_factory=list)
    holds: bool = False
    owns: bool = True
    reads_open: int = 0

    async def take_over(self) -> int:
        return len(self.batches)

    async def read(self, end: int) -> AsyncGenerator[bytes, None]:
        self.reads_open += 1
        try:
            for batch in self.batches[:end]:
                yield batch
        finally:
            self.reads_open -= 1

    def append(self, batches: bytes) -> Awaitable[int]:
        for position, header in iterate_headers(batches):
            self.batches.append(batches[position : position + header.size_bytes])
        committed = asyncio.get_running_loop().create_future()
        if self.holds:
            self.held.append(committed)
        else:
            committed.set_result(len(self.batches))
        return committed

    def confirm(self) -> Awaitable[int] | None:
        """As an append that leaves no record; nothing to wait for while ``owns``."""
        if self.owns:
            return None
        self.held.append(asyncio.get_running_loop().create_future())
        return self.held[-1]

    def release(self) -> None:
        """The oldest held append is committed."""
        self.held.pop(0).set_result(len(self.batches))

    def records(self) -> list[list[str]]:
        """Keys by batch."""
        return [
            [(one.key or b"").decode() for one in read_records(batch, header)]
            for batch in self.batches
            for _, header in iterate_headers(batch)
        ]


Runtime = ShardRuntime[str, Put, Told]


def make(
    log: HeldLog,
    in_flight_max: int = 1,
    on_loaded: Callable[[], None] = lambda: None,
    linger_ms: int = 0,
) -> Runtime:
    runtime: Runtime
    runtime = ShardRuntime(
        Register,
        log,
        encode=lambda put: (put[0].encode(), put[1].encode()),
        decode=lambda key, value: (key.decode(), (value or b"").decode()),
        clock=LoopClock(),
        perform=lambda told: runtime.answer(told.to, told.reply),
        in_flight_max=in_flight_max,
        linger_ms=linger_ms,
        on_loaded=on_loaded,
    )
    return runtime


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def served(
    log: HeldLog,
    work: Callable[[Runtime], Awaitable[None]],
    in_flight_max: int = 1,
    linger_ms: int = 0,
) -> None:
    async def run() -> None:
        runtime = make(log, in_flight_max, linger_ms=linger_ms)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(runtime.run())
            await settle()
            await work(runtime)
            serving.cancel()

    run_virtual(run())


def test_what_was_decided_is_there_after_a_load() -> None:
    log = HeldLog()

    async def put(runtime: Runtime) -> None:
        assert await runtime.ask("a=1") == "done"

    async def read(runtime: Runtime) -> None:
        assert await runtime.ask("a") == "1"

    served(log, put)
    served(log, read)


def test_the_end_of_a_load_is_announced_once_the_state_is_served() -> None:
    served_when_announced: list[bool] = []

    async def run() -> None:
        runtime: Runtime
        runtime = make(
            HeldLog(), on_loaded=lambda: served_when_announced.append(runtime.is_serving)
        )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(runtime.run())
            await settle()
            serving.cancel()

    run_virtual(run())
    assert served_when_announced == [True]


@pytest.mark.feature("E05")
def test_a_load_that_fails_ends_its_read_of_the_log_at_once() -> None:
    log = HeldLog([build_batch([(0, b"\xff", b"no text", ())])] * 2)

    async def run() -> None:
        with pytest.raises(UnicodeDecodeError):
            await make(log).run()
        assert log.reads_open == 0

    run_virtual(run())


def test_an_answer_waits_until_its_records_are_committed() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        log.holds = True
        async with asyncio.TaskGroup() as tasks:
            put = tasks.create_task(runtime.ask("a=1"))
            read = tasks.create_task(runtime.ask("a"))
            await settle()
            assert (put.done(), read.done()) == (False, False)
            log.release()
        assert (put.result(), read.result()) == ("done", "1")

    served(log, work)


def test_decisions_made_meanwhile_go_out_as_one_batch() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        log.holds = True
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(runtime.ask(f"k{number}=1"))
            await settle()
            log.release()
            await settle()
            log.release()
        assert log.records() == [["loaded"], ["k0"], ["k1", "k2", "k3"]]

    served(log, work)


def test_what_a_broker_does_not_take_at_once_goes_out_in_several_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_runtime, "APPEND_BYTES_MAX", 7)  # three records of two bytes each
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        log.holds = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runtime.ask("a=1"))
            await settle()
            put = tasks.create_task(runtime.ask("all b c d e f g h"))
            read = tasks.create_task(runtime.ask("h"))
            answered = []
            for _ in range(4):
                log.release()
                await settle()
                answered.append((put.done(), read.done()))
        assert log.records() == [["loaded"], ["a"], ["b", "c", "d"], ["e", "f", "g"], ["h"]]
        assert answered == [(False, False)] * 3 + [(True, True)]

    served(log, work)


def test_a_record_above_the_bound_is_appended_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_runtime, "APPEND_BYTES_MAX", 1)
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        assert await runtime.ask("all a b") == "done"
        assert log.records() == [["loaded"], ["a"], ["b"]]

    served(log, work)


def test_with_a_linger_decisions_of_several_turns_are_one_batch() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(runtime.ask(f"k{number}=1"))
                await settle()
        assert log.records() == [["loaded", "k0", "k1", "k2"]]

    served(log, work, linger_ms=5)


def test_a_state_that_is_dropped_during_the_linger_appends_nothing() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        assert await code_of(runtime.ask("bug")) is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(0.01)
        assert log.records() == []

    with pytest.raises(ExceptionGroup):
        served(log, work, linger_ms=5)


async def code_of(work: Awaitable[object]) -> ErrorCode:
    try:
        await work
    except TidemarkError as failure:
        return failure.code
    except ExceptionGroup as failures:
        codes = [one.code for one in failures.exceptions if isinstance(one, TidemarkError)]
        return codes[0]
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_failed_append_drops_the_state_and_all_who_wait(
    failure: ErrorCode, answer: ErrorCode
) -> None:
    log = HeldLog()

    async def run() -> list[ErrorCode]:
        runtime = make(log)
        async with asyncio.TaskGroup() as tasks:
            served_until = tasks.create_task(code_of(runtime.run()))
            await settle()
            log.holds = True
            asked = tasks.create_task(code_of(runtime.ask("a=1")))
            await settle()
            log.held[0].set_exception(TidemarkError(failure, "why"))
        return [served_until.result(), asked.result(), await code_of(runtime.ask("a"))]

    assert run_virtual(run()) == [failure, answer, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_bug_in_the_state_costs_the_state() -> None:
    async def run() -> None:
        runtime = make(HeldLog())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runtime.run())
            await settle()
            runtime.submit("bug")

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(run())
    assert caught.group_contains(AssertionError, match="a bug of ours")


@pytest.mark.parametrize("where", ["wake", "a"])
def test_an_error_of_any_kind_drops_a_state_that_may_differ_from_its_log(where: str) -> None:
    """A timer that ended by an error would not be set again."""
    log = HeldLog()

    async def run() -> None:
        runtime = make(log)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runtime.run())
            await settle()
            runtime.submit(f"slip {where}")
            if where == "a":
                assert await code_of(runtime.ask("a=1")) is ErrorCode.NOT_COORDINATOR
            await asyncio.Event().wait()  # cancelled when the state is dropped

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(run())
    assert caught.group_contains(KeyError, match=where)
    assert log.records() == [["loaded"]]


def test_the_state_is_woken_when_it_asked_to_be() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        runtime.submit("soon")
        await asyncio.sleep(0.03)
        assert await runtime.ask("woken") == "yes"

    served(log, work)


@pytest.mark.feature("L10")
@pytest.mark.parametrize(("commits", "found"), [(True, "2"), (False, "1")])
def test_a_transactions_records_count_once_it_commits(commits: bool, found: str) -> None:
    log = HeldLog()

    async def put(runtime: Runtime) -> None:
        await runtime.ask("a=1")

    served(log, put)
    written = make_transactional("a", "2")
    marker = EndTxnMarker(commits, 1)
    end = build_marker(marker, producer_id=7, producer_epoch=0, timestamp=0)
    log.batches += [written, end, build_owner(OwnerRecord(3), timestamp=0)]

    async def read(runtime: Runtime) -> None:
        assert await runtime.ask("a") == found

    served(log, read)


def make_transactional(key: str, value: str) -> bytes:
    return build_batch(
        [(0, key.encode(), value.encode(), ())],
        producer_id=7,
        producer_epoch=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )


def test_an_end_told_to_a_local_log_holds_answers_back_until_it_is_committed() -> None:
    log = HeldLog()

    async def work(runtime: Runtime) -> None:
        committed = asyncio.get_running_loop().create_future()

        async def wait() -> int:
            return int(await committed)

        runtime.end_transaction(Writer(7, 0), wait(), commits=True)
        async with asyncio.TaskGroup() as tasks:
            read = tasks.create_task(runtime.ask("a"))
            await settle()
            assert not read.done()
            committed.set_result(9)

    served(log, work, in_flight_max=100)


def test_an_end_before_records_that_wait_for_room_drops_the_state() -> None:
    """The marker is in the log: its sender takes it for written, and does not repeat it."""
    log = HeldLog(holds=True)

    async def refused(runtime: Runtime, request: str) -> None:
        with pytest.raises(TidemarkError) as refusal:
            await runtime.ask(request)
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def run() -> None:
        runtime = make(log, in_flight_max=2)

        async def serve() -> None:
            with pytest.raises(ExceptionGroup):
                await runtime.run()

        async def never() -> int:
            raise AssertionError("nothing waits for the marker")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve())
            await settle()
            for request in ("a=1", "b=1"):
                tasks.create_task(refused(runtime, request))
            await settle()
            runtime.end_transaction(Writer(7, 0), never(), commits=True)
            assert not runtime.is_serving

    run_virtual(run())
    assert log.records() == [["loaded"], ["a"]]


class Located(Register):
    """A register that needs to know where its records are."""

    found: ClassVar[list[tuple[str, int]]] = []

    def located(self, record: Put, offset: Offset) -> None:
        self.found.append((record[0], offset))


class OffsetLog(HeldLog):
    """Batches have offsets, as in a partition; a control batch comes before each append."""

    end = 0

    def append(self, batches: bytes) -> Awaitable[int]:
        first = len(self.batches)
        self.batches.append(build_owner(OwnerRecord(1), timestamp=0))
        committed = super().append(batches)
        for at in range(first, len(self.batches)):
            batch = self.batches[at]
            (_, header), *_ = iterate_headers(batch)
            self.batches[at] = self.end.to_bytes(8, "big") + batch[8:]
            self.end += header.last_offset_delta + 1
        if self.holds:
            return committed
        ready = asyncio.get_running_loop().create_future()
        ready.set_result(self.end)
        return ready

    def release(self) -> None:
        self.held.pop(0).set_result(self.end)


def held_puts(log: OffsetLog) -> Callable[[Runtime], Awaitable[None]]:
    """Puts a, and then b and c together; they are committed one append after the other."""

    async def put(runtime: Runtime) -> None:
        log.holds = True
        async with asyncio.TaskGroup() as tasks:
            for key in "abc":
                tasks.create_task(runtime.ask(f"{key}=1"))
            await settle()
            assert Located.found == [("loaded", 1)]  # nothing is committed yet
            log.release()
            await settle()
            log.release()
        log.holds = False

    return put


async def nothing(_: Runtime) -> None:
    return


def test_a_shard_that_asks_for_it_is_told_where_its_records_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "Register", Located)
    log = OffsetLog()
    Located.found.clear()
    served(log, held_puts(log))
    known = [("loaded", 1), ("a", 3), ("b", 5), ("c", 6)]
    assert Located.found == known
    Located.found.clear()
    served(log, nothing)
    assert Located.found == [*known, ("loaded", 8)]


def test_an_answer_from_memory_waits_until_no_later_owner_can_have_begun() -> None:
    log = HeldLog(owns=False)

    async def work(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(runtime.ask("a"))
            await settle()
            assert not first.done()
            log.release()
        assert first.result() == "none"

    served(log, work)


def test_answers_from_memory_share_the_next_confirmation() -> None:
    log = HeldLog(owns=False)

    async def work(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as tasks:
            asks = [tasks.create_task(runtime.ask(name)) for name in "abc"]
            await settle()
            log.release()
            await settle()
            assert [one.done() for one in asks] == [True, False, False]
            log.release()

    served(log, work)


def test_an_answer_from_memory_is_refused_when_a_later_owner_had_begun() -> None:
    log = HeldLog(owns=False)

    async def refused(runtime: Runtime) -> None:
        with pytest.raises(TidemarkError) as failed:
            await runtime.ask("a")
        assert failed.value.code is ErrorCode.NOT_COORDINATOR

    async def work(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(refused(runtime))
            await settle()
            log.held.pop().set_exception(TidemarkError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "deposed"))

    with pytest.RaisesGroup(TidemarkError, flatten_subgroups=True):
        served(log, work)
