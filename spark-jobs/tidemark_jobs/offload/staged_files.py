"""The Spark format ``tidemark-files``: Arrow batches to Parquet files in a staging directory.

Internal to the offload: readers see the files only after the manifest has committed them. Spark's
own Parquet writer is not used because it chooses the names of its files, and its commit moves them
into place one by one before the round is committed.

Tasks report their files through Spark's commit protocol, so only one of several attempts at a task
counts. Spark calls ``commit`` in a separate process; it leaves the list of files in the staging
directory, where the job reads it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidemark_jobs.offload.manifest import DataFile, ManifestError, StagedFile
from tidemark_jobs.offload.parquet_files import FileSettings, write_files

FORMAT_NAME = "tidemark-files"


@dataclass
class FilesMessage(WriterCommitMessage):
    """The files that one task has written."""

    files: list[StagedFile]


class StagedFiles(DataSource):
    """``frame.write.format("tidemark-files").options(**as_options(settings))``."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT_NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the writer for ``frame.write``."""
        del schema, overwrite
        return StagedFilesWriter(from_options(self.options))


class StagedFilesWriter(DataSourceArrowWriter):
    """Writer of one round: created on the driver, pickled to the tasks and for the commit."""

    def __init__(self, settings: FileSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        """Write the files of one task attempt. Runs in the task."""
        return FilesMessage(write_files(iterator, self.settings))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store the list of all tasks' files for the job."""
        files = [file for each in messages if isinstance(each, FilesMessage) for file in each.files]
        target = _list_path(self.settings)
        draft = target.with_suffix(".draft")
        draft.write_text(json.dumps([[name, file._asdict()] for name, file in files]), "utf-8")
        draft.replace(target)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: files that were not reported are never committed."""


def staged_by(settings: FileSettings) -> list[StagedFile]:
    """Return the files of a successful write. Raises ManifestError."""
    path = _list_path(settings)
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as problem:
        raise ManifestError(
            f"{path} is missing after a successful write",
            "stop other offloads into this directory, and mount the same file system at this path"
            " on the driver and all workers",
        ) from problem
    return [StagedFile(name, DataFile(**file)) for name, file in found]


def _list_path(settings: FileSettings) -> Path:
    return Path(settings.staging) / f"files-{settings.label}.json"


def as_options(settings: FileSettings) -> dict[str, str]:
    """Encode settings as options of the format."""
    return {
        "staging": settings.staging,
        "layout": ",".join(settings.layout),
        "label": settings.label,
        "rowsMax": str(settings.rows_max),
        "compression": settings.compression,
    }


def from_options(options: Mapping[str, str]) -> FileSettings:
    """Decode the options that ``as_options`` wrote; names are case-insensitive."""
    given = {name.lower(): value for name, value in options.items()}
    layout: Sequence[str] = given["layout"].split(",")
    return FileSettings(
        staging=given["staging"],
        layout=tuple(layout),
        label=given["label"],
        rows_max=int(given["rowsmax"]),
        compression=given["compression"],
    )
