"""What a shard of transactions asks its shell to do, once its log is committed."""

from dataclasses import dataclass

from tidemark.model.topics import TopicPartition

from txn_coordinator.core.requests import Reply


@dataclass(frozen=True, slots=True)
class Answer:
    """``to`` is the ``request_id`` given to ``decide``."""

    to: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Write one producer's marker to each of these partitions, however long it takes, and report
    with ``MarkersWritten``. The same effect may come again (after a reload): markers may be written
    twice. The coordinator epoch that they carry is the shard's owner epoch, which the shell knows.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    prepared_at: int
    """Wall ms of the record that decided; with the producer id it names the transaction, as in
    transactions v1 several have the same epoch.
    """
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """2: the epoch must exceed what the partition has seen (KIP-1228)."""


Effect = Answer | SendMarkers
