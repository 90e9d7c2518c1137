"""SinkHistory: rules for batches of streaming queries, as seen from outside.

It records the requests of drivers and their responses, and, once all is healed, the readable
records; each method raises BrokenError for a violation. The records of a hand-out form a
transaction of the TxnHistory, so that no reader is given aborted records. test_sink_history.py
gives each rule a history that it must reject.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.client.transactions.sink_batches import BatchOutcome

from sim.checkers import require
from sim.cluster.txn_history import Fate, Row, Txn, TxnHistory


class Batch(NamedTuple):
    """One batch of a query."""

    query: int
    number: int


class Asking(NamedTuple):
    """Knowledge at the time of a request for a hand-out."""

    batch: Batch
    committed: int
    """Newest batch of its query with an acknowledged commit; -1: none."""
    newest_query: int
    """Newest query known to have the sink."""


class Ask(NamedTuple):
    """A requested commit."""

    note: str
    winners: frozenset[str]
    """Transactions, by name."""


@dataclass
class SinkHistory:
    """History of one sink in one run."""

    txns: TxnHistory
    batch_of: dict[str, Batch] = field(default_factory=dict)
    """Batch of each hand-out, by the name of its transaction."""
    asked: dict[Batch, list[Ask]] = field(default_factory=dict)
    won: dict[Batch, Ask] = field(default_factory=dict)
    """Acknowledged commit of each batch."""
    first: set[Batch] = field(default_factory=set)
    """Batches whose acknowledged commit was reported as the first one."""
    committed: dict[int, int] = field(default_factory=dict)
    """Newest batch with an acknowledged commit, by query."""
    newest_query: int = 0

    # -- tasks

    def asks_in(self, batch: Batch) -> Asking:
        """Record that a task is about to request a hand-out."""
        return Asking(batch, self.committed.get(batch.query, -1), self.newest_query)

    def lets_in(self, asking: Asking, name: str) -> Txn:
        """Record the hand-out; return the transaction of its records."""
        batch = asking.batch
        require(
            batch.number > asking.committed,
            "no batch is let in that is committed, or older",
            f"{name}: {batch}, when {asking.committed} was committed",
        )
        require(
            batch.query >= asking.newest_query,
            "no query comes back that another took over from",
            f"{name}: {batch}, when query {asking.newest_query} had the sink",
        )
        self.newest_query = max(self.newest_query, batch.query)
        self.batch_of[name] = batch
        return self.txns.begins(name)

    # -- drivers

    def asks(self, batch: Batch, note: str, winners: Collection[Txn]) -> None:
        """Record that a driver is about to request a commit, possibly again."""
        ask = Ask(note, frozenset(txn.name for txn in winners))
        known = self.asked.setdefault(batch, [])
        if ask not in known:
            known.append(ask)
        for txn in winners:
            if txn.fate is Fate.OPEN:
                self.txns.asks(txn)

    def tells(self, batch: Batch, note: str, outcome: BatchOutcome) -> None:
        """Record the response to the commit requested with ``note``."""
        require(outcome.committed, "a commit ends in one", f"{batch}: {outcome}")
        won = self.done(batch, outcome.note)
        mine = self._ask(batch, note)
        if outcome.first:
            require(batch not in self.first, "a batch has one first commit", f"{batch}: {outcome}")
            require(won is mine, "a first commit is one's own", f"{batch}: {outcome}, not {note}")
            self.first.add(batch)
        require(
            outcome.same_writers == (won.winners == mine.winners),
            "a commit knows its winners again",
            f"{batch}: {outcome}; {won} won, {mine} asked",
        )

    def done(self, batch: Batch, note: str) -> Ask:
        """Record that the batch is committed with this note; the losing requests are then known."""
        found = self._ask(batch, note)
        won = self.won.setdefault(batch, found)
        require(won == found, "a batch has one commit", f"{batch}: {found}, but {won} before")
        newest = self.committed.get(batch.query, -1)
        self.committed[batch.query] = max(newest, batch.number)
        self.newest_query = max(self.newest_query, batch.query)
        for ask in self.asked[batch]:
            for name in ask.winners:
                self._settle(self.txns.txns[name], is_winner=name in won.winners)
        return won

    def describes(self, asking: Asking, query: int, number: int) -> None:
        """Check a description of the sink: its query and the last batch; -1: none."""
        require(
            query >= asking.newest_query,
            "a sink is described as it is",
            f"query {query}, when {asking.newest_query} had it",
        )
        require(
            query != asking.batch.query or number >= asking.committed,
            "a sink is described as it is",
            f"batch {number}, when {asking.committed} was committed",
        )

    def _ask(self, batch: Batch, note: str) -> Ask:
        found = next((one for one in self.asked.get(batch, ()) if one.note == note), None)
        require(found is not None, "nobody commits what was not asked for", f"{batch}: {note!r}")
        assert found is not None
        return found

    def _settle(self, txn: Txn, *, is_winner: bool) -> None:
        if txn.fate is Fate.ASKED:
            self.txns.told(txn, committed=is_winner)

    # -- at the end

    def ends(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Check all readable records, by topic, after everything has healed."""
        visible: dict[Batch, set[str]] = {}
        for topic, of_topic in rows.items():
            found = [self.txns.txn_of[value].name for _, value in of_topic]
            batches = [self.batch_of[name] for name in found]
            require(batches == sorted(batches), "batches are visible in order", f"{topic}")
            for name, batch in zip(found, batches, strict=True):
                visible.setdefault(batch, set()).add(name)
        for batch, names in visible.items():
            commits = [self._writers(ask) for ask in self.asked.get(batch, ())]
            require(
                names in commits,
                "a batch is visible once, by the winners of one commit",
                f"{batch}: {sorted(names)} of {commits}",
            )
        for batch, won in self.won.items():
            require(
                visible.get(batch, set()) == self._writers(won),
                "a batch is what its commit named",
                f"{batch}: {sorted(visible.get(batch, ()))}, but {won}",
            )

    def _writers(self, ask: Ask) -> set[str]:
        """Return the winners that wrote anything."""
        return {name for name in ask.winners if self.txns.txns[name].written}
