"""What the tasks of an offload tell the job, through Spark's commit."""

from pathlib import Path

import pytest
from tidemark_jobs.offload.manifest import DataFile, ManifestError, StagedFile
from tidemark_jobs.offload.parquet_files import FileSettings
from tidemark_jobs.offload.staged_files import (
    FilesMessage,
    StagedFilesWriter,
    as_options,
    from_options,
    staged_by,
)


def staged(name: str) -> StagedFile:
    return StagedFile(f"run/{name}", DataFile(f"topic=t/{name}", "t", 0, 5, 9, 5, 100))


def settings_in(tmp_path: Path) -> FileSettings:
    return FileSettings(str(tmp_path), ("topic", "date"), "v3", rows_max=7, compression="none")


def test_settings_survive_being_options(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert from_options(as_options(settings)) == settings


def test_the_job_reads_the_files_of_all_tasks(tmp_path: Path) -> None:
    writer = StagedFilesWriter(settings_in(tmp_path))
    writer.commit([FilesMessage([staged("a")]), None, FilesMessage([staged("b")])])
    assert staged_by(writer.settings) == [staged("a"), staged("b")]


def test_an_aborted_write_names_nothing(tmp_path: Path) -> None:
    writer = StagedFilesWriter(settings_in(tmp_path))
    writer.abort([FilesMessage([staged("a")])])
    with pytest.raises(ManifestError, match="is missing after a successful write"):
        staged_by(writer.settings)
