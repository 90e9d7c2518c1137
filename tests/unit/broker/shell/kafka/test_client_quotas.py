from collections.abc import Sequence
from dataclasses import replace

import pytest
from broker.shell.cluster import controller_relay
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import FeedPosition
from tidemark.model.quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from tidemark.runtime.quotas_wire import read_entity
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, StubController

SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)
NOT_SEEN = common_pb2.FeedPosition(controller_epoch=1, version=7)
ALICE = [("user", "alice")]


def entry(
    entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool]
) -> dict[str, object]:
    return {
        "entity": [{"entity_type": one, "entity_name": name} for one, name in entity],
        "ops": [{"key": key, "value": value, "remove": gone} for key, value, gone in ops],
    }


def altered(*errors: int, position: common_pb2.FeedPosition = SEEN) -> pb.AlterQuotasResponse:
    results = [pb.AlterQuotasResponse.Result(error_code=one) for one in errors]
    return pb.AlterQuotasResponse(position=position, results=results)


def alter(ask: Ask, *entries: dict[str, object], validate_only: bool = False) -> list[int]:
    fields = {"entries": list(entries), "validate_only": validate_only}
    return [one.error_code for one in ask(ApiKey.ALTER_CLIENT_QUOTAS, fields).entries]


def test_entries_are_relayed_without_those_of_impossible_entities(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["AlterQuotas"] = altered(0, 42)
    ops = (("b", 2.0, True), ("a", 3.0, False))
    both = entry([("user", None), ("client-id", "app")], ("c", 4.0, False))
    assert alter(ask, entry(ALICE, *ops), entry([("group", "g")]), both) == [0, 42, 42]
    ((_, asked, _),) = controller.asked
    assert [read_entity(one.entity) for one in asked.entries] == [
        QuotaEntity("alice"),
        QuotaEntity(DEFAULT, "app"),
    ]
    assert (dict(asked.entries[0].values), list(asked.entries[0].removed)) == ({"a": 3.0}, ["b"])


def test_a_key_that_an_entry_names_twice_is_refused(ask: Ask, controller: StubController) -> None:
    controller.answers["AlterQuotas"] = altered(0)
    twice = entry(ALICE, ("a", 1.0, False), ("a", 3.0, True))
    other = entry([("user", "bob")], ("a", 1.0, False))
    assert alter(ask, twice, other) == [ErrorCode.INVALID_REQUEST, 0]
    ((_, asked, _),) = controller.asked
    assert [read_entity(one.entity) for one in asked.entries] == [QuotaEntity("bob")]


def test_an_entity_that_is_named_twice_is_refused_each_time(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["AlterQuotas"] = altered(0)
    address = [entry([("ip", one)], ("a", 1.0, False)) for one in ("::1", "0::1")]
    other = entry([("user", "bob")], ("a", 1.0, False))
    assert alter(ask, address[0], other, address[1]) == [42, 0, 42]
    ((_, asked, _),) = controller.asked
    assert [read_entity(one.entity) for one in asked.entries] == [QuotaEntity("bob")]


def test_a_validation_is_relayed_as_such_and_not_waited_for(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["AlterQuotas"] = altered(0, position=NOT_SEEN)
    assert alter(ask, entry(ALICE, ("a", 1.0, False)), validate_only=True) == [0]
    ((_, asked, _),) = controller.asked
    assert asked.validate_only


def test_without_a_controller_or_without_news_of_the_change_each_entry_is_an_error(
    ask: Ask, controller: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_relay, "ALTER_CONFIGS_TIMEOUT_MS", 1)
    one, other = (entry([("user", user)], ("a", 1.0, False)) for user in ("alice", "bob"))
    controller.answers["AlterQuotas"] = altered(0, position=NOT_SEEN)
    assert alter(ask, one) == [ErrorCode.REQUEST_TIMED_OUT]
    controller.answers["AlterQuotas"] = TidemarkError(ErrorCode.NOT_CONTROLLER, "none")
    assert alter(ask, one, other) == [ErrorCode.NOT_CONTROLLER] * 2
    controller.answers["AlterQuotas"] = pb.AlterQuotasResponse(error_code=31)
    assert alter(ask, one) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def describe(ask: Ask, *parts: tuple[str, int, str | None], strict: bool = False) -> Struct:
    components = [
        {"entity_type": one, "match_type": match_type, "match": match}
        for one, match_type, match in parts
    ]
    return ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": strict})


def test_the_entities_of_a_filter_are_described(ask: Ask, parts: BrokerParts) -> None:
    quotas = {
        QuotaEntity("alice", DEFAULT): {PRODUCER_BYTE_RATE: 5.0, "consumer_byte_rate": 6.0},
        QuotaEntity("bob"): {PRODUCER_BYTE_RATE: 7.0},
    }
    later = FeedPosition(ControllerEpoch(1), 6)
    parts.metadata.take(replace(parts.metadata.image, quotas=quotas, position=later))
    (one,) = describe(ask, ("user", 0, "alice")).entries
    entity = [(part.entity_type, part.entity_name) for part in one.entity]
    assert entity == [("user", "alice"), ("client-id", None)]
    values = [(each.key, each.value) for each in one.values]
    assert values == [("consumer_byte_rate", 6.0), (PRODUCER_BYTE_RATE, 5.0)]
    assert len(describe(ask).entries) == 2
    assert describe(ask, strict=True).entries == []


def test_a_filter_that_cannot_be_is_refused(ask: Ask) -> None:
    answer = describe(ask, ("group", 2, None))
    assert (answer.error_code, answer.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)
