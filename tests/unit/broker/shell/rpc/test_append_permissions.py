"""Who may append transactional batches over gRPC."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from broker.shell.rpc.append_stream import AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.authorization import Authorizer, Operation, Requester, Resource, ResourceType
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import partition_store_pb2
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.rpc.peers import CALLER, PARTITION, Peer, append_parts

REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class OwnIdOnly(Authorizer):
    """Allows everything to do with topics, and the transactional id ``mine``."""

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        is_id = resource.resource_type is ResourceType.TRANSACTIONAL_ID
        return not is_id or (operation is Operation.WRITE and resource.name == "mine")


def transactional(sequence: int) -> dict[str, Any]:
    return {
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "attributes_extra": TRANSACTIONAL_BIT,
    }


def answer_to(transactional_id: str, *batches: dict[str, Any]) -> tuple[int, int]:
    """Return the error code of these batches, and the log end; producer 7 has a transaction."""
    world = World()
    world.show(topic())
    world.parts.facts = replace(world.parts.facts, authorizer=OwnIdOnly())
    partition = world.hosted().partition
    partition.verifications.answer(7, partition.verifications.ask(7, 0))
    world.append(**transactional(0))
    records = [(world.clock.wall_ms(), None, b"x", ())]
    request: Any = partition_store_pb2.AppendRequest(
        partition=PARTITION,
        batches=b"".join(build_batch(records, **fields) for fields in batches),
        acks=-1,
        current_leader_epoch=-1,
        transactional_id=transactional_id,
    )
    peer = Peer(request)
    asyncio.run(AppendStream(append_parts(world.parts), ByteBudget(1 << 20), CALLER, peer).run())
    return peer.answers[0].error_code, partition.log_end


@pytest.mark.parametrize("transactional_id", ["another's", ""])
def test_who_may_write_the_topic_alone_writes_into_no_transaction(transactional_id: str) -> None:
    assert answer_to(transactional_id, {}, transactional(1)) == (REFUSED, 1)


def test_who_may_write_the_transactional_id_writes_in_its_transaction() -> None:
    assert answer_to("mine", transactional(1)) == (ErrorCode.NONE, 2)


def test_batches_outside_of_a_transaction_need_no_transactional_id() -> None:
    assert answer_to("", {}, {}) == (ErrorCode.NONE, 3)
