import struct
from typing import Any

import pytest
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.group_answers import classic_assignment
from tidemark.client.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    TransactionalIdNotFoundError,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import run
from unit.tidemark.client.memory_groups import Member, MemoryGroups
from unit.tidemark.client.memory_transactions import MemoryTransactions
from unit.tidemark.client.memory_transport import MemoryTransport

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
ASSIGNMENT = struct.pack(">hih1siii", 0, 1, 1, b"t", 2, 0, 1) + struct.pack(">i", -1)


def cluster() -> MemoryGroups:
    return MemoryTransactions(MemoryTransport(partitions=2))


def admin_on(memory: MemoryGroups) -> Admin:
    admin = Admin("memory:1", retry_backoff_ms=1, retry_backoff_max_ms=2)
    admin._session.kafka = memory.kafka  # type: ignore[method-assign]
    return admin


def consumer_described(request: Any) -> dict[str, Any]:
    assignment = {"topic_partitions": [{"topic_name": "t", "partitions": [1, 0]}]}
    member = {"member_id": "m", "member_epoch": 4, "client_id": "c", "client_host": "/1.2.3.4"}
    group = {
        "group_id": request.group_ids[0],
        "group_state": "Stable",
        "group_epoch": 5,
        "assignor_name": "uniform",
        "members": [
            {**member, "assignment": assignment, "member_type": 1},
            {**member, "member_id": "n", "member_type": 0},
        ],
    }
    return {"groups": [group]}


def no_consumer_group(request: Any) -> dict[str, Any]:
    code = ErrorCode.GROUP_ID_NOT_FOUND
    return {"groups": [{"group_id": request.group_ids[0], "error_code": code}]}


def classic_described(request: Any) -> dict[str, Any]:
    state = "Stable" if request.groups[0] == "old" else "Dead"
    member = {"member_id": "m", "member_assignment": ASSIGNMENT}
    group = {"group_id": request.groups[0], "group_state": state, "protocol_data": "range"}
    return {"groups": [{**group, "members": [member]}]}


def test_a_group_of_either_protocol_is_described() -> None:
    memory = cluster()

    async def work() -> None:
        async with admin_on(memory) as admin:
            memory.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = consumer_described
            new = (await admin.describe_groups(["new"]))["new"]
            assert (new.kind, new.state, new.epoch) == ("consumer", "Stable", 5)
            assert not new.is_quiet
            assert new.members[0].assignment == (ZERO, ONE)
            assert [one.protocol for one in new.members] == ["consumer", "classic"]
            memory.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = no_consumer_group
            memory.handlers[ApiKey.DESCRIBE_GROUPS] = classic_described
            old = (await admin.describe_groups(["old"]))["old"]
            assert (old.kind, old.assignor) == ("classic", "range")
            assert old.members[0].assignment == (ZERO, ONE)
            assert old.members[0].protocol == "classic"
            with pytest.raises(GroupNotFoundError, match="tidemark group list"):
                await admin.describe_groups(["missing"])

    run(work())


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\0\0\0\0\1", b"\xff" * 40])
def test_an_assignment_of_another_protocol_is_none(content: bytes) -> None:
    assert classic_assignment(content) == ()


def test_the_group_of_consumers_without_a_groups_name_is_described() -> None:
    """KIP-848 knows no empty id; the commits of such consumers have it all the same."""
    memory = cluster()

    def no_name(request: Any) -> dict[str, Any]:
        code = ErrorCode.INVALID_GROUP_ID
        return {"groups": [{"group_id": request.group_ids[0], "error_code": code}]}

    def simple(request: Any) -> dict[str, Any]:
        return {"groups": [{"group_id": request.groups[0], "group_state": "Empty"}]}

    async def work() -> None:
        async with admin_on(memory) as admin:
            memory.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = no_name
            memory.handlers[ApiKey.DESCRIBE_GROUPS] = simple
            nameless = (await admin.describe_groups([""]))[""]
            assert (nameless.kind, nameless.is_quiet) == ("classic", True)

    run(work())


def test_offsets_of_a_quiet_group_are_moved_and_read_and_of_a_live_one_not() -> None:
    memory = cluster()

    async def work() -> None:
        async with admin_on(memory) as admin:
            await admin.alter_group_offsets("g", {ZERO: 3, ONE: 4})
            found = await admin.list_group_offsets("g", [ZERO, ONE])
            assert [each.offset for each in found.values()] == [3, 4]
            memory.members["m"] = Member()
            with pytest.raises(GroupNotEmptyError, match="has members"):
                await admin.alter_group_offsets("g", {ZERO: 0})

    run(work())


def test_stable_offsets_wait_for_the_transaction_that_has_others_pending() -> None:
    memory = cluster()
    pending = 2

    def fetched(request: Any) -> dict[str, Any]:
        nonlocal pending
        is_unstable = request.require_stable and pending > 0
        pending -= request.require_stable
        found = {"partition_index": 0, "committed_offset": 3, "metadata": ""}
        if is_unstable:
            found |= {"committed_offset": -1, "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT}
        topics = [{"name": "t", "partitions": [found]}]
        return {"topics": topics, "groups": [{"group_id": "g", "topics": topics}]}

    memory.handlers[ApiKey.OFFSET_FETCH] = fetched

    async def work() -> None:
        async with admin_on(memory) as admin:
            now = await admin.list_group_offsets("g", [ZERO])
            assert (now[ZERO].offset, pending) == (3, 2)
            stable = await admin.list_group_offsets("g", [ZERO], require_stable=True)
            assert (stable[ZERO].offset, pending) == (3, -1)

    run(work())


def test_deleting_tells_what_stands_against_it() -> None:
    memory = cluster()
    memory.handlers[ApiKey.DELETE_GROUPS] = lambda request: {
        "results": [{"group_id": "g", "error_code": ErrorCode.NON_EMPTY_GROUP}]
    }
    memory.handlers[ApiKey.OFFSET_DELETE] = lambda request: {
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "error_code": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
                ],
            }
        ]
    }

    async def work() -> None:
        async with admin_on(memory) as admin:
            with pytest.raises(GroupNotEmptyError, match="stop the group's consumers"):
                await admin.delete_groups(["g"])
            with pytest.raises(GroupNotEmptyError):
                await admin.delete_group_offsets("g", [ZERO])

    run(work())


def test_transactions_are_described_and_fenced_by_their_coordinator() -> None:
    memory = cluster()
    memory.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = transaction_described

    async def work() -> None:
        async with admin_on(memory) as admin:
            found = (await admin.describe_transactions(["x"]))["x"]
            assert (found.state, found.producer_id, found.partitions) == ("Ongoing", 7, (ZERO, ONE))
            await admin.fence_producers(["x"])
            with pytest.raises(TransactionalIdNotFoundError):
                await admin.describe_transactions(["missing"])

    run(work())
    kinds = [request.key_type for request in memory.requests(ApiKey.FIND_COORDINATOR)]
    assert kinds == [1, 1, 1]


def transaction_described(request: Any) -> dict[str, Any]:
    (name,) = request.transactional_ids
    code = 0 if name == "x" else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    state = {
        "transactional_id": name,
        "error_code": code,
        "transaction_state": "Ongoing",
        "producer_id": 7,
        "topics": [{"topic": "t", "partitions": [1, 0]}],
    }
    return {"transaction_states": [state]}
