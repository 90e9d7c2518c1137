"""Heartbeats of a member of a share group."""

import pytest
from tidemark.client.errors import GroupNotFoundError, RequestTimedOutError
from tidemark.client.share.share_membership import (
    MemberState,
    ShareHeartbeatAnswer,
    ShareMemberSettings,
    ShareMembership,
)
from tidemark.model.errors import ErrorCode

PARTITIONS = frozenset({(b"t" * 16, 0)})
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def member() -> ShareMembership:
    one = ShareMembership(ShareMemberSettings("g", "m", "rack"))
    one.subscribe(("t",), 0)
    return one


def answer(code: int = 0, epoch: int = 3) -> ShareHeartbeatAnswer:
    assigned = None if code else PARTITIONS
    return ShareHeartbeatAnswer(code, epoch, 5_000, assigned)


def joined() -> ShareMembership:
    one = member()
    one.heartbeat()
    one.on_answer(answer(), 10)
    one.check()
    return one


def test_the_first_heartbeat_joins_with_all_fields() -> None:
    one = member()
    assert one.due_at() == 0
    assert one.heartbeat() == {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rack_id": "rack",
        "subscribed_topic_names": ["t"],
    }
    assert one.due_at() is None


def test_an_answer_brings_epoch_assignment_and_interval() -> None:
    one = joined()
    assert (one.state, one.member_epoch, one.assigned) == (MemberState.MEMBER, 3, PARTITIONS)
    assert one.due_at() == 5_010
    assert one.heartbeat() == {"group_id": "g", "member_id": "m", "member_epoch": 3}


def test_an_assignment_stays_until_there_is_another() -> None:
    one = joined()
    one.heartbeat()
    one.on_answer(ShareHeartbeatAnswer(0, 3, 5_000, None), 20)
    assert one.assigned == PARTITIONS
    one.heartbeat()
    one.on_answer(ShareHeartbeatAnswer(0, 4, 5_000, frozenset()), 30)
    assert one.assigned == frozenset()


def test_a_changed_subscription_is_sent_at_once() -> None:
    one = joined()
    one.subscribe(("u",), 50)
    assert one.due_at() == 50
    assert one.heartbeat()["subscribed_topic_names"] == ["u"]


def test_a_subscription_changed_during_a_heartbeat_follows_it() -> None:
    one = joined()
    one.heartbeat()
    one.subscribe(("u",), 50)
    one.on_answer(answer(), 60)
    assert one.due_at() == 60


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, NOT_FOUND]
)
def test_a_member_that_is_unknown_joins_again(code: ErrorCode) -> None:
    one = joined()
    one.heartbeat()
    one.on_answer(answer(code), 70)
    one.check()
    assert (one.state, one.assigned, one.due_at()) == (MemberState.JOINING, frozenset(), 70)
    assert one.heartbeat()["member_epoch"] == 0


def test_a_group_of_another_type_fails_the_member() -> None:
    one = member()
    one.heartbeat()
    one.on_answer(ShareHeartbeatAnswer(NOT_FOUND, message="Group g is not a share group."), 0)
    one.check()
    assert isinstance(one.failure, GroupNotFoundError)
    assert "Group g is not a share group." in one.failure.message
    assert one.due_at() is None


def test_after_a_missing_answer_all_fields_are_sent_again() -> None:
    one = joined()
    one.heartbeat()
    one.on_unanswered(90)
    assert one.due_at() == 90
    assert one.heartbeat()["subscribed_topic_names"] == ["t"]


def test_leaving_says_so_once() -> None:
    one = joined()
    assert one.leaving() == {"group_id": "g", "member_id": "m", "member_epoch": -1}
    assert one.leaving() is None
    one.check()


def test_a_member_that_never_asked_leaves_silently() -> None:
    assert member().leaving() is None


def test_a_member_that_does_not_poll_leaves_and_joins_with_the_next_poll() -> None:
    one = joined()
    assert one.go_away() is not None
    assert not one.is_joined
    one.user_polls(100)
    assert (one.state, one.due_at()) == (MemberState.JOINING, 100)


def test_an_answer_after_leaving_has_no_effect() -> None:
    one = joined()
    one.heartbeat()
    one.leaving()
    one.on_answer(answer(), 0)
    one.check()
    assert one.state is MemberState.UNSUBSCRIBED


def test_a_failed_member_may_subscribe_again() -> None:
    one = joined()
    one.fail(RequestTimedOutError(ErrorCode.REQUEST_TIMED_OUT, "late"))
    one.check()
    one.subscribe(("t",), 5)
    one.check()
    assert one.state is MemberState.JOINING
