"""Settings of one resharding query."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_jobs.keys import KeyRule
from tidemark_jobs.reshard.partitioners import PartitionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parsed command line."""

    bootstrap_servers: str
    source: str
    target: str
    key: KeyRule
    partitioner: PartitionRule
    checkpoint: str
    group_id: str
    sink_id: str
    dead_letters: str | None = None
    """Topic for records without key or partition. None: such a record ends the query."""
    pin_partitions: bool = False
    tasks: int | None = None
    shuffle: str = "auto"
    """``always``: rows are shuffled by target partition; ``auto``: only where it costs less."""
    available_now: bool = False
    exactly_once: bool = True
    trigger_interval: str = "1 second"
    watch_seconds: int = 5
    """Interval of checks of the number of partitions of the target."""
    metrics_port: int | None = None
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of TLS and login at Kafka's listeners (tidemark_spark.security)."""
