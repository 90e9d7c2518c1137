"""Roles: what each may do, and how they are written."""

import pytest
from controller.core.roles import GRANTS, Role, grants, parse_roles
from tidemark.model.authorization import SUPPORTED_OPERATIONS, Operation, ResourceType

pytestmark = pytest.mark.feature("SE19")


def test_roles_are_read() -> None:
    text = "User:alice=viewer; User:CN=bob,O=Acme=admin;"
    assert parse_roles(text) == {"User:alice": Role.VIEWER, "User:CN=bob,O=Acme": Role.ADMIN}
    assert parse_roles("") == {}


@pytest.mark.parametrize(
    "text", ["alice=viewer", "User:=viewer", "User:a", "User:a=root", "User:a=viewer;User:a=admin"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="role"):
        parse_roles(text)


def test_a_role_only_has_operations_that_resources_have() -> None:
    for role in Role:
        for kind, operations in GRANTS[role].items():
            assert operations <= set(SUPPORTED_OPERATIONS[kind]), (role, kind)


def test_everybody_sees_and_only_some_read_and_change() -> None:
    topic, cluster = ResourceType.TOPIC, ResourceType.CLUSTER
    assert all(grants(role, Operation.DESCRIBE, topic) for role in Role)
    assert [role for role in Role if grants(role, Operation.READ, topic)] == ["editor", "admin"]
    assert [role for role in Role if grants(role, Operation.ALTER, cluster)] == [
        "operator",
        "admin",
    ]
    assert [
        role for role in Role for kind in (topic, cluster) if grants(role, Operation.CREATE, kind)
    ] == ["editor", "admin", "admin"]


def test_an_admin_may_do_everything() -> None:
    for kind, operations in SUPPORTED_OPERATIONS.items():
        assert all(grants(Role.ADMIN, one, kind) for one in operations)
