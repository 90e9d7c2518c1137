from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import FeedPosition
from tidemark.protocol.feed import FeedSubscriber, Verdict


def at(version: int, epoch: int = 1) -> FeedPosition:
    return FeedPosition(ControllerEpoch(epoch), version)


def test_a_subscriber_refuses_gaps_early_deltas_and_older_controllers() -> None:
    one = FeedSubscriber()
    assert one.judge(at(1), is_snapshot=False) is Verdict.GAP
    assert one.judge(at(3), is_snapshot=True) is Verdict.APPLY
    one.applied(at(3))
    assert one.judge(at(5), is_snapshot=False) is Verdict.GAP
    assert one.judge(at(4), is_snapshot=False) is Verdict.APPLY
    one.applied(at(4))
    one.subscribed()
    assert one.judge(at(9, 0), is_snapshot=True) is Verdict.OLDER_CONTROLLER
    assert one.judge(at(4), is_snapshot=True) is Verdict.KNOWN
    assert one.position == at(4)


def test_an_update_that_was_not_applied_is_not_known() -> None:
    one = FeedSubscriber()
    assert one.judge(at(3), is_snapshot=True) is Verdict.APPLY
    one.subscribed()
    assert one.judge(at(3), is_snapshot=True) is Verdict.APPLY
