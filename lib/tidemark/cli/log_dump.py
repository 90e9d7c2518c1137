"""``tidemark log dump``: readable content of segments, indexes, snapshots and checkpoints.

It needs only the files, whether the broker runs or not, and opens them for reading only.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from tidemark.cli.failure import CommandError, is_of_a_write
from tidemark.cli.log_files import (
    DecodeError,
    LogSummary,
    Row,
    SmallFile,
    base_offset_of,
    file_kind,
    record_rows,
    walk_log,
)
from tidemark.cli.output import OutputFormat, OutputOption, print_rows, say
from tidemark.runtime.exit_codes import ExitCode

_BATCH_COLUMNS: Final = (
    "position",
    "base_offset",
    "last_offset",
    "records",
    "size_bytes",
    "compression",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "max_timestamp",
    "flags",
    "crc_ok",
)
_RECORD_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
_TIMESTAMPS: Final = frozenset({"timestamp", "max_timestamp", "updated_at"})
_ROWS_IN_TABLE: Final = 200
_CELL_CHARS_MAX: Final = 60


class _ReadOnlyFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""
        return os.pread(self._descriptor, length, position)


def dump_segment(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help=(
                "Segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots"
                " (.snapshot), checkpoints; or a partition's directory, for all in it."
            ),
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show records, not only batches.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=0, help="Rows shown of each file; 0: all. Every batch is checked."
        ),
    ] = _ROWS_IN_TABLE,
) -> None:
    """Decode files of a log and check every batch's CRC.

    With -o json (or yaml, of which JSON is a part): one array, an object a file, each with its
    entries and, for segments, a summary.
    Exits with 65 when a file is damaged.
    """
    shown = Shown(output, records=records, limit=limit or sys.maxsize)
    files = [file for path in paths for file in _files_of(path)]
    damaged = []
    if not output.is_table:
        sys.stdout.write("[\n")
    for number, path in enumerate(files):
        if not output.is_table and number:
            sys.stdout.write(",\n")
        if not shown.dump(path):
            damaged.append(path)
    if not output.is_table:
        sys.stdout.write("\n]\n")
    if damaged:
        raise CommandError(
            f"{len(damaged)} of {len(files)} files are damaged: {', '.join(map(str, damaged))}",
            hint="a broker that starts truncates a torn tail; other damage is repaired from a"
            " replica",
            code=ExitCode.DATA,
        )


def _files_of(path: Path) -> list[Path]:
    """Return the path itself, or all files of a directory that can be decoded."""
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if file_kind(file.name) is not None]
        if not found:
            raise CommandError(
                f"{path} contains no file of a log",
                hint="name a partition's directory, such as .tidemark/data/broker-1/orders-0",
                code=ExitCode.NO_INPUT,
            )
        return found
    if not path.exists():
        raise CommandError(
            f"{path} does not exist",
            hint=f"tidemark log dump {path.parent} lists its files",
            code=ExitCode.NO_INPUT,
        )
    if file_kind(path.name) is None:
        raise CommandError(
            f"{path.name} is not a file of a log, by its name",
            hint="names end in .log, .index, .timeindex, .txnindex, .snapshot or -checkpoint",
            code=ExitCode.USAGE,
        )
    return [path]


class Shown:
    """Output of files: its format, with or without records, and the number of rows of each."""

    def __init__(self, output: OutputFormat, *, records: bool, limit: int) -> None:
        self._output = output
        self._records = records
        self._limit = limit

    def dump(self, path: Path) -> bool:
        """Show one file; return False if it is damaged. Raises CommandError if it is unreadable."""
        kind = file_kind(path.name)
        assert kind is not None
        try:
            if isinstance(kind, SmallFile):
                return self._dump_small(path, kind)
            return self._dump_log(path)
        except OSError as problem:
            if is_of_a_write(problem):
                raise
            raise CommandError(
                f"cannot read {path}: {problem.strerror}",
                hint="run it as the broker's user",
                code=ExitCode.NO_PERMISSION
                if isinstance(problem, PermissionError)
                else ExitCode.IO,
            ) from None

    def _dump_small(self, path: Path, kind: SmallFile) -> bool:
        rows: list[Row] = []
        problem = None
        try:
            rows.extend(kind.decode(path.read_bytes(), base_offset_of(path.name)))
        except DecodeError as found:
            problem = str(found)
        if not self._output.is_table:
            document = {"path": str(path), "kind": kind.kind, "entries": rows, "problem": problem}
            sys.stdout.write(json.dumps(document, indent=1))
            return problem is None
        shown = rows[: self._limit]
        title = f"{path}: {kind.kind}, {len(rows)} entries"
        print_rows([_for_people(row) for row in shown], kind.columns, self._output, title=title)
        self._say_cut(len(rows), len(shown))
        if problem is not None:
            say(f"{path}: {problem}")
        return problem is None

    def _dump_log(self, path: Path) -> bool:
        summary = LogSummary()
        with _opened(path) as (file, size_bytes):
            rows = self._log_rows(file, size_bytes, summary)
            if not self._output.is_table:
                _stream_json(path, rows, summary)
            else:
                self._print_log(path, rows, summary)
        return summary.problem is None

    def _log_rows(self, file: _ReadOnlyFile, size_bytes: int, summary: LogSummary) -> Iterator[Row]:
        """Yield at most ``limit`` rows, but check every batch."""
        given = 0
        for walked, row in walk_log(file, size_bytes, summary):
            if given >= self._limit:
                continue
            if not self._records:
                given += 1
                yield row
                continue
            try:
                found = record_rows(walked)
            except DecodeError as problem:
                summary.note_bad(walked.position, str(problem))
                found = []
            found = found[: self._limit - given]
            given += len(found)
            if not self._output.is_table:
                yield row | {"entries": found}
            else:
                yield from found

    def _print_log(self, path: Path, rows: Iterator[Row], summary: LogSummary) -> None:
        shown = [_for_people(row) for row in rows]
        columns = _RECORD_COLUMNS if self._records else _BATCH_COLUMNS
        print_rows(shown, columns, self._output, title=str(path))
        self._say_cut(summary.records if self._records else summary.batches, len(shown))
        first, last = summary.first_offset, summary.last_offset
        offsets = "no offsets" if first is None else f"offsets {first}..{last}"
        say(
            f"{summary.batches} batches, {summary.records} records, {summary.bytes_read} bytes,"
            f" {offsets}, {summary.bad_batches} with a bad CRC"
        )
        if summary.problem is not None:
            say(f"{path}: first bad position {summary.first_bad_position}: {summary.problem}")

    def _say_cut(self, total: int, shown: int) -> None:
        if shown >= self._limit and total > shown:
            say(f"{total - shown} more; --limit 0 shows all")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[_ReadOnlyFile, int]]:
    with path.open("rb") as file:
        descriptor = file.fileno()
        yield _ReadOnlyFile(descriptor), os.fstat(descriptor).st_size


def _stream_json(path: Path, rows: Iterator[Row], summary: LogSummary) -> None:
    """Write JSON while reading: a segment may have millions of batches."""
    sys.stdout.write(f'{{"path": {json.dumps(str(path))}, "kind": "log", "batches": [')
    for number, row in enumerate(rows):
        sys.stdout.write((",\n " if number else "\n ") + json.dumps(row))
    sys.stdout.write(f'\n], "summary": {json.dumps(asdict(summary))}}}')


def _for_people(row: Row) -> Row:
    """Return a row with timestamps as dates and long texts cut."""
    return {name: _cell(name, value) for name, value in row.items()}


def _cell(name: str, value: object) -> object:
    if name in _TIMESTAMPS and isinstance(value, int):
        return _date(value)
    if isinstance(value, str) and len(value) > _CELL_CHARS_MAX:
        return f"{value[:_CELL_CHARS_MAX]}… ({len(value)} characters)"
    return value


def _date(timestamp_ms: int) -> str:
    """Return a date in UTC, to the millisecond; the number itself if there is no such date."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
