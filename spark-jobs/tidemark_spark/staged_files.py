"""An offload's write as Spark meets it: format ``tidemark-files``, Arrow batches to staged files.

Not a sink for users: it writes into a run's staging directory, which only the catalogue can turn
into files that readers see. Spark's own Parquet writer would name its files itself, and its commit
moves them into place one by one, before anything says that they count.

The tasks answer their files through Spark's commit protocol, so that of several attempts at a task
one counts. Spark calls ``commit`` in a process of its own, which leaves the list of files in
staging; the job reads it there.
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

from tidemark_spark.catalogue import CatalogueError, DataFile, StagedFile
from tidemark_spark.parquet_files import FileSettings, write_files

FORMAT_NAME = "tidemark-files"


@dataclass
class FilesMessage(WriterCommitMessage):
    """What one task has written."""

    files: list[StagedFile]


class StagedFiles(DataSource):
    """``frame.write.format("tidemark-files").options(**as_options(settings))``."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return FORMAT_NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """For ``frame.write``."""
        del schema, overwrite
        return StagedFilesWriter(from_options(self.options))


class StagedFilesWriter(DataSourceArrowWriter):
    """Made on the driver once a round; pickled to its tasks, and for its commit."""

    def __init__(self, settings: FileSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        """In a task: one attempt's files."""
        return FilesMessage(write_files(iterator, self.settings))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have answered: leave their files' names for the job."""
        files = [file for each in messages if isinstance(each, FilesMessage) for file in each.files]
        target = _list_path(self.settings)
        draft = target.with_suffix(".draft")
        draft.write_text(json.dumps([[name, file._asdict()] for name, file in files]), "utf-8")
        draft.replace(target)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was named, so nothing counts."""


def staged_by(settings: FileSettings) -> list[StagedFile]:
    """The files of a write that succeeded. Raises CatalogueError."""
    path = _list_path(settings)
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as problem:
        raise CatalogueError(
            f"{path} is not there after a write that succeeded",
            "another offload runs in this directory, or it is not the same one for all workers",
        ) from problem
    return [StagedFile(name, DataFile(**file)) for name, file in found]


def _list_path(settings: FileSettings) -> Path:
    return Path(settings.staging) / f"files-{settings.label}.json"


def as_options(settings: FileSettings) -> dict[str, str]:
    """Settings as options of the format."""
    return {
        "staging": settings.staging,
        "layout": ",".join(settings.layout),
        "label": settings.label,
        "rowsMax": str(settings.rows_max),
        "compression": settings.compression,
    }


def from_options(options: Mapping[str, str]) -> FileSettings:
    """The settings that ``as_options`` was given; names in any case of letters."""
    given = {name.lower(): value for name, value in options.items()}
    layout: Sequence[str] = given["layout"].split(",")
    return FileSettings(
        staging=given["staging"],
        layout=tuple(layout),
        label=given["label"],
        rows_max=int(given["rowsmax"]),
        compression=given["compression"],
    )
