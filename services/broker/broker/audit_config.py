"""Options of a broker's audit, and of the topic of the audit log."""

from pydantic import Field
from tidemark.runtime.audit.config import AuditConfig


class BrokerAuditConfig(AuditConfig):
    """The first broker that writes audit events creates the topic with these settings."""

    audit_topic_num_partitions: int = Field(
        1, ge=1, le=1_000, description="partitions of __audit_log"
    )
    audit_topic_replication_factor: int = Field(
        3,
        ge=1,
        le=100,
        description="replicas of __audit_log; it is not made before there are so many brokers",
    )
    audit_topic_retention_ms: int = Field(
        30 * 24 * 3_600_000,
        ge=-1,
        description="time for which __audit_log keeps events when it is created; -1 is for ever",
    )
