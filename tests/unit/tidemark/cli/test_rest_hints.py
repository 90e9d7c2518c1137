"""What a refusal of REST says to do next, in words of the command line."""

import re
from pathlib import Path

import controller
import pytest
from tidemark.cli import main as command_line
from tidemark.cli.rest_hints import as_commands
from tidemark.runtime.exit_codes import ExitCode

_ADVICE = re.compile(r'"([^"\n]*\b(?:GET|POST|PUT|PATCH|DELETE) /[^"\n]*)"')


@pytest.mark.feature("AD53")
@pytest.mark.parametrize(
    ("remedy", "hint"),
    [
        (
            "GET /v3/operations lists the operations; old ones are deleted",
            "tidemark operations list; old ones are deleted",
        ),
        ("cancel it: DELETE /v3/operations/o-1", "cancel it: tidemark operations cancel o-1"),
        (
            "GET /v3/clusters/{cluster_id}/brokers lists the brokers",
            "tidemark cluster brokers",
        ),
        ("wait, or cancel one of them", "wait, or cancel one of them"),
        (
            "GET /openapi.json lists all paths",
            "the controller may be of another release than this command",
        ),
        ("GET /openapi.json describes the path parameters", ""),
        ("", ""),
    ],
)
def test_paths_of_rest_are_told_as_commands(remedy: str, hint: str) -> None:
    assert as_commands(remedy) == hint


@pytest.mark.feature("AD53")
def test_every_advice_of_rest_has_its_command() -> None:
    room = Path(controller.__file__).parent
    advices = [
        advice
        for path in [*room.glob("admin/**/*.py"), *room.glob("rest/**/*.py")]
        for advice in _ADVICE.findall(path.read_text())
    ]
    assert len(advices) > 5
    told = [as_commands(advice) for advice in advices]
    assert not [one for one in told if re.search(r"\b(GET|POST|PUT|PATCH|DELETE) /", one)]


@pytest.mark.feature("AD53")
def test_an_empty_id_is_no_path_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    # The path would be that of all operations.
    for words in (("operations", "show"), ("operations", "cancel", "--yes")):
        assert command_line.run([*words, "", "--rest", "127.0.0.1:1"]) == ExitCode.USAGE
        assert "empty" in capsys.readouterr().err
