"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit: topics by name and id, and refusals."""

from typing import Any

import pytest
from broker.core.groups.requests import TxnOffsetCommit
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.broker.core.groups.group_worlds import (
    ORDERS,
    PRODUCER,
    commit,
    committed,
    stable,
    txn_commit,
)
from unit.broker.core.groups.live_groups import beats
from unit.broker.shell.kafka.group_handlers import GroupBroker, versions

POSITION = {"partition_index": 0, "committed_offset": 42, "committed_metadata": "m"}
NOT_FOUND = bytes(15) + b"\1"
UNKNOWN_TOPIC = [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
"""By version: a topic is named, or has an id."""


def key(version: int, name: str = "orders") -> dict[str, object]:
    """How a version names a topic."""
    if version < 10:
        return {"name": name}
    return {"topic_id": ORDERS if name == "orders" else NOT_FOUND}


def committing(version: int, *names: str, **fields: object) -> dict[str, Any]:
    topics = [{**key(version, name), "partitions": [POSITION]} for name in names or ("orders",)]
    return {"group_id": "g", "topics": topics, **fields}


def codes(reply: Struct) -> list[int]:
    return [one.error_code for topic in reply.topics for one in topic.partitions]


@pytest.mark.feature("A11", "E09", "E04")
@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_what_is_committed_in_any_version_is_fetched_in_any(version: int) -> None:
    handlers = GroupBroker()
    reply = handlers.ask(ApiKey.OFFSET_COMMIT, committing(version), version)
    [topic] = reply.topics
    assert (topic.topic_id if version >= 10 else topic.name) in (ORDERS, "orders")
    assert codes(reply) == [0]
    for fetching in versions(ApiKey.OFFSET_FETCH):
        [row] = fetched(handlers, fetching)
        assert (row.committed_offset, row.metadata, row.error_code) == (42, "m", 0)


def fetched(
    handlers: GroupBroker, version: int, name: str = "orders", *, stable_only: bool = False
) -> list[Struct]:
    """The rows of one topic of group g."""
    fields = {"require_stable": True} if stable_only else {}
    topics = [{**key(version, name), "partition_indexes": [0]}]
    if version < 8:
        reply = handlers.ask(
            ApiKey.OFFSET_FETCH, {"group_id": "g", "topics": topics, **fields}, version
        )
        return [one for topic in reply.topics for one in topic.partitions]
    asked = {"groups": [{"group_id": "g", "topics": topics}], **fields}
    [group] = handlers.ask(ApiKey.OFFSET_FETCH, asked, version).groups
    assert group.error_code == 0
    return [one for topic in group.topics for one in topic.partitions]


@pytest.mark.parametrize(("version", "error_code"), UNKNOWN_TOPIC)
def test_what_does_not_exist_does_not_hold_up_the_rest(version: int, error_code: int) -> None:
    handlers = GroupBroker()
    asked = committing(version, "gone", "orders", "gone")
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)) == [error_code, 0, error_code]
    [row] = fetched(handlers, version, "gone")
    assert row.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0)
    assert row.committed_offset == -1


@pytest.mark.parametrize(("version", "error_code"), UNKNOWN_TOPIC)
def test_a_topic_that_is_deleted_before_the_shard_decides(version: int, error_code: int) -> None:
    handlers = GroupBroker()
    handlers.groups.world.topics.orders = None
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, committing(version), version)) == [error_code]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_named_so(version: int, partition: int) -> None:
    handlers = GroupBroker()
    beyond = {**POSITION, "partition_index": partition}
    asked = {"group_id": "g", "topics": [{**key(version), "partitions": [POSITION, beyond]}]}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)) == [0, unknown]


@pytest.mark.parametrize(
    ("version", "unknown_group", "stale"),
    [
        (8, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_generation_that_is_not(version: int, unknown_group: int, stale: int) -> None:
    handlers = GroupBroker()
    who = {"member_id": "a", "generation_id_or_member_epoch": 3}
    asked = committing(version, **who)
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)) == [unknown_group]
    stable(handlers.groups.world, "a")
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)) == [stale]


