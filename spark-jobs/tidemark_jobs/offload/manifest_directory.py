"""The output directory of an offload: versions of the manifest, staging and committed files.

    <output>/_catalogue/00000000000000000007.json    versions, each created once and never changed
    <output>/_catalogue/lock                         held during a run
    <output>/_staging/<run>/...                      files of a run that are not committed
    <output>/topic=orders/date=2026-03-01/...        committed files

Creating the next version is the commit. *After* it, files are moved out of staging one by one: by
the run itself or, if it was killed, by the next run. So readers of the directory never see a file
that is not committed, and never see a file twice. A run that was killed has either committed
nothing, and its staging is removed, or everything, and its files are moved.

The file system must support ``link`` that fails if the name exists and an atomic ``rename``, and
must be mounted at the same path by the driver and all workers: a local disk, NFS, a shared volume.
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

from tidemark_jobs.offload.manifest import (
    ManifestError,
    PlannedRange,
    StagedFile,
    Version,
    from_json,
    next_version,
    to_json,
)

MANIFEST: Final = "_catalogue"
"""Directory of the versions. The name is part of the format on disk and must not change."""
STAGING: Final = "_staging"
"""Directory of uncommitted files. Readers of Parquet directories (Spark, Hive, Arrow) skip names
that start with an underscore.
"""
_DIGITS: Final = 20


class Files:
    """Changes that a manifest makes to the file system. Tests simulate a crash at each."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents durably."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in reversed(missing):
            _sync_directory(each.parent)

    def write(self, path: Path, text: str) -> None:
        """Write and sync a file."""
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def sync_names(self, path: Path) -> None:
        """Make the names in a directory durable: syncing a file need not sync its name."""
        _sync_directory(path)

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link durably. Raises FileExistsError."""
        target.hardlink_to(source)
        _sync_directory(target.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file durably. Raises FileNotFoundError."""
        source.rename(target)
        _sync_directory(target.parent)

    def remove(self, path: Path) -> None:
        """Remove a file or a directory; files that a zombie task adds meanwhile are left."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def remove_empty(self, path: Path) -> None:
        """Remove a directory, unless something is in it."""
        with contextlib.suppress(OSError):
            path.rmdir()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ManifestDirectory:
    """The manifest in an output directory. Reading needs no ``with``.

    ``with ManifestDirectory(output, layout, run=...) as manifest`` is a run: it holds the lock,
    has completed what an interrupted run left behind, and can commit.
    """

    def __init__(
        self, output: Path, layout: Sequence[str] = (), *, run: str = "", files: Files | None = None
    ) -> None:
        self.output = output
        self.run = run
        self._layout = tuple(layout)
        self._manifest = output / MANIFEST
        self._files = files or Files()
        self._held = contextlib.ExitStack()
        self._latest = Version.nothing(layout)
        self._is_unpublished = False
        """A version may exist whose files are still in staging."""

    # -- reading

    def versions(self) -> list[Version]:
        """Read all committed versions, oldest first. Raises ManifestError."""
        if not self._manifest.is_dir():
            return []
        names = sorted(each.name for each in self._manifest.glob("[0-9]*.json"))
        expected = [_version_name(number) for number in range(1, len(names) + 1)]
        if names != expected:
            missing = next(each for each in expected if each not in names)
            raise ManifestError(
                f"{self._manifest / missing} is missing, and later versions exist",
                hint="restore the file: versions are never removed",
            )
        return [self._read(number) for number in range(1, len(names) + 1)]

    def latest(self) -> Version:
        """Read the newest version; number 0 if nothing was committed. Raises ManifestError."""
        numbers = [int(each.stem) for each in self._manifest.glob("[0-9]*.json")]
        return self._read(max(numbers)) if numbers else Version.nothing(self._layout)

    def _read(self, number: int) -> Version:
        path = self._manifest / _version_name(number)
        return from_json(path.read_text(encoding="utf-8"), name=str(path))

    def problems(self) -> Iterator[str]:
        """Check committed files; yield a line for each that is missing or has another size."""
        for version in self.versions():
            for _, file in version.added:
                try:
                    size = (self.output / file.path).stat().st_size
                except FileNotFoundError:
                    yield f"{file.path}: missing (version {version.number})"
                    continue
                if size != file.size_bytes:
                    yield f"{file.path}: {size} bytes instead of {file.size_bytes}"

    # -- a run

    @property
    def staging(self) -> Path:
        """Directory for the files of this run's tasks.

        Tasks never create it. If it is gone, another run has started and the task is a zombie.
        """
        assert self.run, "only a run has a staging directory"
        return self.output / STAGING / self.run

    def __enter__(self) -> Self:
        self._files.make_directory(self._manifest)
        try:
            self._held.enter_context(_lock(self._manifest / "lock", self.run))
            self._latest = self.latest()
            self._check_layout()
            self.publish(self._latest)
            for draft in self._manifest.glob(".*"):
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
            if self._is_unpublished:
                return  # the next run moves the files of the version
            # Not those of others: without working locks another run may be writing.
            self._files.remove(self.staging)
            self._files.remove_empty(self.output / STAGING)

    def _check_layout(self) -> None:
        was = self._latest.layout
        if self._latest.number and was != self._layout:
            raise ManifestError(
                f"{self.output} has the layout {'/'.join(was)}, not {'/'.join(self._layout)}",
                hint=f"use --layout {','.join(was)}, or another directory",
            )

    def commit(
        self,
        planned: Mapping[TopicPartition, PlannedRange],
        added: Sequence[StagedFile],
        *,
        committed_at_ms: int,
        topic_ids: Mapping[str, str],
    ) -> Version:
        """Commit a round: the planned ranges are covered by these files; then publish the files.

        Raises ManifestError if another run has committed meanwhile, which is possible on a file
        system without working locks. Nothing of this round is committed then. After an OSError the
        round may be committed: the next run finds out, and publishes its files.
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
        self._files.sync_names(self.staging)
        self._is_unpublished = True
        self._create(version)
        self._latest = version
        self.publish(version)
        self._is_unpublished = False
        return version

    @property
    def newest(self) -> Version:
        """The version that this run continues from."""
        return self._latest

    def _check_staged(self, added: Sequence[StagedFile]) -> None:
        for staged, file in added:
            path = self.output / STAGING / staged
            if not path.exists() or path.stat().st_size != file.size_bytes:
                raise ManifestError(
                    f"{path} is missing or has another size than its task reported",
                    hint="mount the same file system at this path on the driver and all workers",
                )

    def _create(self, version: Version) -> None:
        target = self._manifest / _version_name(version.number)
        draft = self._manifest / f".{target.name}.{self.run}"
        self._files.write(draft, to_json(version))
        try:
            self._files.link(draft, target)
        except FileExistsError as problem:
            raise ManifestError(
                f"another run has committed version {version.number} meanwhile",
                hint="run one offload at a time in a directory, and start this one again",
            ) from problem
        finally:
            self._files.remove(draft)

    def publish(self, version: Version) -> None:
        """Move the files of a committed version out of staging, except those already moved.

        Only the newest version can have files left in staging, because a run publishes its files
        before it commits again.
        """
        for staged, file in version.added:
            target = self.output / file.path
            if target.exists():
                continue
            self._files.make_directory(target.parent)
            try:
                self._files.rename(self.output / STAGING / staged, target)
            except FileNotFoundError as problem:
                if not target.exists():  # otherwise another run has just moved it
                    raise ManifestError(
                        f"{file.path} is committed and is neither in place nor in staging",
                        hint="restore the file from a copy, or offload into another directory",
                    ) from problem


def _version_name(number: int) -> str:
    return f"{number:0{_DIGITS}}.json"


@contextlib.contextmanager
def _lock(path: Path, owner: str) -> Iterator[None]:
    """Hold an exclusive lock. The kernel releases it when the process ends."""
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            file.seek(0)
            raise ManifestError(
                f"another offload is writing to {path.parent.parent}: {file.read().strip()}",
                hint="wait until it ends, or stop it: its lock is released with its process",
            ) from problem
        file.truncate(0)
        file.write(f"run {owner}, process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield
