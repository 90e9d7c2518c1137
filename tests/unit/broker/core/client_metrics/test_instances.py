"""When client instances may ask and push, and what is refused."""

import pytest
from broker.core.client_metrics.instances import NO_INSTANCE, ClientInstances, Push
from broker.core.client_metrics.subscription import Client, Wanted, shown_uuid
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs

pytestmark = pytest.mark.feature("AD91")

ID = b"i" * 16
INTERVAL_MS = 1_000
ALL = {"all": {"metrics": "*", "interval.ms": str(INTERVAL_MS)}}
FORGOTTEN_MS = 60_000


class World:
    """Instances, one client, and a clock."""

    def __init__(self, instances_max: int = 100) -> None:
        self.instances = ClientInstances(bytes_max=1_000, instances_max=instances_max)
        self.instances.subscribe(ALL)
        self.now = InstantMs(5)

    def later(self, ms: int) -> None:
        self.now = InstantMs(self.now + ms)

    def ask(self, instance_id: bytes = ID, connection: str = "c") -> Wanted | ErrorCode:
        try:
            return self.instances.ask(instance_id, client(instance_id), connection, self.now)
        except TidemarkError as refused:
            return refused.code
        finally:
            self.instances.check()

    def push(self, instance_id: bytes = ID, *, connection: str = "c", **more: int) -> ErrorCode:
        fields = {"subscription_id": 0, "terminating": False, "codec": 0, "size_bytes": 10, **more}
        try:
            pushed = Push(instance_id, **fields)  # type: ignore[arg-type]
            self.instances.push(pushed, client(instance_id), connection, self.now)
        except TidemarkError as refused:
            return refused.code
        finally:
            self.instances.check()
        return ErrorCode.NONE

    def subscribed(self) -> int:
        """Ask, and return the id of the subscription."""
        found = self.ask()
        assert isinstance(found, Wanted), found
        return found.subscription_id


def client(instance_id: bytes) -> Client:
    return Client(shown_uuid(instance_id), "me", "java", "4", "::1", "5")


@pytest.fixture
def world() -> World:
    return World()


def test_a_client_asks_and_pushes_once_an_interval(world: World) -> None:
    wanted = world.subscribed()
    assert world.push(subscription_id=wanted) is ErrorCode.NONE, "the first one at once"
    world.later(INTERVAL_MS - 1)
    assert world.push(subscription_id=wanted) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.later(1)
    assert world.push(subscription_id=wanted) is ErrorCode.NONE
    assert world.instances.counts.throttled == 2


def test_after_a_changed_subscription_a_client_may_ask_at_once(world: World) -> None:
    wanted = world.subscribed()
    assert world.push(subscription_id=wanted) is ErrorCode.NONE
    world.instances.subscribe({"some": {"metrics": "a.", "interval.ms": "1000"}})
    assert world.push(subscription_id=wanted) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert world.subscribed() != wanted
    assert world.instances.counts.unknown_subscriptions == 1


def test_after_an_unknown_codec_a_client_may_ask_at_once(world: World) -> None:
    wanted = world.subscribed()
    refused = world.push(subscription_id=wanted, codec=5)
    assert refused is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert world.subscribed() == wanted


def test_a_client_that_ends_pushes_early_and_then_no_more(world: World) -> None:
    wanted = world.subscribed()
    assert world.push(subscription_id=wanted) is ErrorCode.NONE
    assert world.push(subscription_id=wanted, terminating=True) is ErrorCode.NONE
    world.later(INTERVAL_MS)
    assert world.push(subscription_id=wanted) is ErrorCode.INVALID_REQUEST
    assert world.push(subscription_id=wanted, terminating=True) is ErrorCode.INVALID_REQUEST


def test_a_push_is_bounded(world: World) -> None:
    wanted = world.subscribed()
    too_large = world.push(subscription_id=wanted, size_bytes=1_001)
    assert too_large is ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("reserved", [NO_INSTANCE, bytes(15) + b"\x01"])
def test_a_push_needs_an_instance(world: World, reserved: bytes) -> None:
    assert world.push(reserved) is ErrorCode.INVALID_REQUEST


def test_a_push_to_a_broker_that_was_not_asked_is_taken(world: World) -> None:
    """A client that moved to another broker: the subscription has the same id there."""
    wanted = world.subscribed()
    other = World()
    assert other.push(subscription_id=wanted) is ErrorCode.NONE


def test_an_instance_ends_with_its_connection(world: World) -> None:
    wanted = world.subscribed()
    world.instances.disconnected("another")
    assert world.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.instances.disconnected("c")
    assert len(world.instances) == 0
    assert world.subscribed() == wanted


def test_silent_instances_are_forgotten(world: World) -> None:
    world.subscribed()
    world.later(FORGOTTEN_MS - 1)
    world.ask(b"j" * 16, "d")
    assert len(world.instances) == 2
    world.later(1)
    world.ask(b"k" * 16, "e")
    assert len(world.instances) == 2


def test_the_oldest_instance_makes_room() -> None:
    world = World(instances_max=2)
    for name in (b"a", b"b", b"a", b"c"):
        world.ask(name * 16, str(name))
    assert len(world.instances) == 2
    assert world.ask(b"a" * 16, "b'a'") is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "not the oldest"
    assert isinstance(world.ask(b"b" * 16, "b'b'"), Wanted), "forgotten, and new"


def test_a_subscription_that_cannot_be_read_wants_nothing(world: World) -> None:
    world.instances.subscribe({"newer": {"match": "rack=a", "metrics": "*"}})
    found = world.ask()
    assert isinstance(found, Wanted)
    assert found.metrics == ()


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(b"abcd"), st.sampled_from("xyz")),
    st.tuples(st.just("push"), st.sampled_from(b"abcd"), st.sampled_from("xyz")),
    st.tuples(st.just("gone"), st.just(0), st.sampled_from("xyz")),
    st.tuples(st.just("later"), st.integers(0, FORGOTTEN_MS), st.just("")),
    st.tuples(st.just("subscribe"), st.just(0), st.just("")),
)


@given(st.lists(STEPS, max_size=40))
def test_the_tables_agree_whatever_happens(steps: list[tuple[str, int, str]]) -> None:
    world = World(instances_max=3)
    for kind, number, connection in steps:
        if kind == "later":
            world.later(number)
        elif kind == "gone":
            world.instances.disconnected(connection)
        elif kind == "subscribe":
            world.instances.subscribe(ALL)
        elif kind == "ask":
            world.ask(bytes([number]) * 16, connection)
        else:
            world.push(bytes([number]) * 16, connection=connection)
        world.instances.check()