@pytest.mark.feature("E14")
@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@pytest.mark.parametrize("epoch", [1, 0])
def test_a_member_with_epochs_commits_from_the_version_that_has_them_on(
    version: int, epoch: int
) -> None:
    handlers = GroupBroker()
    beats(handlers.groups.world, "c")
    asked = committing(version, member_id="c", generation_id_or_member_epoch=epoch)
    told = ErrorCode.NONE if epoch else ErrorCode.STALE_MEMBER_EPOCH
    if version < 9:
        told = ErrorCode.UNSUPPORTED_VERSION
    assert codes(handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)) == [told]


def test_commits_are_guarded_by_group_and_topic() -> None:
    handlers = GroupBroker()
    handlers.deny(Operation.READ, "orders")
    asked = committing(9)
    denied = handlers.ask(ApiKey.OFFSET_COMMIT, asked, 9)
    assert codes(denied) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    handlers.deny(Operation.READ, "g")
    denied = handlers.ask(ApiKey.OFFSET_COMMIT, asked, 9)
    assert codes(denied) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert handlers.groups.asked == []


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_a_topic_that_may_not_be_read_keeps_its_error_beside_that_of_the_group(
    version: int,
) -> None:
    handlers = GroupBroker()
    stable(handlers.groups.world, "a")
    handlers.deny(Operation.READ, "secret")
    names = ("gone", "orders") if version >= 10 else ("secret", "gone", "orders")
    who = {"member_id": "a", "generation_id_or_member_epoch": 3}
    asked = committing(version, *names, **who)
    kept = (
        [ErrorCode.UNKNOWN_TOPIC_ID]
        if version >= 10
        else [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    )
    refused = handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)
    assert codes(refused) == [*kept, ErrorCode.ILLEGAL_GENERATION]
    handlers.groups.failure = TidemarkError(ErrorCode.NOT_COORDINATOR, "elsewhere")
    refused = handlers.ask(ApiKey.OFFSET_COMMIT, asked, version)
    assert codes(refused) == [*kept, ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("version", range(2, 11))
def test_all_positions_of_a_group_in_topics_that_may_be_seen(version: int) -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, commit(42))
    group: dict[str, object] = {"group_id": "g", "topics": None}
    asked = {"groups": [group]} if version >= 8 else group

    def topics() -> list[Struct]:
        reply = handlers.ask(ApiKey.OFFSET_FETCH, asked, version)
        found: list[Struct] = (reply.groups[0] if version >= 8 else reply).topics
        return found

    [topic] = topics()
    assert (topic.topic_id if version >= 10 else topic.name) in (ORDERS, "orders")
    assert topic.partitions[0].committed_offset == 42
    handlers.deny(Operation.DESCRIBE, "orders")
    assert topics() == []


def test_each_group_has_its_own_error() -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, commit(42))
    handlers.deny(Operation.DESCRIBE, "secret")
    asked = {"groups": [{"group_id": one, "topics": None} for one in ("g", "secret", "none")]}
    groups = handlers.ask(ApiKey.OFFSET_FETCH, asked, 9).groups
    assert [one.error_code for one in groups] == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED, 0]
    assert [len(one.topics) for one in groups] == [1, 0, 0]


@pytest.mark.feature("E10")
@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_while_the_shard_loads_fetches_fail(version: int) -> None:
    handlers = GroupBroker()
    handlers.groups.failure = TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")
    topics = [{**key(version), "partition_indexes": [0]}]
    group = {"group_id": "g", "topics": topics}
    asked = {"groups": [group]} if version >= 8 else group
    reply = handlers.ask(ApiKey.OFFSET_FETCH, asked, version)
    said = reply.groups[0].error_code if version >= 8 else reply.error_code
    if version == 1:
        said = reply.topics[0].partitions[0].error_code
    assert said == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.feature("L10")
@pytest.mark.parametrize(("version", "stable_only"), [(6, False), (7, True), (8, True), (10, True)])
def test_a_position_that_is_about_to_move(version: int, stable_only: bool) -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, txn_commit(43))
    [row] = fetched(handlers, version, stable_only=stable_only)
    assert row.committed_offset == -1
    assert row.error_code == (ErrorCode.UNSTABLE_OFFSET_COMMIT if stable_only else 0)
    handlers.groups.world.end_transaction(PRODUCER, commits=True)
    [row] = fetched(handlers, version, stable_only=stable_only)
    assert row.committed_offset == 43


# -- TxnOffsetCommit


def in_transaction(**fields: object) -> dict[str, Any]:
    producer = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0}
    return {**committing(5, **fields), **producer}


@pytest.mark.feature("L10")
@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_a_position_in_a_transaction(version: int) -> None:
    handlers = GroupBroker()
    assert codes(handlers.ask(ApiKey.TXN_OFFSET_COMMIT, in_transaction(), version)) == [0]
    [asked] = handlers.groups.asked
    assert isinstance(asked, TxnOffsetCommit)
    assert (asked.abortable_known, asked.transactions_v2) == (version >= 4, version >= 5)
    handlers.groups.world.end_transaction(PRODUCER, commits=True)
    [row] = fetched(handlers, 9)
    assert row.committed_offset == 42


@pytest.mark.parametrize(
    ("operation", "name", "error_code"),
    [
        (Operation.WRITE, "t", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Operation.READ, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Operation.READ, "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_transaction_is_guarded_thrice(
    operation: Operation, name: str, error_code: ErrorCode
) -> None:
    handlers = GroupBroker()
    handlers.deny(operation, name)
    assert codes(handlers.ask(ApiKey.TXN_OFFSET_COMMIT, in_transaction())) == [error_code]


@pytest.mark.parametrize(
    ("version", "error_code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_producers_do_not_know_of_loading(version: int, error_code: ErrorCode) -> None:
    handlers = GroupBroker()
    handlers.groups.failure = TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")
    assert codes(handlers.ask(ApiKey.TXN_OFFSET_COMMIT, in_transaction(), version)) == [error_code]


def test_a_transaction_names_a_group() -> None:
    nameless = {**in_transaction(), "group_id": ""}
    refused = GroupBroker().ask(ApiKey.TXN_OFFSET_COMMIT, nameless)
    assert codes(refused) == [ErrorCode.INVALID_GROUP_ID]


def test_a_transaction_of_a_former_generation_is_refused() -> None:
    handlers = GroupBroker()
    stable(handlers.groups.world, "a")
    asked = in_transaction(member_id="a", generation_id=0)
    refused = handlers.ask(ApiKey.TXN_OFFSET_COMMIT, asked)
    assert codes(refused) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_a_topic_of_a_refused_transaction_keeps_its_error(version: int) -> None:
    handlers = GroupBroker()
    handlers.deny(Operation.READ, "secret")
    handlers.groups.failure = TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")
    asked = {**in_transaction(), **committing(5, "secret", "orders")}
    loading = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if version >= 2
        else ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    reply = handlers.ask(ApiKey.TXN_OFFSET_COMMIT, asked, version)
    assert codes(reply) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, loading]


# -- OffsetDelete


def deleting(*names: str) -> dict[str, object]:
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
    return {"group_id": "g", "topics": topics}


def test_positions_are_deleted() -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, commit(42))
    reply = handlers.ask(ApiKey.OFFSET_DELETE, deleting("gone", "orders"))
    assert reply.error_code == 0
    assert codes(reply) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert fetched(handlers, 9)[0].committed_offset == -1


def test_positions_in_partitions_that_do_not_exist_are_not_deleted() -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, commit(42))
    partitions = [{"partition_index": number} for number in (3, 4)]
    asked = {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]}
    reply = handlers.ask(ApiKey.OFFSET_DELETE, asked)
    assert codes(reply) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_deleting_is_guarded() -> None:
    handlers = GroupBroker()
    assert handlers.ask(ApiKey.OFFSET_DELETE, deleting("orders")).error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
    nameless = {**deleting("orders"), "group_id": ""}
    reply = handlers.ask(ApiKey.OFFSET_DELETE, nameless)
    assert reply.error_code == ErrorCode.INVALID_GROUP_ID
    handlers.deny(Operation.DELETE, "g")
    reply = handlers.ask(ApiKey.OFFSET_DELETE, deleting("orders"))
    assert reply.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
