"""The type of a group id: share groups against groups of the other types."""

from dataclasses import replace
from typing import Any

import pytest
from broker.core.groups.id_requests import (
    CoordinatorRequest,
    GroupIdReply,
    HasShareGroup,
    ReleaseGroupId,
    ReserveGroupId,
    ShareGroupLookedUp,
)
from broker.core.groups.name_limits import NAME_BYTES_MAX
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DeleteGroup,
    DescribeGroup,
    DescribeGroupReply,
    FetchedOffset,
    GroupRequest,
    HeartbeatReply,
    JoinGroupReply,
    OffsetFetchReply,
)
from broker.core.groups.reserved_ids import FOUND_FOR_MS, PARKED_MAX, RESERVATION_MIN_MS
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    ME,
    World,
    beat,
    commit,
    fetch,
    join,
    left,
    stable,
    txn_commit,
)

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def consumer(epoch: int = 0) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id="g",
        member_id="m",
        new_member_id="",
        requester=ME,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )


OF_CONSUMERS: dict[str, tuple[GroupRequest, ErrorCode]] = {
    "JoinGroup": (join(), INCONSISTENT),
    "ConsumerGroupHeartbeat": (consumer(), NOT_FOUND),
    "OffsetCommit": (commit(5), NOT_FOUND),
    "TxnOffsetCommit": (txn_commit(5), NOT_FOUND),
}


def changed(world: World, request: CoordinatorRequest) -> ErrorCode:
    return world.ask(request, GroupIdReply).error_code


def reserved(*, owner_epoch: int = 0, wait_ms: int = RESERVATION_MIN_MS) -> World:
    """The id ``g`` was reserved for a share group ``wait_ms`` ago."""
    world = World()
    assert changed(world, ReserveGroupId("g", owner_epoch)) is ErrorCode.NONE
    world.pass_time(wait_ms)
    return world


def look_up(world: World, *, exists: bool | None) -> None:
    """The shell's look-up of ``g`` ends."""
    assert world.look_ups == ["g"]
    world.look_ups.clear()
    world.send(ShareGroupLookedUp("g", exists))
    world.pass_time(0)


# -- reservations


def test_an_id_is_reserved_in_the_log_once() -> None:
    world = reserved()
    assert changed(world, ReserveGroupId("g")) is ErrorCode.NONE
    assert len(world.log) == 1
    world.fail_over()
    assert changed(world, ReserveGroupId("g")) is ErrorCode.NONE
    assert len(world.log) == 1


@pytest.mark.parametrize("members", [("a",), ()])
def test_an_id_of_another_type_is_not_reserved(members: tuple[str, ...]) -> None:
    world = World()
    stable(world, "a")
    if not members:
        left(world, "a")
    assert changed(world, ReserveGroupId("g")) is NOT_FOUND
    assert changed(world, ReserveGroupId("h")) is ErrorCode.NONE


def test_an_id_with_offsets_alone_is_not_reserved() -> None:
    world = World()
    world.send(commit(5))
    assert changed(world, ReserveGroupId("g")) is NOT_FOUND


@pytest.mark.parametrize("group_id", ["", "g" * (NAME_BYTES_MAX + 1)])
def test_an_id_that_no_record_can_have_is_refused(group_id: str) -> None:
    assert changed(World(), ReserveGroupId(group_id)) is ErrorCode.INVALID_GROUP_ID


def test_a_released_id_is_free_for_other_types() -> None:
    world = reserved(wait_ms=0)
    assert changed(world, ReleaseGroupId("g")) is ErrorCode.NONE
    world.fail_over()
    assert stable(world, "a") == 1


def test_the_release_of_an_earlier_owner_is_ignored() -> None:
    world = reserved(owner_epoch=4)
    changed(world, ReserveGroupId("g", 5))
    assert changed(world, ReleaseGroupId("g", 4)) is ErrorCode.NONE
    world.fail_over()
    assert world.error_of(world.send(join())) is INCONSISTENT
    changed(world, ReleaseGroupId("g", 5))
    assert world.error_of(world.send(join())) is None


def test_a_release_of_an_id_that_is_not_reserved_changes_nothing() -> None:
    world = World()
    assert changed(world, ReleaseGroupId("g")) is ErrorCode.NONE
    assert world.log == []


# -- requests with which consumers begin to use an id


@pytest.mark.parametrize("request_name", OF_CONSUMERS)
def test_the_id_of_a_new_share_group_is_refused_at_once(request_name: str) -> None:
    request, code = OF_CONSUMERS[request_name]
    world = reserved(wait_ms=RESERVATION_MIN_MS - 1)
    assert world.error_of(world.send(request)) is code
    assert world.look_ups == []


