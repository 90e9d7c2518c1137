"""The coordinators' topics: as many replicas as are asked for, or not yet."""

import logging

import pytest
from broker.shell.cluster.internal_topics import wanted_topics
from broker.shell.metrics.collector import BrokerCollector
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.model.topics import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, StubController


@pytest.fixture(autouse=True)
def _two_brokers_live(parts: BrokerParts) -> None:
    parts.cluster.live.epochs = {BrokerId(one): BrokerEpoch(1) for one in (1, 2)}


TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}


def refuse(controller: StubController, code: ErrorCode) -> None:
    """The controller does so with any topic."""
    results = [pb.TopicResult(error_code=code)]
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(topics=results)


@pytest.mark.parametrize("key_type", TOPICS)
def test_as_many_replicas_are_asked_for_as_configured_however_few_brokers_live(
    parts: BrokerParts, ask: Ask, controller: StubController, key_type: int
) -> None:
    refuse(controller, ErrorCode.INVALID_REPLICATION_FACTOR)
    ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": key_type}, 3)
    ((_, request, _),) = controller.asked
    (topic,) = request.topics
    assert (topic.name, topic.replication_factor) == (TOPICS[key_type], 3)


@pytest.mark.parametrize("key_type", TOPICS)
def test_with_too_few_brokers_the_client_is_told_what_is_missing(
    parts: BrokerParts, ask: Ask, controller: StubController, key_type: int
) -> None:
    refuse(controller, ErrorCode.INVALID_REPLICATION_FACTOR)
    answer = ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": key_type}, 3)
    option = wanted_topics(parts.facts.config)[TOPICS[key_type]].factor_key
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "3 replicas" in answer.error_message
    assert "2 brokers are alive" in answer.error_message
    assert option in answer.error_message


def test_it_is_logged_once_and_counted_each_time(
    parts: BrokerParts, ask: Ask, controller: StubController, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(controller, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert refused_by_topic(parts) == dict.fromkeys(INTERNAL_TOPICS, 0), "increases from 0 are seen"
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    said = [one.message for one in caplog.records if "internal topic" in one.message]
    assert said == ["internal topic not created: too few brokers"]
    assert refused_by_topic(parts) == {**dict.fromkeys(INTERNAL_TOPICS, 0), CONSUMER_OFFSETS: 3}


def refused_by_topic(parts: BrokerParts) -> dict[str, float]:
    families = {one.name: one for one in BrokerCollector(parts.measured()).collect()}
    samples = families["tidemark_internal_topics_refused"].samples
    return {sample.labels["topic"]: sample.value for sample in samples}


def test_a_transactional_producer_is_told_to_ask_again(
    parts: BrokerParts, ask: Ask, controller: StubController
) -> None:
    refuse(controller, ErrorCode.INVALID_REPLICATION_FACTOR)
    fields = {"transactional_id": "t", "transaction_timeout": 1_000}
    answer = ask(ApiKey.INIT_PRODUCER_ID, fields, 2)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_topic_that_another_broker_makes_is_asked_for_again(
    parts: BrokerParts, ask: Ask, controller: StubController
) -> None:
    refuse(controller, ErrorCode.TOPIC_ALREADY_EXISTS)
    answer = ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "ask again" in answer.error_message


def test_each_internal_topic_can_be_created(parts: BrokerParts) -> None:
    assert wanted_topics(parts.facts.config).keys() == INTERNAL_TOPICS


def test_nothing_but_its_coordinator_deletes_share_group_state(parts: BrokerParts) -> None:
    wanted = wanted_topics(parts.facts.config)[SHARE_GROUP_STATE]
    kept = ("cleanup.policy", "retention.ms", "retention.bytes")
    assert [wanted.configs[key] for key in kept] == ["delete", "-1", "-1"]
    assert (wanted.partition_count, wanted.replication_factor) == (50, 3)
    assert wanted.min_insync_replicas == 2
