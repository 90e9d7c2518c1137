"""Settings of one offload."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed command line."""

    output: Path
    bootstrap_servers: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    layout: tuple[str, ...] = ("topic", "date")
    offsets_max: int = 1_000_000
    """Offsets of each partition in a round, and the most that is repeated after a crash."""
    rows_max: int = 1_000_000
    compression: str = "zstd"
    text: bool = False
    headers: bool = False
    skip_lost: bool = False
    source_options: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of TLS and login at Kafka's listeners (tidemark_spark.security)."""
