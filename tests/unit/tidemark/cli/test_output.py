import json

import pytest
from tidemark.cli.output import OutputFormat, print_rows

ROWS = [{"name": "orders", "partitions": 3, "configs": {"a": "1"}, "leader": None}]


def test_json_is_whole_and_readable_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name",), OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == ROWS


def test_a_table_has_the_chosen_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name", "partitions", "configs", "leader"), OutputFormat.TABLE)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "PARTITIONS", "CONFIGS", "LEADER"]
    assert line.split() == ["orders", "3", "a=1", "-"]


def test_brackets_are_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "[red]x[/red]"}], ("name",), OutputFormat.TABLE)
    assert "[red]x[/red]" in capsys.readouterr().out
