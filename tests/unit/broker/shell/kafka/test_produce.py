"""Produce requests and the permissions of their senders, without sockets."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)
from tidemark.model.authorization import Authorizer, Operation, Requester, Resource, ResourceType
from tidemark.model.errors import ErrorCode
from unit.broker.shell.broker_worlds import World, topic

VERSION = 12
PRODUCER_ID = 7
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class OwnIdOnly(Authorizer):
    """Allows everything to do with topics, and the transactional id ``mine``."""

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        is_id = resource.resource_type is ResourceType.TRANSACTIONAL_ID
        return not is_id or (operation is Operation.WRITE and resource.name == "mine")


class Sender:
    """A connection, and the world of the broker behind it. Producer 7 has a transaction there."""

    def __init__(self) -> None:
        self.world = world = World()
        world.show(topic())
        world.parts.facts = replace(world.parts.facts, authorizer=OwnIdOnly())
        self._handle = world.parts.hot(ApiKey.PRODUCE)
        self._answers: list[Any] = []
        self._connection = SimpleNamespace(
            requester=Requester("User:alice", ""),
            produce_prefix_bytes=0,
            repeated_produces={},
            listener=SimpleNamespace(name="CLIENT"),
            closed=False,
            answer=lambda _, body: self._answers.append(body),
        )
        partition = world.hosted().partition
        guard = partition.verifications.ask(PRODUCER_ID, 0)
        partition.verifications.answer(PRODUCER_ID, guard)
        world.append(**transactional(0))

    @property
    def log_end(self) -> int:
        return self.world.hosted().partition.log_end

    def send(self, transactional_id: str | None, **fields: Any) -> int:
        """Return the error code of one batch."""
        batch = build_batch([(self.world.clock.wall_ms(), None, b"x", ())], **fields)
        one = ProducePartition(0, memoryview(batch))
        request = ProduceRequest(
            transactional_id, -1, 0, [ProduceTopic("orders", bytes(16), [one])]
        )
        body = memoryview(bytearray(write_produce_request(VERSION, request)))
        header = SimpleNamespace(api_version=VERSION, client_id="c", correlation_id=1)
        self._handle(cast("Any", self._connection), cast("Any", header), body)
        ((_, _, (result,)),) = read_produce_response(self._answers.pop(), VERSION).topics
        return result.error_code


def transactional(sequence: int) -> dict[str, Any]:
    return {
        "producer_id": PRODUCER_ID,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "attributes_extra": TRANSACTIONAL_BIT,
    }


@pytest.mark.parametrize("transactional_id", ["another's", None])
def test_who_may_write_the_topic_alone_writes_into_no_transaction(
    transactional_id: str | None,
) -> None:
    sender = Sender()
    assert sender.send(transactional_id, **transactional(1)) == REFUSED
    assert sender.log_end == 1


def test_a_repeated_request_without_a_transactional_id_writes_into_no_transaction() -> None:
    sender = Sender()
    assert [sender.send(None), sender.send(None)] == [0, 0]
    assert sender.send(None, **transactional(1)) == REFUSED
    assert sender.log_end == 3


def test_a_partition_is_added_to_no_transaction_of_an_id_that_its_sender_may_not_write() -> None:
    sender = Sender()
    assert sender.send("another's", **transactional(0) | {"producer_id": 8}) == REFUSED
    assert not sender.world.hosted().verifying


def test_who_may_write_the_transactional_id_writes_in_its_transaction() -> None:
    sender = Sender()
    assert sender.send("mine", **transactional(1)) == ErrorCode.NONE
    assert sender.log_end == 2


def test_batches_outside_of_a_transaction_need_no_permission_for_the_id() -> None:
    assert Sender().send("another's") == ErrorCode.NONE
