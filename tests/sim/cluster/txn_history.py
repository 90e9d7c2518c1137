"""TxnHistory: rules for transactions as seen from outside, after Jepsen's workload for Kafka.

It records the requests of clients and their responses, the records given to readers of committed
records, and, once all is healed, the readable records; each method raises BrokenError for a
violation. It reads from no process: test_txn_history.py gives each rule a history that it must
reject.

    transaction   named by its client, with a unique name; it writes unique values
    fate          committed: its client received that; aborted: it received that, or never
                  requested a commit; unknown: it requested one without a response. The
                  readable records at the end settle it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sim.checkers import require

Row = tuple[int, bytes]
"""Offset and value."""


class Fate(Enum):
    """Fate of a transaction, as far as its client can know."""

    OPEN = "open"
    ASKED = "asked to commit"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Consumed(NamedTuple):
    """Offsets of a topic consumed with the transaction: from ``first`` to ``end``, exclusive."""

    group: str
    topic: str
    first: int
    end: int


@dataclass
class Txn:
    """One transaction."""

    name: str
    fate: Fate = Fate.OPEN
    written: list[tuple[str, bytes]] = field(default_factory=list)
    consumed: Consumed | None = None


class Committed(NamedTuple):
    """All that is readable at the end, by topic; offsets by group and topic."""

    rows: Mapping[str, Sequence[Row]]
    offsets: Mapping[tuple[str, str], int]


@dataclass
class TxnHistory:
    """History of one run."""

    txns: dict[str, Txn] = field(default_factory=dict)
    txn_of: dict[bytes, Txn] = field(default_factory=dict)
    """Transaction of each value."""
    positions: dict[str, int] = field(default_factory=dict)
    """By reader: offset after its last record."""
    read: dict[str, list[Row]] = field(default_factory=dict)
    seen_end: dict[str, int] = field(default_factory=dict)
    """By reader: reported end of the committed records."""
    begun_at: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By reader: topic and first position."""

    # -- writers

    def begins(self, name: str) -> Txn:
        """Record the begin of a transaction."""
        assert name not in self.txns, f"two transactions are called {name}"
        made = self.txns[name] = Txn(name)
        return made

    def writes(self, txn: Txn, topic: str, value: bytes) -> None:
        """Record that a value is about to be sent in the transaction."""
        assert value not in self.txn_of, f"{value!r} is written twice"
        txn.written.append((topic, value))
        self.txn_of[value] = txn

    def consumes(self, txn: Txn, consumed: Consumed) -> None:
        """Record that offsets are about to be committed in the transaction."""
        assert txn.consumed is None, f"{txn.name} commits offsets twice"
        txn.consumed = consumed

    def asks(self, txn: Txn) -> None:
        """Record that the commit is about to be requested."""
        assert txn.fate is Fate.OPEN, txn
        txn.fate = Fate.ASKED

    def told(self, txn: Txn, *, committed: bool) -> None:
        """Record the received outcome."""
        if committed:
            require(txn.fate is Fate.ASKED, "nobody commits what was not asked for", txn)
        txn.fate = Fate.COMMITTED if committed else Fate.ABORTED

    def gives_up(self, txn: Txn) -> None:
        """Record that the client is fenced or gone, and never receives the outcome.

        Without a requested commit the transaction is not committed.
        """
        if txn.fate is Fate.OPEN:
            txn.fate = Fate.ABORTED

    # -- readers of committed records

    def polls(
        self, reader: str, topic: str, position: int, rows: Sequence[Row], following: int
    ) -> None:
        """Check a poll from ``position`` on with its ``rows``; the next one begins at
        ``following``.
        """
        self.begun_at.setdefault(reader, (topic, position))
        before = self.positions.get(reader, position)
        require(position == before, "polls follow one another", f"{reader}: {position}, {before}")
        last = position - 1
        for offset, value in rows:
            require(offset > last, "polls are monotonic", f"{reader}: {offset} after {last}")
            last = offset
            self._reads(reader, value)
        require(following > last, "polls are monotonic", f"{reader}: {following} after {last}")
        self.positions[reader] = following
        self.read.setdefault(reader, []).extend(rows)

    def tells_end(self, reader: str, position: int, end: int) -> None:
        """Check the end of committed records reported to a reader at ``position``."""
        seen = max(position, self.seen_end.get(reader, 0))
        require(
            end >= seen,
            "the last stable offset never goes back for a reader",
            f"{reader}: {end} after {seen}",
        )
        self.seen_end[reader] = end

    def _reads(self, reader: str, value: bytes) -> None:
        txn = self.txn_of.get(value)
        if txn is None:
            return  # written outside of any transaction
        require(txn.fate is not Fate.ABORTED, "nobody reads the aborted", f"{reader}: {value!r}")
        require(
            txn.fate is not Fate.OPEN,
            "nobody reads from an open transaction",
            f"{reader}: {value!r} of {txn.name}",
        )

    # -- at the end

    def ends(self, there: Committed) -> None:
        """Check all readable records, after all is healed and every transaction has ended."""
        offsets = self._offsets(there)
        committed = self._judge(there, offsets)
        for reader, rows in self.read.items():
            topic, first = self.begun_at[reader]
            end = self.positions[reader]
            expected = [row for row in there.rows[topic] if first <= row[0] < end]
            self._compare(reader, list(rows), expected)
        for (group, topic), end in there.offsets.items():
            self._consumed_once(group, topic, end, committed)

    @staticmethod
    def _offsets(there: Committed) -> dict[bytes, tuple[str, int]]:
        """Return topic and offset of each value."""
        found: dict[bytes, tuple[str, int]] = {}
        for topic, rows in there.rows.items():
            for offset, value in rows:
                known = found.setdefault(value, (topic, offset))
                require(
                    known == (topic, offset), "no duplicate", f"{value!r} at {known} and {offset}"
                )
        return found

    def _judge(self, there: Committed, offsets: Mapping[bytes, tuple[str, int]]) -> list[Txn]:
        """Return the committed transactions. All records of a transaction are readable, or none."""
        committed = []
        for txn in self.txns.values():
            present = [value for _, value in txn.written if value in offsets]
            if txn.fate is Fate.COMMITTED:
                lost = [value for _, value in txn.written if value not in offsets]
                require(not lost, "no lost write", f"{txn.name}: {lost[:3]}")
            elif txn.fate is not Fate.ASKED:
                require(not present, "nothing aborted is there", f"{txn.name}: {present[:3]}")
            require(
                len(present) in (0, len(txn.written)),
                "no torn transaction",
                f"{txn.name}: {present} of {txn.written}",
            )
            if present:
                committed.append(txn)
        return committed

    @staticmethod
    def _compare(reader: str, rows: list[Row], expected: list[Row]) -> None:
        skipped = [row for row in expected if row not in set(rows)]
        require(not skipped, "polls skip nothing", f"{reader}: {skipped[:3]}")
        vanished = [row for row in rows if row not in set(expected)]
        require(not vanished, "what was read stays", f"{reader}: {vanished[:3]}")

    @staticmethod
    def _consumed_once(group: str, topic: str, end: int, committed: Sequence[Txn]) -> None:
        """Check that the group's transactions consumed its offsets without a gap, each once."""
        of_group = [
            (txn.consumed, txn.name)
            for txn in committed
            if txn.consumed is not None and txn.consumed[:2] == (group, topic)
        ]
        position = 0
        for consumed, name in sorted(of_group, key=lambda one: one[0].end):
            require(
                consumed.first >= position,
                "each offset is consumed once",
                f"{group}: {name} from {consumed.first}, consumed up to {position}",
            )
            require(
                consumed.first <= position,
                "no offsets are committed without their data",
                f"{group}: {name} from {consumed.first}, data up to {position}",
            )
            position = consumed.end
        require(
            end <= position,
            "no offsets are committed without their data",
            f"{group} is at {end}, data up to {position}",
        )
        require(
            end >= position,
            "no data is committed without its offsets",
            f"{group} is at {end}, data up to {position}",
        )


def copied_once(
    source: Sequence[Row], copies: Sequence[Row], end: int, *, at_least_once: bool = False
) -> int:
    """Check that each committed value of ``source`` below ``end`` is in ``copies`` exactly once, in
    order.

    Return the number of values that are there more than once, which ``at_least_once`` permits.
    """
    expected = [value for offset, value in source if offset < end]
    found = [value.partition(b"@")[0] for _, value in copies]
    missing = [value for value in expected if value not in set(found)]
    require(not missing, "every input is in the output", missing[:3])
    if at_least_once:
        return len(found) - len(set(found))
    twice = [value for value in set(found) if found.count(value) > 1]
    require(not twice, "no input is in the output twice", twice[:3])
    require(found == expected, "the output has the inputs in their order", found[:3])
    return 0
