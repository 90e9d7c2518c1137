"""Who may see what a long action would do."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from controller.admin import operations
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.reassignments import PlanView, WantedReplicas
from tidemark.model.authorization import CLUSTER, Operation
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

MOVED = [WantedReplicas(topic_name="orders", partition_id=0, replicas=[2, 1])]
PLANS: dict[str, Callable[[AdminContext], Awaitable[PlanView]]] = {
    "reassign": lambda ctx: operations.plan_reassign(ctx, MOVED),
    "drain": lambda ctx: operations.plan_drain(ctx, 1),
    "undrain": lambda ctx: operations.plan_undrain(ctx, 1),
    "decommission": lambda ctx: operations.plan_decommission(ctx, 1),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("allowed", [(), (Operation.DESCRIBE,)], ids=["nothing", "describe"])
def test_a_plan_is_shown_to_who_may_carry_it_out(name: str, allowed: tuple[Operation, ...]) -> None:
    async def plan() -> PlanView:
        image = a_cluster(a_topic("orders", (1, 2))).image
        return await PLANS[name](a_context(image, {CLUSTER: allowed}))

    with pytest.raises(AdminError, match="may not ALTER") as refused:
        asyncio.run(plan())
    assert refused.value.status == 403
