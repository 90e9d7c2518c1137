from share_coordinator.core.member import ShareMember, epoch_problem
from share_coordinator.core.requests import ShareGroupHeartbeat
from tidemark.model.assignment import by_topic
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import joining

TARGET = by_topic([(topic_id(1), 0)])
MEMBER = ShareMember("m").updated_by(
    joining("m", "u", "t", rack_id="r", client_id="c", client_host="/h")
)


def beat(**said: object) -> ShareGroupHeartbeat:
    return ShareGroupHeartbeat(
        group_id="jobs",
        member_id="m",
        member_epoch=1,
        client_id="c",
        client_host="/h",
        **said,  # type: ignore[arg-type]
    )


def test_what_a_heartbeat_leaves_out_stays() -> None:
    assert MEMBER.updated_by(beat()) is MEMBER
    assert MEMBER.subscription == ("t", "u")
    assert MEMBER.updated_by(beat(subscribed_topic_names=("x",))).about.rack_id == "r"


def test_an_epoch_is_reached_once() -> None:
    moved = MEMBER.moved_to(3, TARGET)
    assert (moved.member_epoch, moved.previous_epoch, moved.assigned) == (3, 0, TARGET)
    assert moved.moved_to(3, {}) is moved


def test_the_log_has_all_of_it() -> None:
    moved = MEMBER.moved_to(3, TARGET)
    assert ShareMember("m", moved.about).with_value(moved.as_value()) == moved


def test_the_epoch_and_the_one_before_it_are_accepted() -> None:
    moved = MEMBER.moved_to(3, TARGET).moved_to(7, TARGET)
    assert [epoch for epoch in range(10) if epoch_problem(moved, epoch) is None] == [0, 3, 7]
    assert "member epoch 8 is greater than 7" in str(epoch_problem(moved, 8))
    assert "member epoch 5 is smaller than 7" in str(epoch_problem(moved, 5))
