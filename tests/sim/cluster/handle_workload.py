"""Users of durable handles: one process begins a transaction, others write in it, others finish it;
a process without the outcome requests it again.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidemark.client.errors import ClientError, InvalidTransactionStateError
from tidemark.client.transactions.multi_writer import Transactions

from sim.checkers import BrokenError, require
from sim.cluster.processes import SimClock
from sim.cluster.sink_client import CONFIG, PATIENCE_MS, SimCalls, TaskFailedError, TaskWriter
from sim.cluster.txn_history import Fate, Row, TxnHistory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.cluster.txn_world import TxnWorld

SHARED: Final = "shared"
HURRIED: Final = 0.3
Winners = frozenset[str]
"""Writers' transactions of a TxnHistory, by name; empty if the transaction was aborted."""


@dataclass
class HandleHistory:
    """Rules for transactions with several writers, by their handles as text.

    test_handle_history.py gives each rule a history that it must reject.
    """

    txns: TxnHistory
    writers: dict[str, list[str]] = field(default_factory=dict)
    asked: dict[str, set[Winners]] = field(default_factory=dict)
    won: dict[str, Winners] = field(default_factory=dict)

    def lets_in(self, handle: str, name: str, *, is_over: bool) -> None:
        """Record a writer's slot. ``is_over``: the outcome was known before the request."""
        require(not is_over, "nobody writes in what has ended", f"{name}: {handle}")
        self.writers.setdefault(handle, []).append(name)

    def asks(self, handle: str, winners: Winners) -> None:
        """Record that a process is about to request this commit."""
        self.asked.setdefault(handle, set()).add(winners)
        for name in winners:
            txn = self.txns.txns[name]
            if txn.fate is Fate.OPEN:
                self.txns.asks(txn)

    def tells(self, handle: str, winners: Winners) -> None:
        """Record a response that confirms the requested outcome."""
        known = self.won.setdefault(handle, winners)
        require(known == winners, "a transaction ends once", f"{handle}: {winners}, but {known}")
        for name in self.writers.get(handle, ()):
            txn = self.txns.txns[name]
            if txn.fate is Fate.ASKED:
                self.txns.told(txn, committed=name in winners)

    def ends(self, rows: "Mapping[str, Sequence[Row]]") -> None:
        """Check all readable records, by topic, after everything has healed."""
        found = {
            self.txns.txn_of[value].name for of_topic in rows.values() for _, value in of_topic
        }
        for handle, names in self.writers.items():
            visible = found & set(names)
            known, asked = self.won.get(handle), self.asked.get(handle, set())
            allowed = [frozenset[str](), *asked] if known is None else [known]
            require(
                visible in [self._written(one) for one in allowed],
                "what is visible is what one commit named",
                f"{handle}: {visible}, {allowed}",
            )

    def _written(self, winners: Winners) -> set[str]:
        return {name for name in winners if self.txns.txns[name].written}


class SimTransactions(Transactions):
    """The library's client, over the simulated network."""

    def __init__(self, world: "TxnWorld") -> None:
        clock = SimClock(world.client, 1_000)
        super().__init__("b1:1", CONFIG, clock=clock, default_api_timeout_ms=PATIENCE_MS)
        self.calls = SimCalls(world, self)

    async def kafka_addresses(self) -> list[str]:
        """Return no address: a TaskWriter writes the records."""
        return ["b1:1"]


class Opener:
    """Process that begins one transaction after another; several may share one id."""

    def __init__(self, world: "TxnWorld", history: HandleHistory, name: str) -> None:
        self.name = name
        self._world = world
        self._history = history
        self._is_told = False

    async def run(self) -> None:
        """Run until the workload ends, and once more: after healing, a transaction can be
        committed.
        """
        dice = self._world.dice
        try:
            async with asyncio.TaskGroup() as strays:
                while not (self._world.is_draining and self._is_told):
                    self._is_told = self._is_told and self._world.is_draining
                    await asyncio.sleep(dice.between(1, 60) / 1_000)
                    try:
                        await self._transact(strays)
                    except ClientError as problem:
                        self._note(f"hears {problem.code.name}")
        except* BrokenError as found:
            raise found.exceptions[0] from None

    async def _transact(self, strays: asyncio.TaskGroup) -> None:
        world, dice = self._world, self._world.dice
        begun = await self._process().begin_transaction(
            SHARED, timeout_ms=world.timeout_ms, abort_previous=dice.chance(0.3)
        )
        token = str(begun)
        count = dice.between(1, 3)
        found = await asyncio.gather(*(self._write(token, f"s{n}") for n in range(count)))
        if dice.chance(0.2):
            strays.create_task(self._stray(token))
        written = [one for one in found if one is not None]
        if dice.chance(0.1):
            return  # until the coordinator aborts it
        winners = [one for one in written if dice.chance(0.8)]
        if dice.chance(0.2):
            strays.create_task(self._ask_other(token, written[:1]))
        await self._finish(token, winners)
        if dice.chance(0.4):
            await asyncio.sleep(dice.pick((0, 20, 400)) / 1_000)
            await self._finish(token, winners)
        self._is_told = world.is_draining

    def _process(self) -> SimTransactions:
        """Return a new process: only texts are passed from one to the next."""
        return SimTransactions(self._world)

    async def _write(self, token: str, slot: str) -> TaskWriter | None:
        """Write from a process of its own; None if it failed, or another has its slot."""
        world, dice = self._world, self._world.dice
        try:
            handle = self._process().resume(token)
            is_over = token in self._history.won
            receipt = (await handle.enlist(slot)).receipt()
            world.handed_out += 1
            name = f"{self.name}.{world.handed_out}"
            txn = self._history.txns.begins(name)
            self._history.lets_in(token, name, is_over=is_over)
            writer = TaskWriter(world, SHARED, receipt, txn, impatience=HURRIED)
            for topic in [one for one in world.inputs if dice.chance(0.7)]:
                await writer.send(topic, [f"{name}-{topic.name}".encode()])
        except (ClientError, TaskFailedError) as problem:
            self._note(f"loses a writer: {type(problem).__name__}")
            return None
        return writer

    async def _stray(self, token: str) -> None:
        """Run a writer that no process waits for, with another's slot or too late in some runs."""
        await asyncio.sleep(self._world.dice.pick((0, 5, 30, 300)) / 1_000)
        await self._write(token, self._world.dice.pick(("s0", "late")))

    async def _ask_other(self, token: str, winners: list[TaskWriter]) -> None:
        try:
            await self._finish(token, winners)
        except InvalidTransactionStateError:
            self._note("is too late with other winners")
        except ClientError as problem:
            self._note(f"hears {problem.code.name}")

    async def _finish(self, token: str, winners: list[TaskWriter]) -> None:
        """Commit from a process that has only texts. Raises ClientError."""
        names = frozenset(one.txn.name for one in winners)
        self._history.asks(token, names)
        handle = self._process().resume(token)
        is_committed = await handle.finish(commit=True, writers=[one.receipt for one in winners])
        require(is_committed, "a commit ends in one", token)
        self._note(f"commits {len(winners)} writers")
        self._history.tells(token, names)

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)
