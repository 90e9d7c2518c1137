from collections.abc import Mapping, Sequence

import pytest
from tidemark.model.backoff import EVEN, Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_inputs import (
    AbandonRequest,
    Answered,
    BrokerFailed,
    BrokerRecovered,
    CallFailed,
    Effect,
    Fenced,
    Forget,
    ImageChanged,
    Input,
    MarkerPart,
    MarkerRefused,
    PartitionsGone,
    Report,
    Send,
    Tick,
    WriteMarkers,
)
from txn_coordinator.core.marker_queue import MarkerLimits, MarkerQueue
from txn_coordinator.core.requests import MarkersWritten
from unit.txn_coordinator.marker_images import image_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SHARD = 3
OWNER_EPOCH = 9
PATIENCE_MS = 100
DELAY_MS = 20
LEADERS = {"a": (1, 2), "b": (1,)}
NONE = ErrorCode.NONE
FIRST = BrokerId(1)


def ending(name: str, *partitions: TopicPartition) -> SendMarkers:
    return SendMarkers(name, 70, 5, 1_000, True, partitions, 2)


def report(name: str, *partitions: TopicPartition, took_ms: int = 0) -> Report:
    return Report(SHARD, MarkersWritten(name, 70, 5, 1_000, partitions), took_ms)


class World:
    """Two brokers; topic a is led by 1 and 2, topic b by 1. Every step is checked."""

    def __init__(self, *, targets_max: int = 100, requests_max: int = 2) -> None:
        backoff = Backoff(DELAY_MS, 80)
        limits = MarkerLimits(targets_max, requests_max, PATIENCE_MS, backoff)
        self.queue = MarkerQueue(limits, lambda: EVEN)
        self.now = 0
        self.version = 0
        self.lead(LEADERS)

    def step(self, stimulus: Input) -> list[Effect]:
        effects = self.queue.step(stimulus, InstantMs(self.now))
        self.queue.check()
        return effects

    def lead(self, leaders: Mapping[str, Sequence[int]]) -> list[Effect]:
        self.version += 1
        image = image_of(self.version, {1: "h:1", 2: "h:2"}, leaders)
        return self.step(ImageChanged(image))

    def send(self, *effects: SendMarkers, owner_epoch: int = OWNER_EPOCH) -> list[Effect]:
        return [each for one in effects for each in self.step(Send(SHARD, owner_epoch, one))]

    def tick(self, passed_ms: int = 0) -> list[Effect]:
        self.now += passed_ms
        return self.step(Tick())

    def asked(self, passed_ms: int = 0) -> list[tuple[int, list[str]]]:
        """Requests that a tick begins: broker, and partitions as text."""
        effects = self.tick(passed_ms)
        assert all(isinstance(effect, WriteMarkers) for effect in effects), effects
        return [
            (effect.broker_id, [str(at) for part in effect.parts for at in part.partitions])
            for effect in effects
            if isinstance(effect, WriteMarkers)
        ]

    def answer(self, request: int, *codes: ErrorCode) -> list[Effect]:
        """Return the partitions of a request with one part."""
        return self.step(Answered(request, (codes,)))

    def due(self) -> int | None:
        return self.queue.next_deadline(InstantMs(self.now))


def test_nothing_is_due_without_markers() -> None:
    here = World()
    assert (here.due(), here.tick(), here.queue.ending_count) == (None, [], 0)


def test_each_partition_goes_to_its_leader_and_one_report_follows() -> None:
    here = World()
    assert here.send(ending("t", A0, A1)) == []
    assert here.due() == 0
    assert here.asked() == [(1, ["a-0"]), (2, ["a-1"])]
    assert here.answer(0, NONE) == []
    here.now = 7
    assert here.answer(1, NONE) == [report("t", A0, A1, took_ms=7)]
    assert (here.queue.ending_count, here.due()) == (0, None)


