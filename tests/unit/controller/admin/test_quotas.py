"""Who sees and sets quotas: who may see and change settings of the cluster, as in Kafka."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from controller.admin import quotas
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.quotas import QuotaChange
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.quotas import QuotaEntity
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster

AMY = QuotaEntity(user="amy")
CHANGE = QuotaChange(entity={"user": "amy"}, values={"producer_byte_rate": 2.0})


class StubAdmin:
    """Client of brokers that serve the controller, which may do everything."""

    async def alter_quotas(self, *_: object, **__: object) -> None:
        """Take the change."""


def see(ctx: AdminContext) -> object:
    return quotas.listed(ctx, AMY)


def change(ctx: AdminContext) -> object:
    return asyncio.run(quotas.alter(ctx, CHANGE, dry_run=True))


def remove(ctx: AdminContext) -> object:
    return asyncio.run(quotas.remove(ctx, AMY, dry_run=True))


@pytest.mark.parametrize(
    ("do", "wrong", "right"),
    [
        (see, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
        (change, Operation.ALTER, Operation.ALTER_CONFIGS),
        (remove, Operation.ALTER, Operation.ALTER_CONFIGS),
    ],
)
def test_quotas_are_settings_of_the_cluster(
    do: Callable[[AdminContext], Any], wrong: Operation, right: Operation
) -> None:
    image = replace(a_cluster().image, quotas={AMY: {"producer_byte_rate": 1.0}})
    do(a_context(image, {CLUSTER: (right,)}, StubAdmin()))
    with pytest.raises(AdminError, match=f"may not {right.name} ") as refused:
        do(a_context(image, {CLUSTER: (wrong,)}, StubAdmin()))
    assert refused.value.status == 403
