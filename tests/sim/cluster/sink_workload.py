"""Use of a sink by streaming queries: drivers divide their input into batches, tasks write them.

Two drivers may work for one query from one checkpoint, as when the first is wrongly presumed dead.
A batch that fails, or whose driver dies before it has noted the commit, is written again by other
writers. Sometimes a new query takes the sink over, or a driver begins from an old checkpoint.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.client.errors import ClientError
from tidemark.client.transactions.sink_batches import (
    BatchCommittedError,
    BatchId,
    RetiredQueryError,
    SinkBatches,
    StaleBatchError,
)

from sim.checkers import BrokenError, require
from sim.cluster.sink_client import TaskFailedError, TaskWriter, sink_batches
from sim.cluster.sink_history import Batch, SinkHistory
from sim.cluster.txn_workload import ZOMBIE_MS

if TYPE_CHECKING:
    from sim.cluster.txn_world import TxnWorld

SINK: Final = "sink"
OLD_CHECKPOINT: Final = 2
"""Number of batches by which an old checkpoint is behind."""
HURRIED: Final = 0.3
"""Probability that a task gives up a batch that is not acknowledged in time."""


@dataclass
class Query:
    """A query with its checkpoint, which all its drivers share."""

    number: int
    following: int = 0
    """The batch after the last commit that a driver has noted."""

    def batch_id(self, number: int) -> BatchId:
        """Return the id of a batch at the sink."""
        return BatchId(SINK, f"q{self.number}", number)


class SinkLife:
    """The sink's side of a run: its history, and its queries so far."""

    def __init__(self, world: "TxnWorld") -> None:
        self.history = SinkHistory(world.history)
        self.queries = [Query(1)]
        self.drivers = [Driver(world, self, f"d{n}") for n in (1, 2)[: world.dice.between(1, 2)]]

    @property
    def newest(self) -> Query:
        """Return the query that began last."""
        return self.queries[-1]

    def begin_next(self) -> None:
        """Begin a new query, with a checkpoint of its own."""
        self.queries.append(Query(self.newest.number + 1))


