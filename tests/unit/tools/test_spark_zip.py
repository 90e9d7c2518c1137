"""What is shipped to Spark runs from the zip, and on another Python too."""

import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools/spark_zip.py"
IDS = "tidemark.model.ids"
Build = Callable[[Path, str], Path]


@pytest.fixture(scope="module")
def build() -> Build:
    tool = runpy.run_path(str(TOOL))

    def made(path: Path, packages: str) -> Path:
        zipped: Path = tool["build"](path, tool[packages])
        return zipped

    return made


def imported_from(archive: Path, *modules: str) -> list[str]:
    """The files that Python imports, with the archive before everything that is installed."""
    program = (
        f"import sys, importlib; sys.path.insert(0, {str(archive)!r})\n"
        f"for name in {modules!r}: print(importlib.import_module(name).__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.split()


def test_bytecode_is_taken_out_of_the_zip_and_sources_without_it(
    build: Build, tmp_path: Path
) -> None:
    whole = build(tmp_path / "whole.zip", "CONNECTOR")
    assert imported_from(whole, IDS) == [f"{whole}/tidemark/model/ids.pyc"]
    bare = tmp_path / "bare.zip"
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(bare, "w") as written:
        for name in read.namelist():
            if not name.endswith(".pyc"):
                written.writestr(name, read.read(name))
    assert imported_from(bare, IDS) == [f"{bare}/tidemark/model/ids.py"]


def test_the_same_sources_give_the_same_bytes(build: Build, tmp_path: Path) -> None:
    one, other = (build(tmp_path / name, "JOBS").read_bytes() for name in ("1.zip", "2.zip"))
    assert one == other


def folders(archive: Path) -> set[str]:
    """The packages in a zip file."""
    with zipfile.ZipFile(archive) as read:
        return {name.partition("/")[0] for name in read.namelist()}


def test_the_connectors_zip_has_no_jobs_and_the_jobs_zip_is_complete(
    build: Build, tmp_path: Path
) -> None:
    connector = folders(build(tmp_path / "connector.zip", "CONNECTOR"))
    assert connector == {"tidemark_spark", "tidemark", "tidemark_wire"}
    assert folders(build(tmp_path / "jobs.zip", "JOBS")) == {"tidemark_jobs", *connector}


def test_every_job_is_imported_from_the_jobs_zip(build: Build, tmp_path: Path) -> None:
    archive = build(tmp_path / "jobs.zip", "JOBS")
    jobs = sorted(path.stem for path in (ROOT / "spark-jobs/jobs").glob("*.py"))
    names = [f"tidemark_jobs.{job}.command" for job in jobs]
    assert imported_from(archive, *names) == [
        f"{archive}/{name.replace('.', '/')}.pyc" for name in names
    ]
