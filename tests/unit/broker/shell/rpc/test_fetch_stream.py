"""What a Fetch stream gives to who reads committed records."""

import asyncio
from typing import Any

import pytest
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.fetch_stream import FETCH_BYTES_MAX, FetchStream
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.model.ids import InstantMs
from tidemark.model.quotas import CONSUMER_BYTE_RATE, QuotaEntity
from tidemark_wire.v1 import partition_store_pb2
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.rpc.peers import CALLER, PARTITION, Peer, fetch_parts, offset_queries, until
from waiting import patience

A, B = 7, 8
"""Two producers."""


class Transactions(World):
    """A partition that transactional producers write."""

    def __init__(self) -> None:
        super().__init__()
        self.show(topic())
        self.sequences = {A: 0, B: 0}

    def write(self, producer_id: int) -> None:
        asked = self.hosted().partition.verifications
        asked.answer(producer_id, asked.ask(producer_id, 0))
        self.append(
            acks=-1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.sequences[producer_id],
            attributes_extra=TRANSACTIONAL_BIT,
        )
        self.sequences[producer_id] += 1

    def end(self, producer_id: int, *, commits: bool) -> None:
        marker = EndTxnMarker(commits, 1)
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=0)
        self.appender.append_internal(self.hosted(), batch, control=marker, bumped=False)

    def stream(self, peer: Peer) -> FetchStream:
        return FetchStream(fetch_parts(self.parts), ByteBudget(1 << 20), CALLER, peer)

    def fetch(self, offset: int = 0, *, committed: bool = True, bytes_max: int = 1 << 20) -> Any:
        peer = Peer(request(offset, committed=committed, bytes_max=bytes_max))
        asyncio.run(self.stream(peer).run())
        (answer,) = peer.answers
        return answer


def request(
    offset: int, *, committed: bool = True, **fields: Any
) -> partition_store_pb2.FetchRequest:
    wanted = {"bytes_max": 1 << 20, "bytes_min": 1, "current_leader_epoch": -1, **fields}
    return partition_store_pb2.FetchRequest(
        partition=PARTITION, fetch_offset=offset, read_committed=committed, **wanted
    )


def offsets(answer: Any) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(answer.batches)]


def aborted(answer: Any) -> list[tuple[int, int]]:
    return [(txn.producer_id, txn.first_offset) for txn in answer.aborted]


@pytest.fixture
def one() -> Transactions:
    return Transactions()


@pytest.mark.feature("M01", "M02")
def test_committed_records_end_at_the_last_stable_offset(one: Transactions) -> None:
    one.append(b"before")
    one.write(A)
    one.append(b"behind")
    answer = one.fetch()
    assert offsets(answer) == [0]
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    assert offsets(one.fetch(1)) == []
    one.end(A, commits=True)
    assert offsets(one.fetch(1)) == [1, 2, 3]


@pytest.mark.feature("M04", "M05")
def test_aborted_transactions_are_named_with_their_records(one: Transactions) -> None:
    one.write(A)
    one.write(B)
    one.end(A, commits=False)
    one.end(B, commits=True)
    one.write(B)
    one.end(B, commits=False)
    answer = one.fetch()
    assert offsets(answer) == [0, 1, 2, 3, 4, 5]
    assert aborted(answer) == [(A, 0), (B, 4)]
    assert aborted(one.fetch(3)) == [(B, 4)]


@pytest.mark.feature("M04", "M06")
def test_who_reads_everything_is_told_of_no_aborts(one: Transactions) -> None:
    one.write(A)
    one.end(A, commits=False)
    one.write(B)
    answer = one.fetch(committed=False)
    assert offsets(answer) == [0, 1, 2]
    assert (aborted(answer), answer.read_committed) == ([], False)


def test_the_answer_says_that_it_holds_committed_records(one: Transactions) -> None:
    one.append(b"before")
    assert one.fetch().read_committed