class Driver:
    """Driver that works for one query at a time, batch after batch."""

    def __init__(self, world: "TxnWorld", life: SinkLife, name: str) -> None:
        self.name = name
        self._world = world
        self._life = life
        self._sink: SinkBatches = sink_batches(world)
        self._query = life.newest
        self._number = 0
        self._tried = 0
        self._is_told = False
        """True once the outcome of the last commit was received."""
        self._zombies: asyncio.TaskGroup | None = None
        self._pace_ms = world.dice.pick((10, 30))
        self._topics = world.inputs

    async def run(self) -> None:
        """Run until the workload ends, and once more: after healing, a batch can be committed."""
        try:
            async with asyncio.TaskGroup() as self._zombies:
                while not self._world.is_draining:
                    await self._attempt()
                self._is_told = False
                while not self._is_told:
                    await self._attempt()
        except* BrokenError as found:
            raise found.exceptions[0] from None

    async def _attempt(self) -> None:
        """Make one attempt at one batch, and note the next one."""
        await asyncio.sleep(self._world.dice.between(1, 2 * self._pace_ms) / 1_000)
        self._tried += 1
        batch = Batch(self._query.number, self._number)
        try:
            writers = await self._write(batch)
            await self._commit(batch, writers)
        except BatchCommittedError as done:
            self._note(f"hears that {batch.query}.{batch.number} is done")
            self._life.history.done(batch, done.note)
            self._go_on(batch)
        except StaleBatchError:
            self._note(f"hears that {batch.query}.{batch.number} is stale")
            await self._find_checkpoint(batch)
        except RetiredQueryError:
            self._note(f"hears that query {batch.query} is retired")
            self._begin_at(self._life.newest)
        except ClientError as problem:
            self._note(f"hears {problem.code.name}")
        except (TaskFailedError, TimeoutError) as problem:
            self._note(f"gives {batch.query}.{batch.number} up: {problem}")

    def _go_on(self, batch: Batch) -> None:
        """Continue after the batch's commit was acknowledged."""
        self._is_told = True
        query, dice = self._query, self._world.dice
        query.following = max(query.following, batch.number + 1)
        self._number = batch.number + 1
        if dice.chance(0.06) and not self._world.is_draining:
            if query is self._life.newest:
                self._life.begin_next()
            self._begin_at(self._life.newest)
        elif dice.chance(0.06):
            self._number = max(0, query.following - dice.between(0, OLD_CHECKPOINT))
            self._note(f"begins again at {query.number}.{self._number}")

    def _begin_at(self, query: Query) -> None:
        self._query, self._number = query, query.following
        self._note(f"begins with query {query.number}")

    async def _find_checkpoint(self, batch: Batch) -> None:
        """Take the checkpoint from the sink."""
        asking = self._life.history.asks_in(batch)
        found = await self._describe()
        if found is None:
            return
        query, committed = found
        self._life.history.describes(asking, query, committed)
        if query == self._query.number:
            self._number = max(self._query.following, committed + 1)
        else:
            self._begin_at(self._life.newest)

    async def _describe(self) -> tuple[int, int] | None:
        """Return the query and its last batch; None without a response."""
        try:
            found = await self._sink.describe(SINK)
        except ClientError:
            return None
        return int(found.query_id[1:]), -1 if found.batch_id is None else found.batch_id

    # -- tasks

    async def _write(self, batch: Batch) -> list[TaskWriter]:
        """Write by one task, by two or by none. Raises ClientError, TaskFailedError."""
        dice = self._world.dice
        if dice.chance(0.08):
            return []
        is_named_alike = dice.chance(0.5)
        work = []
        for number in range(dice.between(1, 2)):
            name = f"t{number}" if is_named_alike else f"t{number}-{self.name}.{self._tried}"
            work.append(self._task(batch, name))
            if dice.chance(0.15):
                self._abandon(batch, name)
        found = await asyncio.gather(*work)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return [one for one in found if isinstance(one, TaskWriter)]

    def _abandon(self, batch: Batch, name: str) -> None:
        """Start a second attempt at a task, never awaited: speculation, or a zombie."""
        assert self._zombies is not None, "run() is under way"
        pause_ms = self._world.dice.pick((0, 5, 30, *ZOMBIE_MS))
        self._zombies.create_task(self._stray(batch, name, pause_ms))

    async def _stray(self, batch: Batch, name: str, pause_ms: int) -> None:
        if self._world.dice.chance(0.5):
            name = f"{name}-again"
        problem = await self._task(batch, name, pause_ms)
        if isinstance(problem, ClientError | TaskFailedError):
            self._note(f"loses a task: {type(problem).__name__}")

    async def _task(
        self, batch: Batch, name: str, pause_ms: int = 0
    ) -> TaskWriter | ClientError | TaskFailedError:
        """Make one attempt: enlist, write, pause, write. Return the error if it failed."""
        try:
            writer = await self._enlist(batch, name)
            await self._write_values(writer)
            if pause_ms:
                await asyncio.sleep(pause_ms / 1_000)
                await self._write_values(writer)
        except (ClientError, TaskFailedError) as problem:
            return problem
        return writer

    async def _enlist(self, batch: Batch, name: str) -> TaskWriter:
        history, timeout_ms = self._life.history, self._world.timeout_ms
        asking = history.asks_in(batch)
        batch_id = Query(batch.query).batch_id(batch.number)
        enlisted = await self._sink._enlist(batch_id, name, timeout_ms)
        self._world.handed_out += 1
        unlike = f"{self.name}.{batch.query}.{batch.number}.{self._world.handed_out}"
        txn = history.lets_in(asking, unlike)
        if self._world.dice.chance(0.2):
            await self._sink._keep_alive(batch_id, enlisted.handle, timeout_ms)
        return TaskWriter(self._world, SINK, enlisted.receipt, txn, impatience=HURRIED)

    async def _write_values(self, writer: TaskWriter) -> None:
        dice = self._world.dice
        for topic in [one for one in self._topics if dice.chance(0.7)]:
            count = len(writer.txn.written)
            values = [f"{writer.txn.name}-{count + n}".encode() for n in range(dice.between(1, 2))]
            await writer.send(topic, values)

    # -- commits

    async def _commit(self, batch: Batch, writers: list[TaskWriter]) -> None:
        """Commit. Raises ClientError, TaskFailedError; TimeoutError: the driver died meanwhile."""
        dice = self._world.dice
        if dice.chance(0.05):
            raise TaskFailedError("the driver dies")
        if dice.chance(0.05):
            await self._abort(batch)
            return
        note = f"{self.name}.{self._tried}"
        if dice.chance(0.1):
            async with asyncio.timeout(dice.pick((2, 8, 30)) / 1_000):
                await self._ask(batch, note, writers)
        else:
            await self._ask(batch, note, writers)
        if dice.chance(0.2):
            await asyncio.sleep(dice.pick((0, 5, 200)) / 1_000)
            await self._ask(batch, note, writers)
        self._go_on(batch)

    async def _ask(self, batch: Batch, note: str, writers: list[TaskWriter]) -> None:
        history, dice = self._life.history, self._world.dice
        history.asks(batch, note, [one.txn for one in writers])
        outcome = await self._sink.commit(
            Query(batch.query).batch_id(batch.number),
            [one.receipt for one in writers],
            note=note,
            timeout_ms=self._world.timeout_ms,
        )
        how = "first" if outcome.first else "again" if outcome.same_writers else "late"
        self._note(f"commit {batch.query}.{batch.number} {how}")
        history.tells(batch, note, outcome)
        if outcome.first and dice.chance(0.1):
            raise TaskFailedError("the driver dies before it has noted its commit")

    async def _abort(self, batch: Batch) -> None:
        outcome = await self._sink.abort(Query(batch.query).batch_id(batch.number))
        self._note(f"abort {batch.query}.{batch.number}")
        require(not outcome.first, "an abort commits nothing", outcome)
        if outcome.committed:
            self._life.history.done(batch, outcome.note)

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)
