"""What an offload has covered: which offsets of which partitions are in which files. Pure.

A catalogue is a row of *versions*, numbered from 1. Each says what it added (files) and what is
covered now (offset ranges, of everything), so that the newest one alone is enough to go on from,
and all of them together are the history. A version is a JSON file that people can read;
``catalogue_directory`` writes it, once and whole.

Coverage is about offsets, not about records: ``[0, 900)`` is covered when every record that a
reader of committed records may see there is in a file. Offsets of markers, of aborted transactions
and of records that compaction removed are covered without being in any file.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import TidemarkSparkError

FORMAT: Final = 1
"""Of the JSON. A reader refuses a newer one by name."""


class CatalogueError(TidemarkSparkError):
    """The catalogue and the world do not agree, or two runs met."""


class OffsetRange(NamedTuple):
    """Offsets from ``start``; ``end`` is exclusive."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


class DataFile(NamedTuple):
    """One Parquet file: records of one partition, by rising offset."""

    path: str
    """Relative to the output directory, with ``/``."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    size_bytes: int


class StagedFile(NamedTuple):
    """A file that a task has written and synced, which nobody sees yet."""

    staged: str
    """Its path below the staging directory."""
    file: DataFile


class LogBounds(NamedTuple):
    """What a reader may ask a partition for: ``end`` is the last stable offset, exclusive."""

    start: int
    end: int


class PlannedRange(NamedTuple):
    """The next range of one partition. ``lost``: offsets before it that the log no longer has."""

    offsets: OffsetRange
    lost: OffsetRange | None


Covered = Mapping[TopicPartition, tuple[OffsetRange, ...]]
"""Disjoint ranges by rising offset, adjoining ones merged; more than one only after a data loss."""


@dataclass(frozen=True, slots=True)
class Version:
    """One commit of the catalogue."""

    number: int
    run: str
    committed_at_ms: int
    layout: tuple[str, ...]
    topic_ids: Mapping[str, str]
    """Name to hexadecimal id: a topic that was deleted and made again counts from 0 again."""
    covered: Covered
    added: tuple[StagedFile, ...]

    @classmethod
    def nothing(cls, layout: Sequence[str]) -> Self:
        """Before the first commit."""
        return cls(0, "", 0, tuple(layout), {}, {}, ())

    def end_of(self, partition: TopicPartition) -> int | None:
        """Where the next range begins; None for a partition that was never read."""
        ranges = self.covered.get(partition)
        return ranges[-1].end if ranges else None


def plan_round(
    version: Version,
    bounds: Mapping[TopicPartition, LogBounds],
    topic_ids: Mapping[str, str],
    *,
    offsets_max: int,
    fail_on_data_loss: bool = True,
) -> dict[TopicPartition, PlannedRange]:
    """What to read next: of every partition what follows its coverage, at most ``offsets_max``.

    Empty when caught up with ``bounds``. Raises CatalogueError when a topic is another one than
    before, when a log ends before what was covered, or when it begins after it (unless that may be:
    the range then begins where the log does, and says what was lost).
    """
    assert offsets_max > 0, offsets_max
    _check_topics(version, topic_ids)
    planned = {}
    for partition, log in sorted(bounds.items()):
        covered_end = version.end_of(partition)
        following = log.start if covered_end is None else covered_end
        _check_bounds(partition, following, log, fail_on_data_loss=fail_on_data_loss)
        start = max(following, log.start)
        if start < log.end:
            lost = OffsetRange(following, start) if start > following else None
            planned[partition] = PlannedRange(
                OffsetRange(start, min(log.end, start + offsets_max)), lost
            )
    return planned


def _check_topics(version: Version, topic_ids: Mapping[str, str]) -> None:
    for topic, topic_id in sorted(topic_ids.items()):
        known = version.topic_ids.get(topic, topic_id)
        if known != topic_id:
            raise CatalogueError(
                f"topic {topic} was deleted and made again: its id is {topic_id}, and what is"
                f" covered here is of {known}",
                hint="offload the new topic into another directory",
            )


def _check_bounds(
    partition: TopicPartition, following: int, log: LogBounds, *, fail_on_data_loss: bool
) -> None:
    if log.end < following:
        raise CatalogueError(
            f"{partition} ends at offset {log.end}, and {following} is covered already",
            hint="is this the cluster that was offloaded before? A log never shrinks below what"
            " committed readers have seen",
        )
    if fail_on_data_loss and log.start > following:
        raise CatalogueError(
            f"{partition} begins at offset {log.start}: offsets {OffsetRange(following, log.start)}"
            " were deleted before they were offloaded",
            hint="--skip-lost goes on after the gap, and the catalogue shows it",
        )


def next_version(
    version: Version,
    planned: Mapping[TopicPartition, PlannedRange],
    added: Iterable[StagedFile],
    *,
    run: str,
    committed_at_ms: int,
    topic_ids: Mapping[str, str],
) -> Version:
    """The version after ``version``, with the planned ranges covered by the added files.

    A file outside of the range that it is said to cover is our bug: asserted.
    """
    covered = dict(version.covered)
    for partition, plan in planned.items():
        covered[partition] = extended(covered.get(partition, ()), plan.offsets)
    files = tuple(sorted(added, key=lambda each: (each.file.topic, each.file.partition, each.file)))
    _check_within(planned, [file for _, file in files])
    return Version(
        number=version.number + 1,
        run=run,
        committed_at_ms=committed_at_ms,
        layout=version.layout,
        topic_ids={**version.topic_ids, **topic_ids},
        covered=covered,
        added=files,
    )


def _check_within(
    planned: Mapping[TopicPartition, PlannedRange], files: Iterable[DataFile]
) -> None:
    room = {partition: plan.offsets.end - plan.offsets.start for partition, plan in planned.items()}
    for file in files:
        partition = TopicPartition(file.topic, file.partition)
        allowed = planned[partition].offsets
        assert allowed.start <= file.first_offset, (file, allowed)
        assert file.last_offset < allowed.end, (file, allowed)
        room[partition] -= file.rows
        assert room[partition] >= 0, (file, allowed, "more rows than offsets")


def extended(ranges: Sequence[OffsetRange], added: OffsetRange) -> tuple[OffsetRange, ...]:
    """``ranges`` and one that follows them; what adjoins is one range."""
    assert added.start < added.end, added
    if not ranges:
        return (added,)
    last = ranges[-1]
    assert last.end <= added.start, (last, added)
    if last.end == added.start:
        return (*ranges[:-1], OffsetRange(last.start, added.end))
    return (*ranges, added)


# ---- as text


def to_json(version: Version) -> str:
    """A version as its file's text: indented, one line a file, keys in the order of reading."""
    topics: dict[str, Any] = {
        topic: {"id": topic_id, "partitions": {}}
        for topic, topic_id in sorted(version.topic_ids.items())
    }
    for partition, ranges in sorted(version.covered.items()):
        topics[partition.topic]["partitions"][str(partition.partition)] = [
            list(each) for each in ranges
        ]
    head = {
        "format": FORMAT,
        "version": version.number,
        "run": version.run,
        "committed_at": shown_time(version.committed_at_ms),
        "committed_at_ms": version.committed_at_ms,
        "layout": list(version.layout),
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines.append('  "covered": {' + _joined(_topic_line(*each) for each in topics.items()) + "  }")
    lines.append('  "added": [' + _joined(_file_line(each) for each in version.added) + "  ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _joined(lines: Iterable[str]) -> str:
    return "\n" + ",\n".join(f"    {line}" for line in lines) + "\n"


def _topic_line(topic: str, described: Mapping[str, Any]) -> str:
    return f"{json.dumps(topic)}: {json.dumps(described)}"


def _file_line(staged: StagedFile) -> str:
    return json.dumps({**staged.file._asdict(), "staged": staged.staged})


def from_json(text: str, *, name: str) -> Version:
    """The version in a file; ``name`` is for the errors. Raises CatalogueError."""
    try:
        found = json.loads(text)
        written_in = int(found["format"])
        if written_in > FORMAT:
            raise CatalogueError(
                f"{name} is of format {written_in}, and this program reads up to {FORMAT}",
                hint="a newer tidemark wrote it: upgrade this one",
            )
        return _version(found)
    except (ValueError, KeyError, TypeError) as problem:
        raise CatalogueError(
            f"{name} is not a version of a catalogue: {problem!r}",
            hint="restore the file; the data files themselves name their offsets",
        ) from problem


def _version(found: Mapping[str, Any]) -> Version:
    covered = {
        TopicPartition(topic, int(number)): tuple(OffsetRange(*each) for each in ranges)
        for topic, described in found["covered"].items()
        for number, ranges in described["partitions"].items()
    }
    return Version(
        number=int(found["version"]),
        run=str(found["run"]),
        committed_at_ms=int(found["committed_at_ms"]),
        layout=tuple(found["layout"]),
        topic_ids={topic: str(each["id"]) for topic, each in found["covered"].items()},
        covered=covered,
        added=tuple(_staged(each) for each in found["added"]),
    )


def _staged(found: Mapping[str, Any]) -> StagedFile:
    fields = dict(found)
    staged = str(fields.pop("staged"))
    return StagedFile(staged, DataFile(**fields))


# ---- for people


def shown_time(wall_ms: int) -> str:
    """ISO 8601 in UTC, to the second: ``2026-03-01T10:00:00Z``."""
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


class PartitionTotals(NamedTuple):
    """What the files of one partition come to."""

    files: int
    rows: int
    size_bytes: int


def totals(versions: Iterable[Version]) -> dict[TopicPartition, PartitionTotals]:
    """Files, rows and bytes of each partition over all versions."""
    sums: dict[TopicPartition, list[int]] = defaultdict(lambda: [0, 0, 0])
    for version in versions:
        for _, file in version.added:
            of_partition = sums[TopicPartition(file.topic, file.partition)]
            of_partition[0] += 1
            of_partition[1] += file.rows
            of_partition[2] += file.size_bytes
    return {partition: PartitionTotals(*each) for partition, each in sums.items()}


def shown(versions: Sequence[Version], *, with_files: bool = False) -> str:
    """The catalogue for people: a line a partition, and a line a file if asked for."""
    if not versions:
        return "nothing is covered yet"
    newest = versions[-1]
    sums = totals(versions)
    rows = [("PARTITION", "COVERED", "FILES", "ROWS", "MB")]
    for partition, ranges in sorted(newest.covered.items()):
        files, records, size = sums.get(partition, PartitionTotals(0, 0, 0))
        covered = " ".join(map(str, ranges))
        rows.append((str(partition), covered, f"{files:,}", f"{records:,}", f"{size / 1e6:,.1f}"))
    lines = [
        f"version {newest.number} of {shown_time(newest.committed_at_ms)},"
        f" layout {'/'.join(newest.layout)}",
        "",
        *_aligned(rows),
    ]
    if with_files:
        files_of = [("VERSION", "OFFSETS", "ROWS", "FILE")]
        files_of += [
            (
                str(version.number),
                f"{file.first_offset}..{file.last_offset}",
                f"{file.rows:,}",
                file.path,
            )
            for version in versions
            for _, file in version.added
        ]
        lines += ["", *_aligned(files_of)]
    return "\n".join(lines)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if cell[:1].isdigit() or heading in _NUMBERS else cell.ljust(width)
            for cell, width, heading in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    ]


_NUMBERS: Final = frozenset({"FILES", "ROWS", "MB", "VERSION"})
