"""The driver of long operations, over a tree of znodes that answers at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

from controller.admin.operation_runner import OperationRunner
from controller.admin.operation_steps import Operation
from controller.admin.operation_store import OperationStore
from sim.znode_tree import Tree
from tidemark.runtime import zk_paths
from unit.controller.admin.test_operation_store import MOVES, an_operation
from unit.controller.lives import TreeSession
from unit.controller.worlds import a_cluster


class Store(OperationStore):
    """A store that notes its first update."""

    def __init__(self) -> None:
        super().__init__(TreeSession(Tree()))
        self.updated = asyncio.Event()

    async def update(self, operation: Operation, version: int) -> None:
        await super().update(operation, version)
        self.updated.set()


def test_an_operation_that_cannot_be_read_holds_up_no_other() -> None:
    async def use() -> None:
        store = Store()
        await store.create(an_operation("first"), MOVES)
        await store.create(an_operation("after"), [])
        await store._session.set(f"{zk_paths.operation('first')}/moves", b"zz")
        node = SimpleNamespace(active=asyncio.Event(), is_active=True)
        node.active.set()
        shared: Any = SimpleNamespace(
            node=node,
            operations=store,
            image=lambda: a_cluster().image,
            clock=SimpleNamespace(wall_ms=lambda: 2_000),
        )
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(OperationRunner(shared).run())
            await store.updated.wait()
            run.cancel()
        assert (await store.get("after"))[0].state == "succeeded"
        assert (await store.get("first"))[0].state == "running"

    asyncio.run(use())
