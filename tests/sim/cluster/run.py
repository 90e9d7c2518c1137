"""Run a seed of the cluster's simulator, and report the invariant that broke."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from broker.shell.kafka import consumer_group_heartbeat, join_group
from broker.shell.listener.connection import Connection
from broker.shell.listener.request_router import RequestRouter
from broker.shell.share.letter_copier import LetterCopier
from broker.shell.share.persister import Persister
from broker.shell.upkeep.cleaning import Cleaning
from controller.core.effects import NoteFault
from controller.shell.node import ControllerNode
from tidemark.client.transactions import control as transaction_control
from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.shards import Shards
from tidemark.runtime.shard_runtime import ShardRuntime

from sim.cluster.parts import Options
from sim.cluster.share_watch import watched
from sim.cluster.share_world import ShareOptions, ShareWorld
from sim.cluster.sink_client import EvenJitter
from sim.cluster.txn_world import TxnOptions, TxnWorld
from sim.cluster.world import World
from sim.mutations import Change, changed
from sim.run import Outcome, leaves, outcome_of

SEEDS_THAT_FAILED: Final = Path(__file__).with_name("seeds.txt")
TXN_SEEDS_THAT_FAILED: Final = Path(__file__).with_name("txn_seeds.txt")
SHARE_SEEDS_THAT_FAILED: Final = Path(__file__).with_name("share_seeds.txt")


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """Run one seed, reproducibly. Any exception inside is a finding."""
    options = options or Options()
    return _run(World(seed, options), seed, options)


def run_txn_seed(seed: int, options: TxnOptions | None = None) -> Outcome:
    """Run one seed of a cluster with transactions."""
    return run_txn_world(seed, options)[0]


def run_txn_world(seed: int, options: TxnOptions | None = None) -> tuple[Outcome, TxnWorld]:
    """Run one seed, and return the world as it is at the end."""
    options = options or TxnOptions()
    world = TxnWorld(seed, options)
    return _run(world, seed, options), world


def run_share_seed(seed: int, options: ShareOptions | None = None) -> Outcome:
    """Run one seed of a cluster with a share group."""
    return run_share_world(seed, options)[0]


def run_share_world(seed: int, options: ShareOptions | None = None) -> tuple[Outcome, ShareWorld]:
    """Run one seed, and return the world as it is at the end."""
    options = options or ShareOptions()
    world = ShareWorld(seed, options)
    return _run(world, seed, options, watched(world.history)), world


def _run(world: World, seed: int, options: Options, changes: Sequence[Change] = ()) -> Outcome:
    try:
        with changed([*_strictly(world.failures), *changes]):
            return outcome_of(world.run, seed, options, world.trace)
    finally:
        world.close()


_UNGUARDED: Final[Change] = (Connection, "_guarded", lambda _, work: work)
"""In production a failed handler costs a broker one connection; here it is a finding."""
_SURVIVED: Final = (
    (ShardRuntime, "run"),
    (Shards, "_run"),
    (LetterCopier, "_take_steps"),
    (RequestRouter, "_answer"),
)
"""Work that a process survives if it fails by an internal error: in production a shard, a
share-partition, an attempt to copy dead letters or a request ends, and the process goes on.
"""


def _strictly(failures: list[BaseException]) -> list[Change]:
    """Return changes for strictness: what a process survives is a finding. Ids of members come from
    a counter.
    """
    numbers = count(1)

    def next_id() -> str:
        return f"{next(numbers):032}"

    return [
        _UNGUARDED,
        *((owner, name, _noting(failures, getattr(owner, name))) for owner, name in _SURVIVED),
        (Persister, "_drop", _noting_drops(failures, Persister._drop)),
        (Cleaning, "_give_up", _noting_drops(failures, Cleaning._give_up)),
        (ControllerNode, "_note_fault", _noting_faults(failures, ControllerNode._note_fault)),
        (transaction_control, "random", EvenJitter),
        (join_group, "uuid4", next_id),
        (consumer_group_heartbeat, "uuid4", next_id),
    ]


def _noting(failures: list[BaseException], work: Callable[..., Awaitable[Any]]) -> Any:
    """Return a method that does the work, and notes its internal errors."""

    async def noting(*args: Any, **named: Any) -> Any:
        try:
            return await work(*args, **named)
        except Exception as found:
            failures.extend(_internal(found))
            raise

    return noting


def _noting_drops(failures: list[BaseException], drop: Callable[..., None]) -> Any:
    """Return a method that drops share-partitions, or a log that is compacted, after an error, and
    notes it if it is internal.

    A write is not a coroutine within another one that survives its errors, as other work is.
    """

    def noting(owner: Any, of: Any, failure: Exception) -> None:
        failures.extend(_internal(failure))
        drop(owner, of, failure)

    return noting


def _noting_faults(failures: list[BaseException], note: Callable[..., None]) -> Any:
    """Return a method that notes an error of a controller's own code, here too."""

    def noting(node: ControllerNode, fault: NoteFault) -> None:
        failures.append(fault.error)
        note(node, fault)

    return noting


def _internal(found: Exception) -> list[BaseException]:
    return [one for one in leaves(found) if not isinstance(one, TidemarkError)]
