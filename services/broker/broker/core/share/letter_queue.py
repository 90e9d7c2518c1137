"""Dead-letter queue of a share group (KIP-1191): the topic, and why it cannot be one."""

from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition

from broker.core.share.dead_letters import Problem

ENABLE: Final = "errors.deadletterqueue.group.enable"
PREFIX_OPTION: Final = "errors.deadletterqueue.topic.name.prefix"
_INTERNAL: Final = "__"


class QueueTopic(NamedTuple):
    """Topic that a group names as its queue."""

    name: str
    partitions: int
    """0: there is no such topic."""
    config: TopicConfig | None
    """None: there is no such topic."""

    def partition_of(self, source: TopicPartition) -> TopicPartition:
        """Return the partition for the letters of one source partition."""
        return TopicPartition(self.name, source.partition % self.partitions)


def name_problem(name: str, prefix: str) -> str | None:
    """Return why a group may not name this queue, whether there is such a topic or not."""
    if name.startswith(_INTERNAL):
        return f"{name} cannot be a dead-letter queue: names with {_INTERNAL} are internal"
    if not name.startswith(prefix):
        return f"a dead-letter queue's name begins with {prefix} ({PREFIX_OPTION}), not so {name}"
    return None


def queue_problem(queue: QueueTopic, source: TopicPartition, prefix: str) -> Problem | None:
    """Return why letters of a partition cannot be written to the queue; None if they can."""
    name = queue.name
    wrong_name = name_problem(name, prefix)
    if wrong_name is not None:
        return Problem(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong_name)
    if name == source.topic:
        words = f"{name} cannot be its own dead-letter queue: name another topic"
        return Problem(ErrorCode.INVALID_CONFIG, words)
    if queue.config is None:
        words = f"there is no topic {name}: create it with {ENABLE}=true"
        return Problem(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)
    if not queue.config.errors_deadletterqueue_group_enable:
        return Problem(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"topic {name} needs the configuration {ENABLE}=true",
        )
    if queue.config.is_compacted:
        words = (
            f"topic {name} is compacted, and letters of one key would replace one another: set"
            " cleanup.policy=delete"
        )
        return Problem(ErrorCode.POLICY_VIOLATION, words)
    return None
