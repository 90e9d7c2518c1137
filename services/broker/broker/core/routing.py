"""The error for a partition that this broker does not host."""

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import TopicImage


def error_elsewhere(topic: TopicImage, partition: int, broker_id: BrokerId) -> ErrorCode:
    """Return the error for a ``partition`` of a topic in the metadata that is not hosted here."""
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.partitions[partition].leader == broker_id:
        return ErrorCode.KAFKA_STORAGE_ERROR  # assigned here, but no log directory took it
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
