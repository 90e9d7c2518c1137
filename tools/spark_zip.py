"""Build the zip files for ``spark-submit --py-files``, each complete in itself.

    build/tidemark_spark.zip    the data source, the native client and the generated gRPC code:
                                for Spark programs of your own
    build/tidemark_jobs.zip     the same and the jobs: for the scripts in spark-jobs/jobs

They contain pure Python: sources, and bytecode for the Python that builds them, because Python does
not store what it compiles from a zip file, and a query starts a dozen processes. Other versions of
Python use the sources. Packages with compiled parts (grpcio, protobuf, crc32c, lz4, zstandard,
cramjam, pyarrow, numpy) must be installed where the executors run; ``spark-jobs/pyproject.toml``
and ``lib/pyproject.toml`` list them.
"""

import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CONNECTOR: Final = (
    ROOT / "spark-jobs" / "tidemark_spark",
    ROOT / "lib" / "tidemark",
    ROOT / "gen" / "tidemark_wire",
)
JOBS: Final = (ROOT / "spark-jobs" / "tidemark_jobs", *CONNECTOR)
_KINDS: Final = frozenset({".py", ".txt", ".typed"})
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)


def build(path: Path, packages: Sequence[Path]) -> Path:
    """Write a zip file of these packages. The same sources give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    with (
        zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive,
        tempfile.TemporaryDirectory() as compiled,
    ):
        for name, source in sorted(_files(packages)):
            _add(archive, name, source.read_bytes())
            if source.suffix == ".py":
                _add(archive, f"{name}c", _bytecode(name, source, Path(compiled)))
    return scratch.replace(path)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _bytecode(name: str, source: Path, scratch: Path) -> bytes:
    """Compile a source. Python uses the bytecode without comparing it with the source."""
    made = scratch / "made.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(made), name, doraise=True, invalidation_mode=mode)
    return made.read_bytes()


def _files(packages: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for source in package.rglob("*"):
            if source.suffix in _KINDS and "__pycache__" not in source.parts:
                yield str(source.relative_to(package.parent)), source


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    for name, packages in (("tidemark_spark.zip", CONNECTOR), ("tidemark_jobs.zip", JOBS)):
        made = build(directory / name, packages)
        print(f"{made} ({made.stat().st_size / 1024:,.0f} KiB)")
