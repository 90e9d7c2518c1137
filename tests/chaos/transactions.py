"""Whether transactions were all or nothing, and every input copied once. Pure: histories in,
findings out.

A value is named by its producer, the number of its transaction and its place in it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from chaos.history import Partition, Record
from chaos.values import Name, read_value


class Outcome(Enum):
    """What a producer knows of a transaction's end."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # told so, or nobody ever asked to commit it
    UNKNOWN = "unknown"  # the answer to its commit was lost


@dataclass(frozen=True, slots=True)
class Transaction:
    """``placed``: the partition of each value, by its sequence. ``asked_s``: when its commit was
    asked for first, by the clock that readers use; None: never.
    """

    producer: str
    number: int
    placed: tuple[Partition, ...]
    outcome: Outcome
    asked_s: float | None

    def __str__(self) -> str:
        return f"{self.producer}/{self.number} ({self.outcome.value})"


class Seen(NamedTuple):
    """A record, and when the reader that followed had it, in seconds."""

    offset: int
    value: bytes
    at_s: float


class Bounds(NamedTuple):
    """Where readers of committed records stop, and where the partition ends."""

    last_stable: int
    end: int


Log = Mapping[Partition, Sequence[Record]]


@dataclass
class TransactionHistory:
    """All that clients know. The copy is of ``source``, to ``copy``; read_back has both."""

    transactions: list[Transaction] = field(default_factory=list)
    followed: dict[Partition, list[Seen]] = field(default_factory=dict)
    """What a read_committed reader that ran all the time got, in its order."""
    committed: dict[Partition, list[Record]] = field(default_factory=dict)
    """Each partition from its start to its end under read_committed, once all was healed."""
    uncommitted: dict[Partition, list[Record]] = field(default_factory=dict)
    """The same under read_uncommitted."""
    bounds: dict[Partition, Bounds] = field(default_factory=dict)
    source: str = "in"
    copy: str = "copies"