def test_brokers_get_requests_in_the_order_in_which_markers_came_for_them() -> None:
    here = World()
    here.send(ending("t", A0, A1))
    assert here.asked() == [(1, ["a-0"]), (2, ["a-1"])]
    here.answer(0, NONE)
    here.answer(1, NONE)
    here.send(ending("u", A1), ending("v", B0))
    assert here.asked() == [(2, ["a-1"]), (1, ["b-0"])]


def test_a_request_names_the_owner_and_the_effect() -> None:
    here = World()
    effect = ending("t", B0)
    here.send(effect)
    part = MarkerPart(effect, OWNER_EPOCH, (B0,))
    assert here.tick() == [WriteMarkers(0, FIRST, (part,))]


def test_markers_gather_while_a_request_is_in_flight() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    here.send(ending("u", B0), ending("v", A0))
    assert here.asked() == []
    assert here.due() == PATIENCE_MS
    here.answer(0, NONE)
    assert here.asked() == [(1, ["b-0", "a-0"])]


def test_a_slow_answer_delays_the_next_request_up_to_the_patience() -> None:
    here = World(requests_max=2)
    for name in ("t", "u", "v"):
        here.send(ending(name, B0))
        here.tick()
    assert here.asked(PATIENCE_MS - 1) == []
    assert here.asked(1) == [(1, ["b-0", "b-0"])]


def test_requests_in_flight_are_bounded() -> None:
    here = World(requests_max=2, targets_max=1)
    here.send(*(ending(name, B0) for name in "tuv"))
    assert [len(here.asked(PATIENCE_MS)) for _ in range(4)] == [1, 1, 0, 0]
    assert here.due() is None
    assert here.queue.queued_counts() == {1: 1}
    here.answer(0, NONE)
    assert here.asked() == [(1, ["b-0"])]


def test_a_request_holds_at_most_its_bound() -> None:
    here = World(targets_max=2)
    here.lead({"a": (1, 1, 1)})
    here.send(ending("t", *(TopicPartition("a", number) for number in range(3))))
    assert here.asked() == [(1, ["a-0", "a-1"])]
    here.answer(0, NONE, NONE)
    assert here.asked() == [(1, ["a-2"])]


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_refused_markers_are_sent_again_with_growing_delays(code: ErrorCode) -> None:
    here = World()
    here.send(ending("t", A0, B0))
    here.tick()
    refused = MarkerRefused(FIRST, ending("t", A0, B0), B0, code)
    assert here.answer(0, NONE, code) == [refused]
    assert (here.due(), here.queue.parked_count) == (DELAY_MS, 1)
    assert here.asked(DELAY_MS - 1) == []
    assert here.asked(1) == [(1, ["b-0"])]
    here.answer(1, code)
    assert here.due() == here.now + 2 * DELAY_MS


def test_a_missing_answer_is_an_error() -> None:
    here = World()
    here.send(ending("t", A0, B0))
    here.tick()
    refused = here.answer(0, NONE)
    assert [effect.error for effect in refused if isinstance(effect, MarkerRefused)] == [
        ErrorCode.UNKNOWN_SERVER_ERROR
    ]
    here.tick(DELAY_MS)
    assert here.step(Answered(1, ()))


