"""Admission of heartbeats."""

import pytest
from broker.core.groups.consumer.admission import Refused, request_problem
from broker.core.groups.requests import ConsumerGroupHeartbeat, GroupSettings
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.consumer.worlds import World, heartbeat, joining, said, topic_id

A = topic_id(1)
OWNED = said([(A, 0)])


def str_of_request(request: ConsumerGroupHeartbeat) -> str:
    return f"{request.member_id[:8]}-{request.member_epoch}"


@pytest.mark.parametrize(
    "request_",
    [
        joining("m", "a", group_id=""),
        joining("m", "a", instance_id=""),
        joining("m", "a", rack_id=""),
        joining("m", "a", rebalance_timeout_ms=-1),
        joining("m", "a", rebalance_timeout_ms=-2),
        joining("m", "a", topic_partitions=None),
        joining("m", "a", topic_partitions=OWNED),
        joining("m", subscribed_topic_names=None),
        heartbeat("", 3),
        heartbeat("", -1),
        heartbeat("", -2, instance_id="i"),
        heartbeat("m", -2),
        heartbeat("m", -3),
        heartbeat("m" * 32_768, 3),
        joining("é" * 16_384, "a"),
        joining("m", *(f"{number:0200}" for number in range(6_000))),
    ],
    ids=str_of_request,
)
def test_a_request_that_makes_no_sense_is_invalid(request_: ConsumerGroupHeartbeat) -> None:
    refused = request_problem(request_, GroupSettings())
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        joining("m"),
        joining("", "a"),
        joining("m", subscribed_topic_names=None, subscribed_topic_regex="a.*"),
        joining("m", "a", server_assignor="range"),
        heartbeat("m", 3),
        heartbeat("m", -1),
        heartbeat("m", -2, instance_id="i"),
    ],
)
def test_other_requests_are_judged_by_their_group(request_: ConsumerGroupHeartbeat) -> None:
    assert request_problem(request_, GroupSettings()) is None


def test_an_assignor_that_is_not_configured_is_not_supported() -> None:
    settings = GroupSettings(group_consumer_assignors=("uniform",))
    refused = request_problem(joining("m", "a", server_assignor="range"), settings)
    assert refused == Refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, "assignor range is not supported: use uniform"
    )


def test_a_bad_pattern_is_refused() -> None:
    refused = request_problem(joining("m", subscribed_topic_regex="(a"), GroupSettings())
    assert refused == Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "missing )")


@pytest.fixture
def world() -> World:
    """Member ``m``, and static member ``s`` with instance id ``i``, both stable."""
    world = World(a=4)
    world.join("m", "a")
    world.join("s", "a", instance_id="i")
    world.settle("m", "s")
    return world


def test_a_member_nobody_knows_is_told_so(world: World) -> None:
    assert world.beat("x", 1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("x", -1).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_nobody_knows_is_told_so(world: World) -> None:
    assert world.beat("s", 1, instance_id="x").error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("E14")
@pytest.mark.parametrize("off", [-1, 1])
def test_another_epoch_is_fenced(world: World, off: int) -> None:
    reply = world.beat("m", world.epoch_of("m") + off)
    assert reply.error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_refused_heartbeat_does_not_keep_the_session(world: World) -> None:
    world.sleep(44_000)
    world.beat("m", 1_000)
    world.sleep(1_000)
    assert "m" not in world.group.logged.members


def test_the_epoch_before_is_good_while_the_answer_may_be_lost() -> None:
    world = World(a=4)
    first = world.join("m", "a")
    world.join("n", "a")
    gave_up = said(world.has("m") - {(A, 3)})
    world.beat("m", first.member_epoch, topic_partitions=gave_up[:2])
    again = world.beat("m", first.member_epoch, topic_partitions=gave_up[:2])
    assert again.error_code is ErrorCode.NONE
    assert again.member_epoch > first.member_epoch


def test_an_instance_id_in_use_is_not_given_away(world: World) -> None:
    reply = world.join("t", "a", instance_id="i")
    assert reply.error_code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_an_instance_id_that_its_holder_released_for_a_while_is_taken_over(world: World) -> None:
    had = world.has("s")
    world.beat("s", -2, instance_id="i")
    world.join("t", "a", instance_id="i")
    assert world.has("t") == had
    assert "s" not in world.group.logged.members


@pytest.mark.feature("E14")
def test_who_lost_its_instance_id_is_fenced(world: World) -> None:
    world.beat("s", -2, instance_id="i")
    world.join("t", "a", instance_id="i")
    reply = world.beat("s", 2, instance_id="i")
    assert reply.error_code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_under_its_old_member_id(world: World) -> None:
    had = world.has("s")
    world.beat("s", -2, instance_id="i")
    assert world.join("s", "a", instance_id="i").error_code is ErrorCode.NONE
    assert world.has("s") == had


def test_a_static_member_that_did_not_hear_it_has_joined_joins_again(world: World) -> None:
    assert world.join("s", "a", instance_id="i").error_code is ErrorCode.NONE


def test_a_member_that_joins_again_says_it_owns_nothing_and_is_given_its_target(
    world: World,
) -> None:
    before = world.epoch_of("m")
    reply = world.join("m", "a")
    assert reply.error_code is ErrorCode.NONE
    assert reply.member_epoch >= before
    assert reply.assignment is not None


def test_a_full_group_takes_no_more_but_returning_static_members() -> None:
    world = World(GroupSettings(group_consumer_max_size=1), a=1)
    world.join("s", "a", instance_id="i")
    assert world.join("n", "a").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    world.beat("s", -2, instance_id="i")
    assert world.join("t", "a", instance_id="i").error_code is ErrorCode.NONE


def test_a_member_without_id_gets_one() -> None:
    world = World(a=1)
    assert world.join("", "a").member_id == "new-"
