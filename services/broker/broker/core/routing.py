"""Errors for a partition that this broker does not host or does not lead."""

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import TopicImage

from broker.core.partition import Partition, Refusal
from broker.core.role import NOT_LEADER, other_epoch


def error_elsewhere(topic: TopicImage, partition: int, broker_id: BrokerId) -> ErrorCode:
    """Return the error for a ``partition`` of a topic in the metadata that is not hosted here."""
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.partitions[partition].leader == broker_id:
        return ErrorCode.KAFKA_STORAGE_ERROR  # assigned here, but no log directory took it
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def question_refused(partition: Partition, leader_epoch_expected: int) -> Refusal | None:
    """Return the refusal of a client's read or look-up that names a leader epoch (-1: none), else
    None. As in Kafka, another leader epoch than that of this replica comes before its role.
    """
    refused = partition.epoch_refused(leader_epoch_expected)
    if refused is not NOT_LEADER:
        return refused
    return other_epoch(leader_epoch_expected, partition.leader_epoch) or NOT_LEADER
