"""The APIs of share groups that brokers relay: from the wire's bytes to the share-coordinator, and
back.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from tidemark.codec.java_hash import shard_for_name
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import SHARE, CoordinatorImage
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark_wire.v1 import share_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, topic_image
from unit.broker.shell.kafka.group_handlers import Rules

ORDERS = topic_image("orders", [1], {}).topic_id
NOT_NOW = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
BEAT = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"]}


class StubClient:
    """Answers every call with what is set, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[tuple[str, Any]] = []

    async def call(self, method: str, _name: str, request: Any, _timeout_s: float) -> Any:
        self.asked.append((method, request))
        if isinstance(self.answer, TidemarkError):
            raise self.answer
        return self.answer

    async def list_all(self, method: str, request: Any, timeout_s: float) -> list[Any]:
        answer = await self.call(method, "", request, timeout_s)
        return list(answer)


@pytest.fixture
def coordinator(parts: BrokerParts) -> StubClient:
    """The share-coordinator of ``parts``; the internal topics exist, led by brokers 1 and 2."""
    stub = StubClient()
    parts.groups.share_relay.client = cast("CoordinatorClient", stub)
    internal = [
        topic_image(f"__{one}", [1, 2], {}) for one in ("share_group_state", "consumer_offsets")
    ]
    image = parts.metadata.image
    live = CoordinatorImage(SHARE, 1, b"", "share:1")
    parts.metadata.take(
        replace(
            image,
            topics={**image.topics, **{one.name: one for one in internal}},
            coordinators={(SHARE, 1): live},
        )
    )
    return stub


def gone(parts: BrokerParts) -> None:
    """No share-coordinator is live."""
    parts.metadata.take(replace(parts.metadata.image, coordinators={}))


def never_used(parts: BrokerParts) -> None:
    """There has never been a share group."""
    topics = dict(parts.metadata.image.topics)
    del topics["__share_group_state"]
    parts.metadata.take(replace(parts.metadata.image, topics=topics, coordinators={}))


def deny(parts: BrokerParts, operation: Operation, name: str) -> None:
    rules = Rules()
    rules.denied.add((operation, name))
    parts.facts = replace(parts.facts, authorizer=rules)


# ---- ShareGroupHeartbeat


def test_a_heartbeat_goes_to_the_coordinator_and_its_assignment_comes_back(
    coordinator: StubClient, ask: Ask
) -> None:
    assigned = pb.ShareTopicPartitions(topic_id=ORDERS, partitions=[0, 2])
    coordinator.answer = pb.ShareHeartbeatResponse(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=5_000,
        has_assignment=True,
        assignment=[assigned],
    )
    answer = ask(ApiKey.SHARE_GROUP_HEARTBEAT, BEAT)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval) == (0, 3, 5_000)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (ORDERS, [0, 2])
    ((method, asked),) = coordinator.asked
    assert (method, asked.member_epoch, asked.client_host) == ("Heartbeat", 0, "/")
    assert (asked.has_subscription, list(asked.subscribed_topic_names)) == (True, ["orders"])


def test_a_heartbeat_without_changes_has_neither_subscription_nor_assignment(
    coordinator: StubClient, ask: Ask
) -> None:
    coordinator.answer = pb.ShareHeartbeatResponse(member_epoch=3)
    answer = ask(ApiKey.SHARE_GROUP_HEARTBEAT, {"group_id": "g", "member_epoch": 3})
    assert answer.assignment is None
    assert not coordinator.asked[0][1].has_subscription


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.REQUEST_TIMED_OUT, NOT_NOW),
    ],
)
def test_a_heartbeat_that_no_coordinator_answers_is_to_be_repeated(
    coordinator: StubClient, ask: Ask, code: ErrorCode, shown: ErrorCode
) -> None:
    coordinator.answer = TidemarkError(code, "elsewhere")
    answer = ask(ApiKey.SHARE_GROUP_HEARTBEAT, BEAT)
    assert (answer.error_code, answer.error_message) == (shown, "elsewhere")


