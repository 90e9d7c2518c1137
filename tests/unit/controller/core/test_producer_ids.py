import pytest
from controller.core.inputs import AllocateProducerIds, CoordinatorRef, RequestHeader
from controller.core.producer_ids import PRODUCER_ID_BLOCK, decide_producer_ids
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.model.metadata import TXN
from unit.controller.worlds import NEVER, a_cluster, a_coordinator, applied

ONE = a_coordinator(1)


def request(coordinator: CoordinatorRef | None) -> AllocateProducerIds:
    no_broker = BrokerId(-1), BrokerEpoch(-1)
    return AllocateProducerIds(RequestHeader(1, NEVER), *no_broker, coordinator)


def test_a_coordinator_gets_a_block_of_its_own() -> None:
    cluster = a_cluster(coordinators=(ONE,))
    ref = CoordinatorRef(TXN, 1, ONE.incarnation_id)
    change, first = decide_producer_ids(cluster, request(ref))
    _, second = decide_producer_ids(applied(cluster, change), request(ref))
    assert (first.first, first.count) == (0, PRODUCER_ID_BLOCK)
    assert second.first == PRODUCER_ID_BLOCK


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (CoordinatorRef(TXN, 2, ONE.incarnation_id), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (CoordinatorRef(TXN, 1, b"another"), ErrorCode.STALE_BROKER_EPOCH),
        (None, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_stranger_gets_none(ref: CoordinatorRef | None, code: ErrorCode) -> None:
    with pytest.raises(TidemarkError) as refused:
        decide_producer_ids(a_cluster(coordinators=(ONE,)), request(ref))
    assert refused.value.code is code
