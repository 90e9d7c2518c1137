"""Settings of transactions, with Kafka's names and defaults where Kafka has them."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """Limits of one shard."""

    transaction_max_timeout_ms: int = 15 * 60_000
    """transaction.max.timeout.ms: longest timeout that a client may request."""
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms: an id that is unused for so long is removed."""
    expiry_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms: interval of that check."""
    offsets_partition_count: int = 50
    """offsets.topic.num.partitions: number of partitions of ``__consumer_offsets`` as created."""
    writers_max: int = 10_000
    """Slots of one transaction."""
    writer_partitions_max: int = 100_000
    """(writer, partition) pairs in one transaction: each costs a marker."""
    addition_wait_ms: int = 100
    """Longest time for which an addition waits for the markers of the transaction before. As long
    as a broker repeats one by default (add.partitions.to.txn.retry.backoff.max.ms).
    """
    retired_queries_max: int = 1_000
    """Retired queries of one sink that are kept. The oldest is removed first."""
    record_bytes_max: int = 1_000_000
    """Size of the record of one producer, which lists its partitions. It must fit into a batch of
    the state topic (max.message.bytes, by default 1,048,588).
    """

    def __post_init__(self) -> None:
        for setting in fields(self):
            assert getattr(self, setting.name) > 0, setting.name