@pytest.mark.feature("M01", "D04")
def test_a_pull_of_committed_records_waits_for_the_marker_however_much_is_written(
    one: Transactions,
) -> None:
    async def scenario() -> None:
        peer = Peer(request(0, wait_ms_max=10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            for _ in range(3):
                await until(lambda: one.parked.requests.count == 1)
                one.write(A)
                await until(lambda: one.parked.requests.count == 0)
            await until(lambda: one.parked.requests.count == 1)
            assert peer.answers == []
            one.end(A, commits=True)
        assert offsets(peer.answers[0]) == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_a_pull_of_committed_records_ends_with_its_wait(one: Transactions) -> None:
    async def scenario() -> None:
        peer = Peer(request(0, wait_ms_max=10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            await until(lambda: one.parked.requests.count == 1)
            one.write(A)
            await until(lambda: one.parked.requests.count == 1)
            one.parked.requests.expire(InstantMs(one.clock.now_ms() + 20_000))
        (answer,) = peer.answers
        assert (offsets(answer), answer.last_stable_offset, answer.high_watermark) == ([], 0, 1)

    asyncio.run(scenario())


def size_of(one: Transactions, count: int) -> int:
    """Bytes of the first batches."""
    headers = [header for _, header in iterate_headers(one.fetch().batches)]
    return sum(header.size_bytes for header in headers[:count])


@pytest.mark.parametrize("committed", [True, False])
def test_a_pull_does_not_wait_for_bytes_that_its_limit_keeps_back(
    one: Transactions, *, committed: bool
) -> None:
    for _ in range(3):
        one.append(b"x" * 100)
    room = size_of(one, 3) - 1

    async def scenario() -> None:
        wanted = {"bytes_max": room, "bytes_min": room, "wait_ms_max": 10_000}
        peer = Peer(request(0, committed=committed, **wanted))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            await until(lambda: bool(peer.answers))
        assert offsets(peer.answers[0]) == [0, 1]

    asyncio.run(scenario())


def test_a_pull_waits_for_no_more_bytes_than_its_limit(one: Transactions) -> None:
    one.append(b"x" * 100)
    room = 2 * size_of(one, 1) + 1

    async def scenario() -> None:
        wanted = {"bytes_max": room, "bytes_min": 1 << 20, "wait_ms_max": 10_000}
        peer = Peer(request(0, committed=False, **wanted))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            await until(lambda: one.parked.requests.count == 1)
            one.append(b"x" * 100)
            await until(lambda: one.parked.requests.count == 1)
            assert peer.answers == []
            one.append(b"x" * 100)
            await until(lambda: bool(peer.answers))
        assert offsets(peer.answers[0]) == [0, 1]

    asyncio.run(scenario())


def test_a_pull_waits_for_no_more_bytes_than_an_answer_has(one: Transactions) -> None:
    for _ in range(10):
        one.append(b"x" * 1_000_000)

    async def scenario() -> None:
        wanted = {"bytes_max": 1 << 30, "bytes_min": 1 << 30, "wait_ms_max": 10_000}
        peer = Peer(request(0, committed=False, **wanted))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            await until(lambda: bool(peer.answers))
        assert len(offsets(peer.answers[0])) == FETCH_BYTES_MAX // 1_000_000

    asyncio.run(scenario())


def test_a_pull_without_room_waits_for_a_first_batch(one: Transactions) -> None:
    async def scenario() -> None:
        peer = Peer(request(0, bytes_max=0, wait_ms_max=10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.stream(peer).run())
            await until(lambda: one.parked.requests.count == 1)
            one.append(b"x")
        assert offsets(peer.answers[0]) == [0]

    asyncio.run(scenario())


@pytest.mark.feature("M02")
@pytest.mark.parametrize(("committed", "latest"), [(True, 1), (False, 2)])
def test_the_latest_offset_is_the_isolation_level_s(
    one: Transactions, *, committed: bool, latest: int
) -> None:
    one.append(b"before")
    one.write(A)
    query = partition_store_pb2.ListOffsetsRequest.Query(
        partition=PARTITION, timestamp_ms=-1, current_leader_epoch=-1
    )
    asked = offset_queries(one.parts).answer(CALLER, query, read_committed=committed)
    assert asyncio.run(asked).offset == latest


@pytest.mark.feature("SE20")
@pytest.mark.parametrize("bytes_min", [1, 1 << 20])
def test_a_pull_gives_no_more_than_a_window_of_the_quota(one: Transactions, bytes_min: int) -> None:
    for _ in range(5):
        one.append(b"value")
    batch_bytes = len(one.fetch().batches) // 5
    rate = {CONSUMER_BYTE_RATE: batch_bytes * 2.5 / 10}
    one.parts.facts.quotas.configure({QuotaEntity("ANONYMOUS"): rate})
    peer = Peer(request(0, bytes_min=bytes_min, wait_ms_max=3_600_000))

    async def pull() -> None:
        async with patience():
            await one.stream(peer).run()

    asyncio.run(pull())
    (answer,) = peer.answers
    assert (offsets(answer), answer.throttle_time_ms) == ([0, 1], 0)
