"""Which offsets a query reads next, by how many tasks, and what counts as lost. Pure.

Offsets travel as JSON through Spark's checkpoint:

    {"orders": {"id": "6f1c...", "offsets": {"0": 23, "1": 42}}}

each the next offset to read. The topic's id tells a topic that was deleted and made again from the
one that the query has read so far. A partition that is new to a query enters the JSON at its first
offset, and is read from there in the next batch: so a replayed batch has the same rows.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The next offset of each partition; ``topic_id`` in hexadecimal."""

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)


Offsets = Mapping[str, TopicOffsets]


class Topic(NamedTuple):
    """What there is of a topic: its id, and the partitions that the query wants."""

    topic_id: str
    partitions: tuple[int, ...]


class Range(NamedTuple):
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    topic_id: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """At most so many records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a batch ends, and what was found missing on the way there."""

    offsets: Offsets
    available: int
    """Offsets beyond the start, whatever the limit."""
    losses: tuple[str, ...] = ()


def offsets_from_json(parsed: Mapping[str, Any]) -> dict[str, TopicOffsets]:
    """What Spark kept. Raises OptionError for what no query of this source wrote."""
    try:
        return {
            topic: TopicOffsets(
                str(entry["id"]), {int(p): int(at) for p, at in entry["offsets"].items()}
            )
            for topic, entry in parsed.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OptionError(
            f"the checkpoint's offsets are not of this source: {str(parsed)[:200]}",
            "a checkpoint location of the query's own",
        ) from None


def offsets_to_json(offsets: Offsets) -> dict[str, Any]:
    """For Spark to keep. Equal offsets are equal texts."""
    return {
        topic: {
            "id": offsets[topic].topic_id,
            "offsets": {str(p): at for p, at in sorted(offsets[topic].offsets.items())},
        }
        for topic in sorted(offsets)
    }


def offsets_of(
    topics: Mapping[str, Topic], positions: Mapping[TopicPartition, int]
) -> dict[str, TopicOffsets]:
    """Positions of these topics' partitions; those without a position are left out."""
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
    """All of them, by topic and number."""
    return [
        TopicPartition(name, number)
        for name in sorted(topics)
        for number in topics[name].partitions
    ]


def newcomers(start: Offsets, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Partitions that the query has not met: their first offsets are needed to ``advance``."""
    return [
        partition
        for partition in partitions_of(topics)
        if _position(start, topics[partition.topic].topic_id, partition) is None
    ]


def advance(
    start: Offsets,
    topics: Mapping[str, Topic],
    *,
    latest: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    rows_max: int | None = None,
) -> Advance:
    """From ``start`` to the latest offsets, or ``rows_max`` rows in all.

    ``earliest`` has the first offsets of ``newcomers``; of those without one nothing is read yet.
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
                f"{partition} ends at offset {end}, but was read up to {position} already"
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
    """Shares of ``rows_max`` by size, at least one row each, so that a small partition does not
    starve; the whole sizes when they fit.
    """
    total = sum(sizes.values())
    if rows_max is None or total <= rows_max:
        return dict(sizes)
    return {
        partition: min(size, max(1, rows_max * size // total)) for partition, size in sizes.items()
    }


def ranges_between(start: Offsets, end: Offsets) -> list[Range]:
    """What a batch reads. A partition that enters with ``end`` is read from the next batch on."""
    found = []
    for name in sorted(end):
        for number, last in sorted(end[name].offsets.items()):
            partition = TopicPartition(name, number)
            first = _position(start, end[name].topic_id, partition)
            if first is not None and first < last:
                found.append(Range(partition, end[name].topic_id, first, last))
    return found


def split(
    ranges: Sequence[Range], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """The same offsets by at least ``partitions_min`` tasks of at most ``records_max`` offsets;
    larger ranges into more parts, each range at least one.
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
    # Those smaller than a task's fair share are a task each; the rest divide what remains.
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
                f"topic {name!r} was deleted and made again:"
                f" its id is {topic.topic_id}, it was {known.topic_id}"
            )
        else:
            missing = sorted(set(known.offsets) - set(topic.partitions))
            losses += [f"partition {number} of {name!r} is gone" for number in missing]
    return losses


def _late_start(
    start: Offsets, topics: Mapping[str, Topic], partition: TopicPartition, earliest: int
) -> list[str]:
    """A partition added to a topic that is being read had its first records removed unread."""
    known = start.get(partition.topic)
    grown = known is not None and known.topic_id == topics[partition.topic].topic_id
    if not grown or earliest == 0:
        return []
    return [f"{partition} is new and starts at offset {earliest} instead of 0"]
