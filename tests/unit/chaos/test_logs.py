"""Errors are found among the lines of a log, whatever else is there."""

import json

import pytest
from chaos.logs import errors


def line(level: str) -> str:
    return json.dumps({"level": level, "message": "m"}) + "\n"


def test_errors_and_tracebacks_are_told() -> None:
    wrong = [line("ERROR"), line("CRITICAL"), "Traceback (most recent call last):\n"]
    assert list(errors(wrong)) == [one.rstrip() for one in wrong]


def test_what_is_expected_of_a_failed_disk_is_left_out() -> None:
    fenced, other = (json.dumps({"level": "ERROR", "message": one}) for one in ("x fenced", "y"))
    assert list(errors([fenced, other], without=("fenced",))) == [other]


@pytest.mark.parametrize(
    "harmless", [line("INFO"), line("WARNING"), '{"level": "ERR', "", "I1121 plain words\n"]
)
def test_the_rest_is_not(harmless: str) -> None:
    assert list(errors([harmless])) == []
