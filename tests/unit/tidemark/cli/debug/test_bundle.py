import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from tidemark.cli.debug.bundle import Source, write_bundle
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode


def broken() -> bytes:
    raise ConnectionRefusedError("nobody there")


@pytest.mark.feature("AD64")
def test_the_manifest_has_every_file_and_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    written = write_bundle(path, [Source("b/x.txt", lambda: b"hello"), Source("c.txt", broken)])
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert archive.read("b/x.txt") == b"hello"
    (entry,) = manifest["entries"]
    assert (entry["path"], entry["bytes"]) == ("b/x.txt", 5)
    assert entry["sha256"] == hashlib.sha256(b"hello").hexdigest()
    assert manifest["problems"] == written.problems
    assert written.problems[0]["problem"] == "ConnectionRefusedError: nobody there"
    assert path.stat().st_mode & 0o777 == 0o600


def test_progress_counts_every_source(tmp_path: Path) -> None:
    counts: list[int] = []
    sources = [Source(f"{number}.txt", bytes) for number in range(5)]
    write_bundle(tmp_path / "a.zip", sources, counts.append)
    assert counts == [1, 2, 3, 4, 5]


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot write") as refused:
        write_bundle(tmp_path / "nowhere/a.zip", [])
    assert refused.value.exit_code is ExitCode.IO
    assert list(tmp_path.iterdir()) == []
