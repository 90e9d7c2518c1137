"""TransactionCoordinator on a broker: who is named to the coordinator, and what comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest
from broker.shell.rpc import transaction_relay
from broker.shell.rpc.transaction_relay import transactional_id_of
from tidemark.model.authorization import (
    PROCESS,
    Authorizer,
    Operation,
    Requester,
    Resource,
    ResourceType,
    topic_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import txn_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import World, topic

HANDLE = "1.4.1700000000000.a.b"
SOMEBODY = common_pb2.Caller(principal="User:root", client_id="me")
LATE = TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "no answer")

# By RPC: the request, and the answer of a coordinator that is content.
CALLS: Mapping[str, tuple[Any, Any]] = {
    "InitTransactionalId": (
        pb.InitTransactionalIdRequest(transactional_id="a.b", caller=SOMEBODY),
        pb.InitTransactionalIdResponse(producer_id=7),
    ),
    "AddPartitions": (
        pb.AddPartitionsRequest(
            transactional_id="a.b", partitions=[pb.Partition(topic="orders")], caller=SOMEBODY
        ),
        pb.AddPartitionsResponse(),
    ),
    "AddOffsets": (
        pb.AddOffsetsRequest(transactional_id="a.b", group_id="g", caller=SOMEBODY),
        pb.AddOffsetsResponse(),
    ),
    "EndTransaction": (
        pb.EndTransactionRequest(transactional_id="a.b", caller=SOMEBODY),
        pb.EndTransactionResponse(producer_epoch=4),
    ),
    "BeginTransaction": (
        pb.BeginTransactionRequest(transactional_id="a.b", caller=SOMEBODY),
        pb.BeginTransactionResponse(handle=HANDLE),
    ),
    "EnlistWriter": (
        pb.EnlistWriterRequest(handle=HANDLE, writer="w", caller=SOMEBODY),
        pb.EnlistWriterResponse(producer_id=8),
    ),
    "FinishTransaction": (
        pb.FinishTransactionRequest(handle=HANDLE, commit=True, caller=SOMEBODY),
        pb.FinishTransactionResponse(committed=True),
    ),
    "EnlistInBatch": (
        pb.EnlistInBatchRequest(sink_id="a.b", query_id="q", writer="w", caller=SOMEBODY),
        pb.EnlistInBatchResponse(producer_id=8),
    ),
    "KeepBatchAlive": (
        pb.KeepBatchAliveRequest(handle=HANDLE, caller=SOMEBODY),
        pb.KeepBatchAliveResponse(),
    ),
    "FinishBatch": (
        pb.FinishBatchRequest(sink_id="a.b", query_id="q", commit=True, caller=SOMEBODY),
        pb.FinishBatchResponse(committed=True, first=True),
    ),
    "ForgetSink": (
        pb.ForgetSinkRequest(sink_id="a.b", caller=SOMEBODY),
        pb.ForgetSinkResponse(forgotten=True),
    ),
}


class StubClient:
    """Answers every call with what is set, and keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, Any, float]] = []

    async def call(self, method: str, name: str, request: Any, timeout_s: float) -> Any:
        self.asked.append((method, name, request, timeout_s))
        if isinstance(self.answer, TidemarkError):
            raise self.answer
        return self.answer

    async def list_all(self, method: str, request: Any, timeout_s: float) -> Any:
        return await self.call(method, "", request, timeout_s)

    async def describe(self, ids: list[str], caller: Any, timeout_s: float) -> Any:
        return await self.call("DescribeTransactions", ",".join(ids), caller, timeout_s)


class Denying(Authorizer):
    """Denies all to do with one kind of resource."""

    def __init__(self, denied: ResourceType) -> None:
        self._denied = denied

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return resource.resource_type is not self._denied


class Hiding(Authorizer):
    """Denies all to do with one topic."""

    def __init__(self, name: str) -> None:
        self._hidden = topic_resource(name)

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return resource != self._hidden


def node_with(client: StubClient) -> BrokerParts:
    made = World()
    made.show(
        topic("orders"), topic(TRANSACTION_STATE, number=2), topic(CONSUMER_OFFSETS, number=3)
    )
    made.parts.transactions.relay.client = cast("CoordinatorClient", client)
    return made.parts


def call(parts: BrokerParts, method: str, request: Any, left_s: float | None = None) -> Any:
    context = SimpleNamespace(peer=lambda: "peer", time_remaining=lambda: left_s)
    rpc: Callable[[Any, Any], Awaitable[Any]] = getattr(parts.services().relay, method)

    async def ask() -> Any:
        copy = type(request)()
        copy.CopyFrom(request)
        return await rpc(copy, cast("grpc.aio.ServicerContext[Any, Any]", context))

    return asyncio.run(ask())


@pytest.mark.parametrize("method", CALLS)
def test_a_call_goes_to_the_ids_owner_and_its_answer_comes_back(method: str) -> None:
    request, answer = CALLS[method]
    client = StubClient(answer)
    assert call(node_with(client), method, request) == answer
    ((asked, name, _, _),) = client.asked
    assert (asked, name) == (method, "a.b")


@pytest.mark.parametrize("method", CALLS)
def test_the_caller_is_who_connected_whatever_the_request_says(method: str) -> None:
    request, answer = CALLS[method]
    client = StubClient(answer)
    call(node_with(client), method, request)
    ((_, _, asked, _),) = client.asked
    assert (asked.caller.principal, asked.caller.client_id) == (PROCESS, "me")