def test_without_coordinators_a_heartbeat_is_to_be_repeated(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    gone(parts)
    answer = ask(ApiKey.SHARE_GROUP_HEARTBEAT, BEAT)
    assert answer.error_code == NOT_NOW
    assert answer.error_message.startswith("no share-coordinator is running")


def test_errors_of_the_coordinator_come_back_with_their_message(
    coordinator: StubClient, ask: Ask
) -> None:
    code = ErrorCode.FENCED_MEMBER_EPOCH
    coordinator.answer = pb.ShareHeartbeatResponse(error_code=code, error_message="rejoin")
    answer = ask(ApiKey.SHARE_GROUP_HEARTBEAT, BEAT)
    assert (answer.error_code, answer.error_message) == (code, "rejoin")


@pytest.mark.parametrize(
    ("operation", "name", "code"),
    [
        (Operation.READ, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Operation.DESCRIBE, "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_members_read_the_group_and_see_its_topics(
    coordinator: StubClient,
    parts: BrokerParts,
    ask: Ask,
    operation: Operation,
    name: str,
    code: ErrorCode,
) -> None:
    deny(parts, operation, name)
    assert ask(ApiKey.SHARE_GROUP_HEARTBEAT, BEAT).error_code == code
    assert coordinator.asked == []


# ---- ShareGroupDescribe

MEMBER = pb.DescribeShareGroupResponse.Member(
    member_id="m",
    member_epoch=3,
    client_id="c",
    client_host="/h",
    subscribed_topic_names=["orders"],
    assignment=[pb.ShareTopicPartitions(topic_id=ORDERS, topic="orders", partitions=[1])],
)
GROUP = pb.DescribeShareGroupResponse(
    state="Stable", group_epoch=4, assignment_epoch=4, assignor_name="simple", members=[MEMBER]
)


def test_describe(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = GROUP
    (group,) = ask(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": ["g", "g"]}).groups
    assert (group.group_id, group.group_state, group.assignor_name) == ("g", "Stable", "simple")
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.client_host) == ("m", None, "/h")
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [1])


def test_describe_refuses_what_the_caller_may_not_see(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    coordinator.answer = GROUP
    deny(parts, Operation.DESCRIBE, "orders")
    found = ask(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": ["g", ""]}).groups
    codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID]
    assert [one.error_code for one in found] == codes
    assert found[0].members == []


def test_before_the_first_share_group_there_is_none(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    never_used(parts)
    (group,) = ask(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": ["g"]}).groups
    assert (group.error_code, group.error_message) == (NOT_FOUND, "Share group g not found.")


# ---- offsets


def offsets_of(topics: object) -> Mapping[str, object]:
    return {"groups": [{"group_id": "g", "topics": topics}]}


@pytest.mark.parametrize("version", [0, 1])
def test_start_offsets(coordinator: StubClient, ask: Ask, version: int) -> None:
    offset = pb.DescribeShareOffsetsResponse.Offset(partition=1, start_offset=7, leader_epoch=2)
    topic = pb.DescribeShareOffsetsResponse.Topic(topic_id=ORDERS, topic="orders", offsets=[offset])
    coordinator.answer = pb.DescribeShareOffsetsResponse(topics=[topic])
    asked = [{"topic_name": one, "partitions": [1]} for one in ("orders", "none")]
    (group,) = ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, offsets_of(asked), version).groups
    orders, missing = group.topics
    assert (orders.topic_name, orders.partitions[0].start_offset) == ("orders", 7)
    assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ((_, sent),) = coordinator.asked
    assert (sent.all_topics, [one.topic for one in sent.topics]) == (False, ["orders"])


def test_start_offsets_of_all_topics(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = pb.DescribeShareOffsetsResponse()
    (group,) = ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, offsets_of(None)).groups
    assert (group.error_code, group.topics) == (0, [])
    assert coordinator.asked[0][1].all_topics


def test_start_offsets_of_a_group_that_may_not_be_seen(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    deny(parts, Operation.DESCRIBE, "g")
    (group,) = ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, offsets_of(None)).groups
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def alter(ask: Ask, *names: str) -> Any:
    partitions = [{"partition_index": 1, "start_offset": 7}]
    topics = [{"topic_name": name, "partitions": partitions} for name in names]
    return ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, {"group_id": "g", "topics": topics})


def test_new_start_offsets(coordinator: StubClient, ask: Ask) -> None:
    result = pb.AlterShareOffsetsResponse.Result(partition=1)
    topic = pb.AlterShareOffsetsResponse.Topic(topic="orders", partitions=[result])
    coordinator.answer = pb.AlterShareOffsetsResponse(topics=[topic])
    answer = alter(ask, "orders", "none")
    codes = [one.partitions[0].error_code for one in answer.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    ((_, sent),) = coordinator.asked
    assert [(one.topic, one.offsets[0].start_offset) for one in sent.topics] == [("orders", 7)]


def test_offsets_of_a_group_with_members_stay(coordinator: StubClient, ask: Ask) -> None:
    coordinator.answer = pb.AlterShareOffsetsResponse(
        error_code=ErrorCode.NON_EMPTY_GROUP, error_message="stop its members"
    )
    answer = alter(ask, "orders")
    assert (answer.error_code, answer.responses) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert answer.error_message == "stop its members"


def test_a_part_that_the_coordinator_leaves_out_has_failed(
    coordinator: StubClient, ask: Ask
) -> None:
    coordinator.answer = pb.AlterShareOffsetsResponse()
    (topic,) = alter(ask, "orders").responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_topics_are_deleted_whole(coordinator: StubClient, ask: Ask) -> None:
    topic = pb.DeleteShareOffsetsResponse.Topic(topic="orders")
    coordinator.answer = pb.DeleteShareOffsetsResponse(topics=[topic])
    topics = [{"topic_name": name} for name in ("orders", "none")]
    answer = ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, {"group_id": "g", "topics": topics})
    codes = [(one.topic_name, one.error_code) for one in answer.responses]
    assert codes == [("orders", 0), ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize(
    ("api_key", "operation"),
    [
        (ApiKey.ALTER_SHARE_GROUP_OFFSETS, Operation.READ),
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, Operation.DELETE),
    ],
)
def test_offsets_change_only_for_those_who_may(
    coordinator: StubClient, parts: BrokerParts, ask: Ask, api_key: ApiKey, operation: Operation
) -> None:
    deny(parts, operation, "g")
    answer = ask(api_key, {"group_id": "g", "topics": []})
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert ask(api_key, {"group_id": "", "topics": []}).error_code == ErrorCode.INVALID_GROUP_ID
    assert coordinator.asked == []


# ---- ListGroups


def ours() -> list[str]:
    """Two group ids of which this broker, the leader of partition 0, coordinates the first."""
    names = [f"g{number}" for number in range(20)]
    return [next(one for one in names if shard_for_name(one, 2) == shard) for shard in (0, 1)]


def listed(ask: Ask, *types: str) -> list[tuple[str, str, str]]:
    answer = ask(ApiKey.LIST_GROUPS, {"types_filter": types})
    assert answer.error_code == 0
    return [(one.group_id, one.group_type, one.group_state) for one in answer.groups]


@pytest.mark.parametrize("types", [(), ("Share",), ("classic", "share")])
def test_share_groups_are_listed_by_their_coordinator_only(
    coordinator: StubClient, ask: Ask, types: tuple[str, ...]
) -> None:
    groups = [pb.ListShareGroupsResponse.Group(group_id=one, state="Empty") for one in ours()]
    coordinator.answer = [pb.ListShareGroupsResponse(groups=groups)]
    assert listed(ask, *types) == [(ours()[0], "share", "Empty")]


def test_lists_of_other_types_do_not_need_share_coordinators(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    coordinator.answer = TidemarkError(NOT_NOW, "none")
    assert listed(ask, "classic", "consumer") == []
    gone(parts)
    assert listed(ask) == []
    never_used(parts)
    assert listed(ask, "share") == []
    assert coordinator.asked == []


def test_a_list_of_share_groups_is_whole_or_refused(
    coordinator: StubClient, parts: BrokerParts, ask: Ask
) -> None:
    coordinator.answer = TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "busy")
    for types in ((), ("share",)):
        with pytest.raises(TidemarkError) as refused:
            listed(ask, *types)
        assert refused.value.code is NOT_NOW
    gone(parts)
    with pytest.raises(TidemarkError):
        listed(ask, "share")
