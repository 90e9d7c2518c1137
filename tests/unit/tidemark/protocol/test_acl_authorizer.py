from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.acls import (
    ALL_OPERATIONS,
    EVERY_USER,
    AclBinding,
    AclEntry,
    Acls,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import Operation, Requester, Resource, ResourceType
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy, Reason

ALICE = Requester("User:alice", "10.0.0.1")
NAMES = [*"abc", *map("".join, product("abc", repeat=2)), *map("".join, product("abc", repeat=3))]
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def authorizer(*bindings: AclBinding, policy: AclPolicy | None = None) -> AclAuthorizer:
    return AclAuthorizer(policy or AclPolicy(), by_pattern(bindings))


def by_pattern(bindings: tuple[AclBinding, ...]) -> Acls:
    patterns = {one.pattern for one in bindings}
    return {
        pattern: frozenset(one.entry for one in bindings if one.pattern == pattern)
        for pattern in patterns
    }


def binding(
    name: str = "orders",
    operation: int = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
) -> AclBinding:
    pattern = ResourcePattern(ResourceType.TOPIC, name, pattern_type)
    return AclBinding(pattern, AclEntry(principal, host, operation, permission))


def test_without_an_acl_the_answer_is_no_unless_the_cluster_says_otherwise() -> None:
    asked = (ALICE, Operation.READ, topic("orders"))
    assert authorizer().decide(*asked).reason is Reason.NO_ACL
    everyone = authorizer(policy=AclPolicy(allow_without_acl=True))
    assert everyone.decide(*asked).allowed


def test_everyone_is_not_allowed_where_the_resource_has_an_acl_of_somebody() -> None:
    policy = AclPolicy(allow_without_acl=True)
    of_bob = authorizer(binding(principal="User:bob"), policy=policy)
    assert of_bob.decide(ALICE, Operation.READ, topic("orders")).reason is Reason.NO_MATCH


def test_a_super_user_is_allowed_in_spite_of_a_deny() -> None:
    policy = AclPolicy(frozenset({"User:alice"}))
    denied = authorizer(binding("*", ALL_OPERATIONS, Permission.DENY), policy=policy)
    assert denied.decide(ALICE, Operation.WRITE, topic("t")).reason is Reason.SUPER_USER
    assert denied.authorize_any(ALICE, Operation.WRITE, ResourceType.TOPIC)


def test_a_deny_wins_and_is_named() -> None:
    deny = binding("ord", Operation.READ, Permission.DENY, PatternType.PREFIXED)
    both = authorizer(binding(), deny)
    assert both.decide(ALICE, Operation.READ, topic("orders")) == (Reason.DENY, deny)


def test_a_deny_of_read_does_not_deny_what_read_implies() -> None:
    both = authorizer(binding(operation=Operation.DESCRIBE), binding(permission=Permission.DENY))
    assert both.decide(ALICE, Operation.DESCRIBE, topic("orders")).allowed
    assert not both.decide(ALICE, Operation.READ, topic("orders")).allowed


@pytest.mark.parametrize("host", ["2001:db8:0:0:0:0:0:1", "2001:DB8::1", "2001:db8::1"])
@pytest.mark.parametrize("seen", ["2001:db8::1", "2001:db8:0:0:0:0:0:1"])
def test_a_host_of_ipv6_is_the_same_in_each_of_its_forms(host: str, seen: str) -> None:
    """Kafka sees, and so its ACLs have, Java's long form; sockets have the short one."""
    denies = authorizer(binding(), binding(permission=Permission.DENY, host=host))
    asked = ALICE._replace(host=seen)
    assert denies.decide(asked, Operation.READ, topic("orders")).reason is Reason.DENY
    elsewhere = ALICE._replace(host="2001:db8::2")
    assert denies.authorize(elsewhere, Operation.READ, topic("orders"))
    assert not authorizer(
        binding(host="*"), binding("*", permission=Permission.DENY, host=host)
    ).authorize_any(asked, Operation.READ, ResourceType.TOPIC)


def test_a_mapped_address_is_that_of_ipv4() -> None:
    one = authorizer(binding(host="10.0.0.1"))
    assert one.authorize(ALICE._replace(host="::ffff:10.0.0.1"), Operation.READ, topic("orders"))


def test_an_entry_of_one_host_is_for_that_host() -> None:
    one = authorizer(binding(host="10.0.0.1"))
    assert one.decide(ALICE, Operation.READ, topic("orders")).allowed
    elsewhere = ALICE._replace(host="10.0.0.2")
    assert not one.decide(elsewhere, Operation.READ, topic("orders")).allowed


def test_a_change_takes_effect_in_spite_of_remembered_decisions() -> None:
    one = authorizer(binding())
    assert one.decide(ALICE, Operation.READ, topic("orders")).allowed
    one.replace({binding().pattern: frozenset()})
    assert one.decide(ALICE, Operation.READ, topic("orders")).reason is Reason.NO_ACL


def test_a_prefix_that_is_removed_covers_nothing_while_others_of_its_length_do() -> None:
    first, second = (binding(name, pattern_type=PatternType.PREFIXED) for name in ("aa", "bb"))
    both = authorizer(first, second)
    both.replace({first.pattern: frozenset()})
    assert not both.decide(ALICE, Operation.READ, topic("aax")).allowed
    assert both.decide(ALICE, Operation.READ, topic("bbx")).allowed


BINDINGS = st.builds(
    binding,
    st.sampled_from(["*", "a", "ab", "b", "ba"]),
    st.sampled_from([ALL_OPERATIONS, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS]),
    st.sampled_from(Permission),
    st.sampled_from(PatternType),
    principal=st.sampled_from(["User:alice", "User:bob", EVERY_USER]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
).filter(lambda one: one.pattern[1:] != ("*", PatternType.PREFIXED))
OPERATIONS = st.sampled_from(
    [Operation.READ, Operation.DESCRIBE, Operation.WRITE, Operation.DESCRIBE_CONFIGS]
)


def plain(bindings: list[AclBinding], operation: Operation, name: str, *, everyone: bool) -> bool:
    """Decide for ALICE as the documentation of Kafka's ACLs reads, entry by entry."""
    covering = [one for one in bindings if one.pattern.covers(name)]
    if not covering:
        return everyone
    mine = [
        one.entry
        for one in covering
        if one.entry.principal in ("User:alice", EVERY_USER) and one.entry.host in ("*", "10.0.0.1")
    ]
    exact = (operation, ALL_OPERATIONS)
    if any(one.permission is Permission.DENY and one.operation in exact for one in mine):
        return False
    implied = (*exact, *IMPLIED.get(operation, ()))
    return any(one.permission is Permission.ALLOW and one.operation in implied for one in mine)


@pytest.mark.parametrize("everyone", [True, False])
@settings(max_examples=150)
@given(st.lists(BINDINGS, max_size=6), OPERATIONS, st.sampled_from(NAMES))
def test_decisions_are_those_of_a_search_through_all_entries(
    everyone: bool, bindings: list[AclBinding], operation: Operation, name: str
) -> None:
    index = authorizer(*bindings, policy=AclPolicy(allow_without_acl=everyone))
    decision = index.decide(ALICE, operation, topic(name))
    assert decision.allowed == plain(bindings, operation, name, everyone=everyone)
    assert decision.binding is None or decision.binding in bindings


@pytest.mark.parametrize("everyone", [True, False])
@settings(max_examples=150)
@given(st.lists(BINDINGS, max_size=6), OPERATIONS)
def test_any_resource_is_allowed_if_some_name_is(
    everyone: bool, bindings: list[AclBinding], operation: Operation
) -> None:
    index = authorizer(*bindings, policy=AclPolicy(allow_without_acl=everyone))
    some = any(plain(bindings, operation, name, everyone=everyone) for name in NAMES)
    assert index.authorize_any(ALICE, operation, ResourceType.TOPIC) == some


@given(st.lists(st.lists(BINDINGS, max_size=4), max_size=4), OPERATIONS, st.sampled_from(NAMES))
def test_after_any_changes_the_index_equals_one_built_anew(
    steps: list[list[AclBinding]], operation: Operation, name: str
) -> None:
    changed, now = authorizer(), by_pattern(())
    for step in steps:
        acls = by_pattern(tuple(step))
        now = {pattern: acls.get(pattern, frozenset()) for pattern in {*now, *acls}}
        changed.replace(now)
    anew = AclAuthorizer(AclPolicy(), now)
    asked = (ALICE, operation, topic(name))
    assert changed.decide(*asked).reason is anew.decide(*asked).reason


class CountedDict(dict[str, Any]):
    """Counts look-ups."""

    looked_up = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountedDict.looked_up += 1
        return super().get(key, default)


@pytest.mark.feature("SE16")
def test_a_decision_among_100000_acls_looks_up_one_pattern_for_each_length_of_a_prefix() -> None:
    entry = frozenset({AclEntry("User:alice", "*", int(Operation.READ), Permission.ALLOW)})
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    authorizer = AclAuthorizer(
        AclPolicy(),
        {
            ResourcePattern(ResourceType.TOPIC, f"{n:05}", kinds[n % 2]): entry
            for n in range(100_000)
        },
    )
    index = authorizer._types[ResourceType.TOPIC]
    index.literal, index.prefixed = CountedDict(index.literal), CountedDict(index.prefixed)
    for name, expected in (("00002", True), ("00003-x", True), ("00002-x", False), ("x", False)):
        CountedDict.looked_up = 0
        assert authorizer.authorize(ALICE, Operation.READ, topic(name)) is expected
        assert CountedDict.looked_up <= 3
