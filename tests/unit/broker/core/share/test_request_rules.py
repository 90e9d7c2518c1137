"""Requests that no state could make right."""

from typing import Any

import pytest
from broker.core.share.acquisition import AcquireMode
from broker.core.share.request_rules import (
    ACKNOWLEDGEMENTS_MAX,
    NAME_CHARACTERS_MAX,
    FetchTerms,
    refused_count,
    refused_ids,
    refused_terms,
    refused_types,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.share.share_worlds import ACCEPT, RENEW, say

USUAL = FetchTerms(500, 1, 1_000_000, 500, 500, 1, renews=False)
NOTHING = {"wait_ms_max": 0, "bytes_min": 0, "bytes_max": 0, "records_max": 0}


@pytest.mark.parametrize(
    ("group", "member"),
    [("", "m"), (None, "m"), ("g", ""), ("g", None), ("g" * (NAME_CHARACTERS_MAX + 1), "m")],
)
def test_ids_that_are_empty_or_too_long_are_refused(group: str | None, member: str | None) -> None:
    refused = refused_ids(group, member)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert refused_ids("g", "m" * NAME_CHARACTERS_MAX) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"acquire_mode": 2},
        {"acquire_mode": -1},
        {"renews": True},
        {"records_max": 0},
        {"renews": True, **NOTHING, "records_max": 1},
    ],
)
def test_terms_that_contradict_are_refused(wrong: dict[str, Any]) -> None:
    refused = refused_terms(USUAL._replace(**wrong))
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST


def test_terms_that_fetch_or_renew_are_taken() -> None:
    assert refused_terms(USUAL) is None
    assert refused_terms(USUAL._replace(renews=True, **NOTHING)) is None
    assert USUAL.mode is AcquireMode.RECORD_LIMIT


def test_version_1_cannot_renew() -> None:
    renewal = (say(0, 2, ACCEPT, ACCEPT, RENEW),)
    refused = refused_types(renewal, 1, renews=False)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert refused_types(renewal, 2, renews=True) is None
    assert refused_types((say(0, 0, ACCEPT),), 1, renews=False) is None


def test_a_request_says_that_it_renews() -> None:
    refused = refused_types((say(0, 2, RENEW), say(3, 3, ACCEPT)), 2, renews=False)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    for renews in (True, False):
        assert refused_types((say(0, 0, ACCEPT),), 2, renews=renews) is None


def test_more_acknowledgements_than_two_windows_have_records_are_refused() -> None:
    assert refused_count(ACKNOWLEDGEMENTS_MAX - 7, 7) is None
    refused = refused_count(ACKNOWLEDGEMENTS_MAX - 7, 8)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST
