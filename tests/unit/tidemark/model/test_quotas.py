"""Quotas: entities, values and filters, with the refusals of Kafka's tools."""

import math
from collections.abc import Sequence

import pytest
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    FilterPart,
    QuotaEntity,
    check_key,
    quotas_after,
    read_entity,
    read_filter,
    read_value,
    select,
)

ALICE, APP = QuotaEntity("alice"), QuotaEntity(client_id="app")
BOTH, ANYBODY, HOME = QuotaEntity("alice", "app"), QuotaEntity(DEFAULT), QuotaEntity(ip="::1")
VALUES = {PRODUCER_BYTE_RATE: 1.0}
QUOTAS = dict.fromkeys((ALICE, APP, BOTH, ANYBODY, HOME), VALUES)


@pytest.mark.parametrize(
    ("raw", "entity"),
    [
        ([("user", "alice")], ALICE),
        ([("client-id", "app"), ("user", "alice")], BOTH),
        ([("user", None)], ANYBODY),
        ([("ip", "0:0::1")], HOME),
        ([("ip", None)], QuotaEntity(ip=DEFAULT)),
    ],
)
def test_entities(raw: Sequence[tuple[str, str | None]], entity: QuotaEntity) -> None:
    assert read_entity(raw) == entity
    assert read_entity([(one, name or None) for one, name in entity.parts.items()]) == entity


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("group", "a")], "Unhandled client quota entity type: group"),
        ([("ip", "::1"), ("user", None)], "should not be used with user/client ID"),
        ([("ip", "localhost")], "not a valid IP address"),
        ([("client-id", "a" * 1_025)], "more than 1024 characters"),
    ],
)
def test_refused_entities(raw: Sequence[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(TidemarkError, match=message) as refused:
        read_entity(raw)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (ALICE, CONNECTION_CREATION_RATE),
        (HOME, PRODUCER_BYTE_RATE),
        (BOTH, "consumer_bytes"),
    ],
)
def test_keys_that_do_not_fit_an_entity(entity: QuotaEntity, key: str) -> None:
    with pytest.raises(TidemarkError, match=f"Invalid configuration key {key}"):
        check_key(entity, key)
    check_key(BOTH, CONTROLLER_MUTATION_RATE)
    check_key(BOTH, REQUEST_PERCENTAGE)
    check_key(HOME, CONNECTION_CREATION_RATE)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (PRODUCER_BYTE_RATE, 0, "greater than 0"),
        (PRODUCER_BYTE_RATE, -1, "greater than 0"),
        (CONTROLLER_MUTATION_RATE, math.nan, "greater than 0"),
        (CONTROLLER_MUTATION_RATE, math.inf, "greater than 0"),
        (PRODUCER_BYTE_RATE, 1.5, "fractional"),
        (PRODUCER_BYTE_RATE, 2.0**70, "too large"),
        (CONNECTION_CREATION_RATE, 2.0**31, "too large"),
    ],
)
def test_refused_values(key: str, value: float, message: str) -> None:
    with pytest.raises(TidemarkError, match=message):
        read_value(key, value)


def test_values_of_whole_numbers_are_rounded_and_others_kept() -> None:
    assert read_value(PRODUCER_BYTE_RATE, 1_000.0000001) == 1_000
    assert read_value(CONTROLLER_MUTATION_RATE, 0.25) == 0.25
    assert read_value(REQUEST_PERCENTAGE, 0.5) == 0.5


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([], False, [ALICE, APP, BOTH, ANYBODY, HOME]),
        ([], True, []),
        ([FilterPart("user", 2)], False, [ALICE, BOTH, ANYBODY]),
        ([FilterPart("user", 2)], True, [ALICE, ANYBODY]),
        ([FilterPart("user", 0, "alice")], False, [ALICE, BOTH]),
        ([FilterPart("user", 1)], False, [ANYBODY]),
        ([FilterPart("user", 0, "alice"), FilterPart("client-id", 2)], True, [BOTH]),
        ([FilterPart("ip", 0, "0::1")], True, [HOME]),
        ([FilterPart("ip", 0, "nowhere")], True, []),
    ],
)
def test_filters(parts: list[FilterPart], strict: bool, found: list[QuotaEntity]) -> None:
    selected = select(QUOTAS, read_filter(parts, strict=strict))
    assert [entity for entity, _ in selected] == found


@pytest.mark.parametrize(
    ("parts", "message", "code"),
    [
        ([FilterPart("", 2)], "empty entity type", ErrorCode.INVALID_REQUEST),
        ([FilterPart("group", 2)], "Unsupported entity", ErrorCode.UNSUPPORTED_VERSION),
        ([FilterPart("user", 2)] * 2, "more than once", ErrorCode.INVALID_REQUEST),
        ([FilterPart("ip", 2), FilterPart("user", 2)], "combination", ErrorCode.INVALID_REQUEST),
        ([FilterPart("user", 0)], "match string to null", ErrorCode.INVALID_REQUEST),
        ([FilterPart("user", 0, "")], "Empty user", ErrorCode.INVALID_REQUEST),
        ([FilterPart("user", 1, "a")], "DEFAULT, but also", ErrorCode.INVALID_REQUEST),
        ([FilterPart("user", 9)], "Unknown match type 9", ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_filters(parts: list[FilterPart], message: str, code: ErrorCode) -> None:
    with pytest.raises(TidemarkError, match=message) as refused:
        read_filter(parts, strict=False)
    assert refused.value.code is code


def test_an_entity_without_values_is_removed() -> None:
    assert quotas_after(QUOTAS, {}) is QUOTAS
    after = quotas_after({ALICE: VALUES, APP: VALUES}, {ALICE: {}, BOTH: VALUES})
    assert after == {APP: VALUES, BOTH: VALUES}
