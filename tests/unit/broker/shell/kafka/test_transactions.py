"""The transactional APIs: from the wire's bytes to the coordinator, and back, for old clients and
new ones.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Authorizer, Operation, Requester, Resource, ResourceType
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark_wire.v1 import txn_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, topic_image

PRODUCER = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 3}
OLD_PRODUCER = {f"v3_and_below_{key}": value for key, value in PRODUCER.items()}
FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_NOW = ErrorCode.COORDINATOR_NOT_AVAILABLE


class StubClient:
    """Answers every call with what is set, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[tuple[str, Any]] = []

    async def call(self, method: str, _name: str, request: Any, _timeout_s: float) -> Any:
        self.asked.append((method, request))
        if isinstance(self.answer, TidemarkError):
            raise self.answer
        return self.answer

    async def list_all(self, method: str, request: Any, timeout_s: float) -> list[Any]:
        answer = await self.call(method, "", request, timeout_s)
        return list(answer)

    async def describe(self, ids: list[str], caller: Any, timeout_s: float) -> list[Any]:
        answer = await self.call("DescribeTransactions", "", (ids, caller), timeout_s)
        return list(answer)


class Denying(Authorizer):
    """Denies all to do with one kind of resource."""

    def __init__(self, denied: ResourceType) -> None:
        self._denied = denied

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return resource.resource_type is not self._denied


@pytest.fixture
def coordinator(parts: BrokerParts) -> StubClient:
    """That of ``parts``, whose internal topics exist."""
    stub = StubClient()
    parts.transactions.relay.client = cast("CoordinatorClient", stub)
    parts.cluster.live.epochs = {BrokerId(1): BrokerEpoch(1), BrokerId(2): BrokerEpoch(1)}
    internal = [
        topic_image(f"__{one}", [1], {}) for one in ("transaction_state", "consumer_offsets")
    ]
    topics = {**parts.metadata.image.topics, **{one.name: one for one in internal}}
    parts.metadata.take(replace(parts.metadata.image, topics=topics))
    return stub


def result(topic: str, partition: int, code: ErrorCode) -> pb.AddPartitionsResponse.Result:
    return pb.AddPartitionsResponse.Result(topic=topic, partition=partition, error_code=code)


# ---- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_gets_the_session_that_its_coordinator_gives(
    coordinator: StubClient, ask: Ask, version: int
) -> None:
    coordinator.answer = pb.InitTransactionalIdResponse(producer_id=9, producer_epoch=4)
    fields = {"transactional_id": "t", "transaction_timeout": 5_000}
    answer = ask(ApiKey.INIT_PRODUCER_ID, fields, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 9, 4)
    ((method, asked),) = coordinator.asked
    assert (method, asked.transactional_id) == ("InitTransactionalId", "t")
    assert (asked.transaction_timeout_ms, asked.producer_id) == (5_000, -1)
    assert asked.caller.principal == "User:ANONYMOUS"


def test_a_session_that_goes_on_names_its_producer(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = pb.InitTransactionalIdResponse(producer_id=7, producer_epoch=4)
    ask(ApiKey.INIT_PRODUCER_ID, {**PRODUCER, "transaction_timeout": 5_000}, 3)
    ((_, asked),) = coordinator.asked
    assert (asked.producer_id, asked.producer_epoch) == (7, 3)


def test_a_session_by_a_stranger_is_refused(
    parts: BrokerParts, coordinator: StubClient, ask: Ask
) -> None:
    parts.facts = replace(parts.facts, authorizer=Denying(ResourceType.TRANSACTIONAL_ID))
    answer = ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": "t"})
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert coordinator.asked == []


@pytest.mark.parametrize(
    ("api_key", "version", "told"),
    [
        (ApiKey.INIT_PRODUCER_ID, 3, OLD_FENCED),
        (ApiKey.INIT_PRODUCER_ID, 4, FENCED),
        (ApiKey.ADD_OFFSETS_TO_TXN, 1, OLD_FENCED),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2, FENCED),
        (ApiKey.END_TXN, 1, OLD_FENCED),
        (ApiKey.END_TXN, 2, FENCED),
    ],
)
def test_old_clients_hear_of_a_fence_in_their_own_words(
    coordinator: StubClient, ask: Ask, api_key: ApiKey, version: int, told: ErrorCode
) -> None:
    coordinator.answer = pb.EndTransactionResponse(error_code=FENCED)
    fields = PRODUCER if api_key is not ApiKey.ADD_OFFSETS_TO_TXN else {**PRODUCER, "group_id": "g"}
    assert ask(api_key, fields, version).error_code == told


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, NOT_NOW),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_NOW),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_failures_on_the_way_are_told_in_words_that_clients_retry(
    coordinator: StubClient, ask: Ask, failed: ErrorCode, told: ErrorCode, *, answered: bool
) -> None:
    response = pb.EndTransactionResponse(error_code=failed)
    coordinator.answer = response if answered else TidemarkError(failed, "so it is")
    assert ask(ApiKey.END_TXN, PRODUCER).error_code == told


# ---- AddPartitionsToTxn, AddOffsetsToTxn, EndTxn


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_with_an_outcome_for_each(
    coordinator: StubClient, ask: Ask, version: int
) -> None:
    lost = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    coordinator.answer = pb.AddPartitionsResponse(
        results=[result("orders", 1, ErrorCode.NONE), result("orders", 0, lost)]
    )
    topics = [{"name": "orders", "partitions": [0, 1]}]
    fields = {**OLD_PRODUCER, "v3_and_below_topics": topics}
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, fields, version)
    (row,) = answer.results_by_topic_v3_and_below
    assert [one.partition_error_code for one in row.results_by_partition] == [lost, 0]
    ((_, asked),) = coordinator.asked
    assert (asked.verify_only, asked.transactions_v2) == (False, False)


@pytest.mark.parametrize(("version", "told"), [(1, OLD_FENCED), (2, FENCED)])
def test_a_zombie_hears_of_its_fence_at_every_partition(
    coordinator: StubClient, ask: Ask, version: int, told: ErrorCode
) -> None:
    coordinator.answer = pb.AddPartitionsResponse(error_code=FENCED)
    fields = {**OLD_PRODUCER, "v3_and_below_topics": [{"name": "orders", "partitions": [0]}]}
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, fields, version)
    (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert row.partition_error_code == told


def test_one_partition_that_may_not_be_written_keeps_all_out(
    coordinator: StubClient, ask: Ask
) -> None:
    topics = [
        {"name": "orders", "partitions": [0]},
        {"name": "__consumer_offsets", "partitions": [0]},
    ]
    fields = {**OLD_PRODUCER, "v3_and_below_topics": topics}
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, fields, 3)
    codes = [
        topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    ]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert coordinator.asked == []


@pytest.mark.feature("L16")
@pytest.mark.parametrize(
    ("version", "verify_only", "transactions_v2"),
    [(4, True, False), (5, True, True), (4, False, True), (5, False, True)],
)
def test_brokers_verify_or_add_for_several_transactions(
    coordinator: StubClient, ask: Ask, version: int, verify_only: bool, transactions_v2: bool
) -> None:
    coordinator.answer = pb.AddPartitionsResponse(results=[result("orders", 2, ErrorCode.NONE)])
    topics = [{"name": "orders", "partitions": [2]}]
    two = [
        {**PRODUCER, "transactional_id": one, "verify_only": verify_only, "topics": topics}
        for one in ("t", "u")
    ]
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": two}, version)
    assert [one.transactional_id for one in answer.results_by_transaction] == ["t", "u"]
    asked = [request for _, request in coordinator.asked]
    assert [one.verify_only for one in asked] == [verify_only] * 2
    assert [one.transactions_v2 for one in asked] == [transactions_v2] * 2


def test_clients_do_not_speak_for_brokers(
    parts: BrokerParts, coordinator: StubClient, ask: Ask
) -> None:
    parts.facts = replace(parts.facts, authorizer=Denying(ResourceType.CLUSTER))
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": []}, 4)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert coordinator.asked == []


