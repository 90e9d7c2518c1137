"""What a Spark job needs beside PySpark, as one file for ``--py-files``: build/tidemark_spark.zip.

It holds the data source, the native client and the generated gRPC code, all pure Python: sources,
and bytecode for the Python that made it, because Python keeps nothing of what it compiles out of a
zip, and a query starts a dozen processes. Another version of Python takes the sources. What has
compiled parts (grpcio, protobuf, crc32c, lz4, zstandard, cramjam, pyarrow, numpy) must be installed
where the executors run: ``spark-jobs/pyproject.toml`` and ``lib/pyproject.toml`` name it.
"""

import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "build" / "tidemark_spark.zip"
PACKAGES: Final = (
    ROOT / "spark-jobs" / "tidemark_spark",
    ROOT / "lib" / "tidemark",
    ROOT / "gen" / "tidemark_wire",
)
_KINDS: Final = frozenset({".py", ".txt", ".typed"})
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)


def build(path: Path = PATH) -> Path:
    """Write it anew; the same sources give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    with (
        zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive,
        tempfile.TemporaryDirectory() as compiled,
    ):
        for name, source in sorted(_files()):
            _add(archive, name, source.read_bytes())
            if source.suffix == ".py":
                _add(archive, f"{name}c", _bytecode(name, source, Path(compiled)))
    return scratch.replace(path)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _bytecode(name: str, source: Path, scratch: Path) -> bytes:
    """Never compared with its source: they travel together."""
    made = scratch / "made.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(made), name, doraise=True, invalidation_mode=mode)
    return made.read_bytes()


def _files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for source in package.rglob("*"):
            if source.suffix in _KINDS and "__pycache__" not in source.parts:
                yield str(source.relative_to(package.parent)), source


if __name__ == "__main__":
    made = build(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH)
    print(f"{made} ({made.stat().st_size / 1024:,.0f} KiB)")
