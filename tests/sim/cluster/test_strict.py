"""A promise that breaks where production code goes on after an internal error is a finding."""

import ast
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from broker.core.groups.coordinator_shard import CoordinatorShard
from broker.core.share.dead_letters import DeadLetters
from broker.core.share.share_partition import SharePartition
from broker.shell.listener import request_router
from broker.shell.upkeep import cleaning
from controller.core.term import ActiveTerm
from controller.shell.metadata_feed import MetadataFeed
from controller.shell.node import ControllerNode
from controller.shell.zk_store import ZkStore
from share_coordinator.core.share_states import ShareStates
from tidemark.runtime.coordinator.metrics import RequestStats
from tidemark.runtime.coordinator.shard_life import ShardLife

from sim.checkers import BrokenError
from sim.cluster.parts import Options
from sim.cluster.run import run_seed, run_share_seed, run_txn_seed
from sim.cluster.share_world import ShareOptions
from sim.cluster.txn_world import TxnOptions
from sim.mutations import changed
from sim.run import TESTS

LENGTH_MS: Final = 1_500
SEEDS: Final = range(1, 13)
REACHING: Final = 3
"""Number of seeds that must reach the place where the promise breaks."""
BROKEN: Final = "a promise of this test"
WORLDS: Final = {
    "cluster": partial(run_seed, options=Options(length_ms=LENGTH_MS)),
    "txn": partial(run_txn_seed, options=TxnOptions(LENGTH_MS, is_sink=False, has_handles=False)),
    "share": partial(run_share_seed, options=ShareOptions(LENGTH_MS, has_letters=True)),
}
WIDE: Final = {
    "Exception",
    "BaseException",
    "AssertionError",
    "ExceptionGroup",
    "BaseExceptionGroup",
}
"""Exceptions that a broken promise is one of."""
GOES_ON: Final = {
    # the simulator notes what fails there: see run.py
    "Cleaning._is_cleaned": "Cleaning._give_up",
    "Cleaning._plan_if_possible": "Cleaning._give_up",
    "Controller.step": "ControllerNode._note_fault",
    "Controller._decide": "ControllerNode._note_fault",
    "ControllerNode.take": "ControllerNode._note_fault",
    "ControllerNode._write": "ControllerNode._note_fault",
    "Shards._serve": "Shards._run",
    "Groups._hold": "ShardRuntime.run",
    "Persister._guarded": "Persister._drop",
    "Persister._write": "Persister._drop",
    "LetterCopier._perform": "LetterCopier._take_steps",
    "RequestRouter._run": "RequestRouter._answer",
    "Connection._guarded": "replaced by nothing",
    # raised again elsewhere
    "ShardRuntime._guarded": "by run()",
    "ShardRuntime._whole": "by run()",
    "TimedWork.__await__": "thrown into the work",
    # no simulated world has it
    "_serve": "the outermost frame of a process",
    "run": "the outermost frame of the command",
    "WorkerProcess._run": "SimWorkers has no processes",
    "_answer": "of a worker process",
    "_names": "of the command, for the shell's completion",
    "_read": "of the command that makes a bundle",
    "GrpcLogin.__call__": "of clients over gRPC",
    "LoopThread._outcome": "of the client without await",
    "GrpcTransport.produce": "of clients over gRPC",
    "keep": "of the administration",
    "AgedCache._fetch": "of the administration",
    "call_back": "of share consumers in applications; no simulated member has a function to call",
    "Console._answer": "of the console",
}
"""Functions that go on after any exception, and what makes a broken promise in them a finding."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("world", "owner", "attribute"),
    [
        pytest.param("cluster", ControllerNode, "ask", id="call of a controller"),
        pytest.param("txn", cleaning, "plan_cleaning", id="compaction of a log"),
        pytest.param("cluster", ActiveTerm, "decide", id="decision of a controller"),
        pytest.param("cluster", MetadataFeed, "publish", id="effect of a controller"),
        pytest.param("cluster", ZkStore, "write", id="write of a controller"),
        pytest.param("txn", request_router, "write_response", id="request of a client"),
        pytest.param("txn", CoordinatorShard, "decide", id="shard of groups"),
        pytest.param("txn", RequestStats, "count", id="call of a coordinator"),
        pytest.param("txn", ShardLife, "close", id="end of a shard"),
        pytest.param("share", request_router, "write_response", id="request of a member"),
        pytest.param("share", ShareStates, "write", id="shard of share groups"),
        pytest.param("share", SharePartition, "loaded", id="load of a share-partition"),
        pytest.param("share", SharePartition, "written", id="write of a share-partition"),
        pytest.param("share", DeadLetters, "did", id="copy of dead letters"),
    ],
)
def test_a_broken_promise_is_a_finding(world: str, owner: Any, attribute: str) -> None:
    """Shards are closed when a world ends, too, and its promises are checked before."""
    reached: list[str] = []

    def broken(*_: Any, **__: Any) -> Any:
        reached.append(BROKEN)
        raise BrokenError(BROKEN, "")

    found: list[str] = []
    with changed([(owner, attribute, broken)]):
        for seed in SEEDS:
            promise = WORLDS[world](seed).promise
            if reached and (promise or owner is not ShardLife):
                found.append(promise)
            reached.clear()
            if len(found) == REACHING:
                break
    assert found == [BROKEN] * REACHING


def _names(of: ast.expr | None) -> set[str]:
    if isinstance(of, ast.Tuple):
        return {name for one in of.elts for name in _names(one)}
    return {"BaseException" if of is None else ast.unparse(of).rpartition(".")[2]}


def _goes_on(node: ast.AST) -> bool:
    """True for an ``except`` that does not raise again, and for calls with the same effect."""
    if isinstance(node, ast.ExceptHandler):
        return bool(_names(node.type) & WIDE) and not isinstance(node.body[-1], ast.Raise)
    if not isinstance(node, ast.Call):
        return False
    function = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
    if "suppress" in (function, getattr(function, "id", "")):
        return any(_names(one) & WIDE for one in node.args)
    return any(one.arg == "return_exceptions" for one in node.keywords)


def _found_in(node: ast.AST, within: tuple[str, ...] = ()) -> Iterator[str]:
    if _goes_on(node):
        yield ".".join(within)
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        within = (*within, node.name)
    for one in ast.iter_child_nodes(node):
        yield from _found_in(one, within)


def test_what_is_known_of_every_place_that_goes_on_after_any_exception() -> None:
    rooms = (TESTS.parent / "lib", TESTS.parent / "services")
    files: list[Path] = [file for room in rooms for file in room.rglob("*.py")]
    found = {name for file in files for name in _found_in(ast.parse(file.read_text()))}
    assert found == GOES_ON.keys()
