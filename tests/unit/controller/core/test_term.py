from controller.core.cluster import PutBroker, StoredCluster
from controller.core.effects import RemoveLiveZnode
from controller.core.inputs import (
    AllocateProducerIds,
    Elected,
    FeedLost,
    FeedRegained,
    RequestHeader,
)
from controller.core.limits import Limits
from controller.core.term import ActiveTerm
from controller.core.topics import TopicDefaults
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ControllerEpoch, ControllerId, InstantMs
from unit.controller.worlds import NEVER, a_broker, listing

ONE, TWO = a_broker(1), a_broker(2)
START = InstantMs(1_000)


def a_term() -> ActiveTerm:
    """Return a term whose two brokers have a session and a stream."""
    stored = StoredCluster("tide", (ONE, TWO))
    elected = Elected(ControllerId(9), ControllerEpoch(5), stored, listing(1, ONE, TWO))
    term = ActiveTerm(elected, TopicDefaults(), Limits(), START)
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


def test_a_term_without_streams_ends_a_lease_later() -> None:
    term, lease_ms = a_term(), Limits().lease_ms
    for broker in (ONE, TWO):
        term.on_feed(FeedLost(broker.broker_epoch), START)
    assert not term.should_resign(after(lease_ms - 1))
    assert term.should_resign(after(lease_ms))


def test_a_request_after_its_deadline_changes_nothing() -> None:
    request = AllocateProducerIds(RequestHeader(7, START), ONE.broker_id, ONE.broker_epoch)
    change, reply = a_term().decide(request, START)
    assert (change, reply.request_id, reply.error) == (None, 7, ErrorCode.REQUEST_TIMED_OUT)


def test_a_refused_request_changes_nothing() -> None:
    request = AllocateProducerIds(RequestHeader(7, NEVER), a_broker(3).broker_id, ONE.broker_epoch)
    change, reply = a_term().decide(request, START)
    assert (change, reply.error) == (None, ErrorCode.BROKER_ID_NOT_REGISTERED)
