"""What an operator may set of transactions: Kafka's names and defaults, where Kafka has one."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """Limits of one shard."""

    transaction_max_timeout_ms: int = 15 * 60_000
    """transaction.max.timeout.ms: what a client may ask for at most."""
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms: an id that nobody used for so long is forgotten."""
    expiry_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms: how often that is looked at."""
    offsets_partition_count: int = 50
    """offsets.topic.num.partitions: of ``__consumer_offsets``, as it was created."""
    writers_max: int = 10_000
    """Hand-outs to different writers in one transaction."""
    writer_partitions_max: int = 100_000
    """(writer, partition) pairs in one transaction: each costs a marker."""
    retired_queries_max: int = 1_000
    """Of one sink, that are known to be retired; the oldest is forgotten first."""
    record_bytes_max: int = 1_000_000
    """One producer's record lists its partitions; it must fit into a batch of the state topic
    (max.message.bytes, by default 1,048,588).
    """

    def __post_init__(self) -> None:
        for setting in fields(self):
            assert getattr(self, setting.name) > 0, setting.name
