"""CreateTopics, DeleteTopics, CreatePartitions: what a broker adds to the
controller's decisions.
"""

from dataclasses import replace
from typing import Any

import pytest
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, AskOf, StubController

SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)
NOT_SEEN = common_pb2.FeedPosition(controller_epoch=1, version=6)
ID = bytes(range(16))


def wanted(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "num_partitions": 3, "replication_factor": 1, **fields}


def created(
    *names: str, position: common_pb2.FeedPosition = SEEN, **fields: Any
) -> pb.CreateTopicsResponse:
    results = [
        pb.TopicResult(name=name, topic_id=ID, partition_count=3, replication_factor=1, **fields)
        for name in names
    ]
    return pb.CreateTopicsResponse(position=position, topics=results)


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.feature("A04")
def test_create_is_relayed_with_who_asks_and_echoes_counts_and_configs(
    ask: Ask, controller: StubController, version: int
) -> None:
    controller.answers["CreateTopics"] = created("new", configs={"retention.ms": "9"})
    fields = {"topics": [wanted("new", configs=[{"name": "retention.ms", "value": "9"}])]}
    (topic,) = ask(ApiKey.CREATE_TOPICS, {**fields, "timeout": 2_000}, version).topics
    ((method, asked, timeout_s),) = controller.asked
    assert (method, timeout_s) == ("CreateTopics", 2.0)
    assert (asked.caller.principal, asked.caller.client_id) == ("User:ANONYMOUS", "me")
    assert dict(asked.topics[0].configs) == {"retention.ms": "9"}
    assert topic.error_code == 0
    if version >= 5:
        shown = {config.name: (config.value, config.config_source) for config in topic.configs}
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert shown["retention.ms"] == ("9", 1)
        assert shown["segment.bytes"] == ("2097152", 3)
    if version >= 7:
        assert topic.topic_id == ID


def test_a_name_given_twice_is_refused_once_and_the_others_are_made(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["CreateTopics"] = created("b")
    topics = ask(ApiKey.CREATE_TOPICS, {"topics": [wanted("a"), wanted("b"), wanted("a")]}).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]


def test_a_config_without_a_value_is_refused(ask: Ask, controller: StubController) -> None:
    (topic,) = ask(
        ApiKey.CREATE_TOPICS, {"topics": [wanted("a", configs=[{"name": "k", "value": None}])]}
    ).topics
    assert (topic.error_code, controller.asked) == (ErrorCode.INVALID_CONFIG, [])
    assert topic.error_message == "Null value not supported for topic configs: k"


