"""A bundle for diagnosis: a zip file with a manifest of what is in it, and of what is missing."""

import hashlib
import json
import os
import platform
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
_WORKERS: Final = 8
_clock = Clock()


class Source(NamedTuple):
    """Content of one file of the bundle. ``read`` raises any exception if it cannot be had."""

    path: str
    read: Callable[[], bytes]


class Entry(NamedTuple):
    """Content that was read, or the problem."""

    path: str
    content: bytes | None
    problem: str | None
    took_ms: int


class Written(NamedTuple):
    """Result: the file, and its entries without their content."""

    path: Path
    bytes: int
    entries: list[dict[str, Any]]
    problems: list[dict[str, Any]]


def write_bundle(
    path: Path, sources: Sequence[Source], advance: Callable[[int], None] = lambda _: None
) -> Written:
    """Read all sources side by side and write the file, readable by its owner alone. A source that
    fails becomes a problem in the manifest. Raises CommandError if the file cannot be written.
    """
    entries: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        with (
            os.fdopen(handle, "w+b") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for number, entry in enumerate(_read_all(sources), 1):
                if entry.content is None:
                    problems.append({"path": entry.path, "problem": entry.problem})
                else:
                    archive.writestr(entry.path, entry.content)
                    entries.append(_described(entry))
                advance(number)
            archive.writestr(MANIFEST, json.dumps(_manifest(entries, problems), indent=2) + "\n")
        scratch.replace(path)
    except OSError as error:
        raise CommandError(
            f"cannot write {path}: {error.strerror}",
            hint="--to names another file",
            code=ExitCode.NO_PERMISSION if isinstance(error, PermissionError) else ExitCode.IO,
        ) from None
    finally:
        scratch.unlink(missing_ok=True)
    return Written(path, path.stat().st_size, entries, problems)


def _read_all(sources: Sequence[Source]) -> Iterator[Entry]:
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="bundle") as pool:
        for done in as_completed([pool.submit(_read, source) for source in sources]):
            yield done.result()


def _read(source: Source) -> Entry:
    began_ms = _clock.now_ms()
    try:
        content: bytes | None = source.read()
        problem = None
    except Exception as error:  # noqa: BLE001 - whatever is broken is why the bundle is made
        content, problem = None, f"{type(error).__name__}: {error}"
    return Entry(source.path, content, problem, _clock.now_ms() - began_ms)


def _described(entry: Entry) -> dict[str, Any]:
    assert entry.content is not None, "only what was read is described"
    return {
        "path": entry.path,
        "bytes": len(entry.content),
        "sha256": hashlib.sha256(entry.content).hexdigest(),
        "took_ms": entry.took_ms,
    }


def _manifest(entries: list[dict[str, Any]], problems: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "made_at_ms": _clock.wall_ms(),
        "release": version("tidemark"),
        "python": sys.version,
        "platform": platform.platform(),
        "entries": sorted(entries, key=lambda entry: entry["path"]),
        "problems": sorted(problems, key=lambda problem: problem["path"]),
    }
