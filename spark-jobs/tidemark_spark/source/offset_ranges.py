"""Ranges of offsets: the next batch of a query, its split into tasks, and lost records. Pure.

Spark's checkpoint stores offsets as JSON, each the next offset to read:

    {"orders": {"id": "6f1c...", "offsets": {"0": 23, "1": 42}}}

The topic's id distinguishes a topic that was deleted and created again from the one that the query
has read so far. A partition that is new to the query enters the JSON with its first offset in one
batch and is read from there in the next one, so a replayed batch has the same rows.

Spark stores where a batch ends, and takes the end of the batch before as its start. The first batch
has none before it, so its start is looked up again when it is replayed, and may be another by then:
records were deleted, or the batch itself committed offsets for the group. Therefore the end of the
first batch also contains its start:

    {"orders": {"id": "6f1c...", "offsets": {"0": 23, "1": 42}, "start": {"0": 0, "1": 7}}}
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The next offset of each partition of a topic; ``topic_id`` is in hexadecimal."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    start: Mapping[int, int] | None = None
    """Start of the batch that ends here, if it is not the end of the batch before."""


Offsets = Mapping[str, TopicOffsets]


class Topic(NamedTuple):
    """An existing topic: its id, and the partitions that the query selects."""

    topic_id: str
    partitions: tuple[int, ...]


class Range(NamedTuple):
    """Offsets of one partition from ``start`` to ``end``, exclusive."""

    partition: TopicPartition
    topic_id: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets, the maximum number of records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Advance:
    """The end of a batch, and the losses found while planning it."""

    offsets: Offsets
    available: int
    """Number of offsets after the start of the batch, before any limit."""
    losses: tuple[str, ...] = ()


def offsets_from_json(parsed: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    """Decode offsets from a checkpoint. Raises OptionError if they are not of this source."""
    try:
        return {
            topic: TopicOffsets(
                str(entry["id"]),
                _by_number(entry["offsets"]),
                _by_number(entry["start"]) if "start" in entry else None,
            )
            for topic, entry in parsed.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OptionError(
            f"the offsets in the checkpoint are not of this source: {str(parsed)[:200]}",
            "use a checkpoint location that no other query uses",
        ) from None


def offsets_to_json(offsets: Offsets) -> dict[str, Any]:
    """Encode offsets for the checkpoint. Equal offsets have equal encodings."""
    found: dict[str, Any] = {}
    for topic in sorted(offsets):
        known = offsets[topic]
        found[topic] = {"id": known.topic_id, "offsets": _by_text(known.offsets)}
        if known.start is not None:
            found[topic]["start"] = _by_text(known.start)
    return found


def as_start(offsets: Offsets) -> dict[str, TopicOffsets]:
    """Return the offsets at which a query starts, marked as such."""
    return {
        name: TopicOffsets(known.topic_id, known.offsets, known.offsets)
        for name, known in offsets.items()
    }


def with_start(start: Offsets, end: Offsets) -> dict[str, TopicOffsets]:
    """Return the end of a batch, with the batch's start in it where the query has read nothing yet.

    A start that is stored once too often does no harm: the batch before ended there.
    """
    return {
        name: replace(last, start=start[name].offsets) if _is_start(start, name, last) else last
        for name, last in end.items()
    }


def same_positions(one: Offsets, other: Offsets) -> bool:
    """True if nothing is read between two offsets."""
    return {name: (known.topic_id, known.offsets) for name, known in one.items()} == {
        name: (known.topic_id, known.offsets) for name, known in other.items()
    }


def offsets_of(
    topics: Mapping[str, Topic], positions: Mapping[TopicPartition, int]
) -> dict[str, TopicOffsets]:
    """Group positions by topic; partitions without a position are left out."""
    return {
        name: TopicOffsets(
            topic.topic_id,
            {
                number: positions[TopicPartition(name, number)]
                for number in topic.partitions
                if TopicPartition(name, number) in positions
            },
        )
        for name, topic in topics.items()
    }


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return all partitions of these topics, sorted."""
    return [
        TopicPartition(name, number)
        for name in sorted(topics)
        for number in topics[name].partitions
    ]


