"""Parquet files written by the tasks of an offload.

A task writes the range of one topic partition to staging: one file for each combination of values
of the layout's columns, of at most ``rows_max`` rows, under names that are unique to the attempt.
Files of failed attempts are never reported, and are removed with the staging directory.
"""

import contextlib
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_jobs.offload.manifest import DataFile, StagedFile

LAYOUT_COLUMNS: Final = ("topic", "date", "hour", "partition")
"""Columns that directories can be named by."""
_BUFFERED_BYTES_MAX: Final = 16 * 1024 * 1024
_OPEN_FILES_MAX: Final = 16
"""A range can contain many dates; beyond this limit the least recently used file is closed."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Settings of a round's tasks. ``staging`` is the run's directory below ``_staging``."""

    staging: str
    layout: tuple[str, ...]
    label: str
    """Suffix of the files' names, unique to the round."""
    rows_max: int = 1_000_000
    compression: str = "zstd"


class _Place(NamedTuple):
    """Key of an open file: rows with the same place are written to the same file."""

    topic: str
    partition: int
    directory: str


def write_files(batches: Iterable[pa.RecordBatch], settings: FileSettings) -> list[StagedFile]:
    """Write the batches of one task; return the files, closed and synced.

    Columns of the layout are not written: the directories contain their values.
    """
    writing = _Writing(settings)
    try:
        for batch in batches:
            writing.add(batch)
        return writing.finish()
    finally:
        writing.abandon()


class _Writing:
    """The open files of one task."""

    def __init__(self, settings: FileSettings) -> None:
        self._settings = settings
        self._attempt = uuid.uuid4().hex[:12]
        self._open: OrderedDict[_Place, _OpenFile] = OrderedDict()
        self._finished: list[StagedFile] = []
        self._begun = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows to their files, in order."""
        if batch.num_rows == 0:
            return
        columns = [name for name in batch.schema.names if name not in self._settings.layout]
        rows = batch.select(columns)
        for place, indices in places(batch, self._settings.layout):
            part = rows if indices is None else rows.take(pa.array(indices))
            offsets = batch.column("offset")
            if indices is not None:
                offsets = offsets.take(pa.array(indices))
            self._append(place, part, offsets)

    def _append(self, place: _Place, rows: pa.RecordBatch, offsets: pa.Array) -> None:
        start = 0
        while start < rows.num_rows:
            file = self._file_for(place, rows.schema, offsets[start].as_py())
            count = min(self._settings.rows_max - file.rows, rows.num_rows - start)
            file.write(rows.slice(start, count), offsets[start + count - 1].as_py())
            start += count
            if file.rows == self._settings.rows_max:
                self._close(place)

    def _file_for(self, place: _Place, schema: pa.Schema, first_offset: int) -> "_OpenFile":
        file = self._open.get(place)
        if file is None:
            if len(self._open) == _OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            self._begun += 1
            name = f"{place.topic}-{place.partition}-{self._attempt}-{self._begun}.parquet"
            file = _OpenFile(self._settings, name, place, schema, first_offset)
            self._open[place] = file
        self._open.move_to_end(place)
        return file

    def _close(self, place: _Place) -> None:
        self._finished.append(self._open.pop(place).finish())

    def finish(self) -> list[StagedFile]:
        """Close and sync all files; return all files of the task."""
        while self._open:
            self._close(next(iter(self._open)))
        return self._finished

    def abandon(self) -> None:
        """Close the open files after a failure."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self,
        settings: FileSettings,
        name: str,
        place: _Place,
        schema: pa.Schema,
        first_offset: int,
    ) -> None:
        staging = Path(settings.staging)
        self._path = staging / name
        self._staged = f"{staging.name}/{name}"
        self._label = settings.label
        self._place = place
        self._first_offset = self._last_offset = first_offset
        self.rows = 0
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        # "x": never overwrites a file. Tasks do not create the directory: see ManifestDirectory.
        self._sink = self._path.open("xb")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema.with_metadata(None),
            compression=settings.compression,
            store_schema=False,
        )

    def write(self, rows: pa.RecordBatch, last_offset: int) -> None:
        """Append rows; write a row group when enough are buffered."""
        assert last_offset >= self._last_offset, (self._path, last_offset, self._last_offset)
        self._last_offset = last_offset
        self.rows += rows.num_rows
        self._buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes >= _BUFFERED_BYTES_MAX:
            self._write_group()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._buffered).replace_schema_metadata(None)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._buffered, self._buffered_bytes = [], 0

    def finish(self) -> StagedFile:
        """Close and sync the file, with its offsets in its key-value metadata."""
        if self._buffered:
            self._write_group()
        topic, partition, directory = self._place
        self._writer.add_key_value_metadata(
            {
                "tidemark.partition": f"{topic}-{partition}",
                "tidemark.offsets": f"{self._first_offset}..{self._last_offset}",
            }
        )
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        size = self._sink.tell()
        self._sink.close()
        name = f"{topic}-{partition}-{self._first_offset:020d}-{self._label}.parquet"
        return StagedFile(
            self._staged,
            DataFile(
                path=f"{directory}/{name}",
                topic=topic,
                partition=partition,
                first_offset=self._first_offset,
                last_offset=self._last_offset,
                rows=self.rows,
                size_bytes=size,
            ),
        )

    def abandon(self) -> None:
        """Close the file without reporting it; it stays in staging."""
        with self._sink, contextlib.suppress(OSError):  # the task's own error is the one to raise
            self._writer.close()


def places(
    batch: pa.RecordBatch, layout: tuple[str, ...]
) -> Iterator[tuple[_Place, np.ndarray[Any, Any] | None]]:
    """Yield the places of a batch's rows, each with the indices of its rows in ascending order.

    None stands for all rows. Directories are named as Hive does: ``topic=orders/date=2026-03-01``.
    """
    names = list(dict.fromkeys(("topic", "partition", *layout)))
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        encoded = batch.column(name).dictionary_encode()
        assert encoded.null_count == 0, f"column {name} has nulls"
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        codes = codes * len(encoded.dictionary) + indices
    distinct, first = np.unique(codes, return_index=True)
    for code, row in sorted(zip(distinct, first, strict=True), key=lambda each: each[1]):
        values = {name: batch.column(name)[int(row)].as_py() for name in names}
        directory = "/".join(f"{name}={values[name]}" for name in layout)
        place = _Place(values["topic"], values["partition"], directory)
        yield place, None if len(distinct) == 1 else np.flatnonzero(codes == code)
