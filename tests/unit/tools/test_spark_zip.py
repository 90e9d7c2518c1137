"""What is shipped to Spark runs from the zip, and on another Python too."""

import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE_S

TOOL = Path(__file__).parents[3] / "tools/spark_zip.py"
Build = Callable[[Path], Path]


@pytest.fixture(scope="module")
def build() -> Build:
    made: Build = runpy.run_path(str(TOOL))["build"]
    return made


def imported_from(archive: Path) -> str:
    """Which file Python takes, with nothing of ours installed before it."""
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r});"
        " import tidemark.model.ids as it; print(it.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.strip()


def test_bytecode_is_taken_out_of_the_zip_and_sources_without_it(
    build: Build, tmp_path: Path
) -> None:
    whole = build(tmp_path / "whole.zip")
    assert imported_from(whole) == f"{whole}/tidemark/model/ids.pyc"
    bare = tmp_path / "bare.zip"
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(bare, "w") as written:
        for name in read.namelist():
            if not name.endswith(".pyc"):
                written.writestr(name, read.read(name))
    assert imported_from(bare) == f"{bare}/tidemark/model/ids.py"


def test_the_same_sources_give_the_same_bytes(build: Build, tmp_path: Path) -> None:
    one, other = (build(tmp_path / name).read_bytes() for name in ("1.zip", "2.zip"))
    assert one == other
