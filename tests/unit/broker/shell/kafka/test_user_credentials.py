from dataclasses import replace
from typing import Any

import pytest
from broker.shell.cluster import controller_relay
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import FeedPosition
from tidemark.model.scram import ScramMechanism, credential_from
from tidemark.runtime.users_wire import write_credential
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, StubController

SHA_256, SHA_512 = ScramMechanism
SALT = bytes(range(16))
SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)
NOT_SEEN = common_pb2.FeedPosition(controller_epoch=1, version=7)


def upsertion(name: str, **fields: object) -> dict[str, object]:
    usual = {"mechanism": 1, "iterations": 4_096, "salt": SALT, "salted_password": b"salted"}
    return {"name": name, **usual, **fields}


def altered(*users: str, position: common_pb2.FeedPosition = SEEN) -> pb.AlterUsersResponse:
    results = [pb.AlterUsersResponse.Result(user=user) for user in users]
    return pb.AlterUsersResponse(position=position, results=results)


def codes(answer: Any) -> dict[str, int]:
    return {one.user: one.error_code for one in answer.results}


def alter(ask: Ask, *upsertions: dict[str, object], deletions: Any = ()) -> dict[str, int]:
    fields = {"deletions": list(deletions), "upsertions": list(upsertions)}
    return codes(ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields))


def test_keys_are_relayed_in_place_of_the_salted_password(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["AlterUsers"] = altered("bob", "alice")
    gone = {"name": "bob", "mechanism": 2}
    assert alter(ask, upsertion("alice"), deletions=[gone]) == {"bob": 0, "alice": 0}
    ((_, asked, _),) = controller.asked
    assert asked.caller.principal == "User:ANONYMOUS"
    assert [(one.user, one.mechanism) for one in asked.deletions] == [("bob", 2)]
    expected = credential_from(SHA_256, b"salted", SALT, 4_096)
    assert [one.credential for one in asked.upsertions] == [write_credential(expected)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"iterations": 4_095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b"short"}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_user_whose_credential_is_not_acceptable_is_not_relayed(
    ask: Ask, controller: StubController, fields: dict[str, object], code: ErrorCode
) -> None:
    controller.answers["AlterUsers"] = altered("alice")
    bad = {**upsertion("bob"), **fields}
    assert alter(ask, bad, upsertion("alice")) == {str(bad["name"]): code, "alice": 0}
    ((_, asked, _),) = controller.asked
    assert [one.user for one in asked.upsertions] == ["alice"]


def test_without_a_controller_or_without_news_of_the_change_each_user_says_so(
    ask: Ask, controller: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_relay, "ALTER_CONFIGS_TIMEOUT_MS", 1)
    controller.answers["AlterUsers"] = altered("alice", position=NOT_SEEN)
    assert alter(ask, upsertion("alice")) == {"alice": ErrorCode.REQUEST_TIMED_OUT}
    controller.answers["AlterUsers"] = TidemarkError(ErrorCode.NOT_CONTROLLER, "none")
    assert alter(ask, upsertion("alice")) == {"alice": ErrorCode.NOT_CONTROLLER}
    controller.answers["AlterUsers"] = pb.AlterUsersResponse(error_code=31)
    assert alter(ask, upsertion("a")) == {"a": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_users_are_described_without_their_keys(ask: Ask, parts: BrokerParts) -> None:
    made = tuple(credential_from(one, b"salted", SALT, 8_192) for one in ScramMechanism)
    users = {"bob": made[:1], "alice": made}
    later = FeedPosition(ControllerEpoch(1), 6)
    parts.metadata.take(replace(parts.metadata.image, users=users, position=later))
    answer = ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    shown = {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in answer.results
    }
    assert shown == {"alice": [(1, 8_192), (2, 8_192)], "bob": [(1, 8_192)]}
    named = [{"name": "bob"}, {"name": "bob"}, {"name": "eve"}, {"name": "alice"}]
    answer = ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": named})
    assert codes(answer) == {"bob": 92, "eve": 91, "alice": 0}
