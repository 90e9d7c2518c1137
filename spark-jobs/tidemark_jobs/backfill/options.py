"""Settings of one backfill."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_jobs.keys import KeyRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parsed command line."""

    bootstrap_servers: str
    path: str
    topic: str
    checkpoint: str
    sink_id: str
    form: str = "text"
    key: KeyRule | None = None
    """Format text: rule for the key. None: records have no key."""
    key_column: str | None = None
    """Format parquet: column of the key. None: the column ``key``, if there is one."""
    as_json: bool = False
    keep_partitions: bool = False
    keep_timestamps: bool = False
    files_per_batch: int = 16
    again: bool = False
    """Write all files again, although the sink was written with another checkpoint."""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of TLS and login at Kafka's listeners (tidemark_spark.security)."""
