import pytest
from controller.core import acls
from controller.core.acls import decide_acls
from controller.core.cluster import Cluster
from controller.core.effects import AclResult
from controller.core.inputs import CreateAcls, DeleteAcls, RequestHeader
from controller.shell.znodes import write_acls
from tidemark.model.acls import (
    AclFilter,
    PatternType,
    Permission,
    RawBinding,
    ResourcePattern,
    bindings_of,
    read_binding,
)
from tidemark.model.authorization import ResourceType
from tidemark.model.errors import ErrorCode
from unit.controller.worlds import NEVER, a_cluster, applied

HEADER = RequestHeader(1, NEVER)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)


def raw(name: str = "orders", principal: str = "User:alice", operation: int = 3) -> RawBinding:
    return RawBinding(ResourceType.TOPIC, name, 3, principal, "*", operation, Permission.ALLOW)


def create(cluster: Cluster, *bindings: RawBinding) -> tuple[AclResult, ...]:
    change, results = decide_acls(cluster, CreateAcls(HEADER, bindings))
    if change is not None:
        applied(cluster, change)
    return results.results


def delete(cluster: Cluster, *filters: AclFilter) -> tuple[AclResult, ...]:
    change, results = decide_acls(cluster, DeleteAcls(HEADER, filters))
    if change is not None:
        applied(cluster, change)
    return results.results


def test_bindings_of_one_pattern_come_together() -> None:
    cluster = a_cluster()
    assert create(cluster, raw(), raw(principal="User:bob"), raw("other")) == (AclResult(),) * 3
    create(cluster, raw(operation=4))
    assert len(cluster.image.acls[ORDERS]) == 3
    assert len(cluster.image.acls) == 2


def test_a_binding_that_exists_changes_nothing() -> None:
    cluster = a_cluster()
    create(cluster, raw())
    change, results = decide_acls(cluster, CreateAcls(HEADER, (raw(),)))
    assert change is None
    assert results.results == (AclResult(),)


def test_an_invalid_binding_does_not_stop_the_others() -> None:
    cluster = a_cluster()
    bad, good = create(cluster, raw(""), raw())
    assert (bad.error, good.error) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert list(cluster.image.acls) == [ORDERS]


def test_a_filter_deletes_what_it_selects_and_names_it() -> None:
    cluster = a_cluster()
    create(cluster, raw(), raw(principal="User:bob"), raw("other"))
    (result,) = delete(cluster, AclFilter(principal="User:alice"))
    assert result.deleted == (read_binding(raw()), read_binding(raw("other")))
    assert [one.entry.principal for one in bindings_of(cluster.image.acls)] == ["User:bob"]


def test_a_binding_that_two_filters_select_is_in_both_results() -> None:
    cluster = a_cluster()
    create(cluster, raw())
    first, second = delete(cluster, AclFilter(), AclFilter(name="orders"))
    assert first == second == AclResult(deleted=(read_binding(raw()),))
    assert cluster.image.acls == {}


def test_a_filter_that_means_nothing_deletes_nothing() -> None:
    cluster = a_cluster()
    create(cluster, raw())
    (result,) = delete(cluster, AclFilter(operation=99))
    assert result.error is ErrorCode.INVALID_REQUEST
    assert list(cluster.image.acls) == [ORDERS]


def test_the_list_of_a_pattern_is_bounded() -> None:
    cluster = a_cluster()
    many = [raw(principal=f"User:{'x' * 1_000}{number}") for number in range(140)]
    results = create(cluster, *many)
    refused = [one for one in results if one.error is ErrorCode.INVALID_REQUEST]
    assert 0 < len(refused) < 20
    assert "more than 131072 characters" in refused[0].message


def test_the_number_of_patterns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "PATTERNS_MAX", 2)
    cluster = a_cluster()
    results = create(cluster, raw("a"), raw("b"), raw("c"), raw("a", "User:bob"))
    assert [one.error for one in results] == [0, 0, ErrorCode.INVALID_REQUEST, 0]


def test_a_list_fits_in_a_znode_whatever_its_characters_are() -> None:
    """ZooKeeper closes the connection at a request of 1 MB, and the term would end."""
    cluster, face = a_cluster(), "\N{GRINNING FACE}" * 1_000
    results = create(cluster, *(raw(principal=f"User:{n}{face}") for n in range(124)))
    assert results[-1].error is ErrorCode.INVALID_REQUEST
    assert len(write_acls(ORDERS, cluster.image.acls[ORDERS])) < 256 * 1024
