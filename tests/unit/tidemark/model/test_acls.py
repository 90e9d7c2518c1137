import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.acls import (
    ALL_OPERATIONS,
    ANY,
    MATCH,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    RawBinding,
    ResourcePattern,
    acls_after,
    bindings_of,
    check_filter,
    read_binding,
)
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.errors import ErrorCode, TidemarkError

READ_ORDERS = RawBinding(ResourceType.TOPIC, "orders", 3, "User:alice", "*", Operation.READ, 3)
ALICE = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
ORDER = ResourcePattern(ResourceType.TOPIC, "order", PatternType.PREFIXED)
EVERY_TOPIC = ResourcePattern(ResourceType.TOPIC, "*")
ACLS = {pattern: frozenset({ALICE}) for pattern in (ORDERS, ORDER, EVERY_TOPIC)}


def selected(wanted: AclFilter) -> list[ResourcePattern]:
    return [one.pattern for one in bindings_of(ACLS) if wanted.selects(one)]


def test_a_binding_is_read_from_kafkas_numbers() -> None:
    assert read_binding(READ_ORDERS) == (ORDERS, ALICE)
    whole = read_binding(READ_ORDERS._replace(operation=ALL_OPERATIONS, permission=2))
    assert whole.entry == AclEntry("User:alice", "*", ALL_OPERATIONS, Permission.DENY)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource_type": ANY}, "resource type 1"),
        ({"resource_type": 7}, "resource type 7"),
        ({"pattern_type": MATCH}, "LITERAL"),
        ({"operation": ANY}, "operation 1"),
        ({"permission": 0}, "DENY"),
        ({"name": ""}, "empty"),
        ({"name": "x" * 1_025}, "1024"),
        ({"principal": "alice"}, "User:name"),
        ({"principal": "User:"}, "User:name"),
        ({"host": ""}, "host is empty"),
        ({"resource_type": ResourceType.CLUSTER}, "kafka-cluster"),
    ],
)
def test_a_binding_with_a_mistake_is_refused_with_what_is_wrong(
    change: dict[str, int | str], words: str
) -> None:
    with pytest.raises(TidemarkError, match=words) as caught:
        read_binding(READ_ORDERS._replace(**change))  # type: ignore[arg-type]  # names are the case's
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_an_empty_filter_selects_everything() -> None:
    assert selected(AclFilter()) == sorted(ACLS)


def test_a_filter_of_one_binding_selects_it_alone() -> None:
    for one in bindings_of(ACLS):
        assert selected(AclFilter.only(one)) == [one.pattern]


def test_a_name_selects_patterns_of_that_name_and_match_all_that_cover_it() -> None:
    assert selected(AclFilter(name="orders")) == [ORDERS]
    assert selected(AclFilter(name="orders", pattern_type=MATCH)) == sorted(ACLS)
    assert selected(AclFilter(name="other", pattern_type=MATCH)) == [EVERY_TOPIC]
    assert selected(AclFilter(name="orde", pattern_type=MATCH)) == [EVERY_TOPIC]
    assert selected(AclFilter(pattern_type=PatternType.PREFIXED)) == [ORDER]


@pytest.mark.parametrize(
    "wanted",
    [
        AclFilter(resource_type=ResourceType.GROUP),
        AclFilter(principal="User:*"),
        AclFilter(host="10.0.0.1"),
        AclFilter(operation=Operation.WRITE),
        AclFilter(permission=Permission.DENY),
    ],
)
def test_a_filter_is_exact_in_every_other_field(wanted: AclFilter) -> None:
    assert selected(wanted) == []


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
@given(number=st.sampled_from([-1, 0, 99]))
def test_a_filter_with_an_unknown_number_is_refused(field: str, number: int) -> None:
    check_filter(AclFilter())
    with pytest.raises(TidemarkError, match=f"{number} in a filter"):
        check_filter(AclFilter(**{field: number}))  # type: ignore[arg-type]  # a field by name


def test_a_pattern_without_entries_is_gone() -> None:
    after = acls_after(
        ACLS, {ORDERS: frozenset(), ORDER: frozenset({ALICE, ALICE._replace(host="h")})}
    )
    assert set(after) == {ORDER, EVERY_TOPIC}
    assert len(after[ORDER]) == 2
    assert acls_after(ACLS, {}) is ACLS
