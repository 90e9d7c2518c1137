import io
from pathlib import Path

import pytest
from tidemark.cli.failure import CommandError
from tidemark.cli.passwords import ask_password
from tidemark.runtime.exit_codes import ExitCode


def test_a_password_is_the_first_line_of_a_file_or_of_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse\nnot this\n")
    assert ask_password("alice", file) == "correct horse"
    monkeypatch.setattr("sys.stdin", io.StringIO("battery \r\n"))
    assert ask_password("alice", Path("-")) == "battery "


def test_without_a_terminal_there_is_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    with pytest.raises(CommandError, match="no terminal") as refused:
        ask_password("alice", None)
    assert refused.value.exit_code == ExitCode.USAGE


def test_an_empty_password_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(CommandError, match="is empty"):
        ask_password("alice", tmp_path / "empty")
    with pytest.raises(CommandError, match="there is no file"):
        ask_password("alice", tmp_path / "missing")
