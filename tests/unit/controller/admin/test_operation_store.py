"""Long operations in a tree of znodes that answers at once."""

import logging
import zlib

import pytest
from controller.admin.errors import AdminError
from controller.admin.operation_steps import Operation
from controller.admin.operation_store import OperationStore
from sim.znode_tree import Tree
from tidemark.model.topics import TopicPartition
from tidemark.plans.reassignment import Move
from tidemark.runtime import zk_paths
from unit.controller.lives import TreeSession, finish

MOVES = [Move(TopicPartition("orders", 0), (1, 2), (2, 3))]
DAMAGED = {
    "no JSON": b"{",
    "newer": b'{"format":2}',
    "an unknown state": b'{"format":1,"state":"lost"}',
}


def an_operation(operation_id: str) -> Operation:
    return Operation(
        operation_id=operation_id,
        action="drain",
        subject="broker 1",
        state="running",
        progress=0.5,
        messages=[],
        moves_count=1,
        principal="User:amy",
        created_ms=1_000,
        updated_ms=1_000,
    )


@pytest.fixture
def store() -> OperationStore:
    made = OperationStore(TreeSession(Tree()))
    for name in ("a", "b"):
        assert finish(made.create(an_operation(name), MOVES))
    return made


def write(store: OperationStore, path: str, data: bytes) -> None:
    finish(store._session.set(path, data))


def test_an_operation_comes_back_with_its_moves(store: OperationStore) -> None:
    assert finish(store.get("a")) == (an_operation("a"), 0)
    assert finish(store.moves("a")) == MOVES
    assert not finish(store.create(an_operation("a"), MOVES))


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_an_operation_that_cannot_be_read_is_left_out(
    store: OperationStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = zk_paths.operation("a")
    write(store, path, data)
    with caplog.at_level(logging.ERROR):
        assert [one.operation_id for one in finish(store.all())] == ["b"]
        assert [one.operation_id for one in finish(store.all())] == ["b"]
    (line,) = caplog.records
    assert path in line.getMessage()
    with pytest.raises(AdminError, match=path) as refused:
        finish(store.get("a"))
    assert refused.value.status == 500


@pytest.mark.parametrize(
    "data", [b"zz", zlib.compress(b"{"), zlib.compress(b'{"format":1,"moves":[[1]]}')]
)
def test_moves_that_cannot_be_read_are_refused(store: OperationStore, data: bytes) -> None:
    path = f"{zk_paths.operation('a')}/moves"
    write(store, path, data)
    with pytest.raises(AdminError, match=path):
        finish(store.moves("a"))
    assert finish(store.moves("b")) == MOVES
