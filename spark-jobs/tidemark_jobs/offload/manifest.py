"""The manifest of an offload: which offsets of which partitions are in which files. Pure.

A manifest is a sequence of *versions*, numbered from 1. A version contains the files that it added
and all offset ranges that are covered so far. So the newest version alone is enough to continue
from, and all versions together are the history. A version is a readable JSON file;
``manifest_directory`` writes it once and atomically.

Coverage counts offsets, not records: ``[0, 900)`` is covered if every record in this range that a
reader of committed records can see is in a file. Offsets of markers, of aborted transactions and of
compacted records are covered without being in any file.
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
"""Version of the JSON format. A reader rejects newer ones."""


class ManifestError(TidemarkSparkError):
    """The manifest contradicts the cluster or the files, or two runs write at once."""


class OffsetRange(NamedTuple):
    """Offsets from ``start`` to ``end``, exclusive."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


class DataFile(NamedTuple):
    """A Parquet file with records of one partition, in ascending order of offsets."""

    path: str
    """Path relative to the output directory, separated by ``/``."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    size_bytes: int


class StagedFile(NamedTuple):
    """A file that a task has written and synced and that readers do not see yet."""

    staged: str
    """Path relative to the staging directory."""
    file: DataFile


class LogBounds(NamedTuple):
    """Offsets that a partition can be read at: ``end`` is the last stable offset, exclusive."""

    start: int
    end: int


class PlannedRange(NamedTuple):
    """The next range of a partition. ``lost``: offsets before it that the log no longer has."""

    offsets: OffsetRange
    lost: OffsetRange | None


Covered = Mapping[TopicPartition, tuple[OffsetRange, ...]]
"""Disjoint ranges in ascending order, adjacent ones merged; more than one only after data loss."""


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version of the manifest."""

    number: int
    run: str
    committed_at_ms: int
    layout: tuple[str, ...]
    topic_ids: Mapping[str, str]
    """Hexadecimal id by name: a topic that was deleted and created again starts at offset 0."""
    covered: Covered
    added: tuple[StagedFile, ...]

    @classmethod
    def nothing(cls, layout: Sequence[str]) -> Self:
        """Return version 0: the state before the first commit."""
        return cls(0, "", 0, tuple(layout), {}, {}, ())

    def end_of(self, partition: TopicPartition) -> int | None:
        """Offset where the next range starts; None for a partition that was never read."""
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
    """Plan the next range of each partition, of at most ``offsets_max`` offsets.

    The result is empty when everything within ``bounds`` is covered. Raises ManifestError if a
    topic was deleted and created again, if a log ends before the covered offsets, or if it starts
    after them. With ``fail_on_data_loss=False`` the last is allowed: the range starts where the log
    does, and contains the lost offsets.
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
            raise ManifestError(
                f"topic {topic} was deleted and created again: its id is {topic_id}, and this"
                f" directory contains the one with id {known}",
                hint="offload the new topic into another directory",
            )


def _check_bounds(
    partition: TopicPartition, following: int, log: LogBounds, *, fail_on_data_loss: bool
) -> None:
    if log.end < following:
        raise ManifestError(
            f"{partition} ends at offset {log.end}, and offsets up to {following} are already"
            " covered",
            hint="check that this is the cluster that was offloaded before: a log never loses"
            " offsets that readers of committed records have seen",
        )
    if fail_on_data_loss and log.start > following:
        raise ManifestError(
            f"{partition} starts at offset {log.start}: offsets {OffsetRange(following, log.start)}"
            " were deleted before they were offloaded",
            hint="--skip-lost continues after the gap and records it in the manifest",
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
    """Return the version after ``version``: the planned ranges are covered by the added files.

    Asserts that every file lies within the range that it covers.
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
    """Append a range to ``ranges``; merge it with the last one if they are adjacent."""
    assert added.start < added.end, added
    if not ranges:
        return (added,)
    last = ranges[-1]
    assert last.end <= added.start, (last, added)
    if last.end == added.start:
        return (*ranges[:-1], OffsetRange(last.start, added.end))
    return (*ranges, added)


# -- as text


def to_json(version: Version) -> str:
    """Encode a version as JSON, indented, with one line for each file."""
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
    """Decode a version; ``name`` is its file, for error messages. Raises ManifestError."""
    try:
        found = json.loads(text)
        written_in = int(found["format"])
        if written_in > FORMAT:
            raise ManifestError(
                f"{name} has format {written_in}, and this release reads formats up to {FORMAT}",
                hint="upgrade Tidemark: a newer release wrote this file",
            )
        return _version(found)
    except (ValueError, KeyError, TypeError) as problem:
        raise ManifestError(
            f"{name} is not a valid version of a manifest: {problem!r}",
            hint="restore the file; the offsets of each data file are also in its metadata",
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


# -- for the command line


def shown_time(wall_ms: int) -> str:
    """Format a time as ISO 8601 in UTC: ``2026-03-01T10:00:00Z``."""
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


class PartitionTotals(NamedTuple):
    """Sums over the files of one partition."""

    files: int
    rows: int
    size_bytes: int


def totals(versions: Iterable[Version]) -> dict[TopicPartition, PartitionTotals]:
    """Sum up files, rows and bytes of each partition over all versions."""
    sums: dict[TopicPartition, list[int]] = defaultdict(lambda: [0, 0, 0])
    for version in versions:
        for _, file in version.added:
            of_partition = sums[TopicPartition(file.topic, file.partition)]
            of_partition[0] += 1
            of_partition[1] += file.rows
            of_partition[2] += file.size_bytes
    return {partition: PartitionTotals(*each) for partition, each in sums.items()}


def shown(versions: Sequence[Version], *, with_files: bool = False) -> str:
    """Format the manifest as a table with a line for each partition, and optionally each file."""
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