@dataclass
class TransactionFindings:
    """One line of evidence for each breach of a promise."""

    lost: list[str] = field(default_factory=list)
    """A commit that was acknowledged, and nothing of it read back."""
    aborted_seen: list[str] = field(default_factory=list)
    """A reader of committed records got a value of an aborted transaction (G1a)."""
    torn: list[str] = field(default_factory=list)
    """Some of a transaction's values, and not all."""
    open_seen: list[str] = field(default_factory=list)
    """A reader of committed records had a value before anybody asked to commit it."""
    copied_twice: list[str] = field(default_factory=list)
    """One input, and more than one committed copy."""
    not_copied: list[str] = field(default_factory=list)
    """A committed input without a copy."""
    hanging: list[str] = field(default_factory=list)
    """A last stable offset that stays below the end of its partition."""
    repeated: list[str] = field(default_factory=list)
    """A committed value at more than one offset."""
    invented: list[str] = field(default_factory=list)
    """A value that nobody wrote, or not to that partition, or a copy of what is not committed."""
    out_of_order: list[str] = field(default_factory=list)
    """After a later value of its producer in its partition."""
    unsaid: list[str] = field(default_factory=list)
    """Read as committed once, and later not there, or not among the uncommitted ones."""
    skipped: list[str] = field(default_factory=list)
    """The reader that followed went past it, or back."""

    def broken(self) -> dict[str, list[str]]:
        """The promises that were not kept, by their names in the report."""
        return {ROWS[promise]: lines for promise, lines in vars(self).items() if lines}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Every promise, and how many times it was broken."""
        return ((ROWS[promise], str(len(lines))) for promise, lines in vars(self).items())


ROWS: Final[Mapping[str, str]] = {
    "lost": "transactions lost",
    "aborted_seen": "aborted values seen",
    "torn": "transactions torn",
    "open_seen": "open values seen",
    "copied_twice": "copied twice",
    "not_copied": "not copied",
    "hanging": "hanging transactions",
    "repeated": "committed twice",
    "invented": "committed, never written",
    "out_of_order": "committed out of order",
    "unsaid": "committed, then unsaid",
    "skipped": "skipped by a committed reader",
}


def check_transactions(history: TransactionHistory) -> TransactionFindings:
    """Every promise, over the whole history."""
    findings = TransactionFindings()
    written = _Written(history.transactions)
    inputs = {one: log for one, log in history.committed.items() if one.topic != history.copy}
    places = _places(written, inputs, findings)
    for transaction in history.transactions:
        _check_whole(transaction, places, findings)
    _check_order(inputs, findings)
    _check_followed(history, written, findings)
    _check_copies(history, written, findings)
    findings.unsaid += [
        f"{_shown(record.value)} at {partition}@{record.offset}, not there under read_uncommitted"
        for partition, record in _missing(history.committed, history.uncommitted)
    ]
    findings.hanging = [
        f"{partition}: last stable offset {bounds.last_stable}, end {bounds.end}"
        for partition, bounds in history.bounds.items()
        if bounds.last_stable < bounds.end
    ]
    return findings


class _Written:
    """Transactions by the names of their values."""

    def __init__(self, transactions: Iterable[Transaction]) -> None:
        self._by_name = {(one.producer, str(one.number)): one for one in transactions}

    def transaction(self, value: bytes) -> tuple[Name, Transaction] | None:
        """None for what nobody wrote."""
        name = read_value(value)
        found = None if name is None else self._by_name.get((name.producer, name.key))
        if name is None or found is None or name.sequence >= len(found.placed):
            return None
        return name, found


def _places(
    written: _Written, log: Log, findings: TransactionFindings
) -> dict[tuple[str, int], Counter[int]]:
    """How often each value of each transaction was read back."""
    places: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for partition, records in log.items():
        for record in records:
            found = written.transaction(record.value)
            if found is None or found[1].placed[found[0].sequence] != partition:
                where = f"{partition}@{record.offset}"
                findings.invented.append(f"{_shown(record.value)} at {where}")
                continue
            name, transaction = found
            places[transaction.producer, transaction.number][name.sequence] += 1
    return places


def _check_whole(
    transaction: Transaction,
    places: Mapping[tuple[str, int], Counter[int]],
    findings: TransactionFindings,
) -> None:
    """All or nothing; all when it was told so, nothing when it was aborted."""
    found = places.get((transaction.producer, transaction.number), Counter())
    missing = [at for at in range(len(transaction.placed)) if at not in found]
    if transaction.outcome is Outcome.ABORTED and found:
        findings.aborted_seen.append(f"{transaction}: values {sorted(found)} were read back")
    elif transaction.outcome is Outcome.COMMITTED and not found:
        findings.lost.append(f"{transaction}: none of its {len(missing)} values")
    elif found and missing:
        lacking = ", ".join(f"{at} ({transaction.placed[at]})" for at in missing)
        findings.torn.append(f"{transaction}: has values {sorted(found)}, lacks {lacking}")
    findings.repeated += [
        f"{transaction}: value {at}, {times} times" for at, times in found.items() if times > 1
    ]


def _check_order(log: Log, findings: TransactionFindings) -> None:
    """What a producer has in a partition is there in the order in which it was sent."""
    for partition, records in log.items():
        latest: dict[str, tuple[int, int]] = {}
        for record in records:
            name = read_value(record.value)
            if name is None or not name.key.isdecimal():
                continue
            now, before = (int(name.key), name.sequence), latest.get(name.producer, (-1, -1))
            if now < before:
                findings.out_of_order.append(f"{name} at {partition}@{record.offset}")
            latest[name.producer] = max(now, before)


def _check_followed(
    history: TransactionHistory, written: _Written, findings: TransactionFindings
) -> None:
    """What the reader had could be had then, is still there, and nothing before it is missing."""
    for partition, seen in history.followed.items():
        for one in seen if partition.topic != history.copy else ():
            _check_seen(partition, one, written, findings)
        findings.skipped += [
            f"{partition}: {after.offset} after {before.offset}"
            for before, after in pairwise(seen)
            if after.offset <= before.offset
        ]
    reached = {one: seen[-1].offset for one, seen in history.followed.items() if seen}
    readable = {
        partition: [one for one in records if one.offset <= reached.get(partition, -1)]
        for partition, records in history.committed.items()
    }
    followed = {
        partition: [Record(one.offset, one.value) for one in seen]
        for partition, seen in history.followed.items()
    }
    findings.skipped += [
        f"{_shown(record.value)} at {partition}@{record.offset} was not seen"
        for partition, record in _missing(readable, followed)
    ]
    findings.unsaid += [
        f"{_shown(record.value)} at {partition}@{record.offset} was seen, and is not there"
        for partition, record in _missing(followed, history.committed)
    ]


def _check_seen(
    partition: Partition, seen: Seen, written: _Written, findings: TransactionFindings
) -> None:
    found = written.transaction(seen.value)
    if found is None:
        return  # it is told of once, as read back or as unsaid
    name, transaction = found
    where = f"{name} at {partition}@{seen.offset}"
    if transaction.outcome is Outcome.ABORTED:
        findings.aborted_seen.append(f"{where}, by the reader that followed")
    elif transaction.asked_s is None or seen.at_s < transaction.asked_s:
        findings.open_seen.append(f"{where}, before its commit was asked for")


def _check_copies(
    history: TransactionHistory, written: _Written, findings: TransactionFindings
) -> None:
    """Each committed input has one committed copy."""
    committed, copies = history.committed, Counter[bytes]()
    inputs = {
        record.value
        for one in committed
        if one.topic == history.source
        for record in committed[one]
    }
    for partition, records in committed.items():
        if partition.topic == history.copy:
            copies.update(record.value for record in records)
    findings.not_copied = [_shown(value) for value in inputs if value not in copies]
    findings.copied_twice = [
        f"{_shown(value)}, {times} times" for value, times in copies.items() if times > 1
    ]
    for value in copies.keys() - inputs:
        found = written.transaction(value)
        if found is not None and found[1].outcome is Outcome.ABORTED:
            findings.aborted_seen.append(f"{found[0]} was copied")
        else:
            findings.invented.append(f"{_shown(value)} was copied, and is no committed input")


def _missing(log: Log, other: Log) -> Iterator[tuple[Partition, Record]]:
    """What ``other`` does not have at the same place."""
    for partition, records in log.items():
        there = {record.offset: record.value for record in other.get(partition, ())}
        for record in records:
            if there.get(record.offset) != record.value:
                yield partition, record


def _shown(value: bytes) -> str:
    return str(read_value(value) or value[:60])
