"""What a Spark job needs beside PySpark, as one file for ``--py-files``: build/tidemark_spark.zip.

It holds the data source, the native client and the generated gRPC code, all pure Python. What has
compiled parts (grpcio, protobuf, crc32c, lz4, zstandard, cramjam, pyarrow, numpy) must be installed
where the executors run: ``spark-jobs/pyproject.toml`` and ``lib/pyproject.toml`` name it.
"""

import sys
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
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_files()):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, source.read_bytes())
    return scratch.replace(path)


def _files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for source in package.rglob("*"):
            if source.suffix in _KINDS and "__pycache__" not in source.parts:
                yield str(source.relative_to(package.parent)), source


if __name__ == "__main__":
    made = build(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH)
    print(f"{made} ({made.stat().st_size / 1024:,.0f} KiB)")
