import sys
from pathlib import Path

import pytest
from tidemark.cli.main import main
from tidemark.runtime.exit_codes import ExitCode


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tidemark", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == ExitCode.OK
    assert capsys.readouterr().out.startswith("tidemark ")


def test_help_names_every_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == ExitCode.OK
    text = capsys.readouterr().out
    assert all(name in text for name in ("dev", "topic", "group", "share", "txn", "log"))
    assert "Exit codes" in text


@pytest.mark.parametrize(
    "words",
    [
        ("nothing",),
        ("topic", "create"),
        ("topic", "consume", "a", "--count", "0"),
        ("dev", "up", "--port", "client"),
        ("dev", "up", "--brokers", "10"),
        ("topic", "alter", "a"),
        ("group", "reset", "g"),
        ("group", "config", "g", "--validate-only"),
        ("group", "config", "g", "-c", "no value"),
        ("group", "reset", "g", "--to-latest", "--shift-by", "1"),
        ("group", "reset", "g", "--by-duration", "soon"),
        ("share", "reset", "g"),
        ("share", "reset", "g", "--to-latest", "--to-offset", "1"),
        ("share", "config", "g", "--validate-only"),
        ("share", "browse", "g", "t", "-1"),
        ("share", "consume", "g", "t", "--format", "{nothing}"),
        ("txn", "abort"),
        ("txn", "abort", "x", "--topic", "t"),
        ("txn", "forget"),
    ],
)
def test_wrong_arguments_have_their_own_code(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_DIR", str(tmp_path))
    assert run(monkeypatch, *words) == ExitCode.USAGE


def test_a_failure_is_one_message_with_what_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "dev", "status", "--dir", str(tmp_path)) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == f"error: there is no cluster in {tmp_path}\n  try: tidemark dev up creates one\n"
    )


def test_down_where_nothing_runs_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "dev", "down", "--dir", str(tmp_path)) == ExitCode.OK
    assert "nothing is running" in capsys.readouterr().err
