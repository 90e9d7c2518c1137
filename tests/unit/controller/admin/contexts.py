"""Contexts of callers who may do some things, over a small cluster and stubs of its brokers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from controller.admin.access_rules import AccessRules
from controller.admin.context import AdminContext
from controller.admin.operation_steps import Operation as LongAction
from tidemark.model.acls import AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import Operation, Requester, Resource
from tidemark.model.metadata import ClusterImage
from tidemark.protocol.acl_authorizer import AclPolicy


class NoOperations:
    """Operations of a cluster that has had none."""

    async def all(self) -> list[LongAction]:
        return []


class Brokers:
    """Brokers, with a stub of their client."""

    def __init__(self, admin: object) -> None:
        self._admin = admin

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        yield self._admin


def a_context(
    image: ClusterImage, allowed: Mapping[Resource, tuple[Operation, ...]], admin: object = None
) -> AdminContext:
    """Return the context of a user who may do these operations. ``admin`` stands for the client of
    the brokers.
    """
    acls = {
        ResourcePattern(resource.resource_type, resource.name): frozenset(
            AclEntry("User:amy", "*", one, Permission.ALLOW) for one in operations
        )
        for resource, operations in allowed.items()
    }
    shared: Any = SimpleNamespace(
        image=lambda: image,
        access=AccessRules(AclPolicy(), {}, lambda: acls),
        node=SimpleNamespace(audit=SimpleNamespace(asked=lambda *_: True)),
        operations=NoOperations(),
        brokers=Brokers(admin),
        clock=SimpleNamespace(wall_ms=lambda: 1_000),
    )
    return AdminContext(shared, Requester("User:amy", "10.0.0.1"))
