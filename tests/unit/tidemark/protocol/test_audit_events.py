"""Audit events as OCSF has them."""

from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.protocol.audit import Access, Changes, Entry, Login, Subject
from tidemark.protocol.audit_events import Event, event_of

ALICE = Requester("User:alice", "10.0.0.1")
ACCESS = Access(ALICE, "Read", "Topic", "orders", True, "allowed by an ACL", "allow ...")


def event(subject: Subject) -> Event:
    entry = Entry(subject, 5)
    entry.again(9)
    return event_of(entry, cluster_id="c", node="broker-1", version="1")


def test_an_allowed_operation() -> None:
    found = event(ACCESS)
    assert (found["class_uid"], found["category_uid"], found["type_uid"]) == (6003, 6, 600302)
    assert (found["count"], found["start_time"], found["end_time"]) == (2, 5, 9)
    policy = {"name": "allowed by an ACL", "desc": "allow ..."}
    authorizations = [{"decision": "allowed", "policy": policy}]
    assert found["actor"] == {"user": {"name": "User:alice"}, "authorizations": authorizations}
    assert found["resources"] == [{"type": "Topic", "name": "orders"}]
    assert found["src_endpoint"] == {"ip": "10.0.0.1"}
    assert found["metadata"]["log_provider"] == "broker-1"


def test_a_denied_operation_has_no_rule_and_a_higher_severity() -> None:
    found = event(ACCESS._replace(allowed=False, reason="no ACL of the resource applies", rule=""))
    (decision,) = found["actor"]["authorizations"]
    assert decision["policy"] == {"name": "no ACL of the resource applies"}
    assert (decision["decision"], found["status"], found["severity_id"]) == ("denied", "Failure", 3)


def test_a_change_and_its_error() -> None:
    found = event(Changes(ALICE, "DeleteTopics", "Topic", "t", ErrorCode.NONE))
    assert (found["activity_id"], found["status_id"]) == (4, 1)
    assert found["api"] == {"operation": "DeleteTopics", "response": {"code": 0}}
    refused = event(Changes(ALICE, "AlterUsers", "User", "u", ErrorCode.INVALID_REQUEST))
    assert refused["api"]["response"] == {"code": 42, "error": "INVALID_REQUEST"}


def test_logins() -> None:
    found = event(Login("bob", "10.0.0.2", "SAFE", "PLAIN", succeeded=False, reason="why"))
    assert (found["class_uid"], found["category_uid"], found["type_uid"]) == (3002, 3, 300201)
    assert (found["user"], found["status_detail"]) == ({"name": "bob"}, "why")
    assert (found["service"], found["auth_protocol"]) == ({"name": "SAFE"}, "PLAIN")
    assert "status_detail" not in event(Login("b", "h", "SAFE", "PLAIN", succeeded=True))