def test_what_the_controller_refuses_is_told_in_its_words(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["CreateTopics"] = created("a", error_code=36, error_message="it exists")
    (topic,) = ask(ApiKey.CREATE_TOPICS, {"topics": [wanted("a")]}).topics
    assert (topic.error_code, topic.error_message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")
    assert topic.configs == []


def test_a_change_this_broker_does_not_see_in_time_is_told_as_timed_out(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["CreateTopics"] = created("a", position=NOT_SEEN)
    (topic,) = ask(ApiKey.CREATE_TOPICS, {"topics": [wanted("a")], "timeout": 10}).topics
    assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_who_does_not_want_to_wait_still_has_the_topic_made(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["CreateTopics"] = created("a", position=NOT_SEEN)
    (topic,) = ask(ApiKey.CREATE_TOPICS, {"topics": [wanted("a")], "timeout": 0}).topics
    assert (topic.error_code, controller.asked[0][2]) == (ErrorCode.REQUEST_TIMED_OUT, 5.0)


def test_only_validated_means_nothing_to_wait_for(ask: Ask, controller: StubController) -> None:
    controller.answers["CreateTopics"] = created("a", position=NOT_SEEN)
    fields = {"topics": [wanted("a")], "validate_only": True, "timeout": 10}
    (topic,) = ask(ApiKey.CREATE_TOPICS, fields).topics
    assert (topic.error_code, controller.asked[0][1].validate_only) == (0, True)


def test_without_a_controller_every_topic_says_so(ask: Ask, controller: StubController) -> None:
    controller.answers["CreateTopics"] = TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
    topics = ask(ApiKey.CREATE_TOPICS, {"topics": [wanted("a"), wanted("b")]}).topics
    assert {topic.error_message for topic in topics} == {"no controller"}
    assert {topic.error_code for topic in topics} == {ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(ask: Ask, controller: StubController, version: int) -> None:
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(
        position=SEEN, topics=[pb.TopicResult(name="orders", topic_id=ID)]
    )
    (result,) = ask(ApiKey.DELETE_TOPICS, {"topic_names": ["orders"]}, version).responses
    assert (result.name, result.error_code) == ("orders", 0)
    assert controller.asked[0][1].topics[0].topic_id == b""


def test_a_topic_of_no_name_is_answered_once_under_that_name(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(
        position=SEEN, topics=[pb.TopicResult(error_code=3)]
    )
    responses = ask(ApiKey.DELETE_TOPICS, {"topic_names": [""]}, 5).responses
    assert [(one.name, one.error_code) for one in responses] == [("", 3)]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73)])
def test_disabled_deletion_has_an_error_that_the_client_reads(
    ask: Ask, controller: StubController, version: int, code: int
) -> None:
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(
        position=SEEN, topics=[pb.TopicResult(name="orders", error_code=73)]
    )
    (result,) = ask(ApiKey.DELETE_TOPICS, {"topic_names": ["orders"]}, version).responses
    assert result.error_code == code


def test_topics_are_deleted_by_id(ask: Ask, controller: StubController, parts: BrokerParts) -> None:
    topic = parts.metadata.image.topics["orders"]
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(
        position=SEEN, topics=[pb.TopicResult(name="orders", topic_id=topic.topic_id)]
    )
    named = [{"name": None, "topic_id": topic.topic_id}]
    (result,) = ask(ApiKey.DELETE_TOPICS, {"topics": named}).responses
    assert (result.name, result.topic_id, result.error_code) == ("orders", topic.topic_id, 0)
    assert controller.asked[0][1].topics[0].name == ""


@pytest.mark.parametrize("enforces", [False, True])
def test_an_id_that_this_broker_does_not_know_yet_is_deleted_only_without_rules(
    ask_of: AskOf, controller: StubController, parts: BrokerParts, enforces: bool
) -> None:
    if enforces:
        parts.facts = replace(parts.facts, authorizer=AclAuthorizer(AclPolicy()))
    ask = ask_of(parts)
    new = b"made a while ago"
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(
        position=SEEN, topics=[pb.TopicResult(name="secret", topic_id=new)]
    )
    (result,) = ask(ApiKey.DELETE_TOPICS, {"topics": [{"name": None, "topic_id": new}]}).responses
    if enforces:
        assert (result.error_code, result.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        assert controller.asked == []
    else:
        assert result.error_code == 0


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"name": None}, "Neither topic name nor id were specified."),
        ({"name": "a", "topic_id": ID}, "You may not specify both topic name and topic id."),
    ],
)
def test_a_topic_is_named_by_name_or_by_id(
    ask: Ask, controller: StubController, named: dict[str, object], words: str
) -> None:
    (result,) = ask(ApiKey.DELETE_TOPICS, {"topics": [named]}).responses
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, words)
    assert controller.asked == []


@pytest.mark.parametrize("version", range(APIS[ApiKey.CREATE_PARTITIONS].max + 1))
def test_replicas_of_added_partitions_are_numbered_behind_those_that_exist(
    ask: Ask, controller: StubController, version: int
) -> None:
    controller.answers["CreatePartitions"] = pb.CreatePartitionsResponse(
        position=SEEN, topics=[pb.TopicResult(name="orders", topic_id=ID)]
    )
    more = {"name": "orders", "count": 5, "assignments": [{"broker_ids": [1]}, {"broker_ids": [2]}]}
    (result,) = ask(ApiKey.CREATE_PARTITIONS, {"topics": [more]}, version).results
    (asked,) = controller.asked[0][1].topics
    assert (result.name, result.error_code, asked.partition_count) == ("orders", 0, 5)
    assert [(one.partition, list(one.replicas)) for one in asked.assignments] == [
        (3, [1]),
        (4, [2]),
    ]


def test_a_list_without_replicas_is_not_the_same_as_no_list(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["CreatePartitions"] = pb.CreatePartitionsResponse(
        position=SEEN, topics=[pb.TopicResult(name="orders", topic_id=ID)]
    )
    more = {"name": "orders", "count": 5, "assignments": []}
    (result,) = ask(ApiKey.CREATE_PARTITIONS, {"topics": [more]}).results
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert controller.asked == []
    for other in ({"name": "orders", "count": 2}, {"name": "gone", "count": 2}):
        ask(ApiKey.CREATE_PARTITIONS, {"topics": [{**other, "assignments": []}]})
        assert controller.asked.pop(), "the controller has an error that comes before"
