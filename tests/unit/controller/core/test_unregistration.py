from collections.abc import Mapping

import pytest
from controller.core.cluster import Cluster, DropBroker, PutBrokerConfigs, store_ops
from controller.core.effects import Reply
from controller.core.inputs import FeedRegained, LiveBrokersChanged, RequestHeader, UnregisterBroker
from controller.core.liveness import NOBODY
from controller.core.unregistration import check_unregistration, decide_unregistration
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId, InstantMs
from unit.controller.worlds import (
    NEVER,
    NOW,
    World,
    a_broker,
    a_cluster,
    a_topic,
    applied,
    listing,
)

GONE = BrokerId(4)
LEASE_OVER = InstantMs(NOW + 3_600_000)


def with_a_fourth(
    *, fenced: bool = True, configs: Mapping[str, Mapping[str, str]] | None = None
) -> Cluster:
    """A topic on brokers 1 to 3, and broker 4 without a replica."""
    brokers = (*map(a_broker, (1, 2, 3)), a_broker(4, fenced=fenced))
    return a_cluster(a_topic("a", (1, 2, 3)), brokers=brokers, configs=configs)


def refusal(cluster: Cluster, broker_id: int = GONE) -> TidemarkError:
    with pytest.raises(TidemarkError) as refused:
        check_unregistration(cluster.image, BrokerId(broker_id))
    return refused.value


@pytest.mark.feature("AD27")
def test_a_broker_goes_with_its_configuration_which_is_removed_first() -> None:
    cluster = with_a_fourth(configs={"4": {"max.connections": "9"}, "1": {"max.connections": "8"}})
    change = decide_unregistration(cluster.image, GONE, NOBODY, lease_left_ms=0)
    assert list(store_ops(cluster.image, change)) == [PutBrokerConfigs("4", {}), DropBroker(GONE)]
    applied(cluster, change)
    assert set(cluster.image.brokers) == {1, 2, 3}
    assert set(cluster.image.broker_configs) == {"1"}


def test_a_broker_without_configuration_is_one_znode() -> None:
    cluster = with_a_fourth()
    change = decide_unregistration(cluster.image, GONE, NOBODY, lease_left_ms=0)
    assert list(store_ops(cluster.image, change)) == [DropBroker(GONE)]


@pytest.mark.feature("AD27")
def test_a_broker_that_is_alive_or_has_replicas_stays() -> None:
    assert refusal(with_a_fourth(), 9).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refusal(with_a_fourth(fenced=False)).code is ErrorCode.POLICY_VIOLATION
    dead = a_cluster(a_topic("a", (2, 1), (2, 3)), brokers=(a_broker(1, fenced=True), a_broker(2)))
    refused = refusal(dead, 1)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "1 replicas (a-0)" in refused.message
    assert "--remove-broker 1" in refused.message


@pytest.mark.feature("AD27")
def test_another_process_of_the_id_keeps_it_registered_as_a_lease_does() -> None:
    image, other = with_a_fourth().image, a_broker(4, epoch=300)
    with pytest.raises(TidemarkError) as alive:
        decide_unregistration(image, GONE, listing(7, other), lease_left_ms=0)
    with pytest.raises(TidemarkError) as leased:
        decide_unregistration(image, GONE, NOBODY, lease_left_ms=5)
    assert alive.value.code is ErrorCode.POLICY_VIOLATION
    assert (leased.value.code, leased.value.code.retriable) == (ErrorCode.REQUEST_TIMED_OUT, True)


@pytest.mark.feature("AD27")
def test_a_broker_may_go_a_lease_after_its_end_and_return_as_a_new_one() -> None:
    world = World(brokers=2)
    for one in tuple(world.live.values()):
        world.step(FeedRegained(one.broker_epoch))

    def ask(now: InstantMs) -> ErrorCode:
        request = UnregisterBroker(RequestHeader(7, NEVER), BrokerId(2), world.listing())
        (reply,) = (one for one in world.step(request, now) if isinstance(one, Reply))
        return reply.error

    assert ask(NOW) is ErrorCode.POLICY_VIOLATION
    del world.live[2]
    world.step(LiveBrokersChanged(world.listing()))
    assert ask(NOW) is ErrorCode.REQUEST_TIMED_OUT
    assert ask(LEASE_OVER) is ErrorCode.NONE
    assert ask(LEASE_OVER) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert world.register(a_broker(2, epoch=300)).error is ErrorCode.NONE
