"""Quota of mutations: 11 partitions at once, and then one a second (KIP-599)."""

import asyncio

import pytest
from broker.shell.request_context import RequestContext
from broker.shell.throttling import MUTATION
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import CONTROLLER_MUTATION_RATE, DEFAULT, QuotaEntity
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, StubController

NONE, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)


@pytest.fixture(autouse=True)
def _limited(parts: BrokerParts) -> None:
    parts.facts.quotas.configure({QuotaEntity(DEFAULT): {CONTROLLER_MUTATION_RATE: 1.0}})


def create(
    ask: Ask, controller: StubController, *counts: int, version: int | None = None
) -> Struct:
    """Create topics with so many partitions; the controller makes those that it is asked for."""
    names = [f"t{number}" for number in range(len(counts))]
    made = [pb.TopicResult(name=name, partition_count=1) for name in names[:1]]
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=SEEN, topics=made)
    fields = {
        "topics": [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in zip(names, counts, strict=True)
        ]
    }
    return ask(ApiKey.CREATE_TOPICS, fields, version)


def codes(answer: Struct) -> list[int]:
    return [one.error_code for one in answer.topics]


def test_topics_are_refused_while_there_is_a_debt(
    ask: Ask, controller: StubController, parts: BrokerParts
) -> None:
    answer = create(ask, controller, 13, 1)
    assert (codes(answer), answer.throttle_time) == ([NONE, EXCEEDED], 2_000)
    ((_, asked, _),) = controller.asked
    assert [one.name for one in asked.topics] == ["t0"]
    assert codes(create(ask, controller, 1)) == [EXCEEDED]
    parts.facts.clock.advance(2_000)  # type: ignore[attr-defined]
    answer = create(ask, controller, 1)
    assert (codes(answer), answer.throttle_time) == ([NONE], 0), "nothing was refused"
    answer = create(ask, controller, 1)
    assert (codes(answer), answer.throttle_time) == ([EXCEEDED], 1_000)
    assert parts.facts.quotas.counters[MUTATION].count == 3


def test_a_client_that_knows_the_error_is_not_throttled_for_what_was_accepted(
    ask: Ask, controller: StubController
) -> None:
    """It may use its connection for anything else, and is refused further mutations."""
    answer = create(ask, controller, 100)
    assert (codes(answer), answer.throttle_time) == ([NONE], 0)
    answer = create(ask, controller, 1)
    assert (codes(answer), answer.throttle_time) == ([EXCEEDED], 89_000)


def test_a_client_that_does_not_know_the_error_is_throttled_alone(
    ask: Ask, controller: StubController
) -> None:
    answer = create(ask, controller, 13, version=5)
    assert (codes(answer), answer.throttle_time) == ([NONE], 2_000)
    answer = create(ask, controller, 3, version=5)
    assert (codes(answer), answer.throttle_time) == ([NONE], 5_000)


def test_deleted_and_added_partitions_count(ask: Ask, controller: StubController) -> None:
    create(ask, controller, 9)
    topics = [pb.TopicResult(name="orders")]
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(position=SEEN, topics=topics)
    wanted = [{"name": "orders"}, {"name": "compacted"}]
    answer = ask(ApiKey.DELETE_TOPICS, {"topics": wanted})
    assert [one.error_code for one in answer.responses] == [NONE, EXCEEDED]
    assert answer.throttle_time == 1_000
    more = {"topics": [{"name": "compacted", "count": 3, "assignments": None}]}
    answer = ask(ApiKey.CREATE_PARTITIONS, more)
    assert [one.error_code for one in answer.results] == [EXCEEDED]
    controller.answers["CreatePartitions"] = pb.CreatePartitionsResponse(
        position=SEEN, topics=[pb.TopicResult(name="compacted")]
    )
    assert ask(ApiKey.CREATE_PARTITIONS, more, 2).throttle_time == 3_000


def test_a_validation_costs_what_the_change_does(ask: Ask, controller: StubController) -> None:
    """As in Kafka since KRaft: a validation tells whether the change would be accepted now."""
    made = [pb.TopicResult(name="t", partition_count=13)]
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=SEEN, topics=made)
    topic = {"name": "t", "num_partitions": 13, "replication_factor": 1}
    fields = {"topics": [topic], "validate_only": True}
    assert codes(ask(ApiKey.CREATE_TOPICS, fields)) == [NONE]
    assert codes(ask(ApiKey.CREATE_TOPICS, fields)) == [EXCEEDED]


def test_what_the_controller_refuses_costs_nothing(ask: Ask, controller: StubController) -> None:
    exists = pb.TopicResult(name="orders", error_code=int(ErrorCode.TOPIC_ALREADY_EXISTS))
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=SEEN, topics=[exists])
    topic = {"name": "orders", "num_partitions": 2**31 - 1, "replication_factor": 1}
    for _ in range(2):
        answer = ask(ApiKey.CREATE_TOPICS, {"topics": [topic]})
        assert (codes(answer), answer.throttle_time) == ([exists.error_code], 0)
    refused = pb.TopicResult(name="orders", error_code=int(ErrorCode.INVALID_REQUEST))
    controller.answers["DeleteTopics"] = pb.DeleteTopicsResponse(position=SEEN, topics=[refused])
    controller.answers["CreatePartitions"] = pb.CreatePartitionsResponse(
        position=SEEN, topics=[refused]
    )
    assert ask(ApiKey.DELETE_TOPICS, {"topics": [{"name": "orders"}]}).throttle_time == 0
    more = {"topics": [{"name": "orders", "count": 10_000, "assignments": None}]}
    assert ask(ApiKey.CREATE_PARTITIONS, more).throttle_time == 0
    assert create(ask, controller, 11).throttle_time == 0


def test_a_change_that_may_be_made_costs_its_partitions(
    ask: Ask, controller: StubController
) -> None:
    late = pb.TopicResult(name="t", error_code=int(ErrorCode.REQUEST_TIMED_OUT))
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=SEEN, topics=[late])
    topic = {"name": "t", "num_partitions": 13, "replication_factor": 1}
    assert ask(ApiKey.CREATE_TOPICS, {"topics": [topic]}, 5).throttle_time == 2_000
    answer = ask(ApiKey.CREATE_TOPICS, {"topics": [topic]})
    assert (codes(answer), answer.throttle_time) == ([EXCEEDED], 2_000)


def test_topics_count_that_requests_for_metadata_create(
    controller: StubController, parts: BrokerParts
) -> None:
    context = RequestContext(Requester("User:a", "h"), "c", 1, 12, "CLIENT", "peer", "id")
    names = [f"t{number}" for number in range(14)]

    def created(*names: str) -> list[str]:
        """Return the topics of one partition that the controller is asked to create."""
        made = [pb.TopicResult(name=name, partition_count=1) for name in names[:12]]
        controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=SEEN, topics=made)
        asyncio.run(parts.cluster.auto_creation.create(context, list(names)))
        asked, controller.asked = controller.asked, []
        return [topic.name for _, request, _ in asked for topic in request.topics]

    assert created(*names) == names[:12], "the last one made a debt"
    assert created("late") == []
    parts.facts.clock.advance(1_000)  # type: ignore[attr-defined]
    assert created("late") == ["late"]
