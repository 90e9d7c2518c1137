"""Effects of a shard of transactions, which its shell performs once its log is committed."""

from dataclasses import dataclass

from tidemark.model.topics import TopicPartition

from txn_coordinator.core.requests import Reply


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply to a request. ``to`` is the ``request_id`` given to ``decide``."""

    to: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Write one producer's marker to each of these partitions, however long it takes, and report
    with ``MarkersWritten``. After a reload the same effect may come again, and markers may be
    written twice. Their coordinator epoch is the shard's owner epoch, which the shell adds.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    prepared_at: int
    """Wall ms of the record that decided. With the producer id it identifies the transaction, since
    in transactions v1 several have the same epoch.
    """
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """2: the epoch must exceed what the partition has seen (KIP-1228)."""


Effect = Answer | SendMarkers
