"""Records that a member has acquired, and what becomes of their acknowledgements."""

import pytest
from tidemark.client.share.ack_batches import WITHOUT_RECORD, AcknowledgeType, Decision
from tidemark.client.share.deliveries import (
    AGAIN,
    Deliveries,
    NotHeldError,
    PartitionDeliveries,
    ShareRecord,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

ACCEPT, RELEASE, RENEW = map(
    Decision, (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW)
)
AT = TopicPartition("t", 0)
ID = b"t" * 16


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, offset, 0, None, b"v", (), 1)


def handed_out(*offsets: int) -> PartitionDeliveries:
    one = PartitionDeliveries(ID)
    one.hand_out(record(offset) for offset in offsets)
    return one


def undecided(one: PartitionDeliveries) -> list[int]:
    one.check()
    return [each.offset for each in one.undecided()]


def test_a_record_is_undecided_until_it_is_acknowledged() -> None:
    one = handed_out(1, 2)
    one.acknowledge(1, ACCEPT)
    assert undecided(one) == [2]
    assert one.take() == {1: ACCEPT}
    assert undecided(one) == [2]
    assert not one.settle({1: ACCEPT}, ErrorCode.NONE)
    assert list(one.held) == [2]


def test_the_last_decision_before_sending_counts() -> None:
    one = handed_out(1)
    one.acknowledge(1, RELEASE)
    one.acknowledge(1, ACCEPT)
    assert one.take() == {1: ACCEPT}


def test_a_record_is_acknowledged_once() -> None:
    one = handed_out(1)
    one.acknowledge(1, ACCEPT)
    taken = one.take()
    with pytest.raises(NotHeldError):
        one.acknowledge(1, RELEASE)
    one.settle(taken, ErrorCode.NONE)
    with pytest.raises(NotHeldError):
        one.acknowledge(1, RELEASE)


def test_what_was_not_handed_out_is_not_held() -> None:
    with pytest.raises(NotHeldError):
        handed_out(1).acknowledge(2, ACCEPT)


def test_deciding_all_keeps_earlier_decisions() -> None:
    one = handed_out(1, 2)
    one.acknowledge(1, RELEASE)
    one.decide_all(ACCEPT)
    assert one.take() == {1: RELEASE, 2: ACCEPT}
    one.decide_all(ACCEPT)
    assert one.take() == {}


@pytest.mark.parametrize("code", sorted(AGAIN))
def test_what_cannot_be_stored_now_is_sent_again(code: ErrorCode) -> None:
    one = handed_out(1)
    one.acknowledge(1, ACCEPT)
    assert one.settle(one.take(), code)
    assert undecided(one) == []
    assert one.take() == {1: ACCEPT}


def test_a_refused_record_is_forgotten() -> None:
    one = handed_out(1)
    one.acknowledge(1, ACCEPT)
    assert not one.settle(one.take(), ErrorCode.INVALID_RECORD_STATE)
    assert (one.held, one.has_decided) == ({}, False)


def test_a_renewed_record_is_held_and_acknowledged_later() -> None:
    one = handed_out(1)
    one.acknowledge(1, RENEW)
    assert one.has_renewals
    one.settle(one.take(), ErrorCode.NONE)
    assert (undecided(one), list(one.held)) == ([], [1])
    one.acknowledge(1, ACCEPT)
    one.settle(one.take(), ErrorCode.NONE)
    assert (one.held, one.has_decided) == ({}, False)


def test_a_record_may_be_accepted_while_its_renewal_has_no_answer() -> None:
    one = handed_out(1)
    one.acknowledge(1, RENEW)
    renewal = one.take()
    one.acknowledge(1, ACCEPT)
    one.settle(renewal, ErrorCode.NONE)
    assert one.take() == {1: ACCEPT}


def test_a_renewal_that_is_refused_ends_the_delivery() -> None:
    one = handed_out(1)
    one.acknowledge(1, RENEW)
    renewal = one.take()
    one.acknowledge(1, ACCEPT)
    one.settle(renewal, ErrorCode.INVALID_RECORD_STATE)
    assert (one.held, one.has_decided) == ({}, False)


def test_a_record_may_be_acknowledged_elsewhere() -> None:
    one = handed_out(1, 2)
    one.take_out(1, ACCEPT)
    assert (undecided(one), one.take()) == ([2], {})
    with pytest.raises(NotHeldError):
        one.acknowledge(1, RELEASE)
    one.settle({1: ACCEPT}, ErrorCode.NONE)
    assert list(one.held) == [2]


def test_a_record_whose_acknowledgement_elsewhere_failed_is_held_again() -> None:
    one = handed_out(1)
    one.take_out(1, ACCEPT)
    one.give_back([1])
    assert undecided(one) == [1]
    one.acknowledge(1, RELEASE)
    with pytest.raises(NotHeldError):
        one.take_out(1, ACCEPT)


def test_no_renewal_is_sent_at_the_end() -> None:
    one = handed_out(1, 2)
    one.acknowledge(1, RENEW)
    one.acknowledge(2, ACCEPT)
    one.drop_renewals()
    assert one.take() == {2: ACCEPT}


def test_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    one = handed_out(1)
    one.skip([2, 3])
    taken = one.take()
    assert taken == {2: WITHOUT_RECORD, 3: WITHOUT_RECORD}
    one.settle(taken, ErrorCode.NONE)
    assert undecided(one) == [1]


def test_a_lost_session_leaves_nothing() -> None:
    one = handed_out(1, 2)
    one.acknowledge(1, RENEW)
    renewal = one.take()
    one.lose()
    one.settle(renewal, ErrorCode.NONE)
    assert (one.held, one.has_decided) == ({}, False)


def test_deliveries_of_all_partitions() -> None:
    all_of = Deliveries()
    all_of.begin(AT, ID).hand_out([record(1), record(2)])
    all_of.of(record(1)).acknowledge(1, ACCEPT)
    assert [one.offset for one in all_of.undecided()] == [2]
    all_of.decide_all(ACCEPT)
    assert all_of.undecided() == []
    with pytest.raises(NotHeldError):
        all_of.of(record(1)._replace(topic="other"))


def test_deliveries_that_begin_again_leave_nothing_of_the_last() -> None:
    all_of = Deliveries()
    all_of.begin(AT, ID).hand_out([record(1)])
    assert not all_of.begin(AT, ID).held
    with pytest.raises(NotHeldError):
        all_of.of(record(1)).acknowledge(1, ACCEPT)
