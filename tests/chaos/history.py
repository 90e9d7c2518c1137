"""Whether what was read back is what was acknowledged. Pure: histories in, findings out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from chaos.values import Name, read_value


class Partition(NamedTuple):
    """Of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Record(NamedTuple):
    """As a reader got it."""

    offset: int
    value: bytes


class Acknowledgement(NamedTuple):
    """What a producer was told. ``offset`` is -1 where the answer named none (a known repeat)."""

    name: Name
    partition: Partition
    offset: int


class Stream(NamedTuple):
    """What one key of one producer is."""

    producer: str
    key: str


@dataclass
class History:
    """All that clients know. ``sent`` counts the values handed to the producer of each stream."""

    sent: dict[Stream, int] = field(default_factory=dict)
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    followed: dict[Partition, list[Record]] = field(default_factory=dict)
    """What the reader that ran all the time got, in its order."""
    read_back: dict[Partition, list[Record]] = field(default_factory=dict)
    """Each partition from its start to its end, once all was healed."""


@dataclass
class Findings:
    """One line of evidence a broken promise; ``duplicated`` alone is allowed, and counted."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged, and not read back."""
    invented: list[str] = field(default_factory=list)
    """Read, and never sent; or sent to another partition."""
    out_of_order: list[str] = field(default_factory=list)
    """First read after a later value of its key and producer."""
    misplaced: list[str] = field(default_factory=list)
    """Acknowledged at an offset where something else was read."""
    unsaid: list[str] = field(default_factory=list)
    """Seen by the reader that ran all the time, at an offset where later something else was."""
    torn: list[str] = field(default_factory=list)
    """Offsets that a reader got not in order one by one."""
    duplicated: list[str] = field(default_factory=list)
    """Read at more than one offset."""

    def broken(self) -> dict[str, list[str]]:
        """The promises that were not kept, with their evidence."""
        return {
            promise: lines
            for promise, lines in vars(self).items()
            if lines and promise != "duplicated"
        }


class _Place(NamedTuple):
    partition: Partition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


def check(history: History) -> Findings:
    """Every promise, over the whole history."""
    findings = Findings()
    places = _places(history, findings)
    findings.lost = [
        f"{name}, acknowledged at {_Place(partition, offset)}"
        for name, partition, offset in history.acknowledged
        if name not in places
    ]
    _check_order(places, history.read_back, findings)
    _check_places(history, places, findings)
    for partition, records in history.read_back.items():
        findings.torn += _gaps(partition, records, "read-back")
    for partition, records in history.followed.items():
        findings.torn += _gaps(partition, records, "reader")
        findings.unsaid += _unsaid(partition, records, history.read_back.get(partition, ()))
    return findings


def _places(history: History, findings: Findings) -> dict[Name, list[_Place]]:
    """Where each value was read back; what nobody sent is told."""
    places: dict[Name, list[_Place]] = defaultdict(list)
    for partition, records in history.read_back.items():
        for record in records:
            place = _Place(partition, record.offset)
            name = read_value(record.value)
            if name is None:
                findings.invented.append(f"{record.value[:60]!r} at {place}")
            elif name.sequence >= history.sent.get(Stream(name.producer, name.key), 0):
                findings.invented.append(f"{name} at {place}, never sent")
            else:
                places[name].append(place)
    findings.duplicated = [
        f"{name} at {', '.join(map(str, at))}" for name, at in places.items() if len(at) > 1
    ]
    return dict(places)


def _check_order(
    places: Mapping[Name, Sequence[_Place]],
    read_back: Mapping[Partition, Sequence[Record]],
    findings: Findings,
) -> None:
    """A stream is in one partition, and first seen there in the order of its sequences."""
    latest: dict[Stream, tuple[int, _Place]] = {}
    for partition, records in read_back.items():
        for record in records:
            name, place = read_value(record.value), _Place(partition, record.offset)
            if name is None or name not in places or places[name][0] != place:
                continue  # not ours, or a repeat
            stream = Stream(name.producer, name.key)
            before, where = latest.get(stream, (-1, place))
            if where.partition != partition:
                findings.invented.append(f"{name} at {place}, its stream is in {where.partition}")
            elif name.sequence < before:
                findings.out_of_order.append(f"{name} at {place}, after {before} at {where}")
            else:
                latest[stream] = (name.sequence, place)


def _check_places(
    history: History, places: Mapping[Name, Sequence[_Place]], findings: Findings
) -> None:
    """An acknowledgement names the offset where the value is."""
    for name, partition, offset in history.acknowledged:
        told = _Place(partition, offset)
        if offset >= 0 and name in places and told not in places[name]:
            found = ", ".join(map(str, places[name]))
            findings.misplaced.append(f"{name}, acknowledged at {told}, is at {found}")


def _gaps(partition: Partition, records: Sequence[Record], who: str) -> list[str]:
    return [
        f"{who} got {_Place(partition, after.offset)} after {before.offset}"
        for before, after in pairwise(records)
        if after.offset != before.offset + 1
    ]


def _unsaid(
    partition: Partition, followed: Sequence[Record], read_back: Sequence[Record]
) -> list[str]:
    final = {record.offset: record.value for record in read_back}
    return [
        f"{_shown(seen.value)} at {_Place(partition, seen.offset)}, later"
        f" {_shown(final.get(seen.offset))}"
        for seen in followed
        if final.get(seen.offset) != seen.value
    ]


def _shown(value: bytes | None) -> str:
    return "nothing" if value is None else str(read_value(value) or value[:60])
