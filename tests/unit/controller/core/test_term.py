from dataclasses import replace

from controller.core.cluster import PutBroker, StoredCluster
from controller.core.effects import RemoveLiveZnode, Reply
from controller.core.inputs import (
    AllocateProducerIds,
    Elected,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    RequestHeader,
)
from controller.core.limits import Limits
from controller.core.term import ActiveTerm
from controller.core.topics import TopicDefaults
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, ControllerEpoch, ControllerId, InstantMs
from tidemark.model.metadata import TopicImage
from unit.controller.worlds import NEVER, a_broker, a_topic, listing

ONE, TWO = a_broker(1), a_broker(2)
START = InstantMs(1_000)


def a_term(*topics: TopicImage, limits: Limits = Limits()) -> ActiveTerm:  # noqa: B008
    """Return a term whose two brokers have a session and a stream."""
    stored = StoredCluster("tide", (ONE, TWO), topics)
    elected = Elected(ControllerId(9), ControllerEpoch(5), stored, listing(1, ONE, TWO))
    term = ActiveTerm(elected, TopicDefaults(), limits, START)
    for broker in (ONE, TWO):
        term.on_feed(FeedRegained(broker.broker_epoch), START)
    return term


def after(milliseconds: int) -> InstantMs:
    return InstantMs(START + milliseconds)


def test_a_change_is_in_the_image_once_it_is_applied() -> None:
    term = a_term()
    term.see_brokers(listing(2, TWO))
    change = term.due_change(START)
    assert change is not None
    (op,) = term.store_ops(change)
    assert isinstance(op, PutBroker)
    assert not term.image.brokers[ONE.broker_id].fenced
    term.apply(change)
    assert term.image.brokers[ONE.broker_id].fenced
    term.check(is_idle=True)


def test_an_outdated_listing_is_ignored() -> None:
    term = a_term()
    term.see_brokers(listing(0))
    assert term.due_change(START) is None


def test_a_broker_whose_stream_stays_lost_loses_its_live_znode() -> None:
    term, fence_ms = a_term(), Limits().feed_lost_fence_ms
    term.on_feed(FeedLost(ONE.broker_epoch), START)
    assert term.fence_silent(after(fence_ms - 1)) == []
    assert term.next_deadline(START) == after(fence_ms)
    removed = RemoveLiveZnode(ONE.broker_id, ONE.incarnation_id)
    assert term.fence_silent(after(fence_ms)) == [removed]


def test_a_broker_with_a_session_that_never_had_a_stream_loses_its_live_znode() -> None:
    three, patience_ms = a_broker(3), Limits().no_subscriber_resign_ms
    stored = StoredCluster("tide", (ONE, TWO, three))
    elected = Elected(ControllerId(9), ControllerEpoch(5), stored, listing(1, ONE, TWO, three))
    term = ActiveTerm(elected, TopicDefaults(), Limits(), START)
    for broker in (ONE, TWO):
        term.on_feed(FeedRegained(broker.broker_epoch), START)
    assert term.fence_silent(START) == []
    removed = RemoveLiveZnode(three.broker_id, three.incarnation_id)
    assert term.fence_silent(after(patience_ms)) == [removed]


def test_a_term_without_streams_ends_a_lease_later() -> None:
    term, lease_ms = a_term(), Limits().lease_ms
    for broker in (ONE, TWO):
        term.on_feed(FeedLost(broker.broker_epoch), START)
    assert not term.should_resign(after(lease_ms - 1))
    assert term.should_resign(after(lease_ms))


def test_a_request_after_its_deadline_changes_nothing() -> None:
    request = AllocateProducerIds(RequestHeader(7, START), ONE.broker_id, ONE.broker_epoch)
    change, reply = a_term().decide(request, START)
    assert isinstance(reply, Reply)
    assert (change, reply.request_id, reply.error) == (None, 7, ErrorCode.REQUEST_TIMED_OUT)


def test_a_refused_request_changes_nothing() -> None:
    request = AllocateProducerIds(RequestHeader(7, NEVER), a_broker(3).broker_id, ONE.broker_epoch)
    change, reply = a_term().decide(request, START)
    assert isinstance(reply, Reply)
    assert (change, reply.error) == (None, ErrorCode.BROKER_ID_NOT_REGISTERED)


def test_preferred_leaders_return_in_parts_without_another_interval_between_them() -> None:
    whole = a_topic("a", *[(1, 2)] * 3)
    led = tuple(replace(one, leader=TWO.broker_id) for one in whole.partitions)
    limits = Limits(elections_at_once=1, rebalance_interval_ms=1_000)
    term, leaderless = a_term(replace(whole, partitions=led), limits=limits), []
    while (change := term.due_change(after(1_000))) is not None:
        term.apply(change)
        leaders = [one.leader for one in term.image.topics["a"].partitions]
        leaderless.append(leaders.count(NO_BROKER))
        term.on_feed(FeedAcknowledged(TWO.broker_epoch, term.image.position), after(1_000))
    assert leaders == [ONE.broker_id] * 3
    assert leaderless == [1, 0] * 3, "each is led before the next one is without a leader"
