"""Fetches in sessions look at what moved, and answer as if they looked at everything."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.core.follower_answer import GATHER_BYTES, GATHER_MS, HIGH_WATERMARK_WAIT_MS
from broker.core.parked import BUCKET_MS
from broker.shell.partitions.parking_lot import Follower
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId
from tidemark.storage.disk import DiskError
from unit.broker.shell.kafka.fetch_worlds import (
    COMMITTED_CONSUMER,
    CONSUMER,
    LAG_MS,
    Fetcher,
    FetchWorld,
)

FETCHERS = (2, 3, CONSUMER, COMMITTED_CONSUMER)
PARTITIONS = 3
GATHERED_MS = GATHER_MS + BUCKET_MS
OPEN = 7
"""A producer whose transactions stay open for a while."""


def resting(world: FetchWorld) -> int:
    """Partitions of sessions that no request would look at."""
    sessions = world.parts.partitions.fetch_sessions._sessions.values()
    return sum(len(one.partitions) - len(one.moved) for one in sessions)


def opened(world: FetchWorld, replica: int, *numbers: int) -> Fetcher:
    """A fetcher whose partitions all rest."""
    fetcher = Fetcher(world, replica)
    fetcher.follow(*(numbers or world.partitions))
    fetcher.ask()
    while fetcher.changed:
        fetcher.ask()
    return fetcher


# ---------------------------------------------------------------- the plain twin


class Twins:
    """The same history in a world where sessions rest and in one where each request looks at all:
    fetchers must hear the same at the same time, and the leader must think the same of them.
    """

    def __init__(self) -> None:
        self.worlds = [FetchWorld(PARTITIONS), FetchWorld(PARTITIONS, scans=True)]
        self.fetchers = [[Fetcher(one, replica) for replica in FETCHERS] for one in self.worlds]
        for fetchers in self.fetchers:
            for fetcher in fetchers:
                fetcher.follow(*range(PARTITIONS))

    def both(self, act: Callable[[FetchWorld, list[Fetcher]], None]) -> None:
        seen: list[Any] = []
        for world, fetchers in zip(self.worlds, self.fetchers, strict=True):
            act(world, fetchers)
            world.check()
            heard = [(one.is_waiting, one.positions, one.heard) for one in fetchers]
            seen.append((heard, world.progress()))
        assert seen[0] == seen[1]

    def asks(self, who: int, **options: Any) -> None:
        def act(_: FetchWorld, fetchers: list[Fetcher]) -> None:
            if not fetchers[who].is_waiting:
                fetchers[who].ask(**options)

        self.both(act)

    def all_ask(self, **options: Any) -> None:
        """Who does not wait."""
        for who in range(len(FETCHERS)):
            self.asks(who, **options)

    def reopens(self, who: int) -> None:
        def act(_: FetchWorld, fetchers: list[Fetcher]) -> None:
            if not fetchers[who].is_waiting:
                fetchers[who].reopen()

        self.both(act)

    def forgets(self, who: int, number: int) -> None:
        def act(_: FetchWorld, fetchers: list[Fetcher]) -> None:
            fetcher = fetchers[who]
            if not fetcher.is_waiting and len(fetcher.positions) > 1:
                fetcher.ask(forget=(number,))

        self.both(act)

    def restarts(self, who: int) -> None:
        """A follower has another broker epoch, in the same session."""

        def act(_: FetchWorld, fetchers: list[Fetcher]) -> None:
            fetchers[who].broker_epoch += 1

        self.both(act)

    def follows(self, who: int, number: int) -> None:
        self.both(lambda _, fetchers: fetchers[who].follow(number))

    def happens(self, name: str, *args: Any, **fields: Any) -> None:
        self.both(lambda world, _: getattr(world, name)(*args, **fields))


WHO = st.integers(0, len(FETCHERS) - 1)
NUMBER = st.integers(0, PARTITIONS - 1)
SIZE = st.sampled_from([10, 10, 300])
BYTES = st.sampled_from([1 << 20, 1 << 20, 1 << 20, 400, 1])
ASK = st.tuples(
    st.just("asks"),
    WHO,
    st.fixed_dictionaries(
        {
            "wait_ms": st.sampled_from([500, 500, 0]),
            "bytes_min": st.sampled_from([1, 1, 200]),
            "bytes_max": BYTES,
            "partition_bytes_max": BYTES,
        }
    ),
)
PUT = st.tuples(st.just("put"), NUMBER, SIZE)
RARE = st.one_of(
    st.tuples(st.just("put_transactional"), NUMBER, st.just(OPEN)),
    st.tuples(st.just("commits"), NUMBER),
    st.tuples(st.just("delete_records"), NUMBER),
    st.tuples(st.just("lead_anew"), NUMBER),
    st.tuples(st.just("shrink"), NUMBER, st.sampled_from([(), (2,), (3,), (2, 3)])),
    st.tuples(st.just("set_replicas"), NUMBER, st.sampled_from([(2,), (2, 3)])),
    st.tuples(st.just("throttles"), st.booleans()),
    st.tuples(st.just("add_partition")),
    st.tuples(st.just("reopens"), WHO),
    st.tuples(st.just("forgets"), WHO, NUMBER),
    st.tuples(st.just("follows"), WHO, st.integers(0, PARTITIONS)),
    st.tuples(st.just("restarts"), st.integers(0, 1)),
)
ALL_ASK = st.tuples(st.just("all_ask"))
TIME = st.tuples(st.just("pass_time"), st.sampled_from([1, 20, 100, 500, LAG_MS]))


def perform(twins: Twins, step: tuple[Any, ...]) -> None:
    name, *args = step
    if name == "asks":
        twins.asks(args[0], **args[1])
    elif name == "all_ask":
        twins.all_ask(wait_ms=500)
    elif name in ("reopens", "forgets", "follows", "restarts"):
        getattr(twins, name)(*args)
    elif name in ("shrink", "set_replicas"):
        twins.happens(name, args[0], *args[1])
    elif name == "commits":
        twins.happens("mark", args[0], OPEN, commits=bool(args[0]))
    elif name == "throttles":
        named = "*" if args[0] else ""
        twins.happens("configure", leader_replication_throttled_replicas=named)
    else:
        twins.happens(name, *args)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(ASK, ALL_ASK, PUT, PUT, TIME, RARE), min_size=20, max_size=60))
def test_what_is_heard_is_what_looking_at_everything_would_tell(
    history: list[tuple[Any, ...]],
) -> None:
    twins = Twins()
    for _ in range(3):
        twins.all_ask()
    for step in history:
        perform(twins, step)


# ---------------------------------------------------------------- what rests, and what ends it


@pytest.mark.feature("A07")
def test_a_fetch_waits_for_its_session_once_and_to_be_called() -> None:
    world = FetchWorld(9)
    follower = opened(world, 2)
    follower.ask(wait_ms=500)
    assert (follower.is_waiting, resting(world)) == (True, 9)
    waits_for = world.parked.requests._fetches
    assert [len(one) for one in waits_for.values()] == [1, 1]
    assert Follower(BrokerId(2)) in waits_for


@pytest.mark.feature("A07", "D06", "G11")
def test_a_high_watermark_that_moved_does_not_make_a_waiting_follower_deaf() -> None:
    """It is told with the next records, which still end the wait."""
    world = FetchWorld()
    second, third = committing(world)
    assert second.is_waiting
    assert third.is_waiting
    world.put(0, 20, acks=-1)
    for follower in (second, third):
        assert not follower.is_waiting
        assert follower.told()[0][1] == 1


@pytest.mark.feature("G11")
def test_a_high_watermark_alone_ends_the_wait_of_the_follower_that_moved_it_a_little_later() -> (
    None
):
    world = FetchWorld()
    second, third = committing(world)
    world.pass_time(HIGH_WATERMARK_WAIT_MS - BUCKET_MS)
    assert third.is_waiting
    world.pass_time(2 * BUCKET_MS)
    assert third.told() == {0: (ErrorCode.NONE, 1, 0)}
    # The other one was waiting already: it is told at the end of its wait.
    assert second.is_waiting
    world.pass_time(500 - HIGH_WATERMARK_WAIT_MS)
    assert second.told() == {0: (ErrorCode.NONE, 1, 0)}


@pytest.mark.feature("G11")
@pytest.mark.parametrize("is_new", [True, False])
def test_records_that_nobody_waits_for_gather(is_new: bool) -> None:
    world = FetchWorld()
    follower = opened(world, 2)
    if is_new:  # as the fetch arrives
        world.put(0)
    follower.ask(wait_ms=500)
    for number in (0, 1):
        world.put(number)
        assert follower.is_waiting
    world.pass_time(GATHERED_MS)
    assert list(follower.told()) == [0, 1]
    assert follower.positions[0] == 1 + is_new


@pytest.mark.feature("G11")
@pytest.mark.parametrize("ended_by", ["acks=all", "consumer", "waiting consumer", "bytes", "error"])
def test_what_somebody_waits_for_ends_the_gathering(ended_by: str) -> None:
    world = FetchWorld()
    follower = opened(world, 2)
    follower.ask(wait_ms=500)
    answers = len(follower.heard)
    world.put(0)
    assert len(follower.heard) == answers
    if ended_by == "acks=all":
        world.put(1, acks=-1)
    elif ended_by == "bytes":
        world.put(1, GATHER_BYTES)
    elif ended_by == "error":
        world.lead_anew(1)
    else:
        consumer = opened(world, CONSUMER)
        if ended_by == "waiting consumer":
            consumer.ask(wait_ms=500)
        world.put(0)
    assert len(follower.heard) == answers + 1
    assert follower.positions[0] >= 1


@pytest.mark.feature("G11")
def test_a_fetch_that_arrives_gathers_unless_somebody_waits() -> None:
    world = FetchWorld()
    follower, consumer = opened(world, 2), opened(world, CONSUMER)
    consumer.ask(wait_ms=500)
    world.put(0)
    follower.ask(wait_ms=500)
    assert not follower.is_waiting


def committing(world: FetchWorld) -> tuple[Fetcher, Fetcher]:
    """Two followers; the fetch of the second one to come commits a record."""
    second, third = opened(world, 2), opened(world, 3)
    for follower in (second, third):
        follower.ask(wait_ms=500)
    world.put(0, acks=-1)
    for follower in (second, third):
        assert follower.told()[0][1] == 0
        follower.ask(wait_ms=500)
    assert world.at(0).partition.high_watermark == 1
    return second, third


@pytest.mark.parametrize("bytes_min", [1, 200])
@pytest.mark.feature("G11")
def test_a_fetch_that_holds_back_a_high_watermark_hears_at_once_of_a_change(
    bytes_min: int,
) -> None:
    world = FetchWorld()
    second, third = opened(world, 2), opened(world, 3)
    world.put(0)
    for follower in (second, third):
        follower.ask()
        follower.ask(wait_ms=500, bytes_min=bytes_min)
    assert third.is_waiting
    world.lead_anew(0)
    assert third.told()[0][0] == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.feature("A07")
def test_a_waiting_follower_that_is_no_replica_any_more_hears_so_at_once() -> None:
    world = FetchWorld()
    leaving = opened(world, 3)
    leaving.ask(wait_ms=500, bytes_min=200)
    world.shrink(0, 2)
    assert leaving.is_waiting
    assert world.parts.counters.request_errors[ApiKey.FETCH] == 0
    world.set_replicas(0, 2)
    assert leaving.told()[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.parts.counters.request_errors[ApiKey.FETCH] == 1


@pytest.mark.parametrize("scans", [False, True])
def test_what_is_older_than_a_leadership_counts_for_who_wants_many_bytes(*, scans: bool) -> None:
    world = FetchWorld(scans=scans)
    world.put(0, 300)
    world.lead_anew(0)
    consumer = Fetcher(world, CONSUMER)
    consumer.follow(0)
    consumer.ask()
    consumer.epochs[0] = 1
    consumer.ask(wait_ms=500, bytes_min=200)
    waited = consumer.is_waiting
    for replica in (2, 3):
        follower = Fetcher(world, replica)
        follower.epochs[0] = 1
        follower.follow(0)
        follower.ask()
        follower.ask()
    assert world.at(0).partition.high_watermark == 1
    assert (waited, consumer.is_waiting) == (True, False)
    assert consumer.told()[0][2] > 200


def test_what_is_left_over_by_the_bytes_of_an_answer_comes_with_the_next_in_turn() -> None:
    world = FetchWorld()
    for number in world.partitions:
        world.put(number)
    follower = opened(world, 2)
    follower.reopen()
    follower.positions = dict.fromkeys(world.partitions, 0)
    turns = []
    for _ in range(4):
        follower.ask(bytes_max=1)
        turns += [number for number, told in follower.told().items() if told[2]]
    assert turns == [0, 1, 2]


@pytest.mark.feature("A07")
def test_a_fetch_that_wants_more_counts_what_all_its_partitions_gain() -> None:
    world = FetchWorld()
    for number in world.partitions:
        world.shrink(number)
    consumer = opened(world, CONSUMER)
    consumer.ask(wait_ms=500, bytes_min=300)
    for number in (0, 0, 1):
        world.put(number, 1)
        assert consumer.is_waiting
    world.put(0, 200)
    assert set(consumer.told()) == {0, 1}


@pytest.mark.feature("A07")
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"bytes_min": 290, "partition_bytes_max": 290}, id="a partition's"),
        pytest.param({"bytes_min": 290, "bytes_max": 290}, id="the answer's"),
        pytest.param({"bytes_min": 10**6, "bytes_max": 290}, id="less than it wants"),
    ],
)
def test_a_fetch_does_not_wait_for_what_its_own_limits_keep_back(
    limits: dict[str, Any],
) -> None:
    """With batches of some 170 bytes."""
    world = FetchWorld(2)
    consumer = Fetcher(world, CONSUMER)
    for number in world.partitions:
        world.shrink(number)
        consumer.follow(number)
    world.put(0, 100)
    consumer.ask(wait_ms=500, **limits)
    waits = [consumer.is_waiting]
    for number in (0, 1, 1):
        world.put(number, 100)
        waits.append(consumer.is_waiting)
        consumer.reopen()
        consumer.positions = {0: 0, 1: 0}
        consumer.ask(wait_ms=500, **limits)
        waits.append(consumer.is_waiting)
    assert waits == [True] + [False] * 6


def test_a_reader_of_committed_records_waits_for_markers() -> None:
    world = FetchWorld(1)
    world.shrink(0)
    consumer = opened(world, COMMITTED_CONSUMER)
    consumer.ask(wait_ms=500)
    world.put_transactional(0, OPEN)
    assert consumer.is_waiting
    world.mark(0, OPEN, commits=True)
    assert consumer.told()[0][2] > 0


def test_a_throttled_follower_hears_of_nothing_until_there_is_allowance() -> None:
    world = FetchWorld(1)
    world.shrink(0)
    world.configure(leader_replication_throttled_replicas="*")
    for _ in range(3):
        world.put(0, 3_000)
    follower = Fetcher(world, 3)
    follower.follow(0)
    follower.ask(partition_bytes_max=1)
    follower.ask(wait_ms=500)
    world.put(0, 1)
    assert follower.is_waiting
    world.pass_time(GATHERED_MS)
    assert follower.is_waiting
    world.clock.advance(60_000)
    world.put(0, 1)
    world.pass_time(GATHERED_MS)
    assert follower.told()[0][2] > 6_000


def test_a_log_start_that_moved_is_told_with_the_next_answer() -> None:
    world = FetchWorld(2)
    world.shrink(0)
    world.put(0)
    follower = opened(world, 2)
    world.delete_records(0)
    follower.ask()
    assert list(follower.told()) == [0]
    follower.ask()
    follower.ask()
    assert list(follower.told()) == []


@pytest.mark.feature("C09")
def test_a_new_leader_epoch_is_heard_at_once() -> None:
    world = FetchWorld()
    follower = opened(world, 2)
    follower.ask(wait_ms=500)
    world.lead_anew(1)
    assert follower.told() == {1: (ErrorCode.FENCED_LEADER_EPOCH, -1, 0)}


def test_a_fetch_whose_session_is_closed_by_another_is_answered() -> None:
    world = FetchWorld()
    follower = opened(world, 2)
    follower.ask(wait_ms=500)
    again = Fetcher(world, 2)
    again.session = (follower.session[0], 0)
    again.follow(0)
    again.ask()
    world.run()
    assert not follower.is_waiting
    assert len(world.parts.partitions.fetch_sessions) == 1


# ---------------------------------------------------------------- lag


@pytest.mark.feature("G02", "G04")
def test_a_resting_follower_is_in_sync_for_as_long_as_it_fetches() -> None:
    world = FetchWorld()
    followers = [opened(world, 2), opened(world, 3)]
    for _ in range(5):
        world.pass_time(LAG_MS // 2)
        for follower in followers:
            follower.ask()
    assert {world.at(number).partition.isr for number in world.partitions} == {(1, 2, 3)}
    for _ in range(4):
        world.pass_time(LAG_MS // 2)
        followers[0].ask()
    assert {world.at(number).partition.isr for number in world.partitions} == {(1, 2)}


@pytest.mark.feature("G02", "G04")
def test_a_follower_that_drops_a_partition_lags_in_that_one() -> None:
    world = FetchWorld()
    followers = [opened(world, 2), opened(world, 3)]
    followers[0].ask(forget=(0,))
    for _ in range(4):
        world.pass_time(LAG_MS // 2)
        for follower in followers:
            follower.ask()
    assert [world.at(number).partition.isr for number in world.partitions] == [
        (1, 3),
        (1, 2, 3),
        (1, 2, 3),
    ]


@pytest.mark.feature("G02", "G05")
def test_a_follower_that_fetches_and_never_takes_what_came_lags() -> None:
    world = FetchWorld()
    followers = [opened(world, 2), opened(world, 3)]
    world.put(0)
    for _ in range(4):
        world.pass_time(LAG_MS // 2)
        followers[1].ask()
        followers[0].ask()
        followers[0].changed.clear()
        followers[0].positions[0] = 0
    assert [world.at(number).partition.isr for number in world.partitions] == [
        (1, 3),
        (1, 2, 3),
        (1, 2, 3),
    ]


# ---------------------------------------------------------------- old clients


class OldFetcher(Fetcher):
    """A consumer of a version without sessions."""

    def __init__(self, world: FetchWorld, version: int) -> None:
        super().__init__(world, CONSUMER)
        self.version = version

    def errors(self) -> list[int]:
        """What one fetch of the first partition is answered."""
        wanted = FetchPartition(0, -1, 0, -1, 0, 1 << 20)
        topic = FetchTopic("orders", NO_TOPIC_ID, [wanted])
        request = FetchRequest(CONSUMER, -1, 0, 1, 1 << 20, 0, 0, -1, [topic], [], "", None)
        header = SimpleNamespace(api_key=1, api_version=self.version, correlation_id=0)
        body = memoryview(write_fetch_request(self.version, request))
        self.world.handle(cast("Any", self), cast("Any", header), body)
        return [code for code, _ in self.heard]

    def _hear(self, parts: Any) -> None:
        response = read_fetch_response(memoryview(b"".join(parts)), self.version)
        ((_, _, partitions),) = response.topics
        self.heard += [(result.error_code, b"") for result, _ in partitions]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (6, ErrorCode.KAFKA_STORAGE_ERROR),
        (12, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_client_that_does_not_know_of_failed_disks_looks_for_another_leader(
    version: int, code: ErrorCode
) -> None:
    world = FetchWorld()
    disks = world.parts.partitions.disks
    disks.fence_directory(disks.log_managers[0], DiskError("x", "EIO"))
    assert OldFetcher(world, version).errors() == [code]
