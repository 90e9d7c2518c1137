"""An offload's directory: where the catalogue's versions and the data files are, and how they get
there.

    <output>/_catalogue/00000000000000000007.json    versions, each created once and never changed
    <output>/_catalogue/lock                         held while a run goes on
    <output>/_staging/<run>/...                      files of a run that is not committed
    <output>/topic=orders/date=2026-03-01/...        committed files

The commit is the creation of the next version. Files are moved out of staging *after* it, one by
one, by whoever comes first: the run itself, or the next one when this was killed. So a reader of
the directory never meets a file that is not committed, nor one twice; and a run that died has
either committed nothing (its staging is removed) or all (its files are moved).

It wants a file system where ``link`` fails if the name exists and ``rename`` is atomic, mounted at
the same path by the driver and all workers: a local disk, NFS, a shared volume.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidemark.model.topics import TopicPartition

from tidemark_spark.catalogue import (
    CatalogueError,
    PlannedRange,
    StagedFile,
    Version,
    from_json,
    next_version,
    to_json,
)

CATALOGUE: Final = "_catalogue"
STAGING: Final = "_staging"
"""Readers of Parquet directories (Spark, Hive, Arrow) skip names that begin with an underscore."""
_DIGITS: Final = 20


class Files:
    """Every change of the file system that a catalogue makes. Tests die at each."""

    def make_directory(self, path: Path) -> None:
        """With its parents, durably."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            _sync_directory(each.parent)

    def write(self, path: Path, text: str) -> None:
        """A file of its own, synced."""
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, durably. Raises FileExistsError."""
        target.hardlink_to(source)
        _sync_directory(target.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file, durably. Raises FileNotFoundError."""
        source.rename(target)
        _sync_directory(target.parent)

    def remove(self, path: Path) -> None:
        """A file or a whole directory; what a zombie adds meanwhile stays for the next time."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CatalogueDirectory:
    """``with CatalogueDirectory(output, layout, run=...) as catalogue`` is a run: it holds the
    lock, has completed what the run before left undone, and may commit. Reading needs no ``with``.
    """

    def __init__(
        self, output: Path, layout: Sequence[str] = (), *, run: str = "", files: Files | None = None
    ) -> None:
        self.output = output
        self.run = run
        self._layout = tuple(layout)
        self._catalogue = output / CATALOGUE
        self._files = files or Files()
        self._held = contextlib.ExitStack()
        self._latest = Version.nothing(layout)

    # ---- reading

    def versions(self) -> list[Version]:
        """All that were committed, oldest first. Raises CatalogueError."""
        if not self._catalogue.is_dir():
            return []
        names = sorted(each.name for each in self._catalogue.glob("[0-9]*.json"))
        expected = [_version_name(number) for number in range(1, len(names) + 1)]
        if names != expected:
            missing = next(each for each in expected if each not in names)
            raise CatalogueError(
                f"{self._catalogue / missing} is missing, and later versions exist",
                hint="restore it: nobody removes versions",
            )
        return [self._read(number) for number in range(1, len(names) + 1)]

    def latest(self) -> Version:
        """The newest version; number 0 when nothing was committed. Raises CatalogueError."""
        numbers = [int(each.stem) for each in self._catalogue.glob("[0-9]*.json")]
        return self._read(max(numbers)) if numbers else Version.nothing(self._layout)

    def _read(self, number: int) -> Version:
        path = self._catalogue / _version_name(number)
        return from_json(path.read_text(encoding="utf-8"), name=str(path))

    def problems(self) -> Iterator[str]:
        """What is wrong with the committed files, each in one line: missing, or of another size."""
        for version in self.versions():
            for _, file in version.added:
                try:
                    size = (self.output / file.path).stat().st_size
                except FileNotFoundError:
                    yield f"{file.path}: missing (version {version.number})"
                    continue
                if size != file.size_bytes:
                    yield f"{file.path}: {size} bytes instead of {file.size_bytes}"

    # ---- a run

    @property
    def staging(self) -> Path:
        """Where this run's tasks put their files. Tasks never create it: when it is gone, another
        run has begun, and what writes on is a zombie.
        """
        assert self.run, "a reader stages nothing"
        return self.output / STAGING / self.run

    def __enter__(self) -> Self:
        self._files.make_directory(self._catalogue)
        try:
            self._held.enter_context(_lock(self._catalogue / "lock", self.run))
            self._latest = self.latest()
            self._check_layout()
            self.publish(self._latest)
            for draft in self._catalogue.glob(".*"):
                self._files.remove(draft)
            self._files.remove(self.output / STAGING)
            self._files.make_directory(self.staging)
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._held:
            self._files.remove(self.output / STAGING)

    def _check_layout(self) -> None:
        was = self._latest.layout
        if self._latest.number and was != self._layout:
            raise CatalogueError(
                f"{self.output} is laid out by {'/'.join(was)}, not by {'/'.join(self._layout)}",
                hint=f"go on with --layout {','.join(was)}, or take another directory",
            )

    def commit(
        self,
        planned: Mapping[TopicPartition, PlannedRange],
        added: Sequence[StagedFile],
        *,
        committed_at_ms: int,
        topic_ids: Mapping[str, str],
    ) -> Version:
        """Make the planned ranges covered by these files, then let readers see them.

        Raises CatalogueError when another run committed meanwhile (a lock that the file system
        does not honour): nothing of this round counts then.
        """
        self._check_staged(added)
        version = next_version(
            self._latest,
            planned,
            added,
            run=self.run,
            committed_at_ms=committed_at_ms,
            topic_ids=topic_ids,
        )
        self._create(version)
        self._latest = version
        self.publish(version)
        return version

    @property
    def newest(self) -> Version:
        """What this run goes on from."""
        return self._latest

    def _check_staged(self, added: Sequence[StagedFile]) -> None:
        for staged, file in added:
            path = self.output / STAGING / staged
            if not path.exists() or path.stat().st_size != file.size_bytes:
                raise CatalogueError(
                    f"{path} is not as its task left it",
                    hint="all workers and the driver must see the same file system at this path",
                )

    def _create(self, version: Version) -> None:
        target = self._catalogue / _version_name(version.number)
        draft = self._catalogue / f".{target.name}.{self.run}"
        self._files.write(draft, to_json(version))
        try:
            self._files.link(draft, target)
        except FileExistsError as problem:
            raise CatalogueError(
                f"another run committed version {version.number} meanwhile",
                hint="one offload at a time for a directory; start this one again",
            ) from problem
        finally:
            self._files.remove(draft)

    def publish(self, version: Version) -> None:
        """Move the files of a committed version to where readers look; what was moved stays.

        Only the newest version can have files left in staging, for no run commits before it has
        published.
        """
        for staged, file in version.added:
            target = self.output / file.path
            if target.exists():
                continue
            self._files.make_directory(target.parent)
            try:
                self._files.rename(self.output / STAGING / staged, target)
            except FileNotFoundError as problem:
                if not target.exists():  # else another run was faster, which is as good
                    raise CatalogueError(
                        f"{file.path} is committed, and neither there nor in staging",
                        hint="restore it from a copy, or offload into another directory",
                    ) from problem


def _version_name(number: int) -> str:
    return f"{number:0{_DIGITS}}.json"


@contextlib.contextmanager
def _lock(path: Path, owner: str) -> Iterator[None]:
    """The kernel lets go of it when the process ends, however it ends."""
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            file.seek(0)
            raise CatalogueError(
                f"another offload is writing to {path.parent.parent}: {file.read().strip()}",
                hint="wait for it, or stop it; its lock goes with its process",
            ) from problem
        file.truncate(0)
        file.write(f"run {owner}, process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield
