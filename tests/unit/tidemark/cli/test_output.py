import json

import pytest
import yaml  # type: ignore[import-untyped]
from tidemark.cli.failure import CommandError
from tidemark.cli.output import OutputFormat, confirm, print_line_document, print_rows
from tidemark.runtime.exit_codes import ExitCode

ROWS = [{"name": "orders", "partitions": 3, "configs": {"a": "1"}, "leader": None, "of": [{}]}]
Capture = pytest.CaptureFixture[str]


@pytest.mark.feature("AD51")
def test_json_is_whole_and_readable_by_programs(capsys: Capture) -> None:
    print_rows(ROWS, ("name",), OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == ROWS


@pytest.mark.feature("AD51")
@pytest.mark.parametrize("row", [{"a": "yes"}, {"a": "1"}, {"a": (1, 2)}, {"a": "x: y\n-"}, {}])
def test_yaml_has_the_same_content_as_json(row: dict[str, object], capsys: Capture) -> None:
    print_rows([row], ("a",), OutputFormat.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == json.loads(json.dumps([row]))


@pytest.mark.feature("AD51")
def test_a_stream_of_yaml_is_one_document_for_each_record(capsys: Capture) -> None:
    for number in range(3):
        print_line_document({"offset": number}, OutputFormat.YAML)
    assert [one["offset"] for one in yaml.safe_load_all(capsys.readouterr().out)] == [0, 1, 2]


def test_a_table_has_the_chosen_columns(capsys: Capture) -> None:
    print_rows(ROWS, ("name", "partitions", "configs", "leader"), OutputFormat.TABLE)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "PARTITIONS", "CONFIGS", "LEADER"]
    assert line.split() == ["orders", "3", "a=1", "-"]


@pytest.mark.feature("AD51")
def test_a_wide_table_has_every_plain_field(capsys: Capture) -> None:
    print_rows(ROWS, ("partitions",), OutputFormat.WIDE)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["PARTITIONS", "NAME", "CONFIGS", "LEADER"]
    assert line.split() == ["3", "orders", "a=1", "-"]


def test_brackets_are_text_and_no_markup(capsys: Capture) -> None:
    print_rows([{"name": "[red]x[/red]"}], ("name",), OutputFormat.TABLE)
    assert "[red]x[/red]" in capsys.readouterr().out


def test_control_characters_do_not_reach_the_terminal(capsys: Capture) -> None:
    print_rows([{"client_id": "a\x1b[2J\nb"}], ("client_id",), OutputFormat.TABLE)
    assert capsys.readouterr().out.splitlines()[1:] == ["a\\x1b[2J\\nb"]


def test_columns_stay_aligned_after_wide_and_combining_characters(capsys: Capture) -> None:
    rows = [{"a": "日本", "b": "x"}, {"a": "abcd", "b": "x"}, {"a": "e\u0301", "b": "x"}]
    print_rows(rows, ("a", "b"), OutputFormat.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["日本  x", "abcd  x", "e\u0301     x"]


def test_numbers_are_aligned_to_the_right(capsys: Capture) -> None:
    print_rows([{"n": 5}, {"n": 1234}], ("n",), OutputFormat.TABLE)
    assert capsys.readouterr().out.splitlines() == ["   N", "   5", "1234"]


@pytest.mark.feature("AD54")
def test_nothing_is_destroyed_without_a_terminal_and_without_yes() -> None:
    with pytest.raises(CommandError, match="--yes") as refused:
        confirm("Delete a?", yes=False)
    assert refused.value.exit_code is ExitCode.USAGE
    confirm("Delete a?", yes=True)
