"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: from the wire's bytes to the coordinator, and
back.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from broker.config import BrokerConfig
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DescribedConsumer,
    TopicPartitions,
)
from broker.shell.request_context import RequestContext
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.authorization import (
    OPERATIONS_NOT_REQUESTED,
    Authorizer,
    Operation,
    Requester,
    Resource,
    ResourceType,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.metadata import ClusterImage
from unit.broker.shell.kafka.group_handlers import group_handlers

A = TopicId(b"a" * 16)
BEAT = ConsumerGroupHeartbeatReply(
    error_code=ErrorCode.NONE, member_id="m", member_epoch=3, heartbeat_interval_ms=5_000
)
CONSUMER = DescribedConsumer(
    member_id="m",
    instance_id="i",
    rack_id=None,
    member_epoch=3,
    client_id="c",
    client_host="/h",
    subscribed_topic_names=("a",),
    subscribed_topic_regex="x.*",
    assignment=(TopicPartitions("a", A, (0, 1)),),
    target_assignment=(TopicPartitions("a", A, (0,)),),
)
DESCRIBED = ConsumerGroupDescribeReply(
    error_code=ErrorCode.NONE,
    group_id="g",
    state="Reconciling",
    group_epoch=4,
    assignment_epoch=4,
    assignor_name="uniform",
    members=(CONSUMER,),
)


class StubGroups:
    """Answers each request with what is set, and keeps what it was asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def ask(self, group_id: str, request: Any) -> object:
        assert request.group_id == group_id
        self.asked.append(request)
        if isinstance(self.answer, TidemarkError):
            raise self.answer
        return self.answer


class Denying(Authorizer):
    """Denies all to do with one kind of resource."""

    def __init__(self, denied: ResourceType) -> None:
        self.denied = denied

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        assert super().authorize(requester, operation, resource)
        return resource.resource_type is not self.denied


class Asker:
    """One broker's handlers, asked over the wire's bytes."""

    def __init__(
        self,
        answer: object,
        denied: ResourceType | None = None,
        config: BrokerConfig | None = None,
    ) -> None:
        self.groups = StubGroups(answer)
        authorizer = Authorizer() if denied is None else Denying(denied)
        self._handlers = group_handlers(self.groups, authorizer, ClusterImage(), config)

    def ask(self, api_key: ApiKey, fields: Mapping[str, object], version: int) -> Any:
        body = long_tail.write_request(api_key, version, fields)
        request = long_tail.read_request(api_key, version, memoryview(body))
        context = RequestContext(
            Requester("User:me", ""), "client", 1, version, "CLIENT", "10.0.0.1:5", "r"
        )
        answer = asyncio.run(self._handle(api_key, request, context))
        written = long_tail.write_response(api_key, version, answer)
        return long_tail.read_response(api_key, version, memoryview(written))

    async def _handle(
        self, api_key: ApiKey, request: long_tail.Struct, context: RequestContext
    ) -> Mapping[str, object]:
        return await self._handlers[api_key](request, context)

    def beat(self, version: int = 1, **fields: object) -> Any:
        said = {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None}
        return self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, {**said, **fields}, version)

    def describe(self, *group_ids: str, version: int = 1, **fields: object) -> Any:
        asked = {"group_ids": list(group_ids), **fields}
        return self.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, asked, version).groups


def test_brokers_without_the_consumer_protocol_refuse_its_requests() -> None:
    config = BrokerConfig(broker_id=1, group_coordinator_rebalance_protocols=("classic",))
    asker = Asker(BEAT, config=config)
    for answer in (asker.beat(), *asker.describe("g")):
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols" in answer.error_message
    assert not asker.groups.asked


# ------------------------------------------------------------------ heartbeat


def test_what_a_heartbeat_does_not_say_stays_unsaid() -> None:
    asker = Asker(BEAT)
    asker.beat()
    (asked,) = asker.groups.asked
    assert asked == ConsumerGroupHeartbeat(
        group_id="g",
        member_id="m",
        new_member_id=asked.new_member_id,
        member_epoch=3,
        client_id="client",
        client_host="/10.0.0.1",
        requester=Requester("User:me", ""),
    )


def test_all_that_a_heartbeat_says_is_passed_on() -> None:
    asker = Asker(BEAT)
    asker.beat(
        member_epoch=0,
        instance_id="i",
        rack_id="r",
        rebalance_timeout=9,
        subscribed_topic_names=["a"],
        subscribed_topic_regex="x.*",
        server_assignor="range",
        topic_partitions=[{"topic_id": A, "partitions": [0, 1]}],
    )
    (asked,) = asker.groups.asked
    assert (asked.instance_id, asked.rack_id, asked.rebalance_timeout_ms) == ("i", "r", 9)
    assert asked.subscribed_topic_names == ("a",)
    assert (asked.subscribed_topic_regex, asked.server_assignor) == ("x.*", "range")
    assert asked.topic_partitions == (TopicIdPartitions(A, (0, 1)),)


@pytest.mark.parametrize("version", [0, 1])
def test_an_assignment_that_is_as_before_is_not_sent(version: int) -> None:
    answer = Asker(BEAT).beat(version)
    assert (answer.member_id, answer.member_epoch) == ("m", 3)
    assert answer.heartbeat_interval == 5_000
    assert answer.assignment is None


def test_an_assignment_is_sent_by_topic_id() -> None:
    reply = ConsumerGroupHeartbeatReply(
        error_code=ErrorCode.NONE, assignment=(TopicIdPartitions(A, (2, 3)),)
    )
    (topic,) = Asker(reply).beat().assignment.topic_partitions
    assert topic.topic_id == A
    assert list(topic.partitions) == [2, 3]


def test_an_empty_assignment_is_not_none() -> None:
    reply = ConsumerGroupHeartbeatReply(error_code=ErrorCode.NONE, assignment=())
    assert list(Asker(reply).beat().assignment.topic_partitions) == []


def test_a_refusal_keeps_its_words() -> None:
    reply = ConsumerGroupHeartbeatReply(
        error_code=ErrorCode.FENCED_MEMBER_EPOCH, error_message="too old"
    )
    answer = Asker(reply).beat()
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer.error_message == "too old"


def test_in_version_0_the_coordinator_names_the_member() -> None:
    asker = Asker(BEAT)
    asker.beat(0, member_id="")
    asker.beat(0, member_id="")
    first, second = asker.groups.asked
    assert first.new_member_id != second.new_member_id


def test_from_version_1_clients_name_themselves() -> None:
    asker = Asker(BEAT)
    assert asker.beat(1, member_id="").error_code == ErrorCode.INVALID_REQUEST
    assert not asker.groups.asked


@pytest.mark.parametrize(
    ("denied", "error_code"),
    [
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_gets_no_further(denied: ResourceType, error_code: ErrorCode) -> None:
    asker = Asker(BEAT, denied)
    assert asker.beat(subscribed_topic_names=["a"]).error_code == error_code
    assert not asker.groups.asked


# ------------------------------------------------------------------ describe


def test_a_group_is_described() -> None:
    asker = Asker(DESCRIBED)
    (group,) = asker.describe("g")
    assert asker.groups.asked == [ConsumerGroupDescribe("g")]
    assert (group.group_id, group.group_state) == ("g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch) == (4, 4)
    assert group.assignor_name == "uniform"


@pytest.mark.parametrize("version", [0, 1])
def test_members_are_described_with_assignment_and_target(version: int) -> None:
    (group,) = Asker(DESCRIBED).describe("g", version=version)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", None)
    (has,) = member.assignment.topic_partitions
    (shall_have,) = member.target_assignment.topic_partitions
    assert (has.topic_id, has.topic_name, list(has.partitions)) == (A, "a", [0, 1])
    assert list(shall_have.partitions) == [0]


def test_what_goes_wrong_with_a_group_is_its_own() -> None:
    failure = TidemarkError(ErrorCode.NOT_COORDINATOR, "elsewhere")
    one, other = Asker(failure).describe("g", "h")
    assert (one.group_id, other.group_id) == ("g", "h")
    assert one.error_code == ErrorCode.NOT_COORDINATOR
    assert other.error_message == "elsewhere"


def test_a_group_without_a_name_is_invalid() -> None:
    (group,) = Asker(DESCRIBED).describe("")
    assert group.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("denied", "error_code"),
    [
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_sees_nothing(denied: ResourceType, error_code: ErrorCode) -> None:
    (group,) = Asker(DESCRIBED, denied).describe("g")
    assert group.error_code == error_code
    assert not list(group.members)


def test_operations_are_told_when_asked_for() -> None:
    asker = Asker(DESCRIBED)
    (told,) = asker.describe("g", include_authorized_operations=True)
    (untold,) = asker.describe("g")
    assert told.authorized_operations == Authorizer().authorized_operations(
        Requester("User:me", ""), Resource(ResourceType.GROUP, "g")
    )
    assert untold.authorized_operations == OPERATIONS_NOT_REQUESTED
