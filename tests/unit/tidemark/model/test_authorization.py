import pytest
from tidemark.model.authorization import (
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Authorizer,
    Operation,
    Requester,
    Resource,
    ResourceType,
    topic_resource,
    transactional_id_resource,
)

ALICE = Requester("User:alice", "10.0.0.1")


def test_everybody_may_do_everything_for_now() -> None:
    assert Authorizer().authorize(ALICE, Operation.WRITE, topic_resource("orders"))
    assert Authorizer().authorize(ALICE, Operation.ALTER, CLUSTER)


def test_the_masks_are_those_a_kafka_broker_sends_to_a_superuser() -> None:
    authorizer = Authorizer()
    assert authorizer.authorized_operations(ALICE, topic_resource("t")) == 3576
    assert authorizer.authorized_operations(ALICE, CLUSTER) == 8096


def test_a_mask_leaves_out_what_is_not_allowed() -> None:
    class ReadersOnly(Authorizer):
        def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
            return operation in (Operation.READ, Operation.DESCRIBE)

    assert ReadersOnly().authorized_operations(ALICE, topic_resource("t")) == 0b1_0000_1000


@pytest.mark.parametrize("kind", list(ResourceType))
def test_a_mask_fits_the_int32_of_the_wire(kind: ResourceType) -> None:
    mask = Authorizer().authorized_operations(ALICE, Resource(kind, "x"))
    assert 0 < mask < 2**31
    assert bin(mask).count("1") == len(SUPPORTED_OPERATIONS[kind])


def test_an_operation_that_makes_no_sense_for_a_resource_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        Authorizer().authorize(ALICE, Operation.CLUSTER_ACTION, transactional_id_resource("t"))
