"""Audit of a controller: its own changes, and what REST decides."""

import asyncio
from typing import Any

import pytest
from controller.config import ControllerConfig
from controller.shell.audit import Audit
from manual_clock import ManualClock
from tidemark.model.authorization import Operation, Requester, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.protocol.acl_authorizer import Decision, Reason
from tidemark.protocol.audit import Access, Changes, Login
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb

ALICE = Requester("User:alice", "10.0.0.7")
CALLER = common_pb2.Caller(principal=ALICE.principal, host=ALICE.host)
LOGIN = Login("alice", "10.0.0.7", "rest", "basic", succeeded=True)


class Aborted(Exception):  # noqa: N818 - not an error of ours
    """The call has ended."""


class Context:
    """Context of an RPC, as far as an audit uses it."""

    async def abort(self, code: object, words: str) -> None:
        raise Aborted(words)


def audit(**options: Any) -> Audit:
    given = {"controller_id": 1, "audit_sinks": ("log",), **options}
    return Audit(ControllerConfig(**given), ManualClock())


def change(at: Audit, rpc: str, error: ErrorCode = ErrorCode.NONE) -> None:
    async def make() -> pb.DeleteTopicsResponse:
        topics = [pb.TopicResult(name="orders")]
        return pb.DeleteTopicsResponse(error_code=error, topics=topics)

    request = pb.DeleteTopicsRequest(caller=CALLER)
    asyncio.run(at.change(rpc, request, Context(), make))


def subjects(at: Audit) -> list[object]:
    assert at.trail is not None
    return [one.subject for one in at.trail.take()]


@pytest.mark.feature("SE23")
def test_a_change_has_the_client_for_whom_it_was_made() -> None:
    noted = audit()
    change(noted, "DeleteTopics")
    change(noted, "WatchMetadata")
    change(noted, "DeleteTopics", ErrorCode.NOT_CONTROLLER)
    expected = Changes(ALICE, "DeleteTopics", "Topic", "orders", ErrorCode.NONE)
    assert subjects(noted) == [expected]


def test_logins_and_decisions_of_rest_are_noted() -> None:
    noted, decision = audit(), Decision(Reason.ROLE)
    assert noted.login(LOGIN)
    assert noted.asked(ALICE, Operation.READ, topic_resource("t"), decision)
    login, access = subjects(noted)
    assert login == LOGIN
    assert isinstance(access, Access)
    assert (access.requester, access.reason) == (ALICE, "allowed by a role")


@pytest.mark.feature("SE23")
def test_without_room_a_change_is_refused_before_it_is_made() -> None:
    noted = audit(audit_entries_max=100, audit_when_full="refuse")
    assert all(noted.login(LOGIN._replace(user=str(number))) for number in range(100))
    assert not noted.login(LOGIN)
    with pytest.raises(Aborted, match="the audit log is full"):
        change(noted, "DeleteTopics")


def test_without_sinks_nothing_is_noted() -> None:
    noted = audit(audit_sinks=())
    change(noted, "DeleteTopics")
    assert noted.login(LOGIN)
    assert noted.trail is None
