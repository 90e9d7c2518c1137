import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.consumer.membership import (
    HeartbeatAnswer,
    MemberSettings,
    Membership,
    MemberState,
    Subscription,
    TopicIdPartition,
)
from tidemark.client.errors import FencedInstanceError
from tidemark.model.errors import ErrorCode

TOPIC = b"t" * 16
INTERVAL_MS = 100


def parts(*numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset((TOPIC, number) for number in numbers)


def member(**settings: object) -> Membership:
    one = Membership(MemberSettings("g", "m", **settings))  # type: ignore[arg-type]
    one.subscribe(Subscription(("t",)), now=0)
    return one


def answer(epoch: int, *numbers: int, same: bool = False) -> HeartbeatAnswer:
    return HeartbeatAnswer(0, epoch, INTERVAL_MS, None if same else parts(*numbers))


def owning(*numbers: int) -> Membership:
    one = member()
    one.heartbeat()
    one.on_answer(answer(1, *numbers), now=0)
    one.assigned(parts(*numbers), now=0)
    one.heartbeat()
    one.on_answer(answer(1, same=True), now=0)
    return one


def test_the_first_heartbeat_tells_all_and_the_next_only_what_changed() -> None:
    one = member(rack="r", assignor="range")
    first = one.heartbeat()
    assert first["member_epoch"] == 0
    assert first["subscribed_topic_names"] == ["t"]
    assert first["topic_partitions"] == []
    one.on_answer(answer(1, same=True), now=5)
    assert one.due_at() == 5 + INTERVAL_MS
    second = one.heartbeat()
    told = [name for name, value in second.items() if value not in (None, -1)]
    assert told == ["group_id", "member_id", "member_epoch"]


def test_what_is_assigned_is_owned_and_acknowledged_at_once() -> None:
    one = member()
    one.heartbeat()
    one.on_answer(answer(1, 0, 1), now=0)
    assert one.wants_user
    one.assigned(one.to_assign, now=7)
    assert one.due_at() == 7
    assert one.heartbeat()["topic_partitions"] == [{"topic_id": TOPIC, "partitions": [0, 1]}]


def test_nothing_new_is_owned_before_the_old_was_given_back() -> None:
    one = owning(0, 1)
    one.heartbeat()
    one.on_answer(answer(1, 1, 2), now=0)
    assert one.to_revoke == parts(0)
    one.revoked(one.to_revoke, now=3)
    assert one.heartbeat()["topic_partitions"] == [{"topic_id": TOPIC, "partitions": [1]}]
    assert one.to_assign == parts(2)


def test_a_lost_answer_makes_the_next_heartbeat_tell_all() -> None:
    one = owning(0)
    one.heartbeat()
    one.on_unanswered(retry_at=50)
    assert one.due_at() == 50
    again = one.heartbeat()
    assert again["topic_partitions"] == [{"topic_id": TOPIC, "partitions": [0]}]
    assert again["subscribed_topic_names"] == ["t"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_has_lost_all_and_joins_again(code: ErrorCode) -> None:
    one = owning(0, 1)
    joins = one.joins
    one.heartbeat()
    one.on_answer(HeartbeatAnswer(code), now=9)
    assert one.lost == parts(0, 1)
    assert one.owned == frozenset()
    assert (one.due_at(), one.member_epoch) == (None, 1), "not before the user knows"
    one.user_polls(now=9)
    assert (one.lost, one.joins) == (frozenset(), joins + 1)
    assert one.heartbeat()["member_epoch"] == 0


def test_other_errors_end_it() -> None:
    one = owning(0)
    one.heartbeat()
    one.on_answer(HeartbeatAnswer(ErrorCode.UNRELEASED_INSTANCE_ID), now=9)
    assert one.state is MemberState.FAILED
    assert isinstance(one.failure, FencedInstanceError)
    assert one.due_at() is None


def test_who_goes_away_leaves_and_the_next_poll_joins() -> None:
    one = owning(0)
    left = one.go_away()
    assert left is not None
    assert left["member_epoch"] == -1
    assert one.lost == parts(0)
    one.user_polls(now=4)
    assert one.state is MemberState.JOINING


def test_a_late_answer_to_a_heartbeat_before_leaving_changes_nothing() -> None:
    one = owning(0)
    one.heartbeat()
    one.leaving()
    one.on_answer(answer(2, 0, 1), now=0)
    assert one.state is MemberState.UNSUBSCRIBED
    assert not one.to_assign


def test_who_never_asked_has_nothing_to_leave() -> None:
    assert member().leaving() is None


def test_a_subscription_changed_while_a_heartbeat_is_under_way_is_told_next() -> None:
    one = owning(0)
    one.heartbeat()
    one.subscribe(Subscription(pattern="t.*"), now=0)
    one.on_answer(answer(1, same=True), now=8)
    assert one.due_at() == 8
    assert one.heartbeat()["subscribed_topic_regex"] == "t.*"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.frozensets(st.integers(0, 4))),
        st.sampled_from([("fence", None), ("lose", None), ("user", None), ("away", None)]),
    ),
    max_size=25,
)


@given(STEPS)
def test_it_never_owns_what_it_was_not_assigned_and_tells_what_it_owns(
    steps: list[tuple[str, frozenset[int] | None]],
) -> None:
    one, epoch, allowed = member(), 0, parts()
    for what, numbers in steps:
        if what == "user":
            one.user_polls(now=0)
            one.revoked(one.to_revoke, now=0)
            one.assigned(one.to_assign, now=0)
        elif what == "away":
            one.go_away()
        elif one.due_at() is not None:
            told = one.heartbeat()["topic_partitions"]
            epoch += 1
            if what == "assign":
                allowed = parts(*(numbers or ()))
                one.on_answer(HeartbeatAnswer(0, epoch, INTERVAL_MS, allowed), now=0)
            elif what == "lose":
                one.on_unanswered(retry_at=0)
            else:
                one.on_answer(HeartbeatAnswer(ErrorCode.FENCED_MEMBER_EPOCH), now=0)
            assert told is None or all(each["topic_id"] == TOPIC for each in told)
        one.check()
        assert one.owned <= allowed | one.to_revoke
