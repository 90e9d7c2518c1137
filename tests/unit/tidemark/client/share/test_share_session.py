"""Epochs and partitions of a share session."""

import pytest
from tidemark.client.share.ack_batches import AckBatch, Decision
from tidemark.client.share.share_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    SESSION_LOST,
    ShareSession,
    Verdict,
)
from tidemark.model.errors import ErrorCode

A, B, C = ((b"t" * 16, number) for number in range(3))


def opened(*partitions: tuple[bytes, int]) -> ShareSession:
    session = ShareSession()
    session.fetch(partitions, {})
    assert session.on_answer(ErrorCode.NONE) is Verdict.KEPT
    return session


def test_the_first_request_opens_a_session_with_all_partitions() -> None:
    session = ShareSession()
    assert not session.is_open
    assert session.fetch([B, A], {}) == (0, {A: (), B: ()}, ())
    session.on_answer(ErrorCode.NONE)
    assert session.is_open


def test_later_requests_say_only_what_changes() -> None:
    session = opened(A, B)
    assert session.fetch([B, C], {}) == (1, {C: ()}, (A,))
    session.on_answer(ErrorCode.NONE)
    assert session.fetch([B, C], {}) == (2, {}, ())


def test_acknowledgements_name_their_partition() -> None:
    session = opened(A)
    request = session.fetch([A], {A: {1: Decision(1), 2: Decision(1)}})
    assert request.partitions == {A: (AckBatch(1, 2, (1,)),)}
    session.on_answer(ErrorCode.NONE)
    assert session.acknowledge({A: {3: Decision(2)}}) == (2, {A: (AckBatch(3, 3, (2,)),)}, ())


@pytest.mark.parametrize("code", [*sorted(SESSION_LOST), ErrorCode.UNKNOWN_SERVER_ERROR])
def test_an_error_of_the_whole_request_begins_another_session(code: ErrorCode) -> None:
    session = opened(A)
    session.fetch([A], {})
    assert session.on_answer(code) is Verdict.LOST
    assert session.fetch([A], {}) == (0, {A: ()}, ())


def test_a_lost_connection_begins_another_session() -> None:
    session = opened(A)
    session.fetch([A, B], {})
    session.on_lost()
    assert session.fetch([A], {}).epoch == 0


def test_the_epoch_after_the_last_is_the_first() -> None:
    session = opened(A)
    session.epoch = EPOCH_MAX
    session.fetch([A], {})
    session.on_answer(ErrorCode.NONE)
    assert session.epoch == 1


def test_the_last_request_ends_the_session() -> None:
    assert opened(A).close({A: {1: Decision(1)}}) == (FINAL_EPOCH, {A: (AckBatch(1, 1, (1,)),)}, ())


def test_nothing_is_acknowledged_before_a_session_is_open() -> None:
    with pytest.raises(AssertionError):
        ShareSession().acknowledge({A: {1: Decision(1)}})


def test_requests_follow_one_another() -> None:
    session = ShareSession()
    session.fetch([A], {})
    with pytest.raises(AssertionError):
        session.fetch([A], {})
