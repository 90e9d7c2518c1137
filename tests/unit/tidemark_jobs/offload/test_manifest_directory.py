"""The offload's directory: what a reader sees, whenever a run dies."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark.model.topics import TopicPartition
from tidemark_jobs.offload.manifest import (
    DataFile,
    LogBounds,
    ManifestError,
    StagedFile,
    Version,
    plan_round,
)
from tidemark_jobs.offload.manifest_directory import MANIFEST, STAGING, Files, ManifestDirectory

IDS = {"t": "aa"}
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


class Killed(BaseException):
    """The process is gone: nothing after it runs, not even clean-up that changes files."""


class MortalFiles(Files):
    """Dies before its n-th change, and does nothing ever after."""

    def __init__(self, changes: int) -> None:
        self._left = changes

    def _live(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def make_directory(self, path: Path) -> None:
        self._live()
        super().make_directory(path)

    def write(self, path: Path, text: str) -> None:
        self._live()
        super().write(path, text)

    def link(self, source: Path, target: Path) -> None:
        self._live()
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._live()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)


def run_once(
    output: Path, log_end: int, *, files: Files | None = None, run: str = "r", step: int = 4
) -> None:
    """An offload of two partitions; a 'file' holds its offsets as text."""
    bounds = {each: LogBounds(0, log_end) for each in PARTITIONS}
    with ManifestDirectory(output, ["topic"], run=run, files=files) as manifest:
        while planned := plan_round(manifest.newest, bounds, IDS, offsets_max=step):
            staged = []
            for partition, plan in planned.items():
                name = f"{partition}-{plan.offsets.start}.txt"
                text = "".join(f"{partition.partition}:{each}\n" for each in range(*plan.offsets))
                (manifest.staging / name).write_text(text)
                file = DataFile(
                    f"topic=t/{name}",
                    "t",
                    partition.partition,
                    plan.offsets.start,
                    plan.offsets.end - 1,
                    plan.offsets.end - plan.offsets.start,
                    len(text),
                )
                staged.append(StagedFile(f"{run}/{name}", file))
            manifest.commit(planned, staged, committed_at_ms=1, topic_ids=IDS)


def seen(output: Path) -> list[str]:
    """What a reader of the whole directory finds; names with an underscore are skipped."""
    lines: list[str] = []
    for path in output.glob("topic=*/*"):
        lines += path.read_text().splitlines()
    return sorted(lines)


def all_records(log_end: int) -> list[str]:
    return sorted(f"{each.partition}:{n}" for each in PARTITIONS for n in range(log_end))


def changes_of_a_run(tmp_path: Path) -> int:
    counting = MortalFiles(1_000)
    run_once(tmp_path / "counted", 7, files=counting)
    return 1_000 - counting._left


@pytest.mark.feature("D07")
def test_a_run_killed_at_any_change_is_completed_by_the_next(tmp_path: Path) -> None:
    total = changes_of_a_run(tmp_path)
    assert total > 15
    for number in range(total):
        output = tmp_path / f"killed-{number}"
        with pytest.raises(Killed):
            run_once(output, 7, files=MortalFiles(number), run="first")
        half = seen(output)
        run_once(output, 9, run="second")
        assert len(half) == len(set(half)), number
        assert seen(output) == all_records(9), number
        assert list(ManifestDirectory(output).problems()) == [], number
        assert not (output / STAGING).exists(), number


@pytest.mark.feature("D07")
def test_runs_that_are_killed_again_and_again_come_to_an_end(tmp_path: Path) -> None:
    output, attempts = tmp_path / "lake", 0
    while True:
        attempts += 1
        try:
            run_once(output, 7, files=MortalFiles(9), run=f"run{attempts}")
        except Killed:
            assert len(seen(output)) == len(set(seen(output)))
        else:
            break
    assert attempts > 2
    assert seen(output) == all_records(7)


class FailingFiles(Files):
    """One change fails, and the run ends in good order: it removes what it leaves behind."""

    def __init__(self, name: str, problem: BaseException, *, done: bool) -> None:
        self._name = name
        self._problem = problem
        self._done = done

    def _fail(self, name: str, change: Callable[[], None]) -> None:
        if name != self._name or self._done:
            change()
        if name == self._name:
            raise self._problem

    def make_directory(self, path: Path) -> None:
        name = "directory of files" if path.name.startswith("topic=") else ""
        self._fail(name, lambda: Files.make_directory(self, path))

    def link(self, source: Path, target: Path) -> None:
        self._fail("link", lambda: Files.link(self, source, target))

    def rename(self, source: Path, target: Path) -> None:
        self._fail("rename", lambda: Files.rename(self, source, target))


@pytest.mark.parametrize("name", ["directory of files", "link", "rename"])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("problem", [OSError("disk full"), KeyboardInterrupt()])
def test_a_run_that_fails_while_it_commits_is_completed_by_the_next(
    tmp_path: Path, name: str, problem: BaseException, *, done: bool
) -> None:
    with pytest.raises(type(problem)):
        run_once(tmp_path, 7, files=FailingFiles(name, problem, done=done), run="first")
    run_once(tmp_path, 9, run="second")
    assert seen(tmp_path) == all_records(9)
    assert list(ManifestDirectory(tmp_path).problems()) == []
    assert not (tmp_path / STAGING).exists()


def test_a_run_that_ends_leaves_the_files_of_another(tmp_path: Path) -> None:
    """Where locks do not work, two may write."""
    with ManifestDirectory(tmp_path, ["topic"], run="one"):
        others = tmp_path / STAGING / "two" / "t-0-0.txt"
        others.parent.mkdir()
        others.write_text("0:0\n")
    assert others.exists()
    assert not (tmp_path / STAGING / "one").exists()


class ForgetfulFiles(Files):
    """A power failure just after the commit takes the staged names that were not synced."""

    def __init__(self) -> None:
        self._durable: set[Path] = set()

    def sync_names(self, path: Path) -> None:
        super().sync_names(path)
        self._durable.update(path.iterdir())

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        for path in (target.parents[1] / STAGING).glob("*/*"):
            if path not in self._durable:
                path.unlink()
        raise Killed


def test_staged_files_outlive_a_power_failure_after_the_commit(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run_once(tmp_path, 4, files=ForgetfulFiles(), run="first")
    run_once(tmp_path, 4, run="second")
    assert seen(tmp_path) == all_records(4)


def in_a_process(work: Callable[[], None]) -> int:
    """The signal that ended a child that did this work."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


