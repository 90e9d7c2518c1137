"""Topics that can and cannot be dead-letter queues."""

import pytest
from broker.core.share.letter_queue import QueueTopic, name_problem, queue_problem
from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
SOURCE = TopicPartition("jobs", 5)


def queue(name: str = "dlq.jobs", configs: dict[str, str] | None = None) -> QueueTopic:
    return QueueTopic(name, 2, topic_config(ENABLED if configs is None else configs))


def test_a_topic_with_the_configuration_is_a_queue() -> None:
    assert queue_problem(queue(), SOURCE, "dlq.") is None
    assert queue_problem(queue("letters"), SOURCE, "") is None


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (QueueTopic("dlq.jobs", 0, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "create it with"),
        (queue(configs={}), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "needs the configuration"),
        (queue("jobs"), ErrorCode.INVALID_TOPIC_EXCEPTION, "begins with dlq."),
        (queue("__jobs"), ErrorCode.INVALID_TOPIC_EXCEPTION, "are internal"),
        (
            queue(configs={**ENABLED, "cleanup.policy": "compact,delete"}),
            ErrorCode.POLICY_VIOLATION,
            "set cleanup.policy=delete",
        ),
    ],
)
def test_the_problem_of_another_topic(topic: QueueTopic, code: ErrorCode, words: str) -> None:
    found = queue_problem(topic, SOURCE, "dlq.")
    assert found is not None
    assert found.error_code is code
    assert topic.name in found.message
    assert words in found.message


def test_a_topic_is_not_its_own_queue() -> None:
    found = queue_problem(queue("dlq.jobs"), TopicPartition("dlq.jobs", 0), "dlq.")
    assert found is not None
    assert found.error_code is ErrorCode.INVALID_CONFIG


def test_letters_of_a_partition_go_to_one_partition() -> None:
    assert queue().partition_of(SOURCE) == ("dlq.jobs", 1)


def test_names_are_checked_before_there_is_a_topic() -> None:
    assert name_problem("dlq.jobs", "dlq.") is None
    assert name_problem("jobs", "dlq.") is not None