@pytest.mark.parametrize("method", CALLS)
def test_without_an_answer_the_error_says_to_ask_again(method: str) -> None:
    answer = call(node_with(StubClient(LATE)), method, CALLS[method][0])
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.error_message == "no answer"


@pytest.mark.parametrize("method", CALLS)
def test_who_may_not_is_refused_before_the_coordinator_is_asked(method: str) -> None:
    client = StubClient(None)
    parts = node_with(client)
    parts.facts = replace(parts.facts, authorizer=Denying(ResourceType.TRANSACTIONAL_ID))
    answer = call(parts, method, CALLS[method][0])
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.asked == []


@pytest.mark.parametrize(
    ("method", "denied", "code"),
    [
        ("AddPartitions", ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("AddOffsets", ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_what_is_written_needs_its_own_right(
    method: str, denied: ResourceType, code: ErrorCode
) -> None:
    parts = node_with(StubClient(None))
    parts.facts = replace(parts.facts, authorizer=Denying(denied))
    assert call(parts, method, CALLS[method][0]).error_code == code


def test_clients_do_not_write_into_internal_topics() -> None:
    request = pb.AddPartitionsRequest(
        transactional_id="t", partitions=[pb.Partition(topic=TRANSACTION_STATE)]
    )
    answer = call(node_with(StubClient(None)), "AddPartitions", request)
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("left_s", "allowed_s"), [(None, 10.0), (2.5, 2.5), (60.0, 10.0)])
def test_a_call_takes_no_longer_than_its_caller_waits(
    left_s: float | None, allowed_s: float
) -> None:
    client = StubClient(pb.EndTransactionResponse())
    call(node_with(client), "EndTransaction", CALLS["EndTransaction"][0], left_s)
    ((_, _, _, timeout_s),) = client.asked
    assert timeout_s == allowed_s


def test_listings_of_all_coordinators_are_one() -> None:
    halves = [
        pb.ListTransactionsResponse(transactions=[pb.TransactionState(transactional_id=one)])
        for one in ("t", "u")
    ]
    answer = call(node_with(StubClient(halves)), "ListTransactions", pb.ListTransactionsRequest())
    assert [one.transactional_id for one in answer.transactions] == ["t", "u"]


def test_a_listing_beyond_the_limit_of_a_message_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_relay, "MESSAGE_BYTES_MAX", 100)
    ids = [pb.TransactionState(transactional_id="t" * 60)] * 2
    answers = [pb.ListTransactionsResponse(transactions=[one]) for one in ids]
    relay = node_with(StubClient(answers))
    answer = call(relay, "ListTransactions", pb.ListTransactionsRequest())
    assert (answer.error_code, len(answer.transactions)) == (ErrorCode.MESSAGE_TOO_LARGE, 0)


def test_ids_are_described_in_their_order_once_each() -> None:
    found = [pb.TransactionState(transactional_id=one) for one in ("u", "t")]
    request = pb.DescribeTransactionsRequest(transactional_ids=["t", "u", "t"])
    answer = call(node_with(StubClient(found)), "DescribeTransactions", request)
    assert [one.transactional_id for one in answer.transactions] == ["t", "u"]


@pytest.mark.parametrize("method", ["DescribeTransactions", "ListTransactions"])
def test_topics_that_the_caller_may_not_describe_are_left_out(method: str) -> None:
    """A right to a transactional id is none to its topics, as in Kafka."""
    places = [pb.Partition(topic="orders"), pb.Partition(topic="secret")]
    writer = pb.WriterState(writer="w", partitions=places)
    state = pb.TransactionState(transactional_id="t", partitions=places, writers=[writer])
    found: dict[str, tuple[Any, Any]] = {
        "DescribeTransactions": (
            pb.DescribeTransactionsRequest(transactional_ids=["t"]),
            [state],
        ),
        "ListTransactions": (
            pb.ListTransactionsRequest(),
            [pb.ListTransactionsResponse(transactions=[state])],
        ),
    }
    request, answer = found[method]
    parts = node_with(StubClient(answer))
    parts.facts = replace(parts.facts, authorizer=Hiding("secret"))
    (shown,) = call(parts, method, request).transactions
    assert [one.topic for one in shown.partitions] == ["orders"]
    assert [one.topic for one in shown.writers[0].partitions] == ["orders"]


def test_ids_without_an_answer_have_the_error() -> None:
    request = pb.DescribeTransactionsRequest(transactional_ids=["t"])
    answer = call(node_with(StubClient(LATE)), "DescribeTransactions", request)
    assert answer.transactions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.feature("Y04")
def test_a_handle_names_its_transactional_id() -> None:
    assert transactional_id_of(HANDLE) == "a.b"


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.", "whatever"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    request = pb.FinishTransactionRequest(handle=text)
    answer = call(node_with(StubClient(None)), "FinishTransaction", request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_before_the_first_transaction_its_topic_is_made_for_who_asks_about_one() -> None:
    client = StubClient(None)
    made = World()
    made.show(topic("orders"))
    made.parts.transactions.relay.client = cast("CoordinatorClient", client)
    request = pb.DescribeTransactionsRequest(transactional_ids=["t"])
    (answer,) = call(made.parts, "DescribeTransactions", request).transactions
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.error_message == f"{TRANSACTION_STATE} is being created; ask again"
    assert client.asked == []
