"""DescribeGroups, ListGroups, DeleteGroups."""

import pytest
from broker.core.groups.id_requests import ReserveGroupId
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import OPERATIONS_NOT_REQUESTED, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.broker.core.groups.group_worlds import commit, committed, left, stable
from unit.broker.shell.kafka.group_handlers import GroupBroker, versions

GROUPS = {"groups": ["g", "none", "secret", ""]}


def broker() -> GroupBroker:
    handlers = GroupBroker()
    stable(handlers.groups.world, "a", "b", instances=True)
    committed(handlers.groups.world, commit(5, group_id="simple"))
    return handlers


def described(handlers: GroupBroker, version: int, **fields: object) -> list[Struct]:
    found: list[Struct] = handlers.ask(ApiKey.DESCRIBE_GROUPS, {**GROUPS, **fields}, version).groups
    return found


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(version: int) -> None:
    handlers = broker()
    handlers.deny(Operation.DESCRIBE, "secret")
    group, missing, secret, nameless = described(handlers, version)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    first = group.members[0]
    assert (first.member_id, first.member_assignment, first.client_host) == (
        "a",
        b"a",
        "/127.0.0.1",
    )
    assert first.group_instance_id == ("A" if version >= 4 else None)
    not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert (missing.error_code, missing.group_state) == (not_found, "Dead")
    assert secret.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (nameless.error_code, nameless.group_state) == (not_found, "Dead")


def test_operations_are_told_when_wanted() -> None:
    handlers = broker()
    [group, *_] = described(handlers, 6)
    assert group.authorized_operations == OPERATIONS_NOT_REQUESTED
    [group, *_] = described(handlers, 6, include_authorized_operations=True)
    assert group.authorized_operations & 1 << Operation.DELETE


@pytest.mark.parametrize(("version", "are_shown"), [(3, True), (5, True), (6, False)])
def test_operations_on_a_group_that_is_dead_are_told_where_that_is_no_error(
    version: int, are_shown: bool
) -> None:
    asked = {"groups": ["none"], "include_authorized_operations": True}
    [group] = described(broker(), version, **asked)
    assert (group.authorized_operations != OPERATIONS_NOT_REQUESTED) == are_shown


def test_a_group_of_another_broker_is_its_own_error() -> None:
    handlers = broker()
    handlers.groups.failure = TidemarkError(ErrorCode.NOT_COORDINATOR, "elsewhere")
    assert {one.error_code for one in described(handlers, 6)} == {
        ErrorCode.NOT_COORDINATOR,
    }
    [result] = handlers.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g"]}).results
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert handlers.ask(ApiKey.LIST_GROUPS, {}).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(version: int) -> None:
    groups = broker().ask(ApiKey.LIST_GROUPS, {}, version).groups
    assert [(one.group_id, one.protocol_type) for one in groups] == [
        ("g", "consumer"),
        ("simple", ""),
    ]
    assert groups[0].group_state == ("Stable" if version >= 4 else "")
    assert groups[0].group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"states_filter": ["Empty"]}, ["simple"]),
        ({"types_filter": ["classic"]}, ["g", "simple"]),
        ({"types_filter": ["consumer"]}, []),
    ],
)
def test_list_by_state_and_type(fields: dict[str, list[str]], found: list[str]) -> None:
    groups = broker().ask(ApiKey.LIST_GROUPS, fields).groups
    assert [one.group_id for one in groups] == found


def test_who_may_not_see_the_cluster_sees_its_own_groups() -> None:
    handlers = broker()
    handlers.deny(Operation.DESCRIBE, "kafka-cluster")
    handlers.deny(Operation.DESCRIBE, "g")
    assert [one.group_id for one in handlers.ask(ApiKey.LIST_GROUPS, {}).groups] == ["simple"]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete(version: int) -> None:
    handlers = broker()
    handlers.deny(Operation.DELETE, "secret")
    asked = {"groups_names": ["g", "simple", "none", "secret", "", "g"]}
    results = handlers.ask(ApiKey.DELETE_GROUPS, asked, version).results
    assert {one.group_id: one.error_code for one in results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": 0,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
        "secret": ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    left(handlers.groups.world, "a", "b")
    [result] = handlers.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g"]}, version).results
    assert result.error_code == 0


def test_offsets_of_consumers_that_name_no_group_are_seen_and_deleted() -> None:
    handlers = GroupBroker()
    committed(handlers.groups.world, commit(5, group_id=""))
    [group] = described(handlers, 6, groups=[""])
    assert (group.error_code, group.group_state) == (0, "Empty")
    [result] = handlers.ask(ApiKey.DELETE_GROUPS, {"groups_names": [""]}).results
    assert result.error_code == 0
    assert not handlers.ask(ApiKey.LIST_GROUPS, {}).groups


def test_a_reserved_id_is_deleted_by_the_share_coordinator() -> None:
    handlers = broker()
    handlers.groups.world.send(ReserveGroupId("shared"))
    (result,) = handlers.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["shared"]}).results
    assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND  # it has no group of this id
