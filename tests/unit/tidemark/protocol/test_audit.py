"""Audit: what becomes an entry, how it is counted, and what finds no room."""

import pytest
from tidemark.model.acls import AclBinding, AclEntry, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import (
    CLUSTER,
    MEMBER,
    Operation,
    Requester,
    ResourceType,
    group_resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark.protocol.acl_authorizer import Decision, Reason
from tidemark.protocol.audit import (
    NAME_CHARS_MAX,
    Access,
    AuditRules,
    AuditTrail,
    Changes,
    Login,
    read_resources,
)

ALICE = Requester("User:alice", "10.0.0.1")
BINDING = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
    AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
)
ALLOWED, DENIED = Decision(Reason.ALLOW, BINDING), Decision(Reason.NO_MATCH)
FAILED = Login("alice", "10.0.0.1", "SAFE", "PLAIN", succeeded=False, reason="wrong password")
CHANGE = Changes(ALICE, "DeleteTopics", "Topic", "orders", ErrorCode.NONE)


def trail(rules: AuditRules = AuditRules(), *, refuses: bool = False) -> AuditTrail:  # noqa: B008
    return AuditTrail(rules, entries_max=3, refuses=refuses)


def decide(at: AuditTrail, name: str, decision: Decision = ALLOWED, now_ms: int = 5) -> bool:
    return at.decided(ALICE, Operation.READ, topic_resource(name), decision, now_ms)


def test_what_is_the_same_is_one_entry_with_a_count_and_its_times() -> None:
    audit = trail()
    assert all(decide(audit, "orders", now_ms=now_ms) for now_ms in (5, 7, 9))
    (entry,) = audit.take()
    assert (entry.count, entry.first_ms, entry.last_ms, audit.noted) == (3, 5, 9, 3)
    rule = "allow Read on Topic prefixed ord to User:alice from *"
    reason = "allowed by an ACL"
    assert entry.subject == Access(ALICE, "Read", "Topic", "orders", True, reason, rule)
    assert audit.take() == []


def test_a_decision_that_changes_is_another_entry() -> None:
    audit = trail()
    decide(audit, "orders")
    decide(audit, "orders", DENIED)
    assert [one.subject.allowed for one in audit.take()] == [True, False]  # type: ignore[union-attr]


def test_processes_of_the_cluster_are_not_written_down_and_never_refused() -> None:
    audit = trail(refuses=True)
    for name in "abc":
        decide(audit, name)
    assert audit.decided(MEMBER, Operation.CLUSTER_ACTION, CLUSTER, Decision(Reason.PROCESS), 1)
    assert (len(audit), audit.dropped, audit.may_go_on) == (3, 0, False)


@pytest.mark.feature("SE23")
def test_what_finds_no_room_is_counted_and_allowed() -> None:
    audit = trail()
    assert all(decide(audit, name) for name in "abcdb")
    assert audit.note(FAILED, 1)
    assert (len(audit), audit.dropped, audit.noted, audit.may_go_on) == (3, 2, 4, True)
    audit.take()
    assert decide(audit, "d")
    assert (len(audit), audit.dropped) == (1, 2)


@pytest.mark.feature("SE23")
def test_or_it_is_refused_until_there_is_room_again() -> None:
    audit = trail(refuses=True)
    assert [decide(audit, name) for name in "abcdb"] == [True, True, True, False, True]
    assert not audit.note(FAILED, 1)
    assert not audit.note(CHANGE, 1)
    audit.take()
    assert audit.may_go_on
    assert audit.note(FAILED, 1)


@pytest.mark.parametrize(
    "rules",
    [
        AuditRules(principals=frozenset({"User:alice"})),
        AuditRules(operations=frozenset({"Read"}), outcomes=frozenset({"login.failed", "changed"})),
        AuditRules(
            resources=(("Topic", "orders"), ("Group", "read*")),
            outcomes=frozenset({"login.failed", "changed"}),
        ),
        AuditRules(outcomes=frozenset({"allowed", "login.failed", "changed"})),
    ],
)
def test_exclusions_leave_no_entry_and_need_no_room(rules: AuditRules) -> None:
    audit = trail(rules, refuses=True)
    for _ in range(5):
        assert decide(audit, "orders")
        assert audit.decided(ALICE, Operation.READ, group_resource("reader"), ALLOWED, 1)
        assert audit.note(FAILED, 1)
        assert audit.note(CHANGE, 1)
    assert len(audit) == audit.dropped == 0


def test_an_exclusion_covers_nothing_else() -> None:
    audit = trail(AuditRules(resources=(("Topic", "order"), ("Group", "orders*"))))
    decide(audit, "orders")
    decide(audit, "order")
    assert not audit.take()[1:]
    audit = trail(AuditRules(operations=frozenset({"Read"})))
    decide(audit, "orders")
    decide(audit, "orders", DENIED)
    assert [one.subject.resource for one in audit.take()] == ["orders"]  # type: ignore[union-attr]


def test_names_that_clients_choose_are_cut() -> None:
    audit = trail()
    audit.note(FAILED._replace(user="u" * 100_000), 1)
    decide(audit, "t" * 100_000)
    login, access = audit.take()
    assert isinstance(login.subject, Login)
    assert isinstance(access.subject, Access)
    assert len(login.subject.user) == len(access.subject.resource) == NAME_CHARS_MAX + 1


@pytest.mark.parametrize("text", ["orders", "Topics:orders", "Topic:", ":x"])
def test_a_resource_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no resource: use Topic:name"):
        read_resources([text])
