"""Settings of one run of the sessions job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_jobs.sessions.frames import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parsed command line."""

    bootstrap_servers: str
    source: str
    form: Format
    checkpoint: str
    sessions_topic: str
    users_topic: str
    name: str
    """Prefix of the sink ids and of the queries' names."""
    gap_s: int = 1_800
    late_s: int = 600
    available_now: bool = False
    tasks: int | None = None
    report: Path | None = None
    report_only: bool = False
    title: str = ""
    source_options: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of TLS and login at Kafka's listeners (tidemark_spark.security)."""