class KillingFiles(Files):
    """SIGKILL to this process at the first rename: in the middle of publishing."""

    def rename(self, source: Path, target: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_kill_9_frees_the_lock(tmp_path: Path) -> None:
    ended_by = in_a_process(lambda: run_once(tmp_path, 7, files=KillingFiles()))
    assert ended_by == signal.SIGKILL
    run_once(tmp_path, 7)
    assert seen(tmp_path) == all_records(7)


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        ManifestDirectory(tmp_path, ["topic"], run="one"),
        pytest.raises(ManifestError, match=r"another offload is writing .* run one, process"),
    ):
        run_once(tmp_path, 1)


class LateFiles(Files):
    """Another run commits the same version just before: a lock that was not honoured."""

    def link(self, source: Path, target: Path) -> None:
        target.write_text(source.read_text())
        super().link(source, target)


def test_the_second_of_two_commits_counts_for_nothing(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="another run has committed version 1"):
        run_once(tmp_path, 3, files=LateFiles())
    assert seen(tmp_path) == []


def test_a_reader_needs_no_lock(tmp_path: Path) -> None:
    with ManifestDirectory(tmp_path, ["topic"], run="one"):
        assert ManifestDirectory(tmp_path).versions() == []


def test_all_versions_can_be_read(tmp_path: Path) -> None:
    run_once(tmp_path, 7)
    versions = ManifestDirectory(tmp_path).versions()
    assert [each.number for each in versions] == [1, 2]


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    run_once(tmp_path, 7)
    (tmp_path / MANIFEST / f"{1:020d}.json").unlink()
    with pytest.raises(ManifestError, match=r"0001\.json is missing"):
        ManifestDirectory(tmp_path).versions()


def test_lost_and_cut_files_are_found(tmp_path: Path) -> None:
    run_once(tmp_path, 3)
    (tmp_path / "topic=t/t-0-0.txt").unlink()
    (tmp_path / "topic=t/t-1-0.txt").write_text("cut")
    assert list(ManifestDirectory(tmp_path).problems()) == [
        "topic=t/t-0-0.txt: missing (version 1)",
        "topic=t/t-1-0.txt: 3 bytes instead of 12",
    ]


def test_another_layout_is_refused(tmp_path: Path) -> None:
    run_once(tmp_path, 3)
    with (
        pytest.raises(ManifestError, match="has the layout topic, not topic/date"),
        ManifestDirectory(tmp_path, ["topic", "date"], run="two"),
    ):
        pass


def test_a_staged_file_that_is_not_whole_stops_the_commit(tmp_path: Path) -> None:
    planned = plan_round(
        Version.nothing(["topic"]), {PARTITIONS[0]: LogBounds(0, 1)}, IDS, offsets_max=1
    )
    lost = StagedFile("one/gone", DataFile("topic=t/gone", "t", 0, 0, 0, 1, 4))
    with (
        ManifestDirectory(tmp_path, ["topic"], run="one") as manifest,
        pytest.raises(ManifestError, match="is missing or has another size"),
    ):
        manifest.commit(planned, [lost], committed_at_ms=1, topic_ids=IDS)