@pytest.mark.parametrize("request_name", OF_CONSUMERS)
def test_the_id_of_a_share_group_is_refused_once_the_group_is_found(request_name: str) -> None:
    request, code = OF_CONSUMERS[request_name]
    world = reserved()
    request_id = world.send(request)
    assert world.error_of(request_id) is None
    look_up(world, exists=True)
    assert world.error_of(request_id) is code


@pytest.mark.parametrize("request_name", OF_CONSUMERS)
def test_without_a_share_coordinator_clients_are_to_try_again(request_name: str) -> None:
    world = reserved()
    request_id = world.send(OF_CONSUMERS[request_name][0])
    look_up(world, exists=None)
    assert world.error_of(request_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_id_whose_share_group_never_existed_is_taken_back() -> None:
    world = reserved()
    request_id = world.send(consumer())
    look_up(world, exists=False)
    reply = world.answer(request_id, ConsumerGroupHeartbeatReply)
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, 1)
    world.fail_over()
    assert changed(world, ReserveGroupId("g")) is NOT_FOUND


def test_offsets_of_a_transaction_are_not_committed_after_a_look_up() -> None:
    """Their transaction was verified before it, and may have ended since."""
    world = reserved()
    request_id = world.send(txn_commit(5))
    look_up(world, exists=False)
    assert world.error_of(request_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not any(writer for _, writer, _ in world.log)
    assert world.error_of(world.send(txn_commit(5))) is ErrorCode.NONE


def test_an_id_that_is_reserved_again_during_the_look_up_stays_reserved() -> None:
    world = reserved()
    request_id = world.send(join())
    changed(world, ReserveGroupId("g"))
    look_up(world, exists=False)
    assert world.error_of(request_id) is INCONSISTENT


def test_an_id_that_is_released_during_the_look_up_is_free() -> None:
    world = reserved()
    request_id = world.send(join())
    changed(world, ReleaseGroupId("g"))
    look_up(world, exists=None)
    assert world.answer(request_id, JoinGroupReply).error_code is ErrorCode.NONE


def test_requests_share_a_look_up_and_its_result_holds_for_a_while() -> None:
    world = reserved()
    first, second = world.send(join()), world.send(commit(5))
    look_up(world, exists=True)
    assert (world.error_of(first), world.error_of(second)) == (INCONSISTENT, NOT_FOUND)
    world.pass_time(FOUND_FOR_MS - 1)
    assert world.error_of(world.send(join())) is INCONSISTENT
    world.pass_time(1)
    assert world.error_of(world.send(join())) is None


def test_after_a_load_an_id_stays_reserved_for_a_while() -> None:
    world = reserved()
    world.fail_over()
    assert world.error_of(world.send(join())) is INCONSISTENT


def test_parked_requests_are_bounded() -> None:
    world = reserved()
    for _ in range(PARKED_MAX):
        world.send(commit(5))
    assert world.error_of(world.send(join())) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- other requests that name a share group


@pytest.mark.parametrize("wait_ms", [0, RESERVATION_MIN_MS])
@pytest.mark.parametrize("member", [{}, {"member_id": "m", "member_epoch": 3}])
def test_a_share_group_has_no_committed_offsets(wait_ms: int, member: dict[str, Any]) -> None:
    """As in Kafka: no error, whoever asks and whether or not the group was ever created."""
    world = reserved(wait_ms=wait_ms)
    some = world.ask(replace(fetch(), **member), OffsetFetchReply)
    assert some.error_code is ErrorCode.NONE
    assert [topic.offsets for topic in some.topics] == [
        (FetchedOffset(0, -1, -1, "", ErrorCode.NONE),)
    ]
    every = world.ask(replace(fetch(), topics=None, **member), OffsetFetchReply)
    assert every == OffsetFetchReply(error_code=ErrorCode.NONE)
    assert world.look_ups == []


def test_a_share_group_is_no_classic_group() -> None:
    reply = reserved().ask(DescribeGroup("g"), DescribeGroupReply)
    assert (reply.error_code, reply.state) == (NOT_FOUND, "Dead")
    assert reply.error_message == "Group g is not a classic group."
    consumer = reserved().ask(ConsumerGroupDescribe("g"), ConsumerGroupDescribeReply)
    assert (consumer.error_code, consumer.group_id) == (NOT_FOUND, "g")
    assert consumer.error_message == "Group g is not a consumer group."


def test_a_share_group_is_deleted_elsewhere() -> None:
    world = reserved()
    world.ask(DeleteGroup("g"), HasShareGroup)
    assert len(world.log) == 1


def test_a_member_of_a_share_group_is_unknown_to_the_classic_protocol() -> None:
    assert reserved().ask(beat("m", 1), HeartbeatReply).error_code is ErrorCode.UNKNOWN_MEMBER_ID
