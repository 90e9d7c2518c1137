"""WriteTxnMarkers and DescribeProducers: a transaction that hangs is seen, and ended."""

from dataclasses import replace
from typing import Any

import pytest
from broker.shell.transactions.marker_writer import Ending
from tidemark.codec.control_record import EndTxnMarker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Authorizer, Operation, Requester, Resource
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TRANSACTION_STATE
from tidemark.protocol.shard import Writer
from unit.broker.shell.broker_worlds import OTHER, World, topic
from unit.broker.shell.kafka.conftest import AskOf


class Permitting(Authorizer):
    """Permits some operations."""

    def __init__(self, *permitted: Operation) -> None:
        self._permitted = permitted

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return operation in self._permitted


@pytest.fixture
def world() -> World:
    """``orders`` with a transaction of producer 7 open from offset 1; ``bills`` led elsewhere."""
    made = World()
    made.show(topic(), topic("bills", number=2, leader=OTHER))
    made.append(b"before")
    asked = made.hosted().partition.verifications
    asked.answer(7, asked.ask(7, 3))
    made.append(
        b"open",
        producer_id=7,
        producer_epoch=3,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    return made


def marker(name: str = "orders", *, epoch: int = 3, **fields: Any) -> dict[str, Any]:
    topics = [{"name": name, "partition_indexes": [0]}]
    known = {"producer_id": 7, "producer_epoch": epoch, "transaction_result": False}
    return {"markers": [{**known, "topics": topics, "coordinator_epoch": 0, **fields}]}


def written(ask_of: AskOf, world: World, fields: dict[str, Any], version: int = 2) -> int:
    answer = ask_of(world.parts)(ApiKey.WRITE_TXN_MARKERS, fields, version)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def producer(ask_of: AskOf, world: World) -> Any:
    asked = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
    answer = ask_of(world.parts)(ApiKey.DESCRIBE_PRODUCERS, asked)
    return answer.topics[0].partitions[0].active_producers[0]


@pytest.mark.feature("Y08")
def test_an_open_transaction_shows_where_it_began(world: World, ask_of: AskOf) -> None:
    one = producer(ask_of, world)
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (7, 3, 0)
    assert (one.current_txn_start_offset, one.coordinator_epoch) == (1, -1)


@pytest.mark.feature("Y08")
@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_it(world: World, ask_of: AskOf, version: int) -> None:
    assert written(ask_of, world, marker(), version) == ErrorCode.NONE
    one = producer(ask_of, world)
    assert (one.current_txn_start_offset, one.coordinator_epoch) == (-1, 0)
    read = world.reader.read(world.hosted(), 0, bytes_max=1 << 20, read_committed=True)
    assert read.last_stable == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (marker(epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(transaction_version=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(producer_id=-1), ErrorCode.INVALID_REQUEST),
        (marker(epoch=-1), ErrorCode.INVALID_REQUEST),
        (marker("bills"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (marker("nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_would_end_another_transaction_is_refused(
    world: World, ask_of: AskOf, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert written(ask_of, world, fields) == code
    assert producer(ask_of, world).current_txn_start_offset == 1


def test_no_marker_gets_into_the_log_of_the_coordinators(world: World, ask_of: AskOf) -> None:
    world.show(topic(), topic(TRANSACTION_STATE, number=3))
    assert written(ask_of, world, marker(TRANSACTION_STATE)) == ErrorCode.INVALID_REQUEST
    assert world.hosted(TRANSACTION_STATE).partition.log_end == 0


def end_as_coordinator(world: World, coordinator_epoch: int) -> ErrorCode:
    end = EndTxnMarker(commits=False, coordinator_epoch=coordinator_epoch)
    ending = Ending(Writer(7, 3), end, bumped=False)
    return world.parts.groups.markers.write(world.hosted(), ending).error_code


@pytest.mark.feature("L02")
def test_a_coordinator_of_the_past_is_fenced(world: World, ask_of: AskOf) -> None:
    assert end_as_coordinator(world, 5) is ErrorCode.NONE
    assert end_as_coordinator(world, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    refused = written(ask_of, world, marker(coordinator_epoch=4))
    assert refused == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("known", [1, 5])
def test_an_administrator_fences_no_coordinator(world: World, ask_of: AskOf, known: int) -> None:
    assert written(ask_of, world, marker(coordinator_epoch=2**31 - 1)) == ErrorCode.NONE
    assert producer(ask_of, world).coordinator_epoch == 0
    assert end_as_coordinator(world, known) is ErrorCode.NONE
    assert written(ask_of, world, marker(coordinator_epoch=known + 1)) == ErrorCode.NONE
    assert producer(ask_of, world).coordinator_epoch == known
    assert end_as_coordinator(world, known) is ErrorCode.NONE


@pytest.mark.parametrize("permitted", [Operation.ALTER, Operation.CLUSTER_ACTION])
def test_either_right_will_do(world: World, ask_of: AskOf, permitted: Operation) -> None:
    world.parts.facts = replace(world.parts.facts, authorizer=Permitting(permitted))
    assert written(ask_of, world, marker()) == ErrorCode.NONE


def test_clients_do_not_write_markers(world: World, ask_of: AskOf) -> None:
    world.parts.facts = replace(
        world.parts.facts, authorizer=Permitting(Operation.WRITE, Operation.READ)
    )
    assert written(ask_of, world, marker()) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