def test_a_partition_beyond_the_epoch_needs_no_marker() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    _, done = here.answer(0, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert done == report("t", A0)


def test_a_deleted_partition_needs_no_marker() -> None:
    here = World()
    here.lead({"b": (1,)})
    assert here.send(ending("t", A0, B0)) == [PartitionsGone("t", 1)]
    assert here.send(ending("u", A0)) == [PartitionsGone("u", 1), report("u", A0)]
    assert here.asked() == [(1, ["b-0"])]


def test_an_effect_without_partitions_is_reported_at_once() -> None:
    assert World().send(ending("t")) == [report("t")]


def test_a_marker_waits_for_a_leader() -> None:
    here = World()
    here.lead({"a": (-1,)})
    here.send(ending("t", A0))
    assert (here.queue.parked_count, here.due()) == (1, DELAY_MS)
    here.lead({"a": (2,)})
    assert here.asked() == [(2, ["a-0"])]


def test_a_queued_marker_follows_its_leader() -> None:
    here = World()
    here.send(ending("t", B0))
    here.tick()
    here.send(ending("u", A0))
    here.lead({"a": (2, 2), "b": (1,)})
    here.answer(0, NONE)
    assert (here.asked(), here.due()) == ([], here.now)
    assert here.asked() == [(2, ["a-0"])]


def test_a_request_is_abandoned_once_its_broker_leads_none_of_it() -> None:
    here = World()
    here.send(ending("t", A0, B0))
    here.tick()
    assert here.lead({"a": (2,), "b": (1,)}) == []
    assert here.lead({"a": (2,), "b": (2,)}) == [AbandonRequest(0)]
    assert here.asked() == [(2, ["a-0", "b-0"])]
    assert here.answer(0, NONE, NONE) == []
    assert here.step(CallFailed(0, "late")) == []


def test_a_broker_that_fails_is_given_a_pause() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    assert here.step(CallFailed(0, "refused")) == [BrokerFailed(FIRST, "refused")]
    here.send(ending("u", B0))
    assert here.asked(DELAY_MS - 1) == []
    assert here.asked(1) == [(1, ["b-0", "a-0"])]
    assert here.step(CallFailed(1, "again")) == []
    here.tick(2 * DELAY_MS)
    assert here.step(Answered(2, ((NONE,), (NONE,))))[-1] == BrokerRecovered(FIRST)


def test_newer_metadata_ends_a_pause() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    here.step(CallFailed(0, "refused"))
    here.lead(LEADERS)
    assert here.asked() == [(1, ["a-0"])]


def test_a_failure_under_older_metadata_causes_no_pause() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    here.lead(LEADERS)
    here.step(CallFailed(0, "refused"))
    here.send(ending("u", B0))
    assert here.asked() == [(1, ["b-0"])]


def test_a_fenced_owner_stops_every_marker_of_its_shard() -> None:
    here = World()
    here.send(ending("t", A0), ending("u", A1), ending("v", B0))
    here.tick()
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert here.step(Answered(0, ((fenced,), (NONE,)))) == [Fenced(SHARD, OWNER_EPOCH)]
    assert here.queue.ending_count == 0
    assert here.answer(1, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    assert here.due() is None


def test_a_forgotten_shard_is_neither_sent_for_nor_reported() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    here.send(ending("u", B0))
    here.step(Forget(SHARD))
    assert here.answer(0, NONE) == []
    assert here.asked() == []
    here.step(Send(SHARD + 1, 1, ending("other", B0)))
    assert here.asked() == [(1, ["b-0"])]


def test_a_repeated_effect_is_sent_once() -> None:
    here = World()
    here.send(ending("t", A0), ending("t", A0))
    assert (here.queue.ending_count, here.asked()) == (1, [(1, ["a-0"])])


def test_a_newer_owner_epoch_replaces_the_older_one() -> None:
    here = World()
    here.send(ending("t", A0))
    here.tick()
    here.send(ending("t", A0), owner_epoch=OWNER_EPOCH + 1)
    assert here.answer(0, NONE) == []
    (again,) = here.tick()
    assert isinstance(again, WriteMarkers)
    assert again.parts[0].owner_epoch == OWNER_EPOCH + 1
    assert here.answer(1, NONE) == [report("t", A0)]


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(AssertionError, match="holds a marker"):
        MarkerLimits(targets_per_request_max=0)
    with pytest.raises(AssertionError, match="must be possible"):
        MarkerLimits(requests_in_flight_max=0)
    with pytest.raises(AssertionError, match="delays"):
        MarkerLimits(backoff=Backoff(0, 10))