@pytest.mark.feature("L10")
def test_a_groups_offsets_are_added_by_its_name(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = pb.AddOffsetsResponse()
    assert ask(ApiKey.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"}).error_code == 0
    ((method, asked),) = coordinator.asked
    assert (method, asked.group_id, asked.producer_epoch) == ("AddOffsets", "g", 3)


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_a_groups_offsets_need_both_rights(
    parts: BrokerParts, coordinator: StubClient, ask: Ask, denied: ResourceType, told: ErrorCode
) -> None:
    parts.facts = replace(parts.facts, authorizer=Denying(denied))
    with pytest.raises(TidemarkError) as refused:
        ask(ApiKey.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"})
    assert refused.value.code is told
    assert coordinator.asked == []


@pytest.mark.feature("L02")
@pytest.mark.parametrize(("version", "transactions_v2"), [(0, False), (4, False), (5, True)])
@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_v2_gives_the_next_epoch(
    coordinator: StubClient, ask: Ask, version: int, *, transactions_v2: bool, commits: bool
) -> None:
    coordinator.answer = pb.EndTransactionResponse(producer_id=7, producer_epoch=4)
    answer = ask(ApiKey.END_TXN, {**PRODUCER, "committed": commits}, version)
    ((_, asked),) = coordinator.asked
    assert (asked.commit, asked.transactions_v2) == (commits, transactions_v2)
    assert answer.producer_epoch == (4 if transactions_v2 else -1)


# ---- DescribeTransactions, ListTransactions


def described(**fields: Any) -> pb.TransactionState:
    known: Mapping[str, Any] = {"producer_id": 7, "producer_epoch": 3, "timeout_ms": 60_000}
    return pb.TransactionState(state="Ongoing", started_ms=123, **{**known, **fields})


def test_a_transaction_is_described_with_its_partitions(coordinator: StubClient, ask: Ask) -> None:
    partitions = [pb.Partition(topic="orders", partition=one) for one in (0, 2)]
    coordinator.answer = [described(transactional_id="t", partitions=partitions)]
    (row,) = ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]}).transaction_states
    assert (row.transaction_state, row.transaction_start_time) == ("Ongoing", 123)
    assert (row.producer_id, row.transaction_timeout) == (7, 60_000)
    assert [(one.topic, list(one.partitions)) for one in row.topics] == [("orders", [0, 2])]


def test_topics_that_may_not_be_seen_are_left_out(
    parts: BrokerParts, coordinator: StubClient, ask: Ask
) -> None:
    parts.facts = replace(parts.facts, authorizer=Denying(ResourceType.TOPIC))
    partition = pb.Partition(topic="orders", partition=0)
    coordinator.answer = [described(transactional_id="t", partitions=[partition])]
    (row,) = ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["t"]}).transaction_states
    assert list(row.topics) == []


def test_without_an_answer_each_id_has_the_error(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = TidemarkError(NOT_NOW, "nobody there")
    asked = {"transactional_ids": ["t", "u"]}
    rows = ask(ApiKey.DESCRIBE_TRANSACTIONS, asked).transaction_states
    assert [(one.transactional_id, one.error_code) for one in rows] == [
        ("t", NOT_NOW),
        ("u", NOT_NOW),
    ]


@pytest.mark.feature("Y08")
def test_every_transaction_is_listed_by_one_broker(
    parts: BrokerParts, coordinator: StubClient, ask: Ask
) -> None:
    ids = [f"t-{number}" for number in range(20)]
    coordinator.answer = [
        pb.ListTransactionsResponse(transactions=[described(transactional_id=one) for one in half])
        for half in (ids[:10], ids[10:])
    ]
    listed: list[str] = []
    for number in (1, 2):
        parts.facts = replace(parts.facts, broker_id=BrokerId(number))
        answer = ask(ApiKey.LIST_TRANSACTIONS, {})
        listed += [one.transactional_id for one in answer.transaction_states]
    assert sorted(listed) == sorted(ids)


def test_a_listing_is_filtered_by_the_coordinators(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = [pb.ListTransactionsResponse(unknown_states=["Odd"])] * 2
    fields = {
        "state_filters": ["Ongoing", "Odd"],
        "producer_id_filters": [7],
        "duration_filter": 60_000,
        "transactional_id_pattern": "t.*",
    }
    assert list(ask(ApiKey.LIST_TRANSACTIONS, fields).unknown_state_filters) == ["Odd"]
    ((_, asked),) = coordinator.asked
    assert (list(asked.states), list(asked.producer_ids)) == (["Ongoing", "Odd"], [7])
    assert (asked.duration_ms_min, asked.transactional_id_pattern) == (60_000, "t.*")


def test_half_a_listing_is_none(coordinator: StubClient, ask: Ask) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.answer = [
        pb.ListTransactionsResponse(transactions=[described(transactional_id="t")]),
        pb.ListTransactionsResponse(error_code=loading),
    ]
    answer = ask(ApiKey.LIST_TRANSACTIONS, {})
    assert (answer.error_code, list(answer.transaction_states)) == (loading, [])
