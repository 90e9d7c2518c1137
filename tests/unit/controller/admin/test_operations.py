"""Who may begin long actions, and see what they would do."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from controller.admin import operations
from controller.admin.access_rules import AccessRules
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.operation_steps import Operation
from controller.admin.reassignments import PlanView, WantedReplicas
from tidemark.model.acls import AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import CLUSTER, Requester
from tidemark.model.authorization import Operation as Asked
from tidemark.protocol.acl_authorizer import AclPolicy
from unit.controller.worlds import a_cluster, a_topic

MOVED = [WantedReplicas(topic_name="orders", partition_id=0, replicas=[2, 1])]
PLANS: dict[str, Callable[[AdminContext], Awaitable[PlanView]]] = {
    "reassign": lambda ctx: operations.plan_reassign(ctx, MOVED),
    "drain": lambda ctx: operations.plan_drain(ctx, 1),
    "undrain": lambda ctx: operations.plan_undrain(ctx, 1),
    "decommission": lambda ctx: operations.plan_decommission(ctx, 1),
}


class Store:
    """Operations of a cluster that has had none."""

    async def all(self) -> list[Operation]:
        return []


def a_context(*allowed: Asked) -> AdminContext:
    """Return the context of a user who may do these operations to the cluster."""
    image = a_cluster(a_topic("orders", (1, 2))).image
    entries = {AclEntry("User:amy", "*", one, Permission.ALLOW) for one in allowed}
    acls = {ResourcePattern(CLUSTER.resource_type, CLUSTER.name): frozenset(entries)}
    shared: Any = SimpleNamespace(
        image=lambda: image,
        access=AccessRules(AclPolicy(), {}, lambda: acls),
        node=SimpleNamespace(audit=SimpleNamespace(asked=lambda *_: True)),
        operations=Store(),
    )
    return AdminContext(shared, Requester("User:amy", "10.0.0.1"))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("allowed", [(), (Asked.DESCRIBE,)], ids=["nothing", "describe"])
def test_a_plan_is_shown_to_who_may_carry_it_out(name: str, allowed: tuple[Asked, ...]) -> None:
    with pytest.raises(AdminError, match="may not ALTER") as refused:
        asyncio.run(_plan(name, a_context(*allowed)))
    assert refused.value.status == 403


async def _plan(name: str, ctx: AdminContext) -> PlanView:
    return await PLANS[name](ctx)
