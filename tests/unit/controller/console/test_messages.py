"""Queries of the page of messages: what they ask for, and those that are refused."""

import pytest
from controller.admin.errors import AdminError
from controller.console.pages.messages import _query


def test_a_time_is_utc_or_milliseconds() -> None:
    for text in ("2026-01-31T12:00:00", " @1769860800000 ", "2026-01-31T13:00:00+01:00"):
        assert _query({"from": "timestamp", "time": text}).seek.value == 1_769_860_800_000


@pytest.mark.parametrize("text", ["@", "@\u00b2", f"@{'9' * 19}", f"@{'9' * 5_000}", "@-1", "noon"])
def test_a_time_that_is_none_is_the_readers_mistake(text: str) -> None:
    with pytest.raises(AdminError) as refused:
        _query({"from": "timestamp", "time": text})
    assert refused.value.status == 400


@pytest.mark.parametrize("field", ["offset", "partition", "limit"])
@pytest.mark.parametrize("text", ["9" * 19, "9" * 5_000, "-1", "\u00b2"])
def test_a_number_that_does_not_fit_is_too(field: str, text: str) -> None:
    with pytest.raises(AdminError) as refused:
        _query({"from": "offset", field: text})
    assert refused.value.status == 400
