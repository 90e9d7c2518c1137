"""Options of a broker that may be changed at run time, by the configuration of brokers.

Other options that may be changed so are defaults of topics, the rates of throttled replicas, and
``max.connections`` and ``max.connections.per.ip``.
"""

import sys

from pydantic import Field, field_validator
from tidemark.model.broker_configs import connections_by_address
from tidemark.runtime.service_config import ServiceConfig


class DynamicConfig(ServiceConfig):
    """Options with their values at the start."""

    log_cleaner_backoff_ms: int = Field(
        15_000,
        ge=100,
        description="pause of compaction when no log needs it; may be changed at run time",
    )
    log_cleaner_io_max_bytes_per_second: float = Field(
        sys.float_info.max,
        ge=1,
        description="bytes/s that compaction reads and writes, as an average over each log; may be"
        " changed at run time",
    )
    max_connections_per_ip_overrides: str = Field(
        "",
        description="max.connections.per.ip of single addresses, address:count,...; may be changed"
        " at run time",
    )
    producer_id_expiration_ms: int = Field(
        86_400_000,
        ge=1_000,
        le=2**31 - 1,
        description="an idempotent producer that has not written for this long is forgotten; may be"
        " changed at run time",
    )
    producer_id_expiration_check_interval_ms: int = Field(
        60_000,
        ge=1_000,
        le=2**31 - 1,
        description="interval at which such producers are looked for; may be changed at run time",
    )

    replica_alter_log_dirs_io_max_bytes_per_second: int = Field(
        2**63 - 1,
        ge=1,
        description="bytes/s that moves of replicas between log directories copy, all together; may"
        " be changed at run time",
    )

    @field_validator("max_connections_per_ip_overrides")
    @classmethod
    def _check_overrides(cls, text: str) -> str:
        connections_by_address(text)
        return text
