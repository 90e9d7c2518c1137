"""Roles of REST and the console: named sets of operations, on all resources of a type. Pure.

A role adds to what ACLs allow; an ACL that denies has precedence over it. Kafka's listeners know no
roles.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tidemark.model.authorization import SUPPORTED_OPERATIONS, Operation, ResourceType

Grants = Mapping[ResourceType, frozenset[Operation]]

_SEES: Final = frozenset({Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})
# Without CREATE, which is the right to create any topic.
_STEERS: Final = frozenset({Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION})


class Role(StrEnum):
    """Role of a principal."""

    VIEWER = "viewer"
    """Sees everything but the records of topics."""
    EDITOR = "editor"
    """Also reads, writes, creates, changes and deletes topics and groups."""
    OPERATOR = "operator"
    """Sees everything but records, and changes the cluster: brokers, replicas, settings, open
    transactions, users, ACLs.
    """
    ADMIN = "admin"
    """May do everything."""


def _all() -> Grants:
    return {kind: frozenset(some) for kind, some in SUPPORTED_OPERATIONS.items()}


def _plus(base: Grants, **more: frozenset[Operation]) -> Grants:
    return {kind: base[kind] | more.get(kind.name.lower(), frozenset()) for kind in base}


_VIEWER: Final[Grants] = {kind: some & _SEES for kind, some in _all().items()}
GRANTS: Final[Mapping[Role, Grants]] = {
    Role.VIEWER: _VIEWER,
    Role.EDITOR: _plus(_VIEWER, topic=_all()[ResourceType.TOPIC], group=_all()[ResourceType.GROUP]),
    Role.OPERATOR: _plus(
        _VIEWER,
        cluster=_STEERS,
        topic=frozenset({Operation.ALTER_CONFIGS}),
        group=frozenset({Operation.ALTER_CONFIGS}),
        transactional_id=frozenset({Operation.WRITE}),
    ),
    Role.ADMIN: _all(),
}
"""Operations of each role, by type of resource."""


def parse_roles(text: str) -> Mapping[str, Role]:
    """Read ``User:alice=viewer;User:bob=admin``. Raises ValueError with the form."""
    found: dict[str, Role] = {}
    for part in (one.strip() for one in text.split(";")):
        if not part:
            continue
        principal, _, role = (word.strip() for word in part.rpartition("="))
        if not principal.startswith("User:") or principal == "User:":
            raise ValueError(f"{part!r} is no role of a principal: use User:name=viewer;...")
        if role not in set(Role):
            raise ValueError(f"{role!r} is no role; there are {', '.join(Role)}")
        if principal in found:
            raise ValueError(f"{principal} has two roles")
        found[principal] = Role(role)
    return found


def grants(role: Role, operation: Operation, resource_type: ResourceType) -> bool:
    """Return True if a role allows an operation on resources of a type."""
    return operation in GRANTS[role][resource_type]