def newcomers(start: Offsets, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return partitions that are new to the query; ``advance`` needs their first offsets."""
    return [
        partition
        for partition in partitions_of(topics)
        if _position(start, topics[partition.topic].topic_id, partition) is None
    ]


def positions_beyond(
    latest: Mapping[TopicPartition, int], start: Offsets, topics: Mapping[str, Topic]
) -> dict[TopicPartition, int]:
    """Return the positions of the query that are behind the latest offsets."""
    known = {at: _position(start, topics[at.topic].topic_id, at) or 0 for at in latest}
    return {at: position for at, position in known.items() if position > latest[at]}


def ends_up_to(
    ceiling: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    start: Offsets,
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, int]:
    """Limit the latest offsets to those at which a run ends, 0 for partitions added since.

    A limit below ``start`` is no loss: the query may have started at a later end than the run's.
    """
    limited = {}
    for partition, at in latest.items():
        position = _position(start, topics[partition.topic].topic_id, partition)
        limited[partition] = min(at, max(ceiling.get(partition, 0), position or 0))
    return limited


def advance(
    start: Offsets,
    topics: Mapping[str, Topic],
    *,
    latest: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    rows_max: int | None = None,
) -> Advance:
    """Plan a batch from ``start`` to the latest offsets, of at most ``rows_max`` offsets in all.

    ``earliest`` contains the first offsets of ``newcomers``; those not in it are not read yet.
    """
    losses = _gone(start, topics)
    positions: dict[TopicPartition, int] = {}
    sizes: dict[TopicPartition, int] = {}
    for partition in partitions_of(topics):
        position = _position(start, topics[partition.topic].topic_id, partition)
        if position is None:
            if partition in earliest:
                positions[partition] = earliest[partition]
                losses += _late_start(start, topics, partition, earliest[partition])
            continue
        end = latest.get(partition, position)
        if end < position:
            losses.append(
                f"{partition} ends at offset {end}, but was already read up to {position}"
            )
        positions[partition] = min(position, end)
        sizes[partition] = max(0, end - position)
    for partition, rows in prorated(sizes, rows_max).items():
        positions[partition] += rows
    offsets = {name: kept for name, kept in offsets_of(topics, positions).items() if kept.offsets}
    return Advance(offsets, sum(sizes.values()), tuple(losses))


def prorated(
    sizes: Mapping[TopicPartition, int], rows_max: int | None
) -> dict[TopicPartition, int]:
    """Divide ``rows_max`` over partitions in proportion to their sizes.

    Every partition gets at least one row, so that small ones do not starve.
    """
    total = sum(sizes.values())
    if rows_max is None or total <= rows_max:
        return dict(sizes)
    return {
        partition: min(size, max(1, rows_max * size // total)) for partition, size in sizes.items()
    }


def ranges_between(start: Offsets, end: Offsets) -> list[Range]:
    """Return the ranges of a batch. Partitions that are new in ``end`` are read by the next.

    A start that is stored in ``end`` takes the place of ``start``, unless the batch before had it:
    where a topic has not moved, both are the end of the first batch.
    """
    found = []
    for name in sorted(end):
        if end[name] == start.get(name):
            continue
        own = end[name].start
        for number, last in sorted(end[name].offsets.items()):
            partition = TopicPartition(name, number)
            first = (
                _position(start, end[name].topic_id, partition) if own is None else own.get(number)
            )
            if first is not None and first < last:
                found.append(Range(partition, end[name].topic_id, first, last))
    return found


def split(
    ranges: Sequence[Range], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Split ranges into at least ``partitions_min`` parts of at most ``records_max`` offsets.

    Larger ranges are split into more parts.
    """
    ranges = [each for each in ranges if each.size > 0]
    parts = _shares(ranges, partitions_min)
    pieces: list[Range] = []
    for each, share in zip(ranges, parts, strict=True):
        count = max(share, math.ceil(each.size / records_max) if records_max else 1)
        pieces += _pieces(each, min(count, each.size))
    return pieces


def _shares(ranges: Sequence[Range], partitions_min: int | None) -> list[int]:
    if partitions_min is None or partitions_min <= len(ranges):
        return [1] * len(ranges)
    left, size_left = partitions_min, sum(each.size for each in ranges)
    # A range smaller than a task's fair share is one task; the others share the remaining tasks.
    small = [each.size * partitions_min < size_left for each in ranges]
    left -= sum(small)
    size_left = sum(each.size for each, is_small in zip(ranges, small, strict=True) if not is_small)
    return [
        1 if is_small else max(1, math.ceil(each.size * left / size_left))
        for each, is_small in zip(ranges, small, strict=True)
    ]


def _pieces(whole: Range, count: int) -> Iterable[Range]:
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=first, end=last) for first, last in itertools.pairwise(edges)]


def _by_number(entries: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(at) for partition, at in entries.items()}


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): at for partition, at in sorted(offsets.items())}


def _is_start(start: Offsets, name: str, end: TopicOffsets) -> bool:
    """True if a batch to ``end`` begins where the query started, in this topic."""
    known = start.get(name)
    return known is not None and known.topic_id == end.topic_id and known.start == known.offsets


def _position(start: Offsets, topic_id: str, partition: TopicPartition) -> int | None:
    known = start.get(partition.topic)
    if known is None or known.topic_id != topic_id:
        return None
    return known.offsets.get(partition.partition)


def _gone(start: Offsets, topics: Mapping[str, Topic]) -> list[str]:
    losses = []
    for name, known in sorted(start.items()):
        topic = topics.get(name)
        if topic is None:
            losses.append(f"topic {name!r} (id {known.topic_id}) was deleted")
        elif topic.topic_id != known.topic_id:
            losses.append(
                f"topic {name!r} was deleted and created again:"
                f" its id is {topic.topic_id}, it was {known.topic_id}"
            )
        else:
            missing = sorted(set(known.offsets) - set(topic.partitions))
            losses += [f"partition {number} of {name!r} no longer exists" for number in missing]
    return losses


def _late_start(
    start: Offsets, topics: Mapping[str, Topic], partition: TopicPartition, earliest: int
) -> list[str]:
    """Return a loss if the first records of an added partition were deleted before being read."""
    known = start.get(partition.topic)
    grown = known is not None and known.topic_id == topics[partition.topic].topic_id
    if not grown or earliest == 0:
        return []
    return [f"{partition} is new and starts at offset {earliest} instead of 0"]
