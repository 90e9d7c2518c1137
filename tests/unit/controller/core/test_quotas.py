import pytest
from controller.core import quotas
from controller.core.cluster import Cluster
from controller.core.effects import QuotaResults
from controller.core.inputs import AlterQuotas, QuotaAlteration, RequestHeader
from controller.core.quotas import decide_quotas
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from unit.controller.worlds import NEVER, a_cluster, applied

ALICE, ANYBODY, HOME = QuotaEntity("alice"), QuotaEntity(DEFAULT, DEFAULT), QuotaEntity(ip="::1")
RATE = {PRODUCER_BYTE_RATE: 1_000.0}
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


def alter(
    cluster: Cluster, *entries: QuotaAlteration, validate_only: bool = False
) -> list[ErrorCode]:
    request = AlterQuotas(RequestHeader(1, NEVER), entries, validate_only)
    change, result = decide_quotas(cluster, request)
    if change is not None:
        applied(cluster, change)
    assert isinstance(result, QuotaResults)
    return [one.error for one in result.entries]


def test_quotas_are_set_replaced_and_removed_key_by_key() -> None:
    cluster = a_cluster()
    assert (
        alter(cluster, QuotaAlteration(ALICE, RATE), QuotaAlteration(ANYBODY, RATE)) == [NONE] * 2
    )
    alter(cluster, QuotaAlteration(ALICE, {CONSUMER_BYTE_RATE: 5.0}))
    assert cluster.image.quotas == {ALICE: {**RATE, CONSUMER_BYTE_RATE: 5.0}, ANYBODY: RATE}
    alter(cluster, QuotaAlteration(ALICE, {CONSUMER_BYTE_RATE: 6.0}, (PRODUCER_BYTE_RATE,)))
    assert cluster.image.quotas[ALICE] == {CONSUMER_BYTE_RATE: 6.0}
    alter(cluster, QuotaAlteration(ALICE, {}, (CONSUMER_BYTE_RATE,)))
    assert cluster.image.quotas == {ANYBODY: RATE}


def test_entries_of_one_entity_are_taken_in_order() -> None:
    cluster = a_cluster()
    gone = QuotaAlteration(ALICE, {}, (PRODUCER_BYTE_RATE,))
    alter(cluster, QuotaAlteration(ALICE, RATE), gone)
    assert cluster.image.quotas == {}
    alter(cluster, gone, QuotaAlteration(ALICE, RATE))
    assert cluster.image.quotas == {ALICE: RATE}


def test_a_validation_and_a_change_of_nothing_write_nothing() -> None:
    cluster = a_cluster()
    before = cluster.image.position
    bad = QuotaAlteration(ALICE, {"rate": 1.0})
    assert alter(cluster, QuotaAlteration(ALICE, RATE), bad, validate_only=True) == [NONE, INVALID]
    assert alter(cluster, QuotaAlteration(ALICE, {}, (PRODUCER_BYTE_RATE,))) == [NONE]
    assert cluster.image.position == before


@pytest.mark.parametrize(
    "entry",
    [
        QuotaAlteration(QuotaEntity(), RATE),
        QuotaAlteration(QuotaEntity("alice", ip="::1"), RATE),
        QuotaAlteration(HOME, RATE),
        QuotaAlteration(ALICE, {CONNECTION_CREATION_RATE: 1.0}),
        QuotaAlteration(ALICE, {PRODUCER_BYTE_RATE: 0.0}),
        QuotaAlteration(ALICE, {}, ("rate",)),
    ],
)
def test_one_entity_that_is_refused_does_not_concern_another(entry: QuotaAlteration) -> None:
    cluster = a_cluster()
    assert alter(cluster, entry, QuotaAlteration(ANYBODY, RATE)) == [INVALID, NONE]
    assert cluster.image.quotas == {ANYBODY: RATE}


def test_an_address_has_one_form() -> None:
    cluster = a_cluster()
    alter(cluster, QuotaAlteration(QuotaEntity(ip="0::1"), {CONNECTION_CREATION_RATE: 1.0}))
    assert cluster.image.quotas == {HOME: {CONNECTION_CREATION_RATE: 1.0}}


def test_entities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "ENTITIES_MAX", 1)
    cluster = a_cluster()
    both = (QuotaAlteration(ALICE, RATE), QuotaAlteration(ANYBODY, RATE))
    assert alter(cluster, *both) == [NONE, INVALID]
    assert alter(cluster, QuotaAlteration(ALICE, {CONSUMER_BYTE_RATE: 1.0})) == [NONE]
