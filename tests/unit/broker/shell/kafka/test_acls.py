from dataclasses import replace
from typing import Any

import pytest
from broker.shell.cluster import controller_relay
from tidemark.kafka.apis import ApiKey
from tidemark.model.acls import AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import FeedPosition
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, AskOf, StubController

SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)
NOT_SEEN = common_pb2.FeedPosition(controller_epoch=1, version=7)
ENTRY = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
CREATION = {**ENTRY, "resource_type": 2, "resource_name": "t", "resource_pattern_type": 4}
ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.fixture
def secured(parts: BrokerParts, ask_of: AskOf) -> Ask:
    """Ask a broker whose super user is who asks."""
    policy = AclPolicy(frozenset({"User:ANONYMOUS"}))
    parts.facts = replace(parts.facts, authorizer=AclAuthorizer(policy))
    return ask_of(parts)


def create(ask: Ask, *creations: dict[str, Any]) -> list[int]:
    answer = ask(ApiKey.CREATE_ACLS, {"creations": list(creations)})
    return [one.error_code for one in answer.results]


def delete(ask: Ask, *filters: dict[str, Any]) -> Any:
    return ask(ApiKey.DELETE_ACLS, {"filters": list(filters)}).filter_results


def created(*codes: int, position: common_pb2.FeedPosition = SEEN) -> pb.CreateAclsResponse:
    results = [pb.CreateAclsResponse.Result(error_code=code) for code in codes]
    return pb.CreateAclsResponse(position=position, results=results)


def show(parts: BrokerParts, *entries: AclEntry) -> None:
    acls = {ResourcePattern(ResourceType.TOPIC, "t"): frozenset(entries)}
    later = FeedPosition(ControllerEpoch(1), 6)
    parts.metadata.take(replace(parts.metadata.image, acls=acls, position=later))


def test_without_an_authorizer_all_three_say_so(ask: Ask) -> None:
    assert ask(ApiKey.DESCRIBE_ACLS, ANY).error_code == ErrorCode.SECURITY_DISABLED
    assert create(ask, CREATION, CREATION) == [ErrorCode.SECURITY_DISABLED] * 2
    assert [one.error_code for one in delete(ask, ANY)] == [ErrorCode.SECURITY_DISABLED]


def test_who_may_not_is_refused_first(parts: BrokerParts, ask_of: AskOf) -> None:
    parts.facts = replace(parts.facts, authorizer=AclAuthorizer(AclPolicy()))
    ask, refused = ask_of(parts), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask(ApiKey.DESCRIBE_ACLS, ANY).error_code == refused
    assert create(ask, CREATION) == [refused]
    assert [one.error_code for one in delete(ask, ANY)] == [refused]


def test_bindings_are_relayed_and_each_has_its_result(
    secured: Ask, controller: StubController
) -> None:
    controller.answers["CreateAcls"] = created(0, 42)
    assert create(secured, CREATION, {**CREATION, "operation": 99}) == [0, 42]
    ((_, asked, _),) = controller.asked
    assert [one.entry.operation for one in asked.bindings] == [3, 99]
    assert (asked.bindings[0].pattern.name, asked.bindings[0].pattern.pattern_type) == ("t", 4)
    assert asked.caller.principal == "User:ANONYMOUS"


def test_a_change_that_is_not_seen_or_not_made_is_no_success(
    secured: Ask, controller: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_relay, "ALTER_CONFIGS_TIMEOUT_MS", 1)
    controller.answers["CreateAcls"] = created(0, 42, position=NOT_SEEN)
    assert create(secured, CREATION, CREATION) == [ErrorCode.REQUEST_TIMED_OUT, 42]
    controller.answers["CreateAcls"] = pb.CreateAclsResponse(error_code=31)
    assert create(secured, CREATION) == [31]
    controller.answers["CreateAcls"] = TidemarkError(ErrorCode.NOT_CONTROLLER, "none")
    assert create(secured, CREATION) == [ErrorCode.NOT_CONTROLLER]


def test_deleted_bindings_are_in_the_result_of_their_filter(
    secured: Ask, controller: StubController
) -> None:
    gone = pb.AclBinding(
        pattern=pb.ResourcePattern(resource_type=2, name="t", pattern_type=3),
        entry=pb.AclEntry(principal="User:a", host="*", operation=3, permission=2),
    )
    result = pb.DeleteAclsResponse.Result(deleted=[gone])
    controller.answers["DeleteAcls"] = pb.DeleteAclsResponse(position=SEEN, results=[result])
    ((found,),) = ([one.matching_acls for one in delete(secured, ANY)],)
    assert [(one.resource_name, one.principal, one.permission_type) for one in found] == [
        ("t", "User:a", 2)
    ]
    ((_, asked, _),) = controller.asked
    assert not asked.filters[0].HasField("name")


def test_acls_are_described_by_pattern(secured: Ask, parts: BrokerParts) -> None:
    read = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
    show(parts, read, read._replace(principal="User:b"))
    (pattern,) = secured(ApiKey.DESCRIBE_ACLS, ANY).resources
    assert (pattern.resource_type, pattern.resource_name, pattern.pattern_type) == (2, "t", 3)
    assert [(one.principal, one.operation) for one in pattern.acls] == [
        ("User:a", 3),
        ("User:b", 3),
    ]
    matching = {**ANY, "principal_filter": "User:c"}
    assert secured(ApiKey.DESCRIBE_ACLS, matching).resources == []


def test_a_filter_without_meaning_is_refused(secured: Ask) -> None:
    unknown = {**ANY, "operation": 0}
    assert secured(ApiKey.DESCRIBE_ACLS, unknown).error_code == ErrorCode.INVALID_REQUEST
