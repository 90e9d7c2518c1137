"""Bounds that all connections share."""

from broker.config import BrokerConfig
from broker.core.live_settings import settings_in_force
from broker.shell.listener.limits import ConnectionLimits
from tidemark.model.ids import BrokerId


def limits(**changes: int) -> ConnectionLimits:
    return ConnectionLimits(
        **{"connections_max": 3, "connections_per_ip_max": 2, "buffers_max_bytes": 100} | changes
    )


def test_connections_are_bounded_in_all_and_from_one_address() -> None:
    bound = limits()
    assert bound.admit("a")
    assert bound.admit("a")
    assert not bound.admit("a")
    assert bound.admit("b")
    assert not bound.admit("c")
    bound.leave("a")
    assert bound.admit("c")
    assert bound.connections == 3


def test_one_owner_may_exceed_the_buffers_others_wait_their_turn() -> None:
    bound, resumed = limits(), list[str]()
    assert bound.reserve("a", 80, lambda: None)
    assert bound.reserve("b", 80, lambda: None)
    assert not bound.reserve("c", 80, lambda: resumed.append("c"))
    assert bound.contended
    assert bound.buffered_bytes == 160
    bound.release("b", 80)
    assert resumed == ["c"]
    assert bound.reserve("c", 20, lambda: None)


def test_who_is_gone_waits_no_more() -> None:
    bound, resumed = limits(), list[str]()
    bound.reserve("a", 200, lambda: None)
    assert not bound.reserve("b", 10, lambda: resumed.append("b"))
    bound.release("b", 0, gone=True)
    bound.release("a", 200, gone=True)
    assert resumed == []
    assert bound.buffered_bytes == 0


def test_bounds_of_connections_change_and_those_that_are_open_stay() -> None:
    bound = limits()
    assert bound.admit("a")
    assert bound.admit("b")
    config = BrokerConfig(
        broker_id=1,
        max_connections=9,
        max_connections_per_ip=0,
        max_connections_per_ip_overrides="b:2",
    )
    bound.configure(5, settings_in_force(config, {}, BrokerId(1)))
    assert (bound.connections, bound.connections_max) == (2, 5)
    assert not bound.admit("a")
    assert bound.admit("b")
    assert not bound.admit("b")
