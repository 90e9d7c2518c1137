from tidemark.machine.feed import FeedPublisher, FeedSubscriber, Verdict
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, ControllerEpoch
from tidemark.model.metadata import FeedPosition


def at(version: int, epoch: int = 1) -> FeedPosition:
    return FeedPosition(ControllerEpoch(epoch), version)


def test_a_subscriber_refuses_gaps_early_deltas_and_older_controllers() -> None:
    one = FeedSubscriber()
    assert one.judge(at(1), is_snapshot=False) is Verdict.GAP
    assert one.judge(at(3), is_snapshot=True) is Verdict.APPLY
    assert one.judge(at(5), is_snapshot=False) is Verdict.GAP
    assert one.judge(at(4), is_snapshot=False) is Verdict.APPLY
    one.subscribed()
    assert one.judge(at(9, 0), is_snapshot=True) is Verdict.OLDER_CONTROLLER
    assert one.judge(at(4), is_snapshot=True) is Verdict.KNOWN
    assert one.position == at(4)


def test_one_that_is_too_slow_starts_over_with_a_snapshot() -> None:
    feed: FeedPublisher[str] = FeedPublisher(lambda _: True, updates_queued_max=2)
    one = feed.subscribe(BrokerEpoch(1))
    assert one.take(lambda: "all 1") == "all 1"
    assert [bool(feed.publish(str(number))) for number in range(3)] == [False, False, True]
    assert one.take(lambda: "all 2") == "all 2"
    assert one.take(lambda: "all 3") is None


def test_a_stale_broker_epoch_ends_a_subscription() -> None:
    registered = {7}
    feed: FeedPublisher[str] = FeedPublisher(lambda epoch: epoch in registered)
    one = feed.subscribe(BrokerEpoch(7))
    registered.clear()
    feed.publish("8 now")
    assert one.ended is ErrorCode.STALE_BROKER_EPOCH
