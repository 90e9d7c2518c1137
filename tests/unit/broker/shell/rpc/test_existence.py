"""What gRPC shows of topics that the caller may not describe: nothing, not even that they exist."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.shell.rpc.append_stream import AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.fetch_stream import FetchStream
from tidemark.model.authorization import (
    Authorizer,
    Operation,
    Requester,
    Resource,
    ResourceType,
    topic_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import common_pb2, share_pb2, txn_pb2
from tidemark_wire.v1 import partition_store_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.rpc.peers import CALLER, Peer, append_parts, fetch_parts, offset_queries

BUDGET = 1 << 20
PLACES = {
    "hosted": common_pb2.TopicPartition(topic="orders", partition=0),
    "no such partition": common_pb2.TopicPartition(topic="orders", partition=7),
    "another id": common_pb2.TopicPartition(topic="orders", topic_id=b"x" * 16, partition=0),
    "no such topic": common_pb2.TopicPartition(topic="nowhere", partition=0),
}


class NoTopics(Authorizer):
    """Allows nothing to do with topics."""

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return resource.resource_type is not ResourceType.TOPIC


class Noted(NoTopics):
    """Notes what is attempted, as an audit does. No transactional id may be described."""

    def __init__(self) -> None:
        self.attempted: list[Resource] = []

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        self.attempted.append(resource)
        return self.sees(requester, operation, resource)

    def sees(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return resource.resource_type is ResourceType.GROUP


def append(parts: BrokerParts, place: Any) -> int:
    peer = Peer(pb.AppendRequest(partition=place, acks=1, current_leader_epoch=-1))
    asyncio.run(AppendStream(append_parts(parts), ByteBudget(BUDGET), CALLER, peer).run())
    return int(peer.answers[0].error_code)


def fetch(parts: BrokerParts, place: Any) -> int:
    peer = Peer(pb.FetchRequest(partition=place, bytes_max=1, current_leader_epoch=-1))
    asyncio.run(FetchStream(fetch_parts(parts), ByteBudget(BUDGET), CALLER, peer).run())
    return int(peer.answers[0].error_code)


def list_offsets(parts: BrokerParts, place: Any) -> int:
    query = pb.ListOffsetsRequest.Query(partition=place, timestamp_ms=-1, current_leader_epoch=-1)
    return int(asyncio.run(offset_queries(parts).answer(CALLER, query)).error_code)


def find_epoch_end(parts: BrokerParts, place: Any) -> int:
    query = pb.FindEpochEndsRequest.Query(partition=place, current_leader_epoch=-1)
    return int(offset_queries(parts).epoch_end(CALLER, query).error_code)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ask", [append, fetch, list_offsets, find_epoch_end])
def test_a_topic_is_refused_alike_whether_it_exists_or_not(
    ask: Callable[[BrokerParts, Any], int], place: str
) -> None:
    world = World()
    world.show(topic())
    world.parts.facts = replace(world.parts.facts, authorizer=NoTopics())
    assert ask(world.parts, PLACES[place]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_name_of_a_topic_is_not_shown_to_who_has_its_id() -> None:
    world = World()
    world.show(topic("orders", number=3))
    world.parts.facts = replace(world.parts.facts, authorizer=NoTopics())
    request = share_pb2.AcknowledgeInTransactionRequest(
        group_id="g",
        member_id="m",
        transactional_id="t",
        producer_id=1,
        parts=[share_pb2.AcknowledgeInTransactionRequest.Part(topic_id=bytes([3]) * 16)],
    )
    context = cast("Any", SimpleNamespace(peer=lambda: "peer"))
    share = world.parts.services().share_transactions
    answer = asyncio.run(share.Acknowledge(request, context))
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "orders" not in answer.error_message


class StubCoordinators:
    """Coordinators of a cluster with one transactional id."""

    async def list_all(self, *_: object) -> list[txn_pb2.ListTransactionsResponse]:
        state = txn_pb2.TransactionState(transactional_id="t")
        return [txn_pb2.ListTransactionsResponse(transactions=[state])]


def test_what_a_list_leaves_out_is_no_attempt() -> None:
    world, noted = World(), Noted()
    world.show(topic())
    world.parts.facts = replace(world.parts.facts, authorizer=noted)
    world.parts.transactions.relay.client = cast("Any", StubCoordinators())
    context = cast("Any", SimpleNamespace(peer=lambda: "peer", time_remaining=lambda: None))
    services = world.parts.services()
    topics = asyncio.run(services.store.DescribeTopics(pb.DescribeTopicsRequest(), context)).topics
    request = txn_pb2.ListTransactionsRequest()
    listed = asyncio.run(services.relay.ListTransactions(request, context)).transactions
    assert (list(topics), list(listed), noted.attempted) == ([], [], [])
    named = pb.DescribeTopicsRequest(topics=["orders"])
    (one,) = asyncio.run(services.store.DescribeTopics(named, context)).topics
    assert one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert noted.attempted == [topic_resource("orders")]
