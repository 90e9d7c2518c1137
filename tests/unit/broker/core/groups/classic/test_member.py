"""One member: its votes, its waiting requests, and its part of the record."""

import pytest
from broker.core.groups.classic.member import Member, joining_member, logged_member
from broker.core.groups.requests import JoinProtocol
from tidemark.codec.group_records import MemberMetadata
from unit.broker.core.groups.group_worlds import join

RANGE, STICKY = JoinProtocol("range", b"r"), JoinProtocol("sticky", b"s")


def a_member(**changes: object) -> Member:
    member = joining_member("m", join(instance="i", protocols=(RANGE, STICKY)))
    for name, value in changes.items():
        setattr(member, name, value)
    return member


@pytest.mark.parametrize(
    ("candidates", "vote"), [({"range", "sticky"}, "range"), ({"sticky", "other"}, "sticky")]
)
def test_it_votes_for_what_it_likes_best_of_what_all_know(candidates: set[str], vote: str) -> None:
    assert a_member().vote(candidates) == vote


def test_its_metadata_is_that_of_the_protocol() -> None:
    assert [a_member().metadata(name) for name in ("sticky", "other", None)] == [b"s", b"", b""]


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({"is_new": False}, False),
        ({"is_new": False, "awaiting_join": 1}, True),
        ({"is_new": False, "awaiting_sync": 1}, True),
        ({"is_new": True, "awaiting_join": 1}, False),
    ],
)
def test_who_waits_for_us_cannot_speak(changes: dict[str, object], held: bool) -> None:
    assert a_member(**changes).awaits_reply is held


def test_the_log_keeps_one_protocol() -> None:
    record = a_member().record("sticky", b"share")
    assert record == MemberMetadata(
        "m", "i", "client", "/127.0.0.1", 60_000, 10_000, b"s", b"share"
    )
    again = logged_member(record, "sticky")
    assert again.protocols == (STICKY,)
    assert again.record("sticky", again.assignment) == record
    assert not again.is_new


def test_its_bytes_are_hidden_without_a_protocol() -> None:
    shown = a_member(assignment=b"share").described(None)
    assert (shown.metadata, shown.assignment) == (b"", b"")
    assert a_member(assignment=b"share").described("range").assignment == b"share"
