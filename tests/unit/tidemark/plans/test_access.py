"""The question "may X do Y?", from a broker's settings and the ACLs."""

import pytest
from tidemark.model.authorization import Operation, Requester, topic_resource
from tidemark.plans.access import (
    AUTHORIZER,
    OPEN_WITHOUT_ACL,
    SUPER_USERS,
    Rule,
    policy_of,
    verdict,
)
from tidemark.protocol.acl_authorizer import AclPolicy

ALICE = Requester("User:alice", "10.0.0.1")


def test_a_policy_is_read_from_settings_as_brokers_write_them() -> None:
    settings = {AUTHORIZER: "x", SUPER_USERS: "User:a; User:b;", OPEN_WITHOUT_ACL: "TRUE"}
    assert policy_of(settings) == AclPolicy(frozenset({"User:a", "User:b"}), True)
    assert policy_of({AUTHORIZER: "x", SUPER_USERS: None}) == AclPolicy()
    assert policy_of({AUTHORIZER: "", SUPER_USERS: "User:a"}) is None


@pytest.mark.feature("AD25")
@pytest.mark.parametrize(
    ("policy", "allowed", "rule"),
    [
        (None, True, Rule.NO_AUTHORIZER),
        (AclPolicy(), False, Rule.DEFAULT),
        (AclPolicy(allow_without_acl=True), True, Rule.DEFAULT),
        (AclPolicy(frozenset({"User:alice"})), True, Rule.SUPER_USER),
    ],
)
def test_a_verdict_names_its_rule(policy: AclPolicy | None, allowed: bool, rule: Rule) -> None:
    found = verdict(policy, {}, ALICE, Operation.READ, topic_resource("orders"))
    assert (found.allowed, found.rule, found.binding) == (allowed, rule, None)
