"""Histograms of requests, and the ring of slow ones."""

import pytest
from broker.shell.listener.replies import Part, Reply
from broker.shell.request_times import Origin, RequestTimes, Stages
from manual_clock import ManualClock
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader

ORIGIN = Origin("10.0.0.1:5000", "CLIENT", 100)


def header(api_key: ApiKey) -> RequestHeader:
    return RequestHeader(int(api_key), 7, 1, "app", 10)


class World:
    """Times of a broker, with a request that is under way."""

    def __init__(self, *, slow_ms: int = 500, kept_max: int = 3) -> None:
        self.clock = ManualClock()
        self.times = RequestTimes(self.clock, slow_ms=slow_ms, kept_max=kept_max)
        self.peer, self.listener_name = ORIGIN.peer, ORIGIN.listener
        self.began_s, self.frame_bytes = self.times.now_s(), 100
        self.unhandled: Reply | None = None
        self.sent: list[list[Part]] = []
        self.mutes: list[int] = []

    def mute(self, throttle_ms: int) -> None:
        self.mutes.append(throttle_ms)

    def replied(self, reply: Reply) -> None:
        """Send at once: nothing is before it."""
        self.sent.append(reply.taken())

    def close(self, reason: str) -> None:
        raise AssertionError(reason)

    def take(self, api: ApiKey, *, handling: int, waiting: int, ordering: int = 0) -> None:
        """A request with these stages, in milliseconds."""
        began_s = self.times.now_s()
        self.clock.advance(handling)
        handled_s = self.times.now_s()
        self.clock.advance(waiting)
        ready_s = self.times.now_s()
        self.clock.advance(ordering)
        self.times.answered_later(header(api), ORIGIN, Stages(began_s, handled_s, ready_s))

    def counts(self, name: str) -> dict[str, float]:
        """Samples of one name, by API."""
        both = (*self.times.total.collect(), *self.times.waits.collect())
        samples = [sample for family in both for sample in family.samples]
        return {one.labels["request"]: one.value for one in samples if one.name == name}


@pytest.mark.feature("AD86")
def test_a_slow_request_is_kept_with_its_stages() -> None:
    world = World()
    world.take(ApiKey.PRODUCE, handling=10, waiting=480, ordering=10)
    (slow,) = world.times.slow()
    assert (slow.handling_s, slow.waiting_s, slow.ordering_s) == pytest.approx((0.01, 0.48, 0.01))
    assert slow.origin == ORIGIN
    assert slow.began_ms == pytest.approx(world.clock.wall_ms() - 500, abs=1)


def test_a_request_below_the_threshold_is_not_kept() -> None:
    world = World()
    world.take(ApiKey.PRODUCE, handling=10, waiting=489)
    assert (world.times.slow(), world.times.slow_seen) == ([], 0)


def test_a_long_poll_is_slow_by_its_handling_alone() -> None:
    world = World()
    world.take(ApiKey.FETCH, handling=1, waiting=30_000)
    assert world.times.slow() == []
    world.take(ApiKey.FETCH, handling=600, waiting=0)
    assert len(world.times.slow()) == 1


def test_zero_keeps_no_slow_request() -> None:
    world = World(slow_ms=0)
    world.take(ApiKey.PRODUCE, handling=99_000, waiting=0)
    assert world.times.slow() == []


def test_the_newest_slow_requests_are_kept_and_all_are_counted() -> None:
    world = World(kept_max=2)
    for waiting in (501, 502, 503):
        world.take(ApiKey.CREATE_TOPICS, handling=0, waiting=waiting)
    assert [round(one.total_s * 1_000) for one in world.times.slow()] == [503, 502]
    assert world.times.slow_seen == 3


@pytest.mark.feature("AD76")
def test_times_are_counted_by_api() -> None:
    world = World()
    world.take(ApiKey.PRODUCE, handling=1, waiting=4, ordering=5)
    assert world.times.answered(header(ApiKey.METADATA), world.times.now_s(), world) == 0
    assert world.counts("tidemark_request_seconds_count") == {"Produce": 1, "Metadata": 1}
    assert world.counts("tidemark_request_seconds_sum") == pytest.approx(
        {"Produce": 0.01, "Metadata": 0}
    )
    assert world.counts("tidemark_request_wait_seconds_sum") == pytest.approx({"Produce": 0.004})


def test_a_reply_that_is_sent_within_its_handler_has_not_waited() -> None:
    world = World()
    reply = Reply(world, header(ApiKey.PRODUCE))
    assert world.unhandled is reply
    world.clock.advance(700)
    reply.send([b"answer"])
    (slow,) = world.times.slow()
    assert (slow.handling_s, slow.waiting_s) == pytest.approx((0.7, 0))


def test_the_throttle_time_of_an_answer_mutes_its_connection() -> None:
    world = World()
    reply = Reply(world, header(ApiKey.CREATE_TOPICS))
    for answer in ({"throttle_time": 700}, {"throttle_time": 0}, {}):
        reply.mute(answer)
    assert world.mutes == [700]
