"""Share sessions: epochs, connections, limits, and the order of partitions."""

import pytest
from broker.core.share.sessions import (
    EPOCH_MAX,
    FINAL_EPOCH,
    SESSION_PARTITIONS_MAX,
    PartitionKey,
    SessionKey,
    SessionRefusal,
    SessionRequest,
    ShareSession,
    ShareSessions,
)
from hypothesis import given, strategies
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

TOPIC = TopicId(bytes(16))
M1, M2 = SessionKey("billing", "m1"), SessionKey("billing", "m2")


def parts(*partitions: int) -> tuple[PartitionKey, ...]:
    return tuple((TOPIC, partition) for partition in partitions)


def fetch(
    sessions: ShareSessions,
    epoch: int,
    *added: int,
    key: SessionKey = M1,
    forgotten: tuple[int, ...] = (),
    connection: str = "c1",
    has_acknowledgements: bool = False,
) -> ShareSession | SessionRefusal:
    request = SessionRequest(
        key, epoch, connection, parts(*added), parts(*forgotten), has_acknowledgements
    )
    found = sessions.fetch(request)
    sessions.check()
    return found


def opened(sessions: ShareSessions, *added: int, key: SessionKey = M1) -> ShareSession:
    session = fetch(sessions, 0, *added, key=key)
    assert isinstance(session, ShareSession), session
    return session


def code(found: ShareSession | SessionRefusal) -> ErrorCode:
    return found.error_code if isinstance(found, SessionRefusal) else ErrorCode.NONE


def test_epoch_0_opens_a_session_with_all_partitions() -> None:
    session = opened(ShareSessions(), 0, 1)
    assert list(session.partitions) == list(parts(0, 1))
    assert session.epoch == 1


def test_later_epochs_add_and_forget_partitions() -> None:
    sessions = ShareSessions()
    session = opened(sessions, 0, 1)
    assert fetch(sessions, 1, 2, forgotten=(0,)) is session
    assert fetch(sessions, 2) is session
    assert list(session.partitions) == list(parts(1, 2))


@pytest.mark.parametrize("epoch", [2, 3, 77])
def test_another_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = ShareSessions()
    session = opened(sessions, 0)
    assert code(fetch(sessions, epoch, 5)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (session.epoch, len(session.partitions)) == (1, 1)


@pytest.mark.parametrize("epoch", [1, FINAL_EPOCH])
def test_without_a_session_there_is_none_to_continue(epoch: int) -> None:
    assert code(fetch(ShareSessions(), epoch)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_belongs_to_its_connection() -> None:
    sessions = ShareSessions()
    opened(sessions, 0)
    refused = fetch(sessions, 1, connection="c2")
    assert code(refused) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epoch_0_replaces_a_session_whose_connection_may_be_lost_later() -> None:
    sessions = ShareSessions()
    before = opened(sessions, 0, 1)
    after = fetch(sessions, 0, 2, connection="c2")
    assert after is not before
    assert sessions.connection_lost("c1") == []
    assert sessions.connection_lost("c2") == [after]
    assert len(sessions) == sessions.partition_count == 0


def test_the_last_request_closes_the_session_once_it_is_served() -> None:
    sessions = ShareSessions()
    session = opened(sessions, 0)
    assert fetch(sessions, FINAL_EPOCH, has_acknowledgements=True) is session
    assert session.is_closing
    sessions.close(session)
    sessions.close(session)
    assert code(fetch(sessions, 1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_last_request_adds_nothing() -> None:
    sessions = ShareSessions()
    opened(sessions, 0)
    assert code(fetch(sessions, FINAL_EPOCH, 1)) is ErrorCode.INVALID_REQUEST


def test_the_first_request_acknowledges_nothing() -> None:
    refused = fetch(ShareSessions(), 0, 1, has_acknowledgements=True)
    assert code(refused) is ErrorCode.INVALID_REQUEST


def test_acknowledging_takes_part_in_the_epochs() -> None:
    sessions = ShareSessions()
    session = opened(sessions, 0)
    assert sessions.acknowledge(M1, 1, "c1") is session
    assert fetch(sessions, 2) is session
    assert sessions.acknowledge(M1, FINAL_EPOCH, "c1") is session
    assert session.is_closing


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (2, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (1, ErrorCode.SHARE_SESSION_NOT_FOUND),
    ],
)
def test_acknowledging_never_opens_a_session(epoch: int, error: ErrorCode) -> None:
    sessions = ShareSessions()
    if epoch == 2:
        opened(sessions, 0)
    assert code(sessions.acknowledge(M1, epoch, "c1")) is error


def test_sessions_are_bounded() -> None:
    sessions = ShareSessions(sessions_max=1)
    opened(sessions, 0)
    assert code(fetch(sessions, 0, key=M2)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert opened(sessions, 1).key == M1, "a member may begin again"


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = ShareSessions(partitions_max=3)
    opened(sessions, 0, 1)
    assert code(fetch(sessions, 0, 0, 1, key=M2)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert code(fetch(sessions, 1, 1, 2)) is ErrorCode.NONE
    assert code(fetch(sessions, 2, 3)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_epochs_wrap_to_1() -> None:
    session = opened(ShareSessions(), 0)
    session.epoch = EPOCH_MAX
    session.next_epoch()
    assert session.epoch == 1


def test_partitions_that_gave_records_are_served_last() -> None:
    session = opened(ShareSessions(), 0, 1, 2)
    session.served(parts(0, 7))
    assert list(session.partitions) == list(parts(1, 2, 0))


@given(strategies.lists(strategies.lists(strategies.integers(0, 4), max_size=2), min_size=5))
def test_no_partition_starves(rounds: list[list[int]]) -> None:
    """Whatever is served, a partition comes first after as many requests as there are others."""
    session = opened(ShareSessions(), *range(5))
    waited = dict.fromkeys(range(5), 0)
    for _ in rounds:
        (_, first), *_ = session.partitions
        session.served(parts(first))
        waited = {partition: ms + 1 for partition, ms in waited.items()} | {first: 0}
        assert max(waited.values()) <= 5


def test_a_partition_that_is_named_and_forgotten_at_once_is_forgotten() -> None:
    sessions = ShareSessions()
    session = opened(sessions, 0, 1)
    assert fetch(sessions, 1, 0, forgotten=(0,)) is session
    assert list(session.partitions) == list(parts(1))
    assert sessions.partitions_in_use() == {("billing", (TOPIC, 1))}


def test_a_replaced_session_is_no_longer_open() -> None:
    sessions = ShareSessions()
    before = opened(sessions, 0)
    now = opened(sessions, 0)
    assert (sessions.is_open(before), sessions.is_open(now)) == (False, True)


def test_one_session_is_bounded() -> None:
    sessions = ShareSessions()
    many = range(SESSION_PARTITIONS_MAX)
    refused = fetch(sessions, 0, *many, SESSION_PARTITIONS_MAX)
    assert code(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    session = opened(sessions, *many)
    refused = fetch(sessions, 1, SESSION_PARTITIONS_MAX)
    assert code(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (session.epoch, len(session.partitions)) == (1, SESSION_PARTITIONS_MAX)
    assert fetch(sessions, 1, 0) is session, "it has that one already"
