"""Run a seed of the cluster's simulator, and report the invariant that broke."""

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from broker.shell.kafka import consumer_group_heartbeat, join_group
from broker.shell.listener.connection import Connection
from broker.shell.share.persister import Persister
from tidemark.client.transactions import control as transaction_control
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
    world = World(seed, options)
    try:
        with changed([_UNGUARDED]):
            return outcome_of(world.run, seed, options, world.trace)
    finally:
        world.close()


def run_txn_seed(seed: int, options: TxnOptions | None = None) -> Outcome:
    """Run one seed of a cluster with transactions."""
    return run_txn_world(seed, options)[0]


def run_txn_world(seed: int, options: TxnOptions | None = None) -> tuple[Outcome, TxnWorld]:
    """Run one seed, and return the world as it is at the end."""
    options = options or TxnOptions()
    world = TxnWorld(seed, options)
    bugs: list[BaseException] = []

    def run() -> None:
        world.run()
        _raise_first(bugs)

    try:
        with changed(_strictly(bugs)):
            outcome = outcome_of(run, seed, options, world.trace)
            if bugs and not outcome.has_failed:
                outcome.fail(bugs[0])
    finally:
        world.close()
    return outcome, world


def run_share_seed(seed: int, options: ShareOptions | None = None) -> Outcome:
    """Run one seed of a cluster with a share group."""
    options = options or ShareOptions()
    world = ShareWorld(seed, options)
    bugs: list[BaseException] = []

    def run() -> None:
        world.run()
        _raise_first(bugs)

    try:
        with changed([*_strictly(bugs), *watched(world.history)]):
            outcome = outcome_of(run, seed, options, world.trace)
            if bugs and not outcome.has_failed:
                outcome.fail(bugs[0])
    finally:
        world.close()
    return outcome


def _raise_first(bugs: list[BaseException]) -> None:
    if bugs:
        raise bugs[0]


_UNGUARDED: Final[Change] = (Connection, "_guarded", lambda _, work: work)
"""In production a failed handler costs a broker one connection; here it is a finding."""
_run: Callable[..., Awaitable[None]] = ShardRuntime.run
_guarded: Callable[..., Awaitable[None]] = Persister._guarded


def _strictly(bugs: list[BaseException]) -> list[Change]:
    """Return changes for strictness: a shard, and a share-partition, that fails by an assert, which
    in production is dropped and loaded again, is a finding. Ids of members come from a counter.
    """
    numbers = count(1)

    async def guarded(persister: Any, call: Callable[[], Awaitable[None]], of: Any) -> None:
        async def noted() -> None:
            try:
                await call()
            except* AssertionError as found:
                bugs.extend(leaves(found))
                raise

        await _guarded(persister, noted, of)

    async def run(runtime: Any) -> None:
        try:
            await _run(runtime)
        except* AssertionError as found:
            bugs.extend(leaves(found))
            raise

    def next_id() -> str:
        return f"{next(numbers):032}"

    return [
        _UNGUARDED,
        (ShardRuntime, "run", run),
        (Persister, "_guarded", guarded),
        (transaction_control, "random", EvenJitter),
        (join_group, "uuid4", next_id),
        (consumer_group_heartbeat, "uuid4", next_id),
    ]
